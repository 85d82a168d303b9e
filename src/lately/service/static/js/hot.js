// Hot keys: bars of the newest answers, each with the bounds of its count. A click shows the key's trend.

import { Chart, colours, described, tooltip } from "./chart.js";
import { byId, el, empty, options, say } from "./dom.js";
import { between, clock, full, number, percent, spelled } from "./format.js";
import { answersTo, on, queriesOf, sitesOf, state, tell } from "./state.js";

const HEIGHT = 322, LEAST = 21, MOST = 34;       // pixels: of all bars together, if each then has at least this and at most that
let rows = [], clickable = [];
const chart = new Chart(byId("hot-chart"), build, (made) => {
  made.on("click", ({ dataIndex }) => pick(clickable[dataIndex]));
  made.getZr().on("click", ({ offsetX, offsetY, target }) => {       // the key's name and the room beside its bar, too
    if (target?.cursor === "pointer" || !clickable.length) return;
    const [, at] = made.convertFromPixel({ gridIndex: 0 }, [offsetX, offsetY]);
    pick(clickable[Math.round(at)]);
  });
});

function pick(row) {
  if (row) tell("picked", { query: row.query, item: row.item, site: row.site });
}

function update() {
  const queries = queriesOf("top");
  if (!state.answers || !state.about) return;
  if (!queries.length) {
    empty("hot-empty", 'No query of this pipeline asks for the most frequent keys. Add one: `[[queries]]` with `kind = "top"`', "hot-chart");
    return;
  }
  const chosen = byId("hot-query"), site = byId("hot-site");
  options(chosen, queries.map((query) => [query.name, query.name]));
  const sites = sitesOf(chosen.value);
  options(site, sites.map((one) => [one ?? "", one ?? "all sites"]));
  rows = answersTo(chosen.value, sites.includes(site.value || null) ? site.value || null : sites[0] ?? null);
  rows.sort((a, b) => b.value - a.value);
  empty("hot-empty", rows.length ? "" : "No key is frequent enough yet.", "hot-chart");
  const query = queries.find((one) => one.name === chosen.value);
  const over = spelled(query.last ?? state.about.window.length);
  say("hot-foot", `Counts in the last ${over}${query.where ? ` where ${query.where}` : ""}; lines are their bounds.`);
  byId("hot-chart").style.height = `${rows.length * Math.min(MOST, Math.max(LEAST, Math.floor(HEIGHT / rows.length)))}px`;
  chart.resize();
  chart.draw();
}

/** A line from low to high with a stroke at either end. */
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
  const best = rows.slice(0, 3).map((row) => `${row.item} ${full(row.value)}`).join(", ");
  return {
    aria: described(`The ${rows.length} hottest keys: ${best}, and so on`),
    grid: { left: 2, right: 62, top: 0, bottom: 0, outerBoundsMode: "same", outerBoundsContain: "axisLabel" },
    xAxis: {
      type: "value", splitNumber: 4, max: Math.max(...rows.map((row) => row.high ?? row.value)), axisLabel: { show: false },
      splitLine: { lineStyle: { color: grid } },
    },
    yAxis: {
      type: "category", inverse: true, data: rows.map((row) => row.item ?? "–"), axisTick: { show: false }, axisLine: { show: false },
      axisLabel: { color: text, fontSize: 12.5, width: 128, overflow: "truncate", interval: 0 },
    },
    tooltip: tooltip(({ dataIndex }) => tip(clickable[dataIndex]), "item"),
    series: [
      {
        name: "count", type: "bar", data: rows.map((row) => row.value), barWidth: 13, cursor: "pointer",
        itemStyle: { color: bar, borderRadius: [0, 3, 3, 0] }, emphasis: { itemStyle: { color: accent } },
      },
      {
        name: "bounds", type: "custom", renderItem: bounds, silent: true, z: 5, encode: { x: [1, 2], y: 0 },
        data: rows.map((row, i) => [i, row.low ?? row.value, row.high ?? row.value]),
      },
      {   // the numbers, right of the bounds
        name: "label", type: "scatter", symbolSize: 0, silent: true, data: rows.map((row, i) => [row.high ?? row.value, i]),
        label: { show: true, position: "right", distance: 7, color: text, fontSize: 12, formatter: ({ dataIndex }) => number(clickable[dataIndex]?.value) },
      },
    ],
  };
}

function tip(row) {
  if (!row) return "";
  return el("div", { class: "tip" },
    el("b", {}, row.item ?? "–"), row.site ? ` at ${row.site}` : "",
    el("div", {}, `${full(row.value)} `, el("span", { class: "muted" }, `${between(row, full)}, ${percent(row.confidence)} sure`)),
    el("div", { class: "muted" }, `up to ${clock(state.answers.time)} · click for its trend`));
}

for (const id of ["hot-query", "hot-site"]) byId(id).addEventListener("change", update);
on("about answers", update);
