// Answers over time. A series is fetched once and then extended with the newest answers, without a request for each batch.

import { get } from "./api.js";
import { on, state, emit } from "./state.js";

const LIMIT = 2000;
const MAX_SERIES = 16;
const series = new Map();

const keyOf = (query, item, site) => JSON.stringify([query, item ?? null, site ?? null]);

/** The rows of one answer that have been loaded, oldest first; the event "history" follows when more have arrived. */
export function historyOf(query, item, site) {
  const key = keyOf(query, item, site);
  let entry = series.get(key);
  if (!entry) {
    entry = { rows: [], loaded: false };
    if (series.size >= MAX_SERIES) series.delete(series.keys().next().value);
    load(entry, query, item, site);
  }
  series.delete(key);
  series.set(key, entry);        // the least recently used one is the first, and is dropped first
  return entry.rows;
}

async function load(entry, query, item, site) {
  try {
    entry.rows = (await get("history", { query, item, site, limit: LIMIT })).rows;
  } catch (error) {
    emit("error", error);
  }
  entry.loaded = true;
  extend();
  emit("history");
}

function extend() {
  const { answers } = state;
  if (!answers) return;
  const newest = new Map(answers.rows.map((row) => [keyOf(row.query, row.item, row.site), row]));
  for (const [key, entry] of series) {
    const row = newest.get(key);
    if (entry.loaded && row && (entry.rows.at(-1)?.batch ?? -1) < answers.batch) {
      entry.rows.push({ time: answers.time, batch: answers.batch, ...row });
      if (entry.rows.length > 2 * LIMIT) entry.rows.splice(0, LIMIT);
    }
  }
}

/** Drop all series, because batches may have been missed. */
export function clearHistory() {
  series.clear();
}

on("answers", extend);
