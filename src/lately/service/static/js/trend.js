// The trend of any answer: its value over time, in the band between its bounds, with the alerts of that time.

import { colours, described } from "./chart.js";
import { byId, el, empty, options, say } from "./dom.js";
import { between, full, number, percent, place, spelled } from "./format.js";
import { historyOf } from "./history.js";
import { bounds, within } from "./range.js";
import { answersTo, isFiring, on, queriesOf, sitesOf, state } from "./state.js";
import { axes, banded, FINE, nearest, thinned, timeChart, timeTip } from "./timed.js";

let picked = null;        // {query, item, site}
let rows = [];
const chart = timeChart(byId("trend-chart"), build);
const ids = { query: "trend-query", item: "trend-item", site: "trend-site" };

/** The line that a monitor of this name watches, if the answer is one of a monitor's. */
function lineOf(query) {
  const watch = state.about?.monitors.find((one) => one.name === query);
  return watch?.above ?? watch?.below ?? watch?.tau ?? null;
}

function choose() {
  const names = [...new Set((state.answers?.rows ?? []).map((row) => row.query))];
  if (!names.length) return;
  if (!picked) {
    const query = queriesOf("top").find((one) => one.by !== "site" && names.includes(one.name))?.name ?? names[0];
    picked = { query, site: sitesOf(query)[0] ?? null };
  }
  options(byId(ids.query), (names.includes(picked.query) ? names : [picked.query, ...names]).map((name) => [name, name]), picked.query);
  const sites = sitesOf(picked.query);
  if (sites.length && !sites.includes(picked.site)) picked.site = sites[0];
  options(byId(ids.site), sites.map((one) => [one ?? "", one ?? "all sites"]), picked.site ?? "");
  const found = answersTo(picked.query, picked.site);
  if (picked.item === undefined) picked.item = [...found].sort((a, b) => b.value - a.value)[0]?.item ?? null;
  const items = found.map((row) => row.item);
  if (!items.includes(picked.item) && picked.item !== null) items.push(picked.item);      // it left the top, its past is there
  options(byId(ids.item), items.map((item) => [item ?? "", item ?? "its value"]), picked.item ?? "");
}

function update() {
  choose();
  rows = picked ? thinned(within(historyOf(picked.query, picked.item, picked.site))) : [];
  empty("trend-empty", picked || !state.answers ? "" : "No answers yet: they come with the first batch.", "trend-chart");
  const last = rows.at(-1);
  byId("trend-now").replaceChildren(...(last ? [number(last.value), " ", el("small", {}, between(last))] : []));
  byId("trend-now").title = last ? `${full(last.value)} (${between(last, full)})` : "";
  const query = state.about?.queries.find((one) => one.name === picked?.query);
  const over = query ? `In the last ${spelled(query.last ?? state.about.window.length)}. ` : "";
  const sure = last ? `The band holds the true value with a probability of ${percent(last.confidence)}. ` : "";
  say("trend-foot", `${over}${last?.confidence === 1 ? "Exact. " : sure}${FINE ? "Drag over the chart to look closer." : ""}`);
  chart.draw();
}

function marks() {
  const { alarm, muted } = colours();
  const shown = bounds();
  const raised = within(state.alerts).filter((row) => isFiring(row) && shown).map((row) => ({ xAxis: place(row.time), name: row.monitor }));
  const watched = lineOf(picked?.query);
  const line = watched === null ? [] : [{ yAxis: watched, name: "line", lineStyle: { color: muted, type: "solid" } }];
  return {
    markLine: {
      silent: true, symbol: "none", animation: false, lineStyle: { color: alarm, type: "dashed", opacity: 0.75 },
      label: { position: "insideEndTop", color: muted, fontSize: 11, formatter: ({ name }) => name, show: raised.length < 6 },
      data: [...line, ...raised],
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
    aria: described(last
      ? `${picked.query}, ${title}: ${rows.length} values, now ${full(last.value)} (${between(last, full)})`
      : "No values in this range"),
    ...axes(),
    tooltip: timeTip((at) => {
      const row = nearest(rows, at);
      return row ? [[title, full(row.value), ""], ["bounds", between(row, full), ""], ["sure", percent(row.confidence), ""]] : [];
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
