// What charts over time have in common: axes, bands between low and high, brushing, thinning.

import { Chart, colours, tooltip } from "./chart.js";
import { el } from "./dom.js";
import { clock, number, place } from "./format.js";
import { bounds, brushed } from "./range.js";
import { isInteger } from "./state.js";

export const FINE = !matchMedia("(pointer: coarse)").matches;        // a mouse, not a finger
const MOST = 600;       // points of a line; more than pixels help nobody

/** Fewer rows with the same reach: each piece has its last value, its least low and its greatest high. */
export function thinned(rows) {
  if (rows.length <= MOST) return rows;
  const step = rows.length / MOST, kept = [];
  for (let i = 0; i < MOST; i++) {
    const piece = rows.slice(Math.floor(i * step), Math.floor((i + 1) * step));
    const lows = piece.map((row) => row.low), highs = piece.map((row) => row.high);
    kept.push({ ...piece.at(-1), low: lows.includes(null) ? null : Math.min(...lows), high: highs.includes(null) ? null : Math.max(...highs) });
  }
  return kept;
}

export function axes(as = number, { bare = false, fromZero = false } = {}) {
  const { muted, line, grid } = colours();
  const [min, max] = bounds() ?? [null, null];
  const label = { color: muted, fontSize: 11.5, hideOverlap: true };
  const told = isInteger() ? (value) => String(value) : { day: "{MMM} {d}" };
  return {
    grid: { left: 2, right: 10, top: bare ? 6 : 12, bottom: 2, outerBoundsMode: "same", outerBoundsContain: "axisLabel" },
    xAxis: {
      type: isInteger() ? "value" : "time", min, max,
      axisLabel: { ...label, show: !bare, formatter: told }, axisLine: { lineStyle: { color: line } },
      axisTick: { show: false }, splitLine: { show: false },
    },
    yAxis: {
      type: "value", scale: !fromZero, splitNumber: bare ? 2 : 4,
      axisLabel: { ...label, show: !bare, formatter: (value) => as(value) }, splitLine: { show: !bare, lineStyle: { color: grid } },
    },
  };
}

/** A line of values. */
export function line(name, points, look = {}) {
  const { accent } = colours();
  return {
    name, type: "line", data: points, showSymbol: points.length < 3, symbolSize: 5, z: 3,
    lineStyle: { width: 1.75, color: look.color ?? accent, opacity: look.opacity ?? 1, type: look.type ?? "solid" },
    itemStyle: { color: look.color ?? accent }, emphasis: { disabled: true }, ...(look.more ?? {}),
  };
}

/** A line with its band, as three series: an unseen floor at low, the band up to high on top of it, the value. */
export function banded(name, rows, look = {}) {
  const { accent } = colours();
  const color = look.color ?? accent;
  const known = rows.map((row) => ({ ...row, low: row.low ?? row.value, high: row.high ?? row.value }));
  const hidden = {
    type: "line", stack: `band ${name}`, stackStrategy: "all", symbol: "none", silent: true, lineStyle: { opacity: 0 },
    emphasis: { disabled: true }, z: 1,
  };
  return [
    { ...hidden, name: `${name} low`, data: known.map((row) => [place(row.time), row.low]) },
    {
      ...hidden, name: `${name} band`, data: known.map((row) => [place(row.time), row.high - row.low]),
      areaStyle: { color, opacity: look.band ?? 0.2 },
    },
    line(name, rows.map((row) => [place(row.time), row.value]), look),
  ];
}

/** A tooltip for rows at one place: its time, then lines of [name, value, more]. */
export function timeTip(lines) {
  return tooltip((found) => {
    const at = found[0].axisValue;
    const told = lines(at).map(([name, value, more]) => el("div", { class: "line" },
      el("span", { class: "muted" }, name),
      el("span", {}, el("b", {}, value), more ? el("span", { class: "muted" }, `  ${more}`) : "")));
    return el("div", { class: "tip" }, clock(isInteger() ? at : new Date(at).toISOString(), true), ...told);
  });
}

/** The row nearest to a place, of rows in the order of time. */
export function nearest(rows, at) {
  let best = null;
  for (const row of rows) {
    if (best && Math.abs(place(row.time) - at) > Math.abs(place(best.time) - at)) break;
    best = row;
  }
  return best;
}

/** A chart over time that can be brushed with a mouse; fingers scroll the page instead. */
export function timeChart(element, build) {
  const brush = { toolbox: ["clear"], xAxisIndex: 0, throttleType: "debounce", brushStyle: { borderWidth: 0, color: "rgba(128,128,128,.25)" } };
  return new Chart(element, () => {
    const option = build();
    return option && FINE ? { brush, toolbox: { show: false }, ...option } : option;
  }, (chart, own) => {
    if (!FINE) return;
    const brushing = { type: "takeGlobalCursor", key: "brush", brushOption: { brushType: "lineX", brushMode: "single" } };
    chart.getZr().on("mousemove", () => {       // drawing disarms the brush, so each time that the mouse comes
      if (own.armed || own.held) return;
      own.armed = true;
      chart.dispatchAction(brushing);
    });
    chart.getZr().on("mousedown", () => {
      own.held = true;
      addEventListener("mouseup", () => { own.held = false; if (own.stale) own.draw(); }, { once: true });
    });
    chart.on("brushEnd", ({ areas }) => {
      if (!areas.length) return;
      const [from, to] = areas[0].coordRange;
      chart.dispatchAction({ type: "brush", areas: [] });
      own.held = false;
      brushed(from, to);
    });
  });
}
