// Quantiles over time, each with a band between its bounds. All in one colour, which is stronger for a higher share.

import { colours, describe } from "./chart.js";
import { byId, showEmpty, setOptions, setText } from "./dom.js";
import { between, full, number, durationText } from "./format.js";
import { historyOf } from "./history.js";
import { within } from "./range.js";
import { answersTo, on, queriesOf, sitesOf, state } from "./state.js";
import { axes, banded, downsampled, nearest, timeChart, timeTooltip } from "./time_charts.js";

let lines = [];       // [{name, rows}], the highest share first
const chart = timeChart(byId("quantiles-chart"), build);

/** "p99" for 0.99, "median" for 0.5. */
export function shareName(q) {
  return Number(q) === 0.5 ? "median" : `p${Number((Number(q) * 100).toPrecision(6))}`;
}

function update() {
  if (!state.about || !state.answers) return;
  const queries = queriesOf("quantiles");
  if (!queries.length) {
    showEmpty("quantiles-empty", 'This pipeline has no query for quantiles. Add `[[queries]]` with `kind = "quantiles"`.', "quantiles-chart");
    return;
  }
  const querySelect = byId("quantiles-query"), siteSelect = byId("quantiles-site");
  setOptions(querySelect, queries.map((query) => [query.name, query.name]));
  const sites = sitesOf(querySelect.value);
  setOptions(siteSelect, sites.map((name) => [name ?? "", name ?? "all sites"]));
  const site = sites.includes(siteSelect.value || null) ? siteSelect.value || null : sites[0] ?? null;
  const items = answersTo(querySelect.value, site).map((row) => row.item).sort((a, b) => b - a);
  lines = items.map((item) => ({ name: shareName(item), rows: downsampled(within(historyOf(querySelect.value, item, site))) }));
  showEmpty("quantiles-empty", items.length ? "" : "No values yet.", "quantiles-chart");
  const query = queries.find((row) => row.name === querySelect.value);
  const values = lines.map(({ name, rows }) => `${name} ${number(rows.at(-1)?.value)}`).reverse().join(" · ");
  setText("quantiles-foot", `${values} in the last ${durationText(query.last ?? state.about.window.length)}`);
  chart.draw();
}

function build() {
  const { text } = colours();
  const series = lines.flatMap(({ name, rows }, i) => {
    const parts = banded(name, rows, { opacity: 1 - (0.62 * i) / Math.max(1, lines.length - 1), band: 0.16 });
    parts.at(-1).endLabel = { show: true, formatter: name, color: text, fontSize: 12, distance: 6 };
    return parts;
  });
  const option = axes(number, { fromZero: true });
  return {
    aria: describe(`Quantiles over time: ${lines.map(({ name, rows }) => `${name} ${full(rows.at(-1)?.value)}`).join(", ")}`),
    ...option,
    grid: { ...option.grid, right: 54 },
    tooltip: timeTooltip((at) => lines.map(({ name, rows }) => {
      const row = nearest(rows, at);
      return [name, full(row?.value), row ? between(row) : ""];
    })),
    series,
  };
}

for (const id of ["quantiles-query", "quantiles-site"]) byId(id).addEventListener("change", update);
on("about answers history range", update);
