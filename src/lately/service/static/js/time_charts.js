// Shared by all charts over time: axes, bands between bounds, selection with the mouse, downsampling.

import { Chart, colours, tooltip } from "./chart.js";
import { el } from "./dom.js";
import { clock, number, axisValue } from "./format.js";
import { bounds, select } from "./range.js";
import { isInteger } from "./state.js";

export const HAS_MOUSE = !matchMedia("(pointer: coarse)").matches;
const MAX_POINTS = 600;       // of a line; more than a chart has pixels would not be visible

/** At most MAX_POINTS rows. Each stands for several: it has their last value, their lowest low and their highest high. */
export function downsampled(rows) {
  if (rows.length <= MAX_POINTS) return rows;
  const step = rows.length / MAX_POINTS, result = [];
  for (let i = 0; i < MAX_POINTS; i++) {
    const piece = rows.slice(Math.floor(i * step), Math.floor((i + 1) * step));
    const lows = piece.map((row) => row.low), highs = piece.map((row) => row.high);
    result.push({ ...piece.at(-1), low: lows.includes(null) ? null : Math.min(...lows), high: highs.includes(null) ? null : Math.max(...highs) });
  }
  return result;
}

export function axes(format = number, { bare = false, fromZero = false } = {}) {
  const { muted, line, grid } = colours();
  const [min, max] = bounds() ?? [null, null];
  const label = { color: muted, fontSize: 11.5, hideOverlap: true };
  const formatter = isInteger() ? (value) => String(value) : { day: "{MMM} {d}" };
  return {
    grid: { left: 2, right: 10, top: bare ? 6 : 12, bottom: 2, outerBoundsMode: "same", outerBoundsContain: "axisLabel" },
    xAxis: {
      type: isInteger() ? "value" : "time", min, max,
      axisLabel: { ...label, show: !bare, formatter }, axisLine: { lineStyle: { color: line } },
      axisTick: { show: false }, splitLine: { show: false },
    },
    yAxis: {
      type: "value", scale: !fromZero, splitNumber: bare ? 2 : 4,
      axisLabel: { ...label, show: !bare, formatter: (value) => format(value) }, splitLine: { show: !bare, lineStyle: { color: grid } },
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

/** A line with its band, as three series: an invisible line at low, the band from there to high, and the value. */
export function banded(name, rows, look = {}) {
  const { accent } = colours();
  const color = look.color ?? accent;
  const filled = rows.map((row) => ({ ...row, low: row.low ?? row.value, high: row.high ?? row.value }));
  const hidden = {
    type: "line", stack: `band ${name}`, stackStrategy: "all", symbol: "none", silent: true, lineStyle: { opacity: 0 },
    emphasis: { disabled: true }, z: 1,
  };
  return [
    { ...hidden, name: `${name} low`, data: filled.map((row) => [axisValue(row.time), row.low]) },
    {
      ...hidden, name: `${name} band`, data: filled.map((row) => [axisValue(row.time), row.high - row.low]),
      areaStyle: { color, opacity: look.band ?? 0.2 },
    },
    line(name, rows.map((row) => [axisValue(row.time), row.value]), look),
  ];
}

/** A tooltip for one time: the time, then lines of [name, value, addition]. */
export function timeTooltip(lines) {
  return tooltip((points) => {
    const at = points[0].axisValue;
    const nodes = lines(at).map(([name, value, addition]) => el("div", { class: "line" },
      el("span", { class: "muted" }, name),
      el("span", {}, el("b", {}, value), addition ? el("span", { class: "muted" }, `  ${addition}`) : "")));
    return el("div", { class: "tip" }, clock(isInteger() ? at : new Date(at).toISOString(), true), ...nodes);
  });
}

/** The row nearest to an axis value, of rows in the order of time. */
export function nearest(rows, at) {
  let best = null;
  for (const row of rows) {
    if (best && Math.abs(axisValue(row.time) - at) > Math.abs(axisValue(best.time) - at)) break;
    best = row;
  }
  return best;
}

/** A chart over time. A mouse selects a range in it; fingers scroll the page instead. */
export function timeChart(element, build) {
  const brush = { toolbox: ["clear"], xAxisIndex: 0, throttleType: "debounce", brushStyle: { borderWidth: 0, color: "rgba(128,128,128,.25)" } };
  return new Chart(element, () => {
    const option = build();
    return option && HAS_MOUSE ? { brush, toolbox: { show: false }, ...option } : option;
  }, (chart, own) => {
    if (!HAS_MOUSE) return;
    const brushing = { type: "takeGlobalCursor", key: "brush", brushOption: { brushType: "lineX", brushMode: "single" } };
    chart.getZr().on("mousemove", () => {       // drawing switches the brush off, so it is switched on again when the mouse moves
      if (own.brushReady || own.held) return;
      own.brushReady = true;
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
      select(from, to);
    });
  });
}
