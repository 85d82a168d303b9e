// What the sketches cost: rows a second, memory, and how long a batch takes. Three small charts.

import { described } from "./chart.js";
import { byId, empty, say } from "./dom.js";
import { rateOf } from "./facts.js";
import { bytes, full, number, place, seconds } from "./format.js";
import { within } from "./range.js";
import { on, state } from "./state.js";
import { axes, line, nearest, thinned, timeChart, timeTip } from "./timed.js";

const parts = [
  { id: "rate", name: "rows a second", as: (value) => number(value), of: (run, before, all) => (before || all.length === 1 ? rateOf(run, before) : null) },
  { id: "memory", name: "memory", as: bytes, of: (run) => run.state_bytes },
  { id: "seconds", name: "seconds a batch", as: seconds, of: (run) => run.seconds },
];

for (const part of parts) {
  part.rows = [];
  part.chart = timeChart(byId(`${part.id}-chart`), () => build(part));
}

function update() {
  const { runs } = state;
  for (const part of parts) {
    const values = runs.map((run, i) => ({ time: run.time, low: null, high: null, value: part.of(run, runs[i - 1], runs) }));
    part.rows = thinned(within(values));
    const last = part.rows.at(-1)?.value;
    say(`${part.id}-now`, part.as(last), full(last));
    part.chart.draw();
  }
  empty("sketches-empty", runs.length ? "" : "No batch has been done yet.");
}

function build({ name, as, rows }) {
  const option = axes(as, { bare: true, fromZero: true });
  return {
    aria: described(`${name}, now ${full(rows.at(-1)?.value)}`),
    ...option,
    tooltip: timeTip((at) => [[name, full(nearest(rows, at)?.value)]]),
    series: [line(name, rows.map((row) => [place(row.time), row.value]), { more: { areaStyle: { opacity: 0.12 } } })],
  };
}

on("runs range", update);
