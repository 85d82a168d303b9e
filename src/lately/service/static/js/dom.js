// The few things that every part of the page does to the document.

export const byId = (id) => document.getElementById(id);

/** A new element: `el("p", {class: "hint"}, "text", other)`. Text is text, never markup. */
export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** Text of an element, and what is shown when the mouse rests on it. Untouched if nothing changed. */
export function say(id, text, title = "") {
  const place = byId(id);
  if (place.textContent !== text) place.textContent = text;
  if (place.title !== title) place.title = title;
}

export function show(id, shown) {
  byId(id).hidden = !shown;
}

/** An empty state in place of a chart or a table; with no text the chart is back. `backticks` become code. */
export function empty(id, text, ...instead) {
  const place = byId(id);
  place.hidden = !text;
  for (const other of instead) byId(other).hidden = Boolean(text);
  place.replaceChildren(...marked(text ?? ""));
}

export function marked(text) {
  return text.split("`").map((part, i) => (i % 2 ? el("code", {}, part) : part));
}

/** The options of a select as [value, label]; kept as they are if they did not change, so that an open list stays open. */
export function options(select, pairs, chosen) {
  const wanted = JSON.stringify(pairs);
  if (select.dataset.options !== wanted) {
    select.dataset.options = wanted;
    select.replaceChildren(...pairs.map(([value, label]) => el("option", { value }, label)));
  }
  if (chosen !== undefined && select.value !== chosen) select.value = chosen;
  select.hidden = pairs.length < 2;
}
