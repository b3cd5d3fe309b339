// The light or dark theme: follows the system until the user chooses one.

const THEME_KEY = "millstream-theme";
const system = matchMedia("(prefers-color-scheme: dark)");

export function theme() {
  const chosen = localStorage.getItem(THEME_KEY);
  return chosen ?? (system.matches ? "dark" : "light");
}

export function showTheme() {
  document.documentElement.dataset.theme = theme();
}

export function switchTheme() {
  const next = theme() === "dark" ? "light" : "dark";
  // If the user chooses the system's theme, the page follows the system again.
  if (next === (system.matches ? "dark" : "light")) localStorage.removeItem(THEME_KEY);
  else localStorage.setItem(THEME_KEY, next);
  showTheme();
}

/** Call a function when the theme of the system changes. */
export function onSystemTheme(callback) {
  system.addEventListener("change", callback);
}
