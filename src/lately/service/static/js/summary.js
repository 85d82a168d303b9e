// The head of the page: whether the stream is live, and its most important numbers.

import { byId, setText } from "./dom.js";
import { bytes, clock, day, full, plural, number, percent, axisValue, seconds, share, span } from "./format.js";
import { isInteger, newestRun, on, state } from "./state.js";

/** Rows per second: the rows of a batch by the time since the previous batch, or by its own duration if that is longer. */
export function rowsPerSecond(run, before) {
  const gap = before ? (Date.parse(run.began) - Date.parse(before.began)) / 1000 : 0;
  const time = Math.max(gap, run.seconds ?? 0);
  return time > 0 ? run.rows / time : null;
}

export const sum = (runs, name) => runs.reduce((total, run) => total + (run[name] ?? 0), 0);

/** The bytes sent as a share of those that sending every row would take. */
export const shareOfRaw = (sent, everything) => (everything ? `${share(sent / everything)} of the raw size` : "");

export function sentBytes(runs) {
  return sum(runs, "shipped_bytes") + sum(runs, "monitor_bytes");
}

function showPipeline() {
  const { about } = state;
  setText("name", about.name);
  const texts = [`lately ${about.lately}`, `window ${about.window.length}`];
  if (about.guarantee) texts.push(`guarantee: eps ${about.guarantee.eps}, confidence ${percent(1 - about.guarantee.delta)}`);
  texts.push(plural(about.queries.length, "query", "queries"), plural(about.monitors.length, "monitor"));
  if (about.keep) texts.push(`retention ${about.keep}`);
  setText("foot", texts.join(" · "));
}

function showNumbers() {
  const run = newestRun();
  if (!run) return;
  const { runs } = state;
  setText("fact-time", clock(run.time), String(run.time));
  setText("fact-date", isInteger() ? "integer time" : day(run.time));
  setText("fact-batch", `batch ${full(run.batch)}, ${seconds(run.seconds)}`);
  const rate = rowsPerSecond(run, runs.at(-2));
  setText("fact-rate", number(rate), `${full(rate)} rows per second`);
  setText("fact-rows", `${number(run.rows)} in the last batch`, `${full(run.rows)} rows`);
  const rows = sum(runs, "rows"), uncounted = sum(runs, "late") + sum(runs, "rejected");
  setText("fact-uncounted", number(uncounted), `${full(sum(runs, "late"))} late, ${full(sum(runs, "rejected"))} rejected, of ${full(rows)}`);
  setText("fact-uncounted-share", rows ? `${share(uncounted / rows)} of ${number(rows)} rows` : "");
  setText("fact-state", bytes(run.state_bytes), `${full(run.state_bytes)} bytes`);
  setText("fact-sites", `at ${plural(run.sites ?? 0, "site")}`);
  const sent = sentBytes(runs), everything = sum(runs, "everything_bytes");
  setText("fact-sent", bytes(sent), `${full(sent)} bytes; sending every row would take ${full(everything)} bytes`);
  setText("fact-raw-share", shareOfRaw(sent, everything), "Compared with sending every row");
}

/** The time since the newest row. Sites that are ahead of the others are left out, so that they do not hide the lag. */
function showLag(run, now) {
  const ahead = state.sites?.ahead ?? 0;
  const past = (now - axisValue(ahead ? state.sites.newest : run.time)) / 1000;
  const explanation = ahead ? `Without ${plural(ahead, "site")} ahead of the others` : "The time since the newest row";
  setText("fact-lag", past < -1 ? `${span(-past)} ahead` : span(past), explanation);
}

/** Every second: the lag, which grows between batches, and whether batches still arrive. */
function tick() {
  const run = newestRun();
  if (!run || document.hidden) return;
  const now = Date.now(), finished = Date.parse(run.began) + 1000 * (run.seconds ?? 0);
  const idle = (now - finished) / 1000;
  if (isInteger()) setText("fact-lag", "–", "Integer times cannot be compared with the clock");
  else showLag(run, now);
  const gaps = state.runs.slice(-9).map((row, i, all) => (i ? (Date.parse(row.began) - Date.parse(all[i - 1].began)) / 1000 : 0));
  const limit = Math.max(20, 4 * Math.max(...gaps.slice(1), 0));
  if (byId("live").dataset.state !== "lost") {
    byId("live").dataset.state = idle > limit ? "quiet" : "live";
    setText("live-word", idle > limit ? `no batch for ${span(idle)}` : "live");
  }
}

on("about", showPipeline);
on("runs", () => { showNumbers(); tick(); });
on("sites", tick);
setInterval(tick, 1000);
