// Dark or light. A plain script in the head, not a module, so that the page is never painted in the wrong one first.
// What the switch says is remembered; until it is used, the system decides.
"use strict";

(() => {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const remembered = () => {
    try { return localStorage.getItem("lately-theme"); } catch { return null; }   // storage may be forbidden
  };
  const apply = (theme) => {
    root.dataset.theme = theme;
    document.dispatchEvent(new Event("themechange"));
  };
  const chosen = () => remembered() ?? (system.matches ? "dark" : "light");

  apply(chosen());
  system.addEventListener("change", () => apply(chosen()));
  document.addEventListener("click", (event) => {
    if (!event.target.closest("#theme")) return;
    const next = root.dataset.theme === "dark" ? "light" : "dark";
    try { localStorage.setItem("lately-theme", next); } catch { /* it holds for this page then */ }
    apply(next);
  });
})();
