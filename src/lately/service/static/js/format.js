// Numbers, bytes and times as people read them. The full value is for the tooltip.

const STEPS = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "K"]];

function three(value) {
  return Number(value.toPrecision(3)).toLocaleString("en-US", { maximumFractionDigits: 3 });
}

/** 12.3 K, 4.56 M; small numbers as they are. */
export function number(value, unit = "") {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  for (const [step, name] of STEPS) {
    if (size >= step * 0.9995) return `${three(value / step)} ${name}${unit}`;
  }
  const text = Number.isInteger(value) ? String(value) : three(value);
  return unit ? `${text} ${unit}` : text;
}

export const bytes = (value) => number(value === null || value === undefined ? value : Math.round(value), "B").replace("K", "k");

/** Every digit: 12,345,678.9 */
export function full(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "not known";
  const size = Math.abs(value);
  return value.toLocaleString("en-US", { maximumFractionDigits: size >= 1000 ? 1 : size >= 1 ? 3 : 6 });
}

/** "1 site", "8 sites". */
export const many = (count, one, more = `${one}s`) => `${full(count)} ${count === 1 ? one : more}`;

export function share(part) {
  if (!Number.isFinite(part)) return "–";
  if (part > 0 && part < 0.001) return "< 0.1 %";
  return `${(part * 100).toFixed(part < 0.0995 ? 1 : 0)} %`;
}

/** 0.99 as "99 %", 0.995 as "99.5 %". */
export const percent = (part) => `${Number((part * 100).toPrecision(4))} %`;

export function seconds(value) {
  if (!Number.isFinite(value)) return "–";
  return value < 1 ? `${Math.round(value * 1000)} ms` : `${three(value)} s`;
}

const UNITS = [["d", 86_400], ["h", 3_600], ["min", 60], ["s", 1]];

/** How long, roughly: "3 s", "4 min", "2 h", "12 d". */
export function span(value) {
  const size = Math.max(0, value);
  for (const [name, length] of UNITS) {
    if (size >= length || name === "s") return `${number(Math.floor(size / length))} ${name}`;
  }
}

const WORDS = { ms: "millisecond", s: "second", m: "minute", min: "minute", h: "hour", d: "day", w: "week" };

/** "10m" as "10 minutes", "1h 30m" as "1 hour 30 minutes"; plain integers stay. */
export function spelled(length) {
  return String(length).replace(/(\d+)\s*(ms|min|[smhdw])(?![a-z])/g, (_, count, unit) =>
    `${count} ${WORDS[unit]}${count === "1" ? "" : "s"}`);
}

const LENGTHS = { ms: 1, s: 1e3, m: 6e4, min: 6e4, h: 3.6e6, d: 8.64e7, w: 6.048e8 };

/** "1h 30m" in milliseconds; integers as they are, for streams whose times are integers. */
export function length(text) {
  if (typeof text === "number") return text;
  let sum = 0;
  for (const [, count, unit] of String(text ?? "").matchAll(/(\d+)\s*(ms|min|[smhdw])(?![a-z])/g)) sum += count * LENGTHS[unit];
  return sum;
}

/** A time of the stream as a number for axes: milliseconds since 1970, or the integer that it is. */
export const place = (time) => (typeof time === "number" ? time : Date.parse(time));

const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { weekday: "short", day: "numeric", month: "short", year: "numeric" });

/** The time of day here; integers with all their digits. */
export function clock(time, whole = false) {
  if (time === null || time === undefined) return "–";
  if (typeof time === "number") return String(time);
  const date = new Date(time);
  return whole ? `${DAY.format(date)}, ${CLOCK.format(date)}` : CLOCK.format(date);
}

export const day = (time) => (typeof time === "string" ? DAY.format(new Date(time)) : "");

/** Two bounds as texts. Bounds that differ never look alike: those that do when they are short are told in full. */
export function apart(low, high, as = number) {
  for (const shown of [as, full, String]) {
    const texts = [shown(low), shown(high)];
    if (texts[0] !== texts[1] || low === high) return texts;
  }
}

/** "4,790 – 4,815", or what is known of it. */
export function between(row, as = number) {
  const known = (value) => value !== null && value !== undefined;
  if (known(row.low) && row.low === row.high) return "exact";
  if (known(row.low) && known(row.high)) return apart(row.low, row.high, as).join(" – ");
  if (known(row.low)) return `at least ${as(row.low)}`;
  return known(row.high) ? `at most ${as(row.high)}` : "–";
}
