// The token of a guarded service: asked for once, kept for this tab alone.

import { byId, say } from "./dom.js";

const NAME = "lately-token";
let kept = read();
let asking = null;

function read() {
  try { return sessionStorage.getItem(NAME); } catch { return null; }
}

export const token = () => kept;

/** Show the form and wait for a token other than `refused`; requests that are refused together share one form. */
export function askToken(wrong, refused) {
  if (kept !== refused) return Promise.resolve();     // another request has been through the form meanwhile
  asking ??= new Promise((done) => {
    const dialog = byId("token"), form = byId("token-form"), field = byId("token-value");
    say("token-wrong", wrong ? "That was not the right one." : "");
    form.onsubmit = () => {
      kept = field.value.trim();
      try { sessionStorage.setItem(NAME, kept); } catch { /* it holds until the page is left */ }
      field.value = "";
      asking = null;
      done();
    };
    dialog.oncancel = (event) => event.preventDefault();   // without it there is nothing to see
    dialog.showModal();
    field.focus();
  });
  return asking;
}
