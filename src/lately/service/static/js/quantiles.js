// Quantiles over time, each with its band. One colour; the higher the share, the stronger.

import { colours, described } from "./chart.js";
import { byId, empty, options, say } from "./dom.js";
import { between, full, number, spelled } from "./format.js";
import { historyOf } from "./history.js";
import { within } from "./range.js";
import { answersTo, on, queriesOf, sitesOf, state } from "./state.js";
import { axes, banded, nearest, thinned, timeChart, timeTip } from "./timed.js";

let lines = [];       // [{name, rows}], the highest share first
const chart = timeChart(byId("quantiles-chart"), build);

/** 0.99 is p99, 0.5 the median. */
export function shareName(q) {
  return Number(q) === 0.5 ? "median" : `p${Number((Number(q) * 100).toPrecision(6))}`;
}

function update() {
  if (!state.about || !state.answers) return;
  const queries = queriesOf("quantiles");
  if (!queries.length) {
    empty("quantiles-empty", 'No query of this pipeline asks for quantiles. Add one: `[[queries]]` with `kind = "quantiles"`', "quantiles-chart");
    return;
  }
  const chosen = byId("quantiles-query"), site = byId("quantiles-site");
  options(chosen, queries.map((query) => [query.name, query.name]));
  const sites = sitesOf(chosen.value);
  options(site, sites.map((one) => [one ?? "", one ?? "all sites"]));
  const at = sites.includes(site.value || null) ? site.value || null : sites[0] ?? null;
  const items = answersTo(chosen.value, at).map((row) => row.item).sort((a, b) => b - a);
  lines = items.map((item) => ({ name: shareName(item), rows: thinned(within(historyOf(chosen.value, item, at))) }));
  empty("quantiles-empty", items.length ? "" : "No values yet.", "quantiles-chart");
  const query = queries.find((one) => one.name === chosen.value);
  const told = lines.map(({ name, rows }) => `${name} ${number(rows.at(-1)?.value)}`).reverse().join(" · ");
  say("quantiles-foot", `${told} in the last ${spelled(query.last ?? state.about.window.length)}`);
  chart.draw();
}

function build() {
  const { text } = colours();
  const series = lines.flatMap(({ name, rows }, i) => {
    const made = banded(name, rows, { opacity: 1 - (0.62 * i) / Math.max(1, lines.length - 1), band: 0.16 });
    made.at(-1).endLabel = { show: true, formatter: name, color: text, fontSize: 12, distance: 6 };
    return made;
  });
  const made = axes(number, { fromZero: true });
  return {
    aria: described(`Quantiles over time: ${lines.map(({ name, rows }) => `${name} ${full(rows.at(-1)?.value)}`).join(", ")}`),
    ...made,
    grid: { ...made.grid, right: 54 },
    tooltip: timeTip((at) => lines.map(({ name, rows }) => {
      const row = nearest(rows, at);
      return [name, full(row?.value), row ? between(row) : ""];
    })),
    series,
  };
}

for (const id of ["quantiles-query", "quantiles-site"]) byId(id).addEventListener("change", update);
on("about answers history range", update);
