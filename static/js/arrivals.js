// What is new in an open list: drawn hidden above the other rows, shown here, without ever
// moving a row under somebody's pointer, and left out where the page has it already.
(() => {
  "use strict";
  const shown = new Set();

  const show = () => {
    document.querySelectorAll("[data-arrivals]").forEach((body) => {
      const list = body.closest("[data-arrivals-in]");
      const still = list.matches(":hover") && !list.hidden;
      for (const row of body.children) {
        const of = row.dataset.arrived;
        const fresh = !shown.has(of);
        if (document.getElementById(of) || (fresh && still)) continue;
        row.hidden = false;
        if (!fresh) continue;
        shown.add(of);
        list.hidden = false;
        document.querySelector("[data-arrivals-none]")?.remove();
        if (row.dataset.say) headgate.announce(row.dataset.say);
      }
    });
  };
  document.body.addEventListener("htmx:sseMessage", show);
  document.addEventListener("headgate:data", show);
  document.querySelectorAll("[data-arrivals-in]").forEach((list) => {
    list.addEventListener("mouseleave", show);
  });
})();
