// Answers in words.

import { apart, between, full, number, percent, spelled } from "./format.js";
import { shareName } from "./quantiles.js";

/** "in the last 10 minutes at paris" */
export function scope({ last, from, to, site, whole }) {
  const when = last ? `in the last ${spelled(last)}` : from || to ? `between ${told(from)} and ${told(to)}` : `in the last ${spelled(whole)}`;
  return `${when} ${site ? `at ${site}` : "at all sites"}`;
}

function told(time) {
  if (!time) return "now";
  return /^[\d\s]+(ms|min|[smhdw])/.test(time) && !/\d-\d/.test(time) ? `${spelled(time)} ago` : time;
}

/** How sure, and between what: the second sentence of every answer. */
export function sure(estimate) {
  const { value, low, high, confidence } = estimate;
  if (low === value && high === value) return confidence === 1 ? "That is exact." : `It is just that with a probability of at least ${percent(confidence)}.`;
  const range = `between ${apart(low, high, full).join(" and ")}`;
  return confidence === 1 ? `It is certainly ${range}.` : `It is ${range} with a probability of at least ${percent(confidence)}.`;
}

export const SAID = {
  count: (asked, { value }) => `${asked.key} came about ${full(value)} ${value === 1 ? "time" : "times"}`,
  total: (_, { value }) => `There were about ${full(value)} rows`,
  range: (asked, { value }) => `About ${full(value)} rows had a key from ${asked.lo} to ${asked.hi}`,
  "self-join": (_, { value }) => `The squares of all keys' counts add up to about ${full(value)}`,
  "inner-product": (asked, { value }) =>
    `About ${full(value)} pairs of a row of ${asked.left} and one of ${asked.right || "its other side"} have the same key`,
};

/** A row of a table of answers: name, value, bounds. */
export function line(row) {
  const name = "q" in row ? shareName(row.q) : String(row.key);
  return { name, value: number(row.estimate.value), all: full(row.estimate.value), bounds: between(row.estimate), sure: sure(row.estimate) };
}
