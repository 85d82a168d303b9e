// The trend of one answer: its value over time, a band between its bounds, and the alerts of that time.

import { colours, describe } from "./chart.js";
import { byId, el, showEmpty, setOptions, setText } from "./dom.js";
import { between, full, number, percent, axisValue, durationText } from "./format.js";
import { historyOf } from "./history.js";
import { bounds, within } from "./range.js";
import { answersTo, isFiring, on, queriesOf, sitesOf, state } from "./state.js";
import { axes, banded, downsampled, HAS_MOUSE, nearest, timeChart, timeTooltip } from "./time_charts.js";

let picked = null;        // {query, item, site}
let rows = [];
const chart = timeChart(byId("trend-chart"), build);
const ids = { query: "trend-query", item: "trend-item", site: "trend-site" };

/** The threshold of a monitor, if the answer is one of a monitor; otherwise null. */
function thresholdOf(name) {
  const monitor = state.about?.monitors.find((row) => row.name === name);
  return monitor?.above ?? monitor?.below ?? monitor?.tau ?? null;
}

function choose() {
  const names = [...new Set((state.answers?.rows ?? []).map((row) => row.query))];
  if (!names.length) return;
  if (!picked) {
    const query = queriesOf("top").find((row) => row.by !== "site" && names.includes(row.name))?.name ?? names[0];
    picked = { query, site: sitesOf(query)[0] ?? null };
  }
  setOptions(byId(ids.query), (names.includes(picked.query) ? names : [picked.query, ...names]).map((name) => [name, name]), picked.query);
  const sites = sitesOf(picked.query);
  if (sites.length && !sites.includes(picked.site)) picked.site = sites[0];
  setOptions(byId(ids.site), sites.map((site) => [site ?? "", site ?? "all sites"]), picked.site ?? "");
  const answers = answersTo(picked.query, picked.site);
  if (picked.item === undefined) picked.item = [...answers].sort((a, b) => b.value - a.value)[0]?.item ?? null;
  const items = answers.map((row) => row.item);
  if (!items.includes(picked.item) && picked.item !== null) items.push(picked.item);      // it is no longer in the answer, but its history is shown
  setOptions(byId(ids.item), items.map((item) => [item ?? "", item ?? "value"]), picked.item ?? "");
}

function update() {
  choose();
  rows = picked ? downsampled(within(historyOf(picked.query, picked.item, picked.site))) : [];
  showEmpty("trend-empty", picked || !state.answers ? "" : "No answers yet. They arrive with the first batch.", "trend-chart");
  const last = rows.at(-1);
  byId("trend-now").replaceChildren(...(last ? [number(last.value), " ", el("small", {}, between(last))] : []));
  byId("trend-now").title = last ? `${full(last.value)} (${between(last, full)})` : "";
  const query = state.about?.queries.find((row) => row.name === picked?.query);
  const range = query ? `In the last ${durationText(query.last ?? state.about.window.length)}. ` : "";
  const confidence = last ? `The true value is in the band with a probability of at least ${percent(last.confidence)}. ` : "";
  setText("trend-foot", `${range}${last?.confidence === 1 ? "Exact. " : confidence}${HAS_MOUSE ? "Drag over the chart to zoom in." : ""}`);
  chart.draw();
}

function marks() {
  const { alarm, muted } = colours();
  const shown = bounds();
  const firing = within(state.alerts).filter((row) => isFiring(row) && shown).map((row) => ({ xAxis: axisValue(row.time), name: row.monitor }));
  const threshold = thresholdOf(picked?.query);
  const line = threshold === null ? [] : [{ yAxis: threshold, name: "threshold", lineStyle: { color: muted, type: "solid" } }];
  return {
    markLine: {
      silent: true, symbol: "none", animation: false, lineStyle: { color: alarm, type: "dashed", opacity: 0.75 },
      label: { position: "insideEndTop", color: muted, fontSize: 11, formatter: ({ name }) => name, show: firing.length < 6 },
      data: [...line, ...firing],
    },
  };
}

function build() {
  if (!picked) return null;
  const title = picked.item ?? picked.query;
  const series = banded(title, rows);
  Object.assign(series.at(-1), marks());
  const last = rows.at(-1);
  return {
    aria: describe(last
      ? `${picked.query}, ${title}: ${rows.length} values, now ${full(last.value)} (${between(last, full)})`
      : "No values in this range"),
    ...axes(),
    tooltip: timeTooltip((at) => {
      const row = nearest(rows, at);
      return row ? [[title, full(row.value), ""], ["bounds", between(row, full), ""], ["confidence", percent(row.confidence), ""]] : [];
    }),
    series,
  };
}

byId(ids.query).addEventListener("change", (event) => { picked = { query: event.target.value, site: sitesOf(event.target.value)[0] ?? null }; update(); });
byId(ids.site).addEventListener("change", (event) => { picked = { ...picked, site: event.target.value || null, item: undefined }; update(); });
byId(ids.item).addEventListener("change", (event) => { picked = { ...picked, item: event.target.value || null }; update(); });
on("picked", (chosen) => {
  picked = chosen;
  update();
  byId("trend-chart").scrollIntoView({ block: "nearest", behavior: "smooth" });
});
on("about answers history range alerts", update);
