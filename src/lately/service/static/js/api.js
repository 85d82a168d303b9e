// Asks the service. Every answer is JSON; every error has a code, a message and often a remedy.

import { askToken, token } from "./token.js";

export class ApiError extends Error {
  constructor(status, { code, message, remedy }) {
    super(message);
    Object.assign(this, { status, code, remedy });
  }

  /** What happened, and what helps. */
  get told() {
    const ended = /[.!?]$/.test(this.message) ? this.message : `${this.message}.`;
    if (!this.remedy || this.message.includes(this.remedy)) return ended;
    return `${ended} ${this.remedy[0].toUpperCase()}${this.remedy.slice(1)}${/[.!?]$/.test(this.remedy) ? "" : "."}`;
  }
}

/** The address of a part of the API; relative, so that the page also works below a path of a proxy. */
export function address(path, values = {}) {
  const url = new URL(`api/${path}`, document.baseURI);
  for (const [name, value] of Object.entries(values)) {
    for (const one of [value].flat()) {
      if (one !== null && one !== undefined && one !== "") url.searchParams.append(name, one);
    }
  }
  return url;
}

// Milliseconds: the most that one request may take, until the next try, and for all tries of an answer that is being prepared.
const SILENT = 30_000, PAUSE = 1000, PATIENCE = 120_000;
const NOT_YET = ["too_slow", "busy"];

/** An answer. One that takes long, as it is the first over thousands of sites, is asked for until it is there. */
export async function get(path, values) {
  const began = performance.now();
  for (;;) {
    try {
      return await once(path, values);
    } catch (error) {
      if (!NOT_YET.includes(error.code) || performance.now() - began > PATIENCE) throw error;
    }
    await new Promise((done) => setTimeout(done, PAUSE));
  }
}

async function once(path, values) {
  for (let wrong = false; ; wrong = true) {
    const used = token();
    let response;
    try {
      const headers = used ? { Authorization: `Bearer ${used}` } : {};
      response = await fetch(address(path, values), { headers, signal: AbortSignal.timeout(SILENT) });
    } catch (error) {
      if (error.name === "TimeoutError") {
        throw new ApiError(0, { code: "silent", message: `the service has not answered for ${SILENT / 1000} seconds`, remedy: "ask again, or restart `lately serve`" });
      }
      throw new ApiError(0, { code: "unreachable", message: "the service does not answer", remedy: "is `lately serve` still running?" });
    }
    if (response.status === 401) {
      await askToken(wrong || Boolean(used), used);
      continue;
    }
    const body = await response.json().catch(() => null);
    if (response.ok && body) return body;
    throw new ApiError(response.status, body?.error ?? { code: "broken", message: `the service answered ${response.status}` });
  }
}
