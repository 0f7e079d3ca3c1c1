// Runs before the first paint, so that no page flashes in the wrong theme.
(() => {
  "use strict";
  const root = document.documentElement;
  root.classList.add("js");
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const follow = () => {
    if (!root.hasAttribute("data-theme-chosen")) {
      root.setAttribute("data-bs-theme", dark.matches ? "dark" : "light");
    }
  };
  follow();
  dark.addEventListener("change", follow);
})();
