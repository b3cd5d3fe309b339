// Light or dark: as the system has it, until somebody chooses.

const KEPT = "millstream-theme";
const system = matchMedia("(prefers-color-scheme: dark)");

export function theme() {
  const chosen = localStorage.getItem(KEPT);
  return chosen ?? (system.matches ? "dark" : "light");
}

export function showTheme() {
  document.documentElement.dataset.theme = theme();
}

export function switchTheme() {
  const next = theme() === "dark" ? "light" : "dark";
  // Who comes back to what the system has follows the system again.
  if (next === (system.matches ? "dark" : "light")) localStorage.removeItem(KEPT);
  else localStorage.setItem(KEPT, next);
  showTheme();
}

/** Tell when the system has other colours. */
export function onSystemTheme(told) {
  system.addEventListener("change", told);
}
