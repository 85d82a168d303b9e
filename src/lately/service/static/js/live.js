// Keeps the state true. The service pushes a word of each batch; the page then asks for what a batch changes, at most once a
// second, and not at all while nobody looks. Alerts are heard even then, so that the tab's title can tell.

import { address, get } from "./api.js";
import { nameOf } from "./alerts.js";
import { byId, say, show } from "./dom.js";
import { forget } from "./history.js";
import { newest, NO_SKETCHES, on, state, tell } from "./state.js";
import { token } from "./token.js";

const PACE = 1000, SITES_PACE = 5000, AGAIN = 3000;
const RUNS = 2000, AHEAD = 10, SITES = 20;
let stale = false, timer = null, refreshed = 0, sitesAt = -Infinity, lost = false, source = null;

function trouble(error) {
  show("notice", Boolean(error));
  if (error) say("notice", error.told ?? String(error));
}

/** Everything: at the start, and after a time in which batches may have been missed. */
async function load() {
  forget();
  const [about, runs, alerts] = await Promise.all([get("about"), get("runs", { limit: RUNS }), get("alerts", { limit: 100 })]);
  state.about = about;
  state.runs = runs.rows;
  takeAlerts(alerts.rows, false);
  tell("about");
  tell("runs");
  await refresh();
}

/** What a batch changes. */
async function refresh() {
  refreshed = performance.now();
  try {
    state.answers = await get("answers");
    tell("answers");
    if (performance.now() - sitesAt >= SITES_PACE) await sites();
    trouble(null);
  } catch (error) {
    trouble(error);
  }
}

/** Which sites are silent or ahead: a few of each, however many there are. */
async function silent() {
  const [ahead, rest] = await Promise.all([get("sites", { state: "ahead", limit: AHEAD }), get("sites", { limit: SITES })]);
  const known = new Set(ahead.rows.map((row) => row.site));
  return { ...rest, rows: [...ahead.rows, ...rest.rows.filter((row) => !known.has(row.site))] };
}

/** The sites, and their rows as their newest stored sketches tell; what can be asked changes with those, too. */
async function sites() {
  sitesAt = performance.now();
  state.sites = await silent().catch((error) => ({ error }));
  tell("sites");
  const before = state.about.asof;
  if (before === null) state.about = await get("about");
  if (state.about.asof === null) {
    state.totals = { error: { told: NO_SKETCHES } };
  } else {
    state.totals = await get("site-totals").catch((error) => ({ error }));
    if (!state.totals.error && state.totals.asof !== state.about.asof) state.about = await get("about");
  }
  tell("totals");
  if (state.about.asof !== before) tell("asof");
}

function schedule() {
  if (document.hidden) { stale = true; return; }
  timer ??= setTimeout(() => { timer = null; refresh(); }, Math.max(0, PACE - (performance.now() - refreshed)));
}

function takeRun(run) {
  const last = newest();
  if (last && run.batch <= last.batch) {
    if (Date.parse(run.began) > Date.parse(last.began)) reload();       // somebody began anew
    return;
  }
  state.runs.push(run);
  if (state.runs.length > 2 * RUNS) state.runs.splice(0, RUNS);
  if (!document.hidden) tell("runs");
  schedule();
}

function takeAlerts(rows, loud) {
  const known = new Set(state.alerts.map(nameOf));
  const fresh = rows.filter((row) => !known.has(nameOf(row)));
  if (!fresh.length && loud) return;
  state.alerts = [...state.alerts, ...fresh].slice(-500);
  tell("alerts");
  if (loud) for (const row of fresh) tell("alert", row);
}

function connect() {
  source = new EventSource(address("stream", { token: token() }));
  source.onopen = () => {
    byId("live").dataset.state = "live";
    say("live-word", "live");
    if (lost) reload();
    lost = false;
  };
  const own = source;
  source.addEventListener("batch", (event) => takeRun(JSON.parse(event.data)));
  source.addEventListener("alert", (event) => takeAlerts([JSON.parse(event.data)], true));
  source.onerror = () => {
    lost = true;
    byId("live").dataset.state = "lost";
    say("live-word", "reconnecting");
    if (own !== source || own.readyState !== EventSource.CLOSED) return;       // it tries again itself
    get("health").catch(() => null).then(() => setTimeout(connect, AGAIN));       // which asks for the token, if that is why
  };
}

async function reload() {
  try { await load(); } catch (error) { trouble(error); setTimeout(reload, AGAIN); }
}

export async function start() {
  on("trouble", trouble);
  await reload();
  connect();
  document.addEventListener("visibilitychange", () => {
    if (document.hidden || !stale) return;
    stale = false;
    reload();
  });
  // A page that was left may be kept for the way back. It must not keep its connection: a browser has six for one host.
  addEventListener("pagehide", () => source.close());
  addEventListener("pageshow", ({ persisted }) => { if (persisted) { reload(); connect(); } });
}
