// One chart of the page: made when it is first seen, drawn only while it can be seen, in the colours of the theme.

let library = null;

/** The charting library, from this host; a megabyte, so the page is painted before it is here. */
function charting() {
  library ??= import("../vendor/echarts.min.js").then(() => globalThis.echarts);
  return library;
}

let palette = null;

export function colours() {
  if (palette) return palette;
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(`--${name}`).trim();
  palette = Object.fromEntries(["card", "line", "strong-line", "text", "muted", "accent", "bar", "grid", "alarm"].map((n) => [n, of(n)]));
  return palette;
}

const charts = new Map();     // by element

const seen = new IntersectionObserver((entries) => {
  for (const entry of entries) charts.get(entry.target)?.turn(entry.isIntersecting);
}, { rootMargin: "100px" });

const sized = new ResizeObserver((entries) => {
  for (const entry of entries) charts.get(entry.target)?.resize();
});

document.addEventListener("themechange", () => {
  palette = null;
  for (const chart of charts.values()) chart.draw();
});

export class Chart {
  /** `build()` gives the option to draw, or null for nothing; `ready(chart, this)` is called once, to listen to the mouse.
   *  A chart that is held, because the mouse is busy in it, is drawn when it is let go. */
  constructor(element, build, ready = () => {}) {
    Object.assign(this, { element, build, ready, chart: null, visible: false, stale: true, held: false, armed: false, due: false });
    element.setAttribute("role", "img");
    charts.set(element, this);
    seen.observe(element);
    sized.observe(element);
  }

  turn(visible) {
    this.visible = visible;
    if (visible && this.stale) this.draw();
  }

  /** Draw before the next frame, once, however often it is asked for until then. */
  draw() {
    this.stale = true;
    if (this.due) return;
    this.due = true;
    requestAnimationFrame(() => { this.due = false; this.paint(); });
  }

  async paint() {
    if (!this.stale || !this.visible || this.held || this.element.hidden) return;
    if (!this.chart) {
      const echarts = await charting();
      if (!this.chart) {
        this.chart = echarts.init(this.element, null, { renderer: "canvas" });
        this.ready(this.chart, this);
      }
    }
    const option = this.build();
    if (!option) return;
    this.stale = this.armed = false;
    this.chart.setOption({ ...base(), ...option }, { replaceMerge: ["series"], lazyUpdate: true });
    this.element.setAttribute("aria-label", option.aria?.label?.description ?? "");
  }

  resize() {
    if (this.chart && this.element.clientWidth) this.chart.resize();
  }
}

function base() {
  const { text } = colours();
  return {
    animation: false,
    backgroundColor: "transparent",
    textStyle: { color: text, fontFamily: getComputedStyle(document.body).fontFamily },
  };
}

/** The look of a tooltip. Its text comes as an element: markup with styles would be refused by the page's policy. */
export function tooltip(formatter, trigger = "axis") {
  const { card, text, line, muted } = colours();
  return {
    trigger,
    confine: true,
    transitionDuration: 0,
    backgroundColor: card,
    borderColor: line,
    padding: [7, 11],
    textStyle: { color: text, fontSize: 12.5 },
    axisPointer: { type: "line", lineStyle: { color: muted, type: "dashed" }, animation: false },
    formatter,
  };
}

/** A text that describes the chart to those who do not see it. */
export const described = (text) => ({ enabled: false, label: { description: text } });
