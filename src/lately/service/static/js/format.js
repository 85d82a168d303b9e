// Numbers, bytes and times as short texts for people. Tooltips show full values.

const STEPS = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "K"]];

function threeDigits(value) {
  return Number(value.toPrecision(3)).toLocaleString("en-US", { maximumFractionDigits: 3 });
}

/** "12.3 K", "4.56 M"; numbers below 1,000 without a unit. */
export function number(value, unit = "") {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  for (const [step, name] of STEPS) {
    if (size >= step * 0.9995) return `${threeDigits(value / step)} ${name}${unit}`;
  }
  const text = Number.isInteger(value) ? String(value) : threeDigits(value);
  return unit ? `${text} ${unit}` : text;
}

export const bytes = (value) => number(value === null || value === undefined ? value : Math.round(value), "B").replace("K", "k");

/** All digits: "12,345,678.9" */
export function full(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "unknown";
  const size = Math.abs(value);
  return value.toLocaleString("en-US", { maximumFractionDigits: size >= 1000 ? 1 : size >= 1 ? 3 : 6 });
}

/** "1 site", "8 sites". */
export const plural = (count, singular, many = `${singular}s`) => `${full(count)} ${count === 1 ? singular : many}`;

export function share(part) {
  if (!Number.isFinite(part)) return "–";
  if (part > 0 && part < 0.001) return "< 0.1 %";
  return `${(part * 100).toFixed(part < 0.0995 ? 1 : 0)} %`;
}

/** 0.99 as "99 %", 0.995 as "99.5 %". */
export const percent = (part) => `${Number((part * 100).toPrecision(4))} %`;

export function seconds(value) {
  if (!Number.isFinite(value)) return "–";
  return value < 1 ? `${Math.round(value * 1000)} ms` : `${threeDigits(value)} s`;
}

const UNITS = [["d", 86_400], ["h", 3_600], ["min", 60], ["s", 1]];

/** Seconds, rounded down to one unit: "3 s", "4 min", "2 h", "12 d". */
export function span(value) {
  const size = Math.max(0, value);
  for (const [name, length] of UNITS) {
    if (size >= length || name === "s") return `${number(Math.floor(size / length))} ${name}`;
  }
}

const WORDS = { ms: "millisecond", s: "second", m: "minute", min: "minute", h: "hour", d: "day", w: "week" };

/** "10m" as "10 minutes", "1h 30m" as "1 hour 30 minutes"; integers are not changed. */
export function durationText(length) {
  return String(length).replace(/(\d+)\s*(ms|min|[smhdw])(?![a-z])/g, (_, count, unit) =>
    `${count} ${WORDS[unit]}${count === "1" ? "" : "s"}`);
}

const LENGTHS = { ms: 1, s: 1e3, m: 6e4, min: 6e4, h: 3.6e6, d: 8.64e7, w: 6.048e8 };

/** "1h 30m" in milliseconds; integers, of streams whose times are integers, are not changed. */
export function milliseconds(text) {
  if (typeof text === "number") return text;
  let sum = 0;
  for (const [, count, unit] of String(text ?? "").matchAll(/(\d+)\s*(ms|min|[smhdw])(?![a-z])/g)) sum += count * LENGTHS[unit];
  return sum;
}

/** A time of the stream as a number for an axis: milliseconds since 1970, or the integer itself. */
export const axisValue = (time) => (typeof time === "number" ? time : Date.parse(time));

const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { weekday: "short", day: "numeric", month: "short", year: "numeric" });

/** The local time of day, with the date on request; integers with all digits. */
export function clock(time, withDate = false) {
  if (time === null || time === undefined) return "–";
  if (typeof time === "number") return String(time);
  const date = new Date(time);
  return withDate ? `${DAY.format(date)}, ${CLOCK.format(date)}` : CLOCK.format(date);
}

export const day = (time) => (typeof time === "string" ? DAY.format(new Date(time)) : "");

/** Two bounds as texts, with as many digits as they need to differ if the bounds do. */
export function boundTexts(low, high, as = number) {
  for (const format of [as, full, String]) {
    const texts = [format(low), format(high)];
    if (texts[0] !== texts[1] || low === high) return texts;
  }
}

/** "4,790 – 4,815", "exact", or the bound that is known. */
export function between(row, as = number) {
  const known = (value) => value !== null && value !== undefined;
  if (known(row.low) && row.low === row.high) return "exact";
  if (known(row.low) && known(row.high)) return boundTexts(row.low, row.high, as).join(" – ");
  if (known(row.low)) return `at least ${as(row.low)}`;
  return known(row.high) ? `at most ${as(row.high)}` : "–";
}
