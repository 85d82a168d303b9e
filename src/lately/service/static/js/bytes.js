// What was sent so far, and what sending every row would have been, over the time that is shown.

import { colours, described } from "./chart.js";
import { byId, el, empty } from "./dom.js";
import { bytes, full, place } from "./format.js";
import { saving, sentBytes, sum } from "./facts.js";
import { within } from "./range.js";
import { on, state } from "./state.js";
import { axes, line, nearest, thinned, timeChart, timeTip } from "./timed.js";

let rows = [];        // {time, answers, monitors, everything}, sums since the first
const chart = timeChart(byId("bytes-chart"), build);

function update() {
  const runs = within(state.runs);
  const total = { answers: 0, monitors: 0, everything: 0 };
  rows = thinned(runs.map((run) => {
    total.answers += run.shipped_bytes ?? 0;
    total.monitors += run.monitor_bytes ?? 0;
    total.everything += run.everything_bytes ?? 0;
    return { time: run.time, low: null, high: null, ...total };
  }));
  const sent = sentBytes(runs), everything = sum(runs, "everything_bytes");
  empty("bytes-empty", runs.length ? "" : "Nothing was sent yet.", "bytes-chart", "bytes-said");
  byId("bytes-said").replaceChildren(bytes(sent), " ", el("small", {}, everything ? `sent; every row would be ${bytes(everything)}: ${saving(sent, everything)}` : "sent"));
  byId("bytes-said").title = `${full(sent)} bytes sent, ${full(everything)} bytes for every row`;
  chart.draw();
}

function build() {
  const { accent, muted } = colours();
  const last = rows.at(-1);
  const of = (name) => rows.map((row) => [place(row.time), row[name]]);
  const area = (opacity) => ({ stack: "sent", areaStyle: { color: accent, opacity }, symbol: "none", showSymbol: false });
  return {
    aria: described(last
      ? `Bytes sent: ${full(last.answers)} for answers, ${full(last.monitors)} for monitors; every row would be ${full(last.everything)}`
      : "Nothing was sent yet"),
    ...axes(bytes, { fromZero: true }),
    tooltip: timeTip((at) => {
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
