// The data of the page, and events for its changes. Data flows one way: live.js sets it, the cards draw it.

export const state = {
  about: null,      // /api/about
  runs: [],         // rows of /api/runs, oldest first
  answers: null,    // {batch, time, rows} of the newest batch
  alerts: [],       // rows of /api/alerts, newest last
  sites: null,      // /api/sites with the sites that are ahead first, or {error}
  totals: null,     // /api/site-totals, or {error}
};

/** What to do if questions need sketches and none are stored. */
export const NO_SKETCHES = 'No sketches are stored. Set `sketches = "always"` or `"1m"` under `[store]` in the pipeline file.';

const listeners = new Map();

/** Call `listener` after each of the named events: `on("answers range", draw)`. */
export function on(names, listener) {
  for (const name of names.split(" ")) listeners.set(name, [...(listeners.get(name) ?? []), listener]);
}

export function emit(name, detail) {
  for (const listener of listeners.get(name) ?? []) listener(detail);
}

export const newestRun = () => state.runs.at(-1) ?? null;
export const queriesOf = (kind) => (state.about?.queries ?? []).filter((query) => query.kind === kind);
export const isInteger = () => state.about?.time_type === "integer";

/** The newest answers of a query: of one site, or (null) over all sites. */
export function answersTo(query, site = null) {
  return (state.answers?.rows ?? []).filter((row) => row.query === query && row.site === site);
}

/** The sites for which a query has answers; [null] if its answers are over all sites. */
export function sitesOf(query) {
  return [...new Set((state.answers?.rows ?? []).filter((row) => row.query === query).map((row) => row.site))];
}

/** Whether an alert began to fire with this row; otherwise it was resolved. */
export const isFiring = (row) => row.state === "firing";
