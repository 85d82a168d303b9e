// The token of a service that needs one: the user enters it once, and this tab keeps it.

import { byId, setText } from "./dom.js";

const NAME = "lately-token";
let current = read();
let pending = null;

function read() {
  try { return sessionStorage.getItem(NAME); } catch { return null; }
}

export const token = () => current;

/** Show the form and wait for a token other than `rejected`. Requests that are rejected at the same time share one form. */
export function askToken(wrong, rejected) {
  if (current !== rejected) return Promise.resolve();     // another request has got a new token meanwhile
  pending ??= new Promise((done) => {
    const dialog = byId("token"), form = byId("token-form"), field = byId("token-value");
    setText("token-wrong", wrong ? "This token is not valid." : "");
    form.onsubmit = () => {
      current = field.value.trim();
      try { sessionStorage.setItem(NAME, current); } catch { /* without storage it is kept until the page is closed */ }
      field.value = "";
      pending = null;
      done();
    };
    dialog.oncancel = (event) => event.preventDefault();   // there is nothing to show without it
    dialog.showModal();
    field.focus();
  });
  return pending;
}
