// The box to ask anything that the stored sketches can answer: any key, any range, any site.

import { get } from "./api.js";
import { byId, el, marked, options, say, show } from "./dom.js";
import { clock, full, number, percent } from "./format.js";
import { answersTo, NO_SKETCHES, on, queriesOf, sitesOf, state } from "./state.js";
import { line, SAID, scope, sure } from "./words.js";

const form = byId("ask"), place = byId("answer");
const WHAT = [
  ["count", "Count of a key"], ["top", "Most frequent keys"], ["quantiles", "Quantiles"], ["range", "Keys in a range"],
  ["total", "All rows"], ["self-join", "Self-join"], ["inner-product", "Inner product"],
];
// Which sketches answer what; a query with one of them can be named.
const KINDS = {
  count: ["ecm", "topk", "dyadic"], top: ["topk"], quantiles: ["quantiles", "dyadic"], range: ["dyadic", "quantiles"],
  total: ["ecm", "topk", "dyadic", "quantiles"], "self-join": ["ecm", "topk", "dyadic"], "inner-product": ["ecm"],
};
let able = [];        // what can be asked of all rows

/** The queries whose sketches can answer; those that count only some rows must be named to be asked. */
function fitting(what) {
  const kindOf = (name) => state.about.sketches?.[name]?.kind;
  return state.about.queries.filter((query) => (query.sketches ?? []).some((name) => KINDS[what].includes(kindOf(name))));
}

function update() {
  const { about } = state;
  able = about.asks ?? [];
  const known = WHAT.filter(([name]) => able.includes(name) || (about.asof !== null && fitting(name).length));
  form.hidden = !known.length;
  if (!known.length) {
    place.replaceChildren(el("p", { class: "empty" }, ...marked(NO_SKETCHES)));
    return;
  }
  options(form.what, known);
  form.what.hidden = false;
  byId("ask-sites").replaceChildren(...about.sites.map((value) => el("option", { value })));
  const names = fitting("inner-product").map((query) => [query.name, query.name]);
  options(form.left, names);
  options(form.right, [["", "its other side"], ...names]);
  form.left.hidden = form.right.hidden = false;
  const asof = about.asof ? `, as of ${clock(about.asof)}` : "";
  say("ask-hint", `anything in the last ${about.window.length}${asof}`);
  // What a query asks for is a range that makes sense here; whatever is typed stays.
  form.last.value ||= about.queries.find((query) => query.last)?.last ?? about.window.length;
  if (!place.childElementCount) place.append(el("p", { class: "asof" }, "Every answer comes with its bounds and how sure they are."));
  fields();
}

/** Show the fields that the question has. */
function fields() {
  for (const label of form.querySelectorAll("[data-for]")) label.hidden = label.dataset.for !== form.what.value;
  for (const label of form.querySelectorAll("[data-when]")) label.hidden = label.dataset.when !== form.when.value;
  const what = form.what.value, names = fitting(what).map((query) => [query.name, query.name]);
  options(form.of, able.includes(what) ? [["", "all"], ...names] : names);
  form.of.hidden = false;
  show("ask-of-label", what !== "inner-product" && fitting(what).some((query) => query.where || query.kind === "join"));
}

/** The hottest keys, to choose from while typing. */
function suggest() {
  const query = queriesOf("top")[0]?.name;
  if (!query) return;
  const keys = answersTo(query, sitesOf(query)[0] ?? null).map((row) => row.item);
  const wanted = JSON.stringify(keys);
  if (byId("ask-keys").dataset.keys === wanted) return;
  byId("ask-keys").dataset.keys = wanted;
  byId("ask-keys").replaceChildren(...keys.map((value) => el("option", { value })));
  if (!form.key.value && keys.length) form.key.placeholder = keys[0];
}

function asked() {
  const value = (name) => form.elements[name].value.trim();
  const what = value("what");
  const more = {
    count: () => ({ key: value("key") || form.key.placeholder }),
    top: () => ({ k: value("k") }),
    quantiles: () => ({ q: value("q").split(/[\s,;]+/).filter(Boolean) }),
    range: () => ({ lo: value("lo"), hi: value("hi") }),
    "inner-product": () => ({ left: value("left"), right: value("right") }),
  }[what]?.() ?? {};
  const when = {
    last: () => ({ last: value("last") }), between: () => ({ from: value("from"), to: value("to") }), window: () => ({}),
  }[value("when")]();
  return [what, { ...more, ...when, site: value("site"), of: byId("ask-of-label").hidden ? "" : value("of") }];
}

async function submit(event) {
  event.preventDefault();
  const [what, values] = asked();
  const button = form.querySelector("button");
  button.disabled = true;
  const waiting = setTimeout(() => place.replaceChildren(el("p", { class: "asof" }, "Adding up the sketches of the sites …")), 500);
  try {
    const said = await get(what, values).finally(() => clearTimeout(waiting));
    const about = { ...values, whole: state.about.window.length };
    const shown = said.rows ? table(said, about) : single(what, said.estimate, about);
    place.replaceChildren(...shown, el("p", { class: "asof" }, `From the sketches of ${clock(said.asof)}.`));
  } catch (error) {
    place.replaceChildren(el("p", { class: "wrong" }, ...marked(error.told ?? String(error))));
  }
  button.disabled = false;
}

function single(what, estimate, about) {
  return [
    el("p", { class: "value", title: full(estimate.value) }, number(estimate.value)),
    gauge(estimate),
    el("p", { class: "said" }, `${SAID[what](about, estimate)} ${scope(about)}. ${sure(estimate)}`),
  ];
}

/** Where the value lies between its bounds, on a line from zero. */
function gauge({ value, low, high }) {
  if (low === null || high === null || high <= 0) return null;
  const band = el("i"), mark = el("b"), from = Math.min(0, low), whole = (high - from) * 1.08;
  band.style.left = `${(100 * (low - from)) / whole}%`;
  band.style.width = `${Math.max(0.6, (100 * (high - low)) / whole)}%`;
  mark.style.left = `${(100 * (value - from)) / whole}%`;
  return el("div", { class: "gauge", "aria-hidden": "true" }, band, mark);
}

function table({ rows }, about) {
  const text = scope(about);
  if (!rows.length) return [el("p", { class: "said" }, `Nothing ${text}.`)];
  const lines = rows.map(line).map(({ name, value, all, bounds, sure: told }) => el("tr", { title: told },
    el("td", { class: "name" }, name), el("td", { class: "n", title: all }, value), el("td", { class: "n dim" }, bounds)));
  const [name, value] = "q" in rows[0] ? ["Share", "Value"] : ["Key", "Count"];
  const head = el("thead", {}, el("tr", {},
    el("th", { scope: "col" }, name), el("th", { scope: "col", class: "n" }, value), el("th", { scope: "col", class: "n" }, "Between")));
  const least = percent(Math.min(...rows.map((row) => row.estimate.confidence)));
  return [
    el("p", { class: "said" }, `${text[0].toUpperCase()}${text.slice(1)}. Each is within its bounds with a probability of at least ${least}.`),
    el("table", {}, head, el("tbody", {}, ...lines)),
  ];
}

form.addEventListener("submit", submit);
form.addEventListener("change", fields);
on("about asof", update);
on("answers", suggest);
on("picked", ({ item }) => { if (item !== null && !byId("ask").hidden) form.key.value = item; });
