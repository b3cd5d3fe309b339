// Helpers for restorations, shared by several views.

/** The running restorations of active tasks; those of standbys never complete. */
export function inProgress(restores) {
  return restores.filter((each) => each.state === "running" && each.kind !== "standby");
}

/** The share of the changelog that has been read, from the start position to the end. */
export function share({ start, at, end }) {
  return end > start ? (at - start) / (end - start) : 1;
}
