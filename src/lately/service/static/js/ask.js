// The form for any question that the stored sketches can answer: any key, any range, any site.

import { get } from "./api.js";
import { byId, el, setOptions, setText, show, withCode } from "./dom.js";
import { clock, full, number, percent } from "./format.js";
import { answersTo, NO_SKETCHES, on, queriesOf, sitesOf, state } from "./state.js";
import { boundsSentence, scope, SENTENCES, tableRow } from "./sentences.js";

const form = byId("ask"), output = byId("answer");
const QUESTIONS = [
  ["count", "Count of a key"], ["top", "Most frequent keys"], ["quantiles", "Quantiles"], ["range", "Keys in a range"],
  ["total", "Total number of rows"], ["self-join", "Self-join"], ["inner-product", "Inner product"],
];
// The kinds of sketch that can answer a question. A query with such a sketch can be named.
const SKETCH_KINDS = {
  count: ["ecm", "topk", "dyadic"], top: ["topk"], quantiles: ["quantiles", "dyadic"], range: ["dyadic", "quantiles"],
  total: ["ecm", "topk", "dyadic", "quantiles"], "self-join": ["ecm", "topk", "dyadic"], "inner-product": ["ecm"],
};
let answerable = [];      // the questions that can be asked about all rows

/** The queries whose sketches can answer a question. Those that count only some rows must be named to be asked. */
function suitableQueries(question) {
  const kindOf = (name) => state.about.sketches?.[name]?.kind;
  return state.about.queries.filter((query) => (query.sketches ?? []).some((name) => SKETCH_KINDS[question].includes(kindOf(name))));
}

function update() {
  const { about } = state;
  answerable = about.questions ?? [];
  const available = QUESTIONS.filter(([name]) => answerable.includes(name) || (about.asof !== null && suitableQueries(name).length));
  form.hidden = !available.length;
  if (!available.length) {
    output.replaceChildren(el("p", { class: "empty" }, ...withCode(NO_SKETCHES)));
    return;
  }
  setOptions(form.what, available);
  form.what.hidden = false;
  byId("ask-sites").replaceChildren(...about.sites.map((value) => el("option", { value })));
  const names = suitableQueries("inner-product").map((query) => [query.name, query.name]);
  setOptions(form.left, names);
  setOptions(form.right, [["", "its other side"], ...names]);
  form.left.hidden = form.right.hidden = false;
  const asof = about.asof ? `, as of ${clock(about.asof)}` : "";
  setText("ask-hint", `any range within the last ${about.window.length}${asof}`);
  // A range of a query is a sensible default; what the user has typed is kept.
  form.last.value ||= about.queries.find((query) => query.last)?.last ?? about.window.length;
  if (!output.childElementCount) output.append(el("p", { class: "asof" }, "Every answer has bounds with a confidence."));
  showFields();
}

/** Show the fields of the chosen question. */
function showFields() {
  for (const label of form.querySelectorAll("[data-for]")) label.hidden = label.dataset.for !== form.what.value;
  for (const label of form.querySelectorAll("[data-when]")) label.hidden = label.dataset.when !== form.when.value;
  const question = form.what.value, names = suitableQueries(question).map((query) => [query.name, query.name]);
  setOptions(form.of, answerable.includes(question) ? [["", "all"], ...names] : names);
  form.of.hidden = false;
  show("ask-of-label", question !== "inner-product" && suitableQueries(question).some((query) => query.where || query.kind === "join"));
}

/** Suggest the most frequent keys while the user types. */
function suggestKeys() {
  const query = queriesOf("top")[0]?.name;
  if (!query) return;
  const keys = answersTo(query, sitesOf(query)[0] ?? null).map((row) => row.item);
  const list = JSON.stringify(keys);
  if (byId("ask-keys").dataset.keys === list) return;
  byId("ask-keys").dataset.keys = list;
  byId("ask-keys").replaceChildren(...keys.map((value) => el("option", { value })));
  if (!form.key.value && keys.length) form.key.placeholder = keys[0];
}

