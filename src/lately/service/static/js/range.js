// The range of time that all charts over time show: the most recent period, everything, or what the user selected in a chart.

import { byId, el } from "./dom.js";
import { clock, milliseconds, axisValue } from "./format.js";
import { isInteger, newestRun, on, state, emit } from "./state.js";

let range = { last: null, label: "15m" };       // {last: length in time, null for all} or {from, to}

/** The ranges to choose from: minutes, or parts of the window if times are integers. */
function choices() {
  if (!isInteger()) return [["5m", 3e5], ["15m", 9e5], ["1h", 3.6e6], ["All", null]];
  const window = milliseconds(state.about.window.length);
  const parts = [...new Set([window / 12, window / 4, window].map(Math.round))].filter((part) => part > 0);
  return [...parts.map((part) => [String(part), part]), ["All", null]];
}

/** [from, to] as axis values; null before the first batch. */
export function bounds() {
  const last = newestRun();
  if (!last || last.time === null) return null;
  if ("from" in range) return [range.from, range.to];
  const to = axisValue(last.time), first = axisValue(state.runs.find((run) => run.time !== null).time);
  return [range.last === null ? first : Math.max(first, to - range.last), to];
}

/** The rows in the range. */
export function within(rows) {
  const shown = bounds();
  if (!shown) return [];
  return rows.filter((row) => row.time !== null && axisValue(row.time) >= shown[0] && axisValue(row.time) <= shown[1]);
}

/** Show a range that the user selected in a chart. */
export function select(from, to) {
  if (!(to > from)) return;
  range = { from, to };
  draw();
  emit("range");
}

function draw() {
  const isSelected = "from" in range;
  const buttons = choices().map(([label, last]) => {
    const button = el("button", { type: "button", "aria-pressed": String(!isSelected && range.label === label) }, label);
    button.onclick = () => { range = { last, label }; draw(); emit("range"); };
    return button;
  });
  if (isSelected) {
    const text = (at) => clock(isInteger() ? Math.round(at) : new Date(at).toISOString());
    const button = el("button", { type: "button", "aria-pressed": "true", title: "Follow the stream again" }, `${text(range.from)} – ${text(range.to)} ✕`);
    button.onclick = () => { const [label, last] = choices().at(-1); range = { last, label }; draw(); emit("range"); };
    buttons.push(button);
  }
  byId("ranges").replaceChildren(...buttons);
}

on("about", () => {
  const [label, last] = choices().find(([name]) => name === range.label) ?? choices()[1] ?? choices()[0];
  if (!("from" in range)) range = { last, label };
  draw();
});
