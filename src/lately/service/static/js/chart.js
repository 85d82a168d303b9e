// A chart: created when it first becomes visible, drawn only while it is visible, in the colours of the theme.

let library = null;

/** Load the charting library, from this host. It has a megabyte, so the page is painted before it has arrived. */
function loadLibrary() {
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

const visibility = new IntersectionObserver((entries) => {
  for (const entry of entries) charts.get(entry.target)?.setVisible(entry.isIntersecting);
}, { rootMargin: "100px" });

const sizes = new ResizeObserver((entries) => {
  for (const entry of entries) charts.get(entry.target)?.resize();
});

document.addEventListener("themechange", () => {
  palette = null;
  for (const chart of charts.values()) chart.draw();
});

export class Chart {
  /** `build()` returns the ECharts option to draw, or null for nothing. `ready(chart, this)` is called once, to add listeners.
   *  While a mouse button is held down in a chart it is not drawn. */
  constructor(element, build, ready = () => {}) {
    Object.assign(this, { element, build, ready, chart: null, visible: false, stale: true, held: false, brushReady: false, scheduled: false });
    element.setAttribute("role", "img");
    charts.set(element, this);
    visibility.observe(element);
    sizes.observe(element);
  }

  setVisible(visible) {
    this.visible = visible;
    if (visible && this.stale) this.draw();
  }

  /** Draw in the next animation frame, once for any number of calls until then. */
  draw() {
    this.stale = true;
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame(() => { this.scheduled = false; this.paint(); });
  }

  async paint() {
    if (!this.stale || !this.visible || this.held || this.element.hidden) return;
    if (!this.chart) {
      const echarts = await loadLibrary();
      if (!this.chart) {
        this.chart = echarts.init(this.element, null, { renderer: "canvas" });
        this.ready(this.chart, this);
      }
    }
    const option = this.build();
    if (!option) return;
    this.stale = this.brushReady = false;
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

/** The options of a tooltip. `formatter` returns an element, because the page's security policy forbids inline styles in markup. */
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

/** A description of the chart for screen readers. */
export const describe = (text) => ({ enabled: false, label: { description: text } });
