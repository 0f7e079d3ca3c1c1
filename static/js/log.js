// A log that follows: new lines are asked for while the box is ticked and somebody looks.
(() => {
  "use strict";
  const log = document.getElementById("log");
  const follow = document.getElementById("follow");
  if (!log) return;

  if (follow) {
    document.body.addEventListener("htmx:beforeRequest", (event) => {
      if (event.target.id === "log-next" && (!follow.checked || document.hidden)) event.preventDefault();
    });
    const atEnd = () => log.scrollHeight - log.scrollTop - log.clientHeight < 40;
    let stay = true;
    log.addEventListener("scroll", () => (stay = atEnd()));
    document.body.addEventListener("htmx:afterSwap", () => {
      if (follow.checked && stay) log.scrollTop = log.scrollHeight;
    });
    follow.addEventListener("change", () => {
      stay = true;
      if (follow.checked) log.scrollTop = log.scrollHeight;
    });
  }
  document.querySelector("[data-choose]")?.addEventListener("change", (event) => event.target.form.requestSubmit());
  document.querySelector("[data-linked]")?.scrollIntoView({ block: "center" });
})();
