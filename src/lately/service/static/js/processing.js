// The cost of processing: rows per second, memory, and seconds per batch. Three small charts.

import { describe } from "./chart.js";
import { byId, showEmpty, setText } from "./dom.js";
import { rowsPerSecond } from "./summary.js";
import { bytes, full, number, axisValue, seconds } from "./format.js";
import { within } from "./range.js";
import { on, state } from "./state.js";
import { axes, downsampled, line, nearest, timeChart, timeTooltip } from "./time_charts.js";

const parts = [
  { id: "rate", name: "rows per second", format: (value) => number(value), of: (run, before, all) => (before || all.length === 1 ? rowsPerSecond(run, before) : null) },
  { id: "memory", name: "memory", format: bytes, of: (run) => run.state_bytes },
  { id: "seconds", name: "seconds per batch", format: seconds, of: (run) => run.seconds },
];

for (const part of parts) {
  part.rows = [];
  part.chart = timeChart(byId(`${part.id}-chart`), () => build(part));
}

function update() {
  const { runs } = state;
  for (const part of parts) {
    const values = runs.map((run, i) => ({ time: run.time, low: null, high: null, value: part.of(run, runs[i - 1], runs) }));
    part.rows = downsampled(within(values));
    const last = part.rows.at(-1)?.value;
    setText(`${part.id}-now`, part.format(last), full(last));
    part.chart.draw();
  }
  showEmpty("processing-empty", runs.length ? "" : "No batch has finished yet.");
}

function build({ name, format, rows }) {
  const option = axes(format, { bare: true, fromZero: true });
  return {
    aria: describe(`${name}, now ${full(rows.at(-1)?.value)}`),
    ...option,
    tooltip: timeTooltip((at) => [[name, full(nearest(rows, at)?.value)]]),
    series: [line(name, rows.map((row) => [axisValue(row.time), row.value]), { more: { areaStyle: { opacity: 0.12 } } })],
  };
}

on("runs range", update);
