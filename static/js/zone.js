// Times in the zone that this browser has chosen (cookie "zone"); pages are drawn in UTC.
(() => {
  "use strict";
  const cookie = document.cookie.split("; ").find((one) => one.startsWith("zone="));
  const chosen = cookie ? decodeURIComponent(cookie.slice(5)).replace(/^"|"$/g, "") : "UTC";
  const zone = chosen === "browser" ? Intl.DateTimeFormat().resolvedOptions().timeZone : chosen;
  let form = null;
  try {
    form = new Intl.DateTimeFormat("en-CA", { timeZone: zone, hourCycle: "h23", year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit" });
  } catch {
    // A zone that this browser does not know: UTC it is.
  }
  const utc = !form || zone === "UTC";

  // {day: "2026-11-23", time: "17:20:43"} of milliseconds.
  const local = (at) => {
    if (utc) {
      const iso = new Date(at).toISOString();
      return { day: iso.slice(0, 10), time: iso.slice(11, 19) };
    }
    const part = Object.fromEntries(form.formatToParts(at).map((one) => [one.type, one.value]));
    return { day: `${part.year}-${part.month}-${part.day}`, time: `${part.hour}:${part.minute}:${part.second}` };
  };
  window.headgate = Object.assign(window.headgate || {}, { local, zone: utc ? "UTC" : zone });
  if (utc) return;

  const draw = () => {
    document.querySelectorAll("time[datetime]").forEach((element) => {
      const at = Date.parse(element.getAttribute("datetime"));
      if (Number.isNaN(at) || element.dataset.zoned === element.getAttribute("datetime")) return;
      const there = local(at);
      const day = element.querySelector(".day"); // an age has none: it is the same everywhere
      if (day) {
        day.textContent = there.day;
        day.nextSibling.textContent = ` ${there.time}`;
      }
      element.title = `${element.title}; in ${zone} ${there.day} ${there.time}`;
      element.dataset.zoned = element.getAttribute("datetime");
    });
    document.querySelectorAll("[data-zone-name]").forEach((element) => {
      if (element.textContent !== zone) element.textContent = zone;
    });
  };
  draw();
  // Fragments come drawn in UTC, by whichever way.
  new MutationObserver(draw).observe(document.body, { childList: true, subtree: true });
})();
