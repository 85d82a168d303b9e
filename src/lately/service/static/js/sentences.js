// Answers as sentences.

import { between, boundTexts, durationText, full, number, percent } from "./format.js";
import { shareName } from "./quantiles.js";

/** "in the last 10 minutes at paris" */
export function scope({ last, from, to, site, window }) {
  const when = last ? `in the last ${durationText(last)}` : from || to ? `between ${ageOrTime(from)} and ${ageOrTime(to)}` : `in the last ${durationText(window)}`;
  return `${when} ${site ? `at ${site}` : "at all sites"}`;
}

function ageOrTime(time) {
  if (!time) return "now";
  return /^[\d\s]+(ms|min|[smhdw])/.test(time) && !/\d-\d/.test(time) ? `${durationText(time)} ago` : time;
}

/** The bounds and their confidence: the second sentence of every answer. */
export function boundsSentence(estimate) {
  const { value, low, high, confidence } = estimate;
  if (low === value && high === value) return confidence === 1 ? "This is exact." : `This is the true value with a probability of at least ${percent(confidence)}.`;
  const range = `The true value is between ${boundTexts(low, high, full).join(" and ")}`;
  return confidence === 1 ? `${range}.` : `${range} with a probability of at least ${percent(confidence)}.`;
}

export const SENTENCES = {
  count: (params, { value }) => `${params.key} occurred about ${full(value)} ${value === 1 ? "time" : "times"}`,
  total: (_, { value }) => `There were about ${full(value)} rows`,
  range: (params, { value }) => `About ${full(value)} rows had a key from ${params.lo} to ${params.hi}`,
  "self-join": (_, { value }) => `The sum of the squared counts of all keys was about ${full(value)}`,
  "inner-product": (params, { value }) =>
    `About ${full(value)} pairs of a row of ${params.left} and a row of ${params.right || "its other side"} had the same key`,
};

/** The texts of a table row: name, value, bounds. */
export function tableRow(row) {
  const name = "q" in row ? shareName(row.q) : String(row.key);
  return { name, value: number(row.estimate.value), full: full(row.estimate.value), bounds: between(row.estimate), sentence: boundsSentence(row.estimate) };
}
