// Dark or light. A plain script in the head and not a module, so that the page is never painted in the wrong theme first.
// The choice is stored; without a choice the system's setting applies.
"use strict";

(() => {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const stored = () => {
    try { return localStorage.getItem("lately-theme"); } catch { return null; }   // storage may be disabled
  };
  const apply = (theme) => {
    root.dataset.theme = theme;
    document.dispatchEvent(new Event("themechange"));
  };
  const chosen = () => stored() ?? (system.matches ? "dark" : "light");

  apply(chosen());
  system.addEventListener("change", () => apply(chosen()));
  document.addEventListener("click", (event) => {
    if (!event.target.closest("#theme")) return;
    const next = root.dataset.theme === "dark" ? "light" : "dark";
    try { localStorage.setItem("lately-theme", next); } catch { /* without storage it applies to this page only */ }
    apply(next);
  });
})();
