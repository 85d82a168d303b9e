// Keeps the state up to date. The service pushes an event for each batch; the page then requests what a batch changes, at most
// once a second, and not while its tab is hidden. Alerts are received even then, for the title of the tab.

import { address, get } from "./api.js";
import { alertId } from "./alerts.js";
import { byId, setText, show } from "./dom.js";
import { clearHistory } from "./history.js";
import { newestRun, NO_SKETCHES, on, state, emit } from "./state.js";
import { token } from "./token.js";

// Milliseconds between refreshes, between refreshes of the sites, and before a retry.
const REFRESH_INTERVAL = 1000, SITES_INTERVAL = 5000, RETRY_PAUSE = 3000;
// The numbers of rows that are requested.
const MAX_RUNS = 2000, MAX_AHEAD = 10, MAX_SITES = 20;
let stale = false, timer = null, refreshedAt = 0, sitesAt = -Infinity, lost = false, source = null;

function showError(error) {
  show("notice", Boolean(error));
  if (error) setText("notice", error.text ?? String(error));
}

/** Load everything: at the start, and whenever batches may have been missed. */
async function load() {
  clearHistory();
  const [about, runs, alerts] = await Promise.all([get("about"), get("runs", { limit: MAX_RUNS }), get("alerts", { limit: 100 })]);
  state.about = about;
  state.runs = runs.rows;
  addAlerts(alerts.rows, false);
  emit("about");
  emit("runs");
  await refresh();
}

/** Load what a batch changes. */
async function refresh() {
  refreshedAt = performance.now();
  try {
    state.answers = await get("answers");
    emit("answers");
    if (performance.now() - sitesAt >= SITES_INTERVAL) await loadSites();
    showError(null);
  } catch (error) {
    showError(error);
  }
}

/** The sites that are ahead and those that are silent the longest, at most some of each. */
async function notableSites() {
  const [ahead, rest] = await Promise.all([get("sites", { state: "ahead", limit: MAX_AHEAD }), get("sites", { limit: MAX_SITES })]);
  const names = new Set(ahead.rows.map((row) => row.site));
  return { ...rest, rows: [...ahead.rows, ...rest.rows.filter((row) => !names.has(row.site))] };
}

/** Load the states of the sites and their totals; after new sketches also which questions can be asked. */
async function loadSites() {
  sitesAt = performance.now();
  state.sites = await notableSites().catch((error) => ({ error }));
  emit("sites");
  const before = state.about.asof;
  if (before === null) state.about = await get("about");
  if (state.about.asof === null) {
    state.totals = { error: { text: NO_SKETCHES } };
  } else {
    state.totals = await get("site-totals").catch((error) => ({ error }));
    if (!state.totals.error && state.totals.asof !== state.about.asof) state.about = await get("about");
  }
  emit("totals");
  if (state.about.asof !== before) emit("asof");
}

function schedule() {
  if (document.hidden) { stale = true; return; }
  timer ??= setTimeout(() => { timer = null; refresh(); }, Math.max(0, REFRESH_INTERVAL - (performance.now() - refreshedAt)));
}

function addRun(run) {
  const last = newestRun();
  if (last && run.batch <= last.batch) {
    if (Date.parse(run.began) > Date.parse(last.began)) reload();       // the pipeline was started from the beginning
    return;
  }
  state.runs.push(run);
  if (state.runs.length > 2 * MAX_RUNS) state.runs.splice(0, MAX_RUNS);
  if (!document.hidden) emit("runs");
  schedule();
}

function addAlerts(rows, isNew) {
  const known = new Set(state.alerts.map(alertId));
  const fresh = rows.filter((row) => !known.has(alertId(row)));
  if (!fresh.length && isNew) return;
  state.alerts = [...state.alerts, ...fresh].slice(-500);
  emit("alerts");
  if (isNew) for (const row of fresh) emit("alert", row);
}

function connect() {
  source = new EventSource(address("stream", { token: token() }));
  source.onopen = () => {
    byId("live").dataset.state = "live";
    setText("live-word", "live");
    if (lost) reload();
    lost = false;
  };
  const current = source;
  source.addEventListener("batch", (event) => addRun(JSON.parse(event.data)));
  source.addEventListener("alert", (event) => addAlerts([JSON.parse(event.data)], true));
  source.onerror = () => {
    lost = true;
    byId("live").dataset.state = "lost";
    setText("live-word", "reconnecting");
    if (current !== source || current.readyState !== EventSource.CLOSED) return;       // the browser reconnects by itself
    get("health").catch(() => null).then(() => setTimeout(connect, RETRY_PAUSE));       // this request asks for the token if it is missing
  };
}

async function reload() {
  try { await load(); } catch (error) { showError(error); setTimeout(reload, RETRY_PAUSE); }
}

export async function start() {
  on("error", showError);
  await reload();
  connect();
  document.addEventListener("visibilitychange", () => {
    if (document.hidden || !stale) return;
    stale = false;
    reload();
  });
  // A browser may keep a page for the back button. Such a page must close its connection: a browser has only six for one host.
  addEventListener("pagehide", () => source.close());
  addEventListener("pageshow", ({ persisted }) => { if (persisted) { reload(); connect(); } });
}
