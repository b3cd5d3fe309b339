// Formatting of numbers and times.

const NARROW = " ";
const DASH = "–";

/** 1234567 → "1,234,567". */
export function count(value) {
  if (value === null || value === undefined) return DASH;
  return Math.round(value).toLocaleString("en-US");
}

/** 1234567 → "1.23 M"; three significant digits. */
export function short(value) {
  if (value === null || value === undefined) return DASH;
  const size = Math.abs(value);
  if (size < 10) return trimmed(value, size && size < 1 ? 2 : 1);
  if (size < 1000) return String(Math.round(value));
  for (const [unit, one] of [["k", 1e3], ["M", 1e6], ["G", 1e9], ["T", 1e12]]) {
    const scaled = value / one;
    if (Math.abs(scaled) < 999.5 || unit === "T") {
      return `${trimmed(scaled, Math.abs(scaled) < 10 ? 2 : Math.abs(scaled) < 100 ? 1 : 0)}${NARROW}${unit}`;
    }
  }
  return String(value);
}

/** Records per second. */
export function rate(value) {
  return value === null || value === undefined ? DASH : `${short(value)}/s`;
}

/** 1536 → "1.5 KiB". */
export function bytes(value) {
  if (value === null || value === undefined) return DASH;
  let scaled = value;
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (Math.abs(scaled) < 1024) return `${trimmed(scaled, unit === "B" || scaled >= 100 ? 0 : 1)}${NARROW}${unit}`;
    scaled /= 1024;
  }
  return `${trimmed(scaled, 1)}${NARROW}TiB`;
}

/** 0.5 → "50 %". */
export function percent(share) {
  return share === null || share === undefined ? DASH : `${Math.floor(share * 100)}${NARROW}%`;
}

/** Milliseconds as "340 ms", "12.4 s", "3 min 05 s", "2 h 10 min", "3 d 4 h". */
export function duration(ms) {
  if (ms === null || ms === undefined) return DASH;
  if (ms < 1000) return `${Math.max(0, Math.round(ms))}${NARROW}ms`;
  const s = ms / 1000;
  if (s < 60) return `${trimmed(s, s < 10 ? 1 : 0)}${NARROW}s`;
  if (s < 3600) return `${Math.floor(s / 60)}${NARROW}min ${String(Math.floor(s % 60)).padStart(2, "0")}${NARROW}s`;
  if (s < 86400) return `${Math.floor(s / 3600)}${NARROW}h ${Math.floor((s % 3600) / 60)}${NARROW}min`;
  return `${Math.floor(s / 86400)}${NARROW}d ${Math.floor((s % 86400) / 3600)}${NARROW}h`;
}

/** "just now", "12 s ago", "3 min ago". */
export function ago(atMs, nowMs) {
  const past = nowMs - atMs;
  if (past < 2000) return "just now";
  if (past < 60_000) return `${Math.floor(past / 1000)}${NARROW}s ago`;
  if (past < 3_600_000) return `${Math.floor(past / 60_000)}${NARROW}min ago`;
  if (past < 86_400_000) return `${Math.floor(past / 3_600_000)}${NARROW}h ago`;
  return `${Math.floor(past / 86_400_000)}${NARROW}d ago`;
}

/** The local time of day. */
export function clock(atMs, withMs = false) {
  const at = new Date(atMs);
  const two = (number) => String(number).padStart(2, "0");
  const time = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  return withMs ? `${time}.${String(at.getMilliseconds()).padStart(3, "0")}` : time;
}

/** Date and time, to the millisecond. */
export function moment(atMs) {
  const at = new Date(atMs);
  const two = (number) => String(number).padStart(2, "0");
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${clock(atMs, true)}`;
}

/** "1 thread", "2 threads". */
export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

/** "PENDING_SHUTDOWN" → "Pending shutdown". */
export function stateText(name) {
  const words = name.replaceAll("_", " ").toLowerCase();
  return words[0].toUpperCase() + words.slice(1);
}

/** Shorten a name in the middle, where generated names differ least. */
export function shortened(name, most) {
  if (name.length <= most) return name;
  const tail = Math.floor((most - 1) / 2);
  return `${name.slice(0, most - 1 - tail)}…${name.slice(-tail)}`;
}

/** A value of a store on one line. */
export function valueText(value) {
  return typeof value === "string" ? value : JSON.stringify(value);
}

function trimmed(value, digits) {
  const text = value.toFixed(digits);
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}
