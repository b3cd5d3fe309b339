// Helpers for restorations, shared by several views.

/** Running restorations that tasks wait for; standbys never complete. */
export function inProgress(restores) {
  return restores.filter((each) => each.state === "running" && each.kind !== "standby");
}

/** The share that has been read of what was to be read at the start. */
export function share({ start, at, end }) {
  return end > start ? (at - start) / (end - start) : 1;
}
