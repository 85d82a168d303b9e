// Requests to the service. Every response is JSON; every error has a code, a message and usually a remedy.

import { askToken, token } from "./token.js";

export class ApiError extends Error {
  constructor(status, { code, message, remedy }) {
    super(message);
    Object.assign(this, { status, code, remedy });
  }

  /** The message and the remedy as sentences. */
  get text() {
    const message = /[.!?]$/.test(this.message) ? this.message : `${this.message}.`;
    if (!this.remedy) return message;
    return `${message} ${this.remedy[0].toUpperCase()}${this.remedy.slice(1)}${/[.!?]$/.test(this.remedy) ? "" : "."}`;
  }
}

/** The address of an API path; relative to the page, so that the page also works below a path of a proxy. */
export function address(path, values = {}) {
  const url = new URL(`api/${path}`, document.baseURI);
  for (const [name, value] of Object.entries(values)) {
    for (const part of [value].flat()) {
      if (part !== null && part !== undefined && part !== "") url.searchParams.append(name, part);
    }
  }
  return url;
}

// Milliseconds: the limit of one request, the pause before a retry, and the limit of all retries.
const TIMEOUT = 30_000, RETRY_PAUSE = 1000, RETRY_LIMIT = 120_000;
const RETRY_CODES = ["too_slow", "busy"];

/** The response to a GET. An answer that takes long, such as the first one over thousands of sites, is retried until it is ready. */
export async function get(path, values) {
  const start = performance.now();
  for (;;) {
    try {
      return await request(path, values);
    } catch (error) {
      if (!RETRY_CODES.includes(error.code) || performance.now() - start > RETRY_LIMIT) throw error;
    }
    await new Promise((done) => setTimeout(done, RETRY_PAUSE));
  }
}

async function request(path, values) {
  for (let wrong = false; ; wrong = true) {
    const used = token();
    let response;
    try {
      const headers = used ? { Authorization: `Bearer ${used}` } : {};
      response = await fetch(address(path, values), { headers, signal: AbortSignal.timeout(TIMEOUT) });
    } catch (error) {
      if (error.name === "TimeoutError") {
        throw new ApiError(0, { code: "timeout", message: `the service has not responded for ${TIMEOUT / 1000} seconds`, remedy: "try again, or restart `lately serve`" });
      }
      throw new ApiError(0, { code: "unreachable", message: "the service does not respond", remedy: "check that `lately serve` is running" });
    }
    if (response.status === 401) {
      await askToken(wrong || Boolean(used), used);
      continue;
    }
    const body = await response.json().catch(() => null);
    if (response.ok && body) return body;
    throw new ApiError(response.status, body?.error ?? { code: "invalid_response", message: `the service responded with status ${response.status}` });
  }
}
