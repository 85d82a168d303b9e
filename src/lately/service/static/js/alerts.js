// Alerts: a list, newest first, and a toast for each new one while the page is open.

import { byId, el, setText, showEmpty } from "./dom.js";
import { between, clock, full, number, percent, plural } from "./format.js";
import { isFiring, on, state } from "./state.js";

const MAX_ROWS = 100, MAX_TOASTS = 4;
const TOAST_TIME = 12_000;      // milliseconds

/** Identifies the row of an alert. */
export const alertId = (row) => JSON.stringify([row.batch, row.monitor, row.item, row.state]);

const monitorOf = (row) => state.about?.monitors.find((monitor) => monitor.name === row.monitor);

/** The item that an alert is about, or the key that its monitor watches. */
const subject = (row) => row.item ?? monitorOf(row)?.key ?? "";

function sentence(row) {
  const monitor = monitorOf(row), limit = monitor?.above ?? monitor?.below ?? monitor?.tau;
  const threshold = limit === undefined || limit === null ? "the threshold" : `the threshold of ${number(limit)}`;
  const value = row.value === null ? "" : `: ${number(row.value)} (${between(row)})`;
  return `${isFiring(row) ? "Firing: crossed" : "Resolved: back within"} ${threshold}${value}`;
}

/** All digits, for the tooltip. */
function details(row) {
  return `${full(row.value)} (${between(row, full)}), confidence ${percent(row.confidence ?? 0)}; ${clock(row.time, true)}, batch ${row.batch}`;
}

/** The newest row of each monitor and item that is firing now. */
function firingNow() {
  const newest = new Map();
  for (const row of state.alerts) newest.set(JSON.stringify([row.monitor, row.item]), row);
  return [...newest.values()].filter(isFiring);
}

function update() {
  const items = state.alerts.slice(-MAX_ROWS).reverse().map((row) => el("li", { class: row.state, title: details(row) },
    el("span", { class: "what" }, row.monitor, el("span", {}, subject(row) ? ` · ${subject(row)}` : "")),
    el("time", { class: "when" }, clock(row.time)),
    el("span", { class: "more" }, sentence(row))));
  byId("alerts").replaceChildren(...items);
  const monitors = state.about?.monitors ?? [];
  const message = monitors.length
    ? `No alerts yet. ${plural(monitors.length, "monitor")}: ${monitors.map((monitor) => monitor.name).join(", ")}.`
    : "This pipeline has no monitors. Add `[[monitors]]` with a `kind` and a threshold, `above` or `below`.";
  showEmpty("alerts-empty", items.length ? "" : message, "alerts");
  const firing = firingNow();
  setText("alerts-hint", items.length ? `${firing.length || "none"} firing` : "");
  setText("fact-alerts", firing.length ? String(firing.length) : "none");
  setText("fact-alerts-which", firing.length ? firing.map((row) => subject(row) || row.monitor).join(", ") : plural(monitors.length, "monitor"));
  byId("fact-alarm").classList.toggle("alarm", firing.length > 0);
  document.title = `${firing.length ? `(${firing.length}) ` : ""}${state.about?.name ?? ""} · lately`;
}

function toast(row) {
  const button = el("button", { type: "button", "aria-label": "Close" }, "×");
  const element = el("div", { class: isFiring(row) ? "toast firing" : "toast" },
    el("b", {}, `${row.monitor}${subject(row) ? ` · ${subject(row)}` : ""}`), el("p", {}, sentence(row)), button);
  button.onclick = () => element.remove();
  byId("toasts").append(element);
  while (byId("toasts").children.length > MAX_TOASTS) byId("toasts").firstElementChild.remove();
  setTimeout(() => element.remove(), TOAST_TIME);
}

on("alerts about", update);
on("alert", toast);
