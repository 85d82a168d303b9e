// Answers over time. A series is fetched once and then grows by the newest answers, so a batch costs no request of its own.

import { get } from "./api.js";
import { on, state, tell } from "./state.js";

const LIMIT = 2000;
const KEPT = 16;        // series that are remembered
const series = new Map();

const nameOf = (query, item, site) => JSON.stringify([query, item ?? null, site ?? null]);

/** Rows of one answer, oldest first: those known so far; "history" is told when more have come. */
export function historyOf(query, item, site) {
  const name = nameOf(query, item, site);
  let found = series.get(name);
  if (!found) {
    found = { rows: [], loaded: false };
    if (series.size >= KEPT) series.delete(series.keys().next().value);
    load(found, query, item, site);
  }
  series.delete(name);
  series.set(name, found);        // newest use last, so that the oldest is dropped first
  return found.rows;
}

async function load(found, query, item, site) {
  try {
    found.rows = (await get("history", { query, item, site, limit: LIMIT })).rows;
  } catch (error) {
    tell("trouble", error);
  }
  found.loaded = true;
  grow();
  tell("history");
}

function grow() {
  const { answers } = state;
  if (!answers) return;
  const now = new Map(answers.rows.map((row) => [nameOf(row.query, row.item, row.site), row]));
  for (const [name, found] of series) {
    const row = now.get(name);
    if (found.loaded && row && (found.rows.at(-1)?.batch ?? -1) < answers.batch) {
      found.rows.push({ time: answers.time, batch: answers.batch, ...row });
      if (found.rows.length > 2 * LIMIT) found.rows.splice(0, LIMIT);
    }
  }
}

/** Forget all: batches were missed. */
export function forget() {
  series.clear();
}

on("answers", grow);
