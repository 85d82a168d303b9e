// Hot keys: a bar for each key of the newest answers, with the bounds of its count. A click shows the key's trend.

import { Chart, colours, describe, tooltip } from "./chart.js";
import { byId, el, showEmpty, setOptions, setText } from "./dom.js";
import { between, clock, full, number, percent, durationText } from "./format.js";
import { answersTo, on, queriesOf, sitesOf, state, emit } from "./state.js";

const HEIGHT = 322, MIN_BAR = 21, MAX_BAR = 34;       // pixels: of all bars together, and limits of one bar
let rows = [], clickable = [];
const chart = new Chart(byId("hot-chart"), build, (made) => {
  made.on("click", ({ dataIndex }) => pick(clickable[dataIndex]));
  made.getZr().on("click", ({ offsetX, offsetY, target }) => {       // also on the key's name and beside its bar
    if (target?.cursor === "pointer" || !clickable.length) return;
    const [, at] = made.convertFromPixel({ gridIndex: 0 }, [offsetX, offsetY]);
    pick(clickable[Math.round(at)]);
  });
});

function pick(row) {
  if (row) emit("picked", { query: row.query, item: row.item, site: row.site });
}

function update() {
  const queries = queriesOf("top");
  if (!state.answers || !state.about) return;
  if (!queries.length) {
    showEmpty("hot-empty", 'This pipeline has no query for the most frequent keys. Add `[[queries]]` with `kind = "top"`.', "hot-chart");
    return;
  }
  const querySelect = byId("hot-query"), siteSelect = byId("hot-site");
  setOptions(querySelect, queries.map((query) => [query.name, query.name]));
  const sites = sitesOf(querySelect.value);
  setOptions(siteSelect, sites.map((site) => [site ?? "", site ?? "all sites"]));
  rows = answersTo(querySelect.value, sites.includes(siteSelect.value || null) ? siteSelect.value || null : sites[0] ?? null);
  rows.sort((a, b) => b.value - a.value);
  showEmpty("hot-empty", rows.length ? "" : "No frequent keys yet.", "hot-chart");
  const query = queries.find((row) => row.name === querySelect.value);
  const range = durationText(query.last ?? state.about.window.length);
  setText("hot-foot", `Counts in the last ${range}${query.where ? ` where ${query.where}` : ""}; the lines are their bounds.`);
  byId("hot-chart").style.height = `${rows.length * Math.min(MAX_BAR, Math.max(MIN_BAR, Math.floor(HEIGHT / rows.length)))}px`;
  chart.resize();
  chart.draw();
}

/** An error bar from low to high. */
function bounds(_, api) {
  const at = api.value(0);
  const [x0, y] = api.coord([api.value(1), at]), [x1] = api.coord([api.value(2), at]);
  const style = { stroke: colours().text, lineWidth: 1.5 };
  const line = (a, b, c, d) => ({ type: "line", shape: { x1: a, y1: b, x2: c, y2: d }, style });
  return { type: "group", silent: true, children: [line(x0, y, x1, y), line(x0, y - 4, x0, y + 4), line(x1, y - 4, x1, y + 4)] };
}

function build() {
  const { accent, bar, text, grid } = colours();
  clickable = rows;
  const first = rows.slice(0, 3).map((row) => `${row.item} ${full(row.value)}`).join(", ");
  return {
    aria: describe(`The ${rows.length} most frequent keys: ${first}, and so on`),
    grid: { left: 2, right: 62, top: 0, bottom: 0, outerBoundsMode: "same", outerBoundsContain: "axisLabel" },
    xAxis: {
      type: "value", splitNumber: 4, max: Math.max(...rows.map((row) => row.high ?? row.value)), axisLabel: { show: false },
      splitLine: { lineStyle: { color: grid } },
    },
    yAxis: {
      type: "category", inverse: true, data: rows.map((row) => row.item ?? "–"), axisTick: { show: false }, axisLine: { show: false },
      axisLabel: { color: text, fontSize: 12.5, width: 128, overflow: "truncate", interval: 0 },
    },
    tooltip: tooltip(({ dataIndex }) => tooltipOf(clickable[dataIndex]), "item"),
    series: [
      {
        name: "count", type: "bar", data: rows.map((row) => row.value), barWidth: 13, cursor: "pointer",
        itemStyle: { color: bar, borderRadius: [0, 3, 3, 0] }, emphasis: { itemStyle: { color: accent } },
      },
      {
        name: "bounds", type: "custom", renderItem: bounds, silent: true, z: 5, encode: { x: [1, 2], y: 0 },
        data: rows.map((row, i) => [i, row.low ?? row.value, row.high ?? row.value]),
      },
      {   // the values, to the right of the bounds
        name: "label", type: "scatter", symbolSize: 0, silent: true, data: rows.map((row, i) => [row.high ?? row.value, i]),
        label: { show: true, position: "right", distance: 7, color: text, fontSize: 12, formatter: ({ dataIndex }) => number(clickable[dataIndex]?.value) },
      },
    ],
  };
}

function tooltipOf(row) {
  if (!row) return "";
  return el("div", { class: "tip" },
    el("b", {}, row.item ?? "–"), row.site ? ` at ${row.site}` : "",
    el("div", {}, `${full(row.value)} `, el("span", { class: "muted" }, `${between(row, full)}, confidence ${percent(row.confidence)}`)),
    el("div", { class: "muted" }, `as of ${clock(state.answers.time)} · click for its trend`));
}

for (const id of ["hot-query", "hot-site"]) byId(id).addEventListener("change", update);
on("about answers", update);