/** The question and its parameters, from the form. */
function readForm() {
  const value = (name) => form.elements[name].value.trim();
  const question = value("what");
  const params = {
    count: () => ({ key: value("key") || form.key.placeholder }),
    top: () => ({ k: value("k") }),
    quantiles: () => ({ q: value("q").split(/[\s,;]+/).filter(Boolean) }),
    range: () => ({ lo: value("lo"), hi: value("hi") }),
    "inner-product": () => ({ left: value("left"), right: value("right") }),
  }[question]?.() ?? {};
  const range = {
    last: () => ({ last: value("last") }), between: () => ({ from: value("from"), to: value("to") }), window: () => ({}),
  }[value("when")]();
  return [question, { ...params, ...range, site: value("site"), of: byId("ask-of-label").hidden ? "" : value("of") }];
}

async function submit(event) {
  event.preventDefault();
  const [question, params] = readForm();
  const button = form.querySelector("button");
  button.disabled = true;
  const waiting = setTimeout(() => output.replaceChildren(el("p", { class: "asof" }, "Adding up the sketches of the sites …")), 500);
  try {
    const answer = await get(question, params).finally(() => clearTimeout(waiting));
    const context = { ...params, window: state.about.window.length };
    const nodes = answer.rows ? table(answer, context) : single(question, answer.estimate, context);
    output.replaceChildren(...nodes, el("p", { class: "asof" }, `From the sketches as of ${clock(answer.asof)}.`));
  } catch (error) {
    output.replaceChildren(el("p", { class: "wrong" }, ...withCode(error.text ?? String(error))));
  }
  button.disabled = false;
}

/** One estimate: the number, its bounds on a line, and a sentence. */
function single(question, estimate, context) {
  return [
    el("p", { class: "value", title: full(estimate.value) }, number(estimate.value)),
    gauge(estimate),
    el("p", { class: "sentence" }, `${SENTENCES[question](context, estimate)} ${scope(context)}. ${boundsSentence(estimate)}`),
  ];
}

/** The value between its bounds, on a line from zero. */
function gauge({ value, low, high }) {
  if (low === null || high === null || high <= 0) return null;
  const band = el("i"), mark = el("b"), start = Math.min(0, low), length = (high - start) * 1.08;
  band.style.left = `${(100 * (low - start)) / length}%`;
  band.style.width = `${Math.max(0.6, (100 * (high - low)) / length)}%`;
  mark.style.left = `${(100 * (value - start)) / length}%`;
  return el("div", { class: "gauge", "aria-hidden": "true" }, band, mark);
}

function table({ rows }, context) {
  const text = scope(context);
  if (!rows.length) return [el("p", { class: "sentence" }, `No rows ${text}.`)];
  const lines = rows.map(tableRow).map(({ name, value, full: digits, bounds, sentence }) => el("tr", { title: sentence },
    el("td", { class: "name" }, name), el("td", { class: "n", title: digits }, value), el("td", { class: "n dim" }, bounds)));
  const [name, value] = "q" in rows[0] ? ["Share", "Value"] : ["Key", "Count"];
  const head = el("thead", {}, el("tr", {},
    el("th", { scope: "col" }, name), el("th", { scope: "col", class: "n" }, value), el("th", { scope: "col", class: "n" }, "Bounds")));
  const confidence = percent(Math.min(...rows.map((row) => row.estimate.confidence)));
  return [
    el("p", { class: "sentence" }, `${text[0].toUpperCase()}${text.slice(1)}. Each true value is within its bounds with a probability of at least ${confidence}.`),
    el("table", {}, head, el("tbody", {}, ...lines)),
  ];
}

form.addEventListener("submit", submit);
form.addEventListener("change", showFields);
on("about asof", update);
on("answers", suggestKeys);
on("picked", ({ item }) => { if (item !== null && !byId("ask").hidden) form.key.value = item; });
