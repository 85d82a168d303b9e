// The sites: how many there are, which are silent and since when, and which are ahead of the others.

import { byId, el, empty, say } from "./dom.js";
import { clock, full, many, span } from "./format.js";
import { isInteger, on, state } from "./state.js";

/** How long: of integer times the integer. */
const long = (value) => (isInteger() ? full(value) : span(value));

/** How far behind or ahead. */
function distance({ behind }) {
  if (behind === null) return "–";
  return behind < 0 ? `${long(-behind)} ahead` : long(behind);
}

function cells(row) {
  const lost = row.late === null ? "–" : `${full(row.late)}, ${full(row.rejected)}`;
  const refused = row.ahead ? `; ${many(row.ahead, "row")} refused for being ahead, last at ${clock(row.ahead_seen, true)}` : "";
  return el("tr", { class: row.state ?? "" },
    el("td", { class: "name", title: row.site }, row.site),
    el("td", { class: "word" }, row.state ?? "–"),
    el("td", { class: "n", title: `Its newest row is of ${clock(row.time, true)}` }, distance(row)),
    el("td", { class: "n", title: clock(row.seen, true) }, row.seen === null ? "–" : `${span((Date.now() - Date.parse(row.seen)) / 1000)} ago`),
    el("td", { class: "n", title: `${full(row.counted)} counted${refused}` }, lost));
}

function update() {
  const { sites } = state;
  if (!sites) return;
  if (sites.error || !sites.rows.length) {
    empty("sites-empty", sites.error ? sites.error.told ?? String(sites.error) : "No site has sent a row yet.", "sites-scroll");
    say("sites-hint", "");
    say("sites-foot", "");
    return;
  }
  empty("sites-empty", "", "sites-scroll");
  byId("sites").replaceChildren(...sites.rows.map(cells));
  const known = sites.newest !== null;
  const states = ["silent", "ahead", "behind"].filter((name) => sites[name]).map((name) => `${full(sites[name])} ${name}`);
  say("sites-hint", [many(sites.sites, "site"), ...(known && !states.length ? ["none silent or ahead"] : states)].join(" · "));
  const more = sites.sites > sites.rows.length ? ` ${full(sites.sites - sites.rows.length)} more: \`lately query sites\`.` : "";
  const rule = known ? `Silent: no row in the newest batches, and more than ${long(sites.tolerance)} behind.` : "";
  byId("sites-foot").textContent = `${rule}${more}`.replaceAll("`", "");
}

on("sites", update);
