// The focused element, and whether it looks different than without the focus.
const at = document.activeElement;
if (!at || at === document.body) return null;
const shown = at.matches("input.unseen") ? at.nextElementSibling : at;
const inside = shown.querySelector?.(":scope > rect, :scope > path, :scope > circle");
const looks = (e) => { const s = getComputedStyle(e); return [s.outlineStyle, s.outlineWidth, s.stroke, s.strokeWidth].join(" "); };
const describe = `${at.tagName.toLowerCase()} ${at.getAttribute("aria-label") ?? at.textContent.trim().slice(0, 40)}`;
const box = shown.getBoundingClientRect();
const focused = looks(shown) + (inside && at.matches(".box") ? looks(inside) : "");
at.blur();
const other = looks(shown) + (inside && at.matches(".box") ? looks(inside) : "");
at.focus({ focusVisible: true, preventScroll: true });
return { describe, isSeen: focused !== other && box.width > 0 && box.height > 0 };
