// Ages tick in place: <time datetime data-age>. queries/views/console/wording.py::age_words agrees.
(() => {
  "use strict";
  let skew = 0; // server's clock minus ours, in milliseconds; live.js tells

  const words = (seconds) => {
    if (seconds < 1) return "now";
    if (seconds < 60) return `${Math.floor(seconds)} s`;
    if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
    if (seconds < 86400) return `${Math.floor(seconds / 3600)} h`;
    return `${Math.floor(seconds / 86400)} d`;
  };

  const draw = (element) => {
    const at = Date.parse(element.getAttribute("datetime"));
    if (Number.isNaN(at)) return;
    const passed = (Date.now() + skew - at) / 1000;
    if (element.hasAttribute("data-until")) {
      const left = passed > -1 ? "due" : `in ${words(-passed)}`;
      if (element.textContent !== left) element.textContent = left;
      return;
    }
    const text = words(passed);
    const suffix = element.dataset.suffix || "";
    const whole = text === "now" || !suffix ? text : `${text} ${suffix}`;
    if (element.textContent !== whole) element.textContent = whole;
  };

  const tick = () => document.querySelectorAll("time[data-age], time[data-until]").forEach(draw);

  window.headgate = Object.assign(window.headgate || {}, {
    ageWords: words,
    tickAges: tick,
    now: () => Date.now() + skew,
    setServerTime: (iso) => {
      const server = Date.parse(iso);
      if (!Number.isNaN(server)) skew = server - Date.now();
    },
  });
  tick();
  setInterval(tick, 1000);
})();
