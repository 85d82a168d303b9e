// Alerts: a list, newest first, and a toast for each that comes while the page is open.

import { byId, el, empty, say } from "./dom.js";
import { between, clock, full, many, number, percent } from "./format.js";
import { isFiring, on, state } from "./state.js";

const SHOWN = 100, STAYS = 12_000;

export const nameOf = (row) => JSON.stringify([row.batch, row.monitor, row.item, row.state]);

/** What an alert is about, in a few words. */
function title(row) {
  const watch = state.about?.monitors.find((one) => one.name === row.monitor);
  return row.item ?? watch?.key ?? "";
}

function sentence(row) {
  const watch = state.about?.monitors.find((one) => one.name === row.monitor);
  const line = watch?.above ?? watch?.below ?? watch?.tau;
  const where = line === undefined || line === null ? "the line" : `the line of ${number(line)}`;
  const value = row.value === null ? "" : `: ${number(row.value)} (${between(row)})`;
  return `${isFiring(row) ? "Firing: past" : "Resolved: back from"} ${where}${value}`;
}

function exactly(row) {
  return `${full(row.value)} (${between(row, full)}), ${percent(row.confidence ?? 0)} sure; ${clock(row.time, true)}, batch ${row.batch}`;
}

/** Which monitors, and which of their items, are firing now. */
function firing() {
  const last = new Map();
  for (const row of state.alerts) last.set(JSON.stringify([row.monitor, row.item]), row);
  return [...last.values()].filter(isFiring);
}

function update() {
  const items = state.alerts.slice(-SHOWN).reverse().map((row) => el("li", { class: row.state, title: exactly(row) },
    el("span", { class: "what" }, row.monitor, el("span", {}, title(row) ? ` · ${title(row)}` : "")),
    el("time", { class: "when" }, clock(row.time)),
    el("span", { class: "more" }, sentence(row))));
  byId("alerts").replaceChildren(...items);
  const monitors = state.about?.monitors ?? [];
  const nothing = monitors.length
    ? `Quiet. ${monitors.length === 1 ? "One monitor watches" : `${monitors.length} monitors watch`}: ${monitors.map((one) => one.name).join(", ")}.`
    : "No monitors in this pipeline. Add one: `[[monitors]]` with a `kind` and a line, `above` or `below`";
  empty("alerts-empty", items.length ? "" : nothing, "alerts");
  const now = firing();
  say("alerts-hint", items.length ? `${now.length || "none"} firing now` : "");
  say("fact-alerts", now.length ? String(now.length) : "none");
  say("fact-alerts-which", now.length ? now.map((row) => title(row) || row.monitor).join(", ") : many(monitors.length, "monitor"));
  byId("fact-alarm").classList.toggle("alarm", now.length > 0);
  document.title = `${now.length ? `(${now.length}) ` : ""}${state.about?.name ?? ""} · lately`;
}

function toast(row) {
  const button = el("button", { type: "button", "aria-label": "Close" }, "×");
  const made = el("div", { class: isFiring(row) ? "toast firing" : "toast" },
    el("b", {}, `${row.monitor}${title(row) ? ` · ${title(row)}` : ""}`), el("p", {}, sentence(row)), button);
  button.onclick = () => made.remove();
  byId("toasts").append(made);
  while (byId("toasts").children.length > 4) byId("toasts").firstElementChild.remove();
  setTimeout(() => made.remove(), STAYS);
}

on("alerts about", update);
on("alert", toast);
