// Which time the charts show: the last so long, all, or what was brushed over. All charts of time share it.

import { byId, el } from "./dom.js";
import { clock, length, place } from "./format.js";
import { isInteger, newest, on, state, tell } from "./state.js";

let range = { last: null, label: "15m" };       // {last: length or null for all} or {from, to}

/** What can be picked. Where times are plain integers minutes mean nothing: parts of the window then. */
function choices() {
  if (!isInteger()) return [["5m", 3e5], ["15m", 9e5], ["1h", 3.6e6], ["All", null]];
  const whole = length(state.about.window.length);
  const parts = [...new Set([whole / 12, whole / 4, whole].map(Math.round))].filter((part) => part > 0);
  return [...parts.map((part) => [String(part), part]), ["All", null]];
}

/** [from, to] as places on the axis; null before there is anything. */
export function bounds() {
  const last = newest();
  if (!last || last.time === null) return null;
  if ("from" in range) return [range.from, range.to];
  const to = place(last.time), first = place(state.runs.find((run) => run.time !== null).time);
  return [range.last === null ? first : Math.max(first, to - range.last), to];
}

/** The rows whose time is shown. */
export function within(rows) {
  const shown = bounds();
  if (!shown) return [];
  return rows.filter((row) => row.time !== null && place(row.time) >= shown[0] && place(row.time) <= shown[1]);
}

export function brushed(from, to) {
  if (!(to > from)) return;
  range = { from, to };
  draw();
  tell("range");
}

function draw() {
  const picked = "from" in range;
  const buttons = choices().map(([label, last]) => {
    const button = el("button", { type: "button", "aria-pressed": String(!picked && range.label === label) }, label);
    button.onclick = () => { range = { last, label }; draw(); tell("range"); };
    return button;
  });
  if (picked) {
    const told = (at) => clock(isInteger() ? Math.round(at) : new Date(at).toISOString());
    const button = el("button", { type: "button", "aria-pressed": "true", title: "Follow the stream again" }, `${told(range.from)} – ${told(range.to)} ✕`);
    button.onclick = () => { const [label, last] = choices().at(-1); range = { last, label }; draw(); tell("range"); };
    buttons.push(button);
  }
  byId("ranges").replaceChildren(...buttons);
}

on("about", () => {
  const [label, last] = choices().find(([name]) => name === range.label) ?? choices()[1] ?? choices()[0];
  if (!("from" in range)) range = { last, label };
  draw();
});
