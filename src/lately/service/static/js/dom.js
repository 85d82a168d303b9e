// Helpers for the document that every part of the page uses.

export const byId = (id) => document.getElementById(id);

/** A new element: `el("p", {class: "hint"}, "text", other)`. Strings become text, never markup. */
export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Set the text and the tooltip of an element. The document is not touched if nothing changes. */
export function setText(id, text, title = "") {
  const element = byId(id);
  if (element.textContent !== text) element.textContent = text;
  if (element.title !== title) element.title = title;
}

export function show(id, shown) {
  byId(id).hidden = !shown;
}

/** Show a message in place of charts or tables; an empty text shows these again. `backticks` become code. */
export function showEmpty(id, text, ...replaced) {
  const element = byId(id);
  element.hidden = !text;
  for (const other of replaced) byId(other).hidden = Boolean(text);
  element.replaceChildren(...withCode(text ?? ""));
}

/** Text as nodes; `backticks` become code. */
export function withCode(text) {
  return text.split("`").map((part, i) => (i % 2 ? el("code", {}, part) : part));
}

/** Set the options of a select from [value, label] pairs. They are not replaced if they are equal, so an open list stays open. */
export function setOptions(select, pairs, chosen) {
  const key = JSON.stringify(pairs);
  if (select.dataset.options !== key) {
    select.dataset.options = key;
    select.replaceChildren(...pairs.map(([value, label]) => el("option", { value }, label)));
  }
  if (chosen !== undefined && select.value !== chosen) select.value = chosen;
  select.hidden = pairs.length < 2;
}
