// What the page knows, and who wants to hear when it changes. Data flows one way: live.js puts it here, the cards draw it.

export const state = {
  about: null,      // /api/about
  runs: [],         // rows of batches, oldest first
  answers: null,    // {batch, time, rows} of the newest batch
  alerts: [],       // rows, newest last
  sites: null,      // /api/sites, those that are ahead first, or {error}
  totals: null,     // /api/site-totals, or {error}
};

/** What helps where questions need sketches and none are stored. */
export const NO_SKETCHES = 'No sketches are stored. Put `sketches = "always"`, or `"1m"`, under `[store]` of the pipeline file.';

const listeners = new Map();

/** Call `hear` whenever one of the named things changed: `on("answers range", draw)`. */
export function on(names, hear) {
  for (const name of names.split(" ")) listeners.set(name, [...(listeners.get(name) ?? []), hear]);
}

export function tell(name, detail) {
  for (const hear of listeners.get(name) ?? []) hear(detail);
}

export const newest = () => state.runs.at(-1) ?? null;
export const queriesOf = (kind) => (state.about?.queries ?? []).filter((query) => query.kind === kind);
export const isInteger = () => state.about?.moment === "integer";

/** Rows of the newest answers to one query, at one site or (null) over all. */
export function answersTo(query, site = null) {
  return (state.answers?.rows ?? []).filter((row) => row.query === query && row.site === site);
}

/** The sites that a query has answers for; [null] where it has one for all. */
export function sitesOf(query) {
  return [...new Set((state.answers?.rows ?? []).filter((row) => row.query === query).map((row) => row.site))];
}

/** Whether an alert began to fire with this row; else it was resolved. */
export const isFiring = (row) => row.state === "firing";
