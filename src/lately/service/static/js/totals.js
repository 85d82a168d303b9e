// Rows by site: how many each had in the window, between which bounds, and what its stored sketches weigh.

import { byId, el, empty, say } from "./dom.js";
import { between, bytes, clock, full, number, percent, share } from "./format.js";
import { on, state } from "./state.js";

function bar(part) {
  const inner = el("i");
  inner.style.width = `${(100 * part).toFixed(1)}%`;
  return el("span", { class: "share", "aria-hidden": "true" }, inner);
}

function cells(row, whole) {
  const { total } = row;
  const part = total && whole ? total.value / whole : NaN;
  return el("tr", {},
    el("td", { class: "name", title: row.site }, row.site),
    el("td", { class: "n", title: total ? full(total.value) : null }, number(total?.value)),
    el("td", { class: "n dim", title: total ? `${between(total, full)}, ${percent(total.confidence)} sure` : null }, total ? between(total) : "–"),
    el("td", { class: "n" }, Number.isFinite(part) ? bar(part) : null, share(part)),
    el("td", { class: "n", title: `${full(row.bytes)} bytes` }, bytes(row.bytes)));
}

function update() {
  const { totals } = state;
  if (!totals) return;
  if (totals.error || !totals.rows.length) {
    empty("totals-empty", totals.error?.told ?? "No site has sent a row yet.", "totals-scroll");
    return;
  }
  empty("totals-empty", "", "totals-scroll");
  const rows = [...totals.rows].sort((a, b) => (b.total?.value ?? 0) - (a.total?.value ?? 0));
  const whole = rows.reduce((all, row) => all + (row.total?.value ?? 0), 0);
  const weight = rows.reduce((all, row) => all + row.bytes, 0);
  const sum = el("tr", { class: "sum" },
    el("td", {}, totals.sites > rows.length ? "these" : "all"), el("td", { class: "n", title: full(whole) }, whole ? number(whole) : "–"), el("td"), el("td"),
    el("td", { class: "n", title: `${full(weight)} bytes` }, bytes(weight)));
  byId("totals").replaceChildren(...rows.map((row) => cells(row, whole)), ...(rows.length > 1 ? [sum] : []));
  const which = totals.sites > rows.length ? `the largest ${rows.length} of ${full(totals.sites)}` : String(rows.length);
  say("totals-hint", `${which} in the last ${state.about?.window.length ?? "window"}, as of ${clock(totals.asof)}`);
}

on("totals", update);
