// Rows by site: how many rows each site had in the window, with bounds, and the bytes of its stored sketches.

import { byId, el, showEmpty, setText } from "./dom.js";
import { between, bytes, clock, full, number, percent, share } from "./format.js";
import { on, state } from "./state.js";

function bar(part) {
  const inner = el("i");
  inner.style.width = `${(100 * part).toFixed(1)}%`;
  return el("span", { class: "share", "aria-hidden": "true" }, inner);
}

function cells(row, all) {
  const { total } = row;
  const part = total && all ? total.value / all : NaN;
  return el("tr", {},
    el("td", { class: "name", title: row.site }, row.site),
    el("td", { class: "n", title: total ? full(total.value) : null }, number(total?.value)),
    el("td", { class: "n dim", title: total ? `${between(total, full)}, confidence ${percent(total.confidence)}` : null }, total ? between(total) : "–"),
    el("td", { class: "n" }, Number.isFinite(part) ? bar(part) : null, share(part)),
    el("td", { class: "n", title: `${full(row.bytes)} bytes` }, bytes(row.bytes)));
}

function update() {
  const { totals } = state;
  if (!totals) return;
  if (totals.error || !totals.rows.length) {
    showEmpty("totals-empty", totals.error?.text ?? "No site has sent a row yet.", "totals-scroll");
    return;
  }
  showEmpty("totals-empty", "", "totals-scroll");
  const rows = [...totals.rows].sort((a, b) => (b.total?.value ?? 0) - (a.total?.value ?? 0));
  const all = rows.reduce((sum, row) => sum + (row.total?.value ?? 0), 0);
  const size = rows.reduce((sum, row) => sum + row.bytes, 0);
  const sum = el("tr", { class: "sum" },
    el("td", {}, totals.sites > rows.length ? "these" : "all"), el("td", { class: "n", title: full(all) }, all ? number(all) : "–"), el("td"), el("td"),
    el("td", { class: "n", title: `${full(size)} bytes` }, bytes(size)));
  byId("totals").replaceChildren(...rows.map((row) => cells(row, all)), ...(rows.length > 1 ? [sum] : []));
  const which = totals.sites > rows.length ? `the largest ${rows.length} of ${full(totals.sites)}` : String(rows.length);
  setText("totals-hint", `${which} in the last ${state.about?.window.length ?? "window"}, as of ${clock(totals.asof)}`);
}

on("totals", update);
