// The head of the page: whether the stream is live, and how it goes, in numbers.

import { byId, say } from "./dom.js";
import { bytes, clock, day, full, many, number, percent, place, seconds, share, span } from "./format.js";
import { isInteger, newest, on, state } from "./state.js";

/** Rows a second of the stream: those of a batch over the time since the batch before, or over its own if that was longer. */
export function rateOf(run, before) {
  const gap = before ? (Date.parse(run.began) - Date.parse(before.began)) / 1000 : 0;
  const time = Math.max(gap, run.seconds ?? 0);
  return time > 0 ? run.rows / time : null;
}

export const sum = (runs, name) => runs.reduce((total, run) => total + (run[name] ?? 0), 0);

/** How many times less, or more, than sending every row. */
export function saving(sent, everything) {
  if (!sent || !everything) return "";
  const ratio = everything / sent;
  if (ratio >= 1.05) return `${number(ratio >= 10 ? Math.round(ratio) : ratio)} times less`;
  return ratio <= 0.95 ? `${number(1 / ratio)} times more` : "as much";
}

export function sentBytes(runs) {
  return sum(runs, "shipped_bytes") + sum(runs, "monitor_bytes");
}

function name() {
  const { about } = state;
  say("name", about.name);
  const known = [`lately ${about.lately}`, `window ${about.window.length}`];
  if (about.guarantee) known.push(`guarantee: eps ${about.guarantee.eps}, ${percent(1 - about.guarantee.delta)} sure`);
  known.push(many(about.queries.length, "query", "queries"), many(about.monitors.length, "monitor"));
  if (about.keep) known.push(`kept for ${about.keep}`);
  say("foot", known.join(" · "));
}

function facts() {
  const run = newest();
  if (!run) return;
  const { runs } = state;
  say("fact-time", clock(run.time), String(run.time));
  say("fact-date", isInteger() ? "the stream's own time" : day(run.time));
  say("fact-batch", `batch ${full(run.batch)}, ${seconds(run.seconds)}`);
  const rate = rateOf(run, runs.at(-2));
  say("fact-rate", number(rate), `${full(rate)} rows a second`);
  say("fact-rows", `${number(run.rows)} in the last batch`, `${full(run.rows)} rows`);
  const rows = sum(runs, "rows"), lost = sum(runs, "late") + sum(runs, "rejected");
  say("fact-lost", number(lost), `${full(sum(runs, "late"))} late, ${full(sum(runs, "rejected"))} rejected, of ${full(rows)}`);
  say("fact-lost-share", rows ? `${share(lost / rows)} of ${number(rows)} rows` : "");
  say("fact-state", bytes(run.state_bytes), `${full(run.state_bytes)} bytes`);
  say("fact-sites", `at ${many(run.sites ?? 0, "site")}`);
  const sent = sentBytes(runs), everything = sum(runs, "everything_bytes");
  say("fact-sent", bytes(sent), `${full(sent)} bytes; every row would be ${full(everything)} bytes`);
  say("fact-everything", everything ? saving(sent, everything) : "", "Compared with sending every row");
}

/** From the newest row until now. A site that is ahead of the others does not hide their lag. */
function lag(run, now) {
  const ahead = state.sites?.ahead ?? 0;
  const past = (now - place(ahead ? state.sites.newest : run.time)) / 1000;
  const words = ahead ? `${many(ahead, "site")} ahead of the others left out` : "From the newest row's time until now";
  say("fact-lag", past < -1 ? `${span(-past)} ahead` : span(past), words);
}

/** The lag grows between batches, so it is told every second; so is whether batches still come. */
function tick() {
  const run = newest();
  if (!run || document.hidden) return;
  const now = Date.now(), done = Date.parse(run.began) + 1000 * (run.seconds ?? 0);
  const quiet = (now - done) / 1000;
  if (isInteger()) say("fact-lag", "–", "The stream's times are plain integers: nothing to compare the clock with");
  else lag(run, now);
  const gaps = state.runs.slice(-9).map((one, i, all) => (i ? (Date.parse(one.began) - Date.parse(all[i - 1].began)) / 1000 : 0));
  const usual = Math.max(20, 4 * Math.max(...gaps.slice(1), 0));
  if (byId("live").dataset.state !== "lost") {
    byId("live").dataset.state = quiet > usual ? "quiet" : "live";
    say("live-word", quiet > usual ? `no batch for ${span(quiet)}` : "live");
  }
}

on("about", name);
on("runs", () => { facts(); tick(); });
on("sites", tick);
setInterval(tick, 1000);
