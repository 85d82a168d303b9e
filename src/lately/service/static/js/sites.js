// The sites: how many there are, which are silent and since when, and which are ahead of the others.

import { byId, el, showEmpty, setText } from "./dom.js";
import { clock, full, plural, span } from "./format.js";
import { isInteger, on, state } from "./state.js";

/** A length of time: seconds as text, or an integer where times are integers. */
const lengthText = (value) => (isInteger() ? full(value) : span(value));

/** How far a site is behind or ahead. */
function lagText({ behind }) {
  if (behind === null) return "–";
  return behind < 0 ? `${lengthText(-behind)} ahead` : lengthText(behind);
}

function cells(row) {
  const uncounted = row.late === null ? "–" : `${full(row.late)}, ${full(row.rejected)}`;
  const rejected = row.ahead ? `; ${plural(row.ahead, "row")} rejected because their time was too far ahead, last at ${clock(row.ahead_seen, true)}` : "";
  return el("tr", { class: row.state ?? "" },
    el("td", { class: "name", title: row.site }, row.site),
    el("td", { class: "word" }, row.state ?? "–"),
    el("td", { class: "n", title: `Time of its newest row: ${clock(row.time, true)}` }, lagText(row)),
    el("td", { class: "n", title: clock(row.seen, true) }, row.seen === null ? "–" : `${span((Date.now() - Date.parse(row.seen)) / 1000)} ago`),
    el("td", { class: "n", title: `${full(row.counted)} counted${rejected}` }, uncounted));
}

function update() {
  const { sites } = state;
  if (!sites) return;
  if (sites.error || !sites.rows.length) {
    showEmpty("sites-empty", sites.error ? sites.error.text ?? String(sites.error) : "No site has sent a row yet.", "sites-scroll");
    setText("sites-hint", "");
    setText("sites-foot", "");
    return;
  }
  showEmpty("sites-empty", "", "sites-scroll");
  byId("sites").replaceChildren(...sites.rows.map(cells));
  const hasStates = sites.newest !== null;
  const states = ["silent", "ahead", "behind"].filter((name) => sites[name]).map((name) => `${full(sites[name])} ${name}`);
  setText("sites-hint", [plural(sites.sites, "site"), ...(hasStates && !states.length ? ["none silent or ahead"] : states)].join(" · "));
  const more = sites.sites > sites.rows.length ? ` ${full(sites.sites - sites.rows.length)} more: \`lately query sites\`.` : "";
  const rule = hasStates ? `Silent: no row in the newest batches, and more than ${lengthText(sites.tolerance)} behind.` : "";
  byId("sites-foot").textContent = `${rule}${more}`.replaceAll("`", "");
}

on("sites", update);
