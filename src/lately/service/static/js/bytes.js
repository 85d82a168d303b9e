// The bytes sent in the shown range, compared with sending every row.

import { colours, describe } from "./chart.js";
import { byId, el, showEmpty } from "./dom.js";
import { bytes, full, axisValue } from "./format.js";
import { sentBytes, shareOfRaw, sum } from "./summary.js";
import { within } from "./range.js";
import { on, state } from "./state.js";
import { axes, downsampled, line, nearest, timeChart, timeTooltip } from "./time_charts.js";

let rows = [];        // {time, answers, monitors, everything}: running totals
const chart = timeChart(byId("bytes-chart"), build);

function update() {
  const runs = within(state.runs);
  const total = { answers: 0, monitors: 0, everything: 0 };
  rows = downsampled(runs.map((run) => {
    total.answers += run.shipped_bytes ?? 0;
    total.monitors += run.monitor_bytes ?? 0;
    total.everything += run.everything_bytes ?? 0;
    return { time: run.time, low: null, high: null, ...total };
  }));
  const sent = sentBytes(runs), everything = sum(runs, "everything_bytes");
  showEmpty("bytes-empty", runs.length ? "" : "Nothing has been sent yet.", "bytes-chart", "bytes-summary");
  byId("bytes-summary").replaceChildren(bytes(sent), " ", el("small", {}, everything ? `sent: ${shareOfRaw(sent, everything)} (${bytes(everything)})` : "sent"));
  byId("bytes-summary").title = `${full(sent)} bytes sent; sending every row would take ${full(everything)} bytes`;
  chart.draw();
}

function build() {
  const { accent, muted } = colours();
  const last = rows.at(-1);
  const of = (name) => rows.map((row) => [axisValue(row.time), row[name]]);
  const area = (opacity) => ({ stack: "sent", areaStyle: { color: accent, opacity }, symbol: "none", showSymbol: false });
  return {
    aria: describe(last
      ? `Bytes sent: ${full(last.answers)} for answers, ${full(last.monitors)} for monitors; sending every row would take ${full(last.everything)}`
      : "Nothing has been sent yet"),
    ...axes(bytes, { fromZero: true }),
    tooltip: timeTooltip((at) => {
      const row = nearest(rows, at);
      return row ? [["every row", bytes(row.everything)], ["for answers", bytes(row.answers)], ["for monitors", bytes(row.monitors)]] : [];
    }),
    series: [
      line("every row", of("everything"), { color: muted, type: "dashed" }),
      line("for answers", of("answers"), { more: area(0.35) }),
      line("for monitors", of("monitors"), { opacity: 0.5, more: area(0.15) }),
    ],
  };
}

on("runs range", update);
