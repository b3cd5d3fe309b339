// What is known of restorations, for all views that show them.

/** Those that tasks wait for; a standby is never done. */
export function underWay(restores) {
  return restores.filter((each) => each.state === "running" && each.kind !== "standby");
}

/** How much of what there was to read at the beginning is read. */
export function share({ start, at, end }) {
  return end > start ? (at - start) / (end - start) : 1;
}
