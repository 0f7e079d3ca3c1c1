// Live pages: one stream a browser, left where nobody looks, polling only where it is down.
// htmx-ext-sse swaps the fragments; this file decides when there is a stream at all.
(() => {
  "use strict";
  const body = document.body;
  const button = document.getElementById("live");
  if (!body.dataset.live || !button) return;

  const PAUSED = "headgate-paused";
  const POLL_MS = 5000;
  const HIDDEN_POLL_MS = 30000;
  const SILENT_MS = 20000; // the server sends a tick every 5 s
  const LATE_MS = 3000; // between two looks of this page, which are 1 s apart
  const QUIET_S = 60; // a driver sends something every few seconds

  let source = null;
  let paused = sessionStorage.getItem(PAUSED) === "1";
  let cursor = "";
  let heardAt = 0; // when the server last said anything, by our clock
  let roundAt = Date.now(); // when this page last looked
  let wokeAt = 0; // when it last looked late: until then nobody read what the server sent
  let newest = ""; // time of the newest event any driver has sent
  let silent = ""; // since when a driver of what is shown has sent nothing
  let polledAt = 0;
  let polling = false;

  const address = () => {
    const parameters = new URLSearchParams({ topics: body.dataset.topics });
    if (cursor) parameters.set("cursor", cursor);
    return `${body.dataset.live}?${parameters}`;
  };
  const open = () => source !== null && source.readyState === EventSource.OPEN;
  const wanted = () => !paused && !document.hidden;

  // Cells marked .keep stand outside the live data: buttons, boxes. Each needs an id of its own,
  // else another cell may be morphed out of it.
  Object.assign(Idiomorph.defaults.callbacks, {
    beforeNodeRemoved: (node) => !(node.nodeType === 1 && node.classList.contains("keep")),
    // The server does not draw them. A copy holds their place: without it, what is new lands before
    // the cell that has the focus.
    beforeNodeMorphed: (node, fresh) => {
      if (node.nodeType !== 1 || node.classList.contains("keep")) return node.nodeType !== 1;
      [...node.children].forEach((cell, at) => {
        if (!cell.classList.contains("keep") || [...fresh.children].some(({ id }) => id === cell.id)) return;
        fresh.insertBefore(cell.cloneNode(true), fresh.children[at] ?? null);
      });
      return true;
    },
    // What shell.js gave a part that scrolls, which the server does not know: without it the
    // keyboard's focus would be lost whenever the part is drawn again.
    beforeAttributeUpdated: (name, node) => !("scrolls" in node.dataset && /^(tabindex|data-scrolls|role|aria-label)$/.test(name)),
  });

  // All tabs share one stream (stream.js); a browser without shared workers has one for each tab.
  let worker = window.SharedWorker ? new SharedWorker(body.dataset.worker) : null;
  if (worker) {
    worker.onerror = () => {
      worker = null;
      connect();
    };
  }
  class Source extends EventTarget {
    constructor(url) {
      super();
      this.readyState = EventSource.CONNECTING;
      if (worker) this.share();
      else this.alone(url);
    }
    share() {
      const { port } = worker;
      port.onmessage = ({ data }) => this.hear(data);
      port.postMessage({ address: new URL(body.dataset.live, location.href).href, topics: body.dataset.topics, cursor });
      this.addEventListener("tick", () => port.postMessage({ here: true }));
      this.leave = () => port.postMessage({ leave: true });
    }
    alone(url) {
      const stream = new EventSource(url);
      stream.onopen = () => this.hear({ open: true });
      stream.onerror = () => this.hear({ error: true, closed: stream.readyState === EventSource.CLOSED });
      stream.onmessage = ({ data }) => this.hear(JSON.parse(data.slice(data.indexOf("\n") + 1)));
      this.leave = () => stream.close();
    }
    hear(said) {
      if (this.readyState === EventSource.CLOSED) return;
      if (said.open) {
        if (this.readyState === EventSource.OPEN) return;
        this.readyState = EventSource.OPEN;
        this.onopen?.(new Event("open"));
      } else if (said.error) {
        this.readyState = said.closed ? EventSource.CLOSED : EventSource.CONNECTING;
        this.onerror?.(new Event("error"));
      } else {
        this.dispatchEvent(new MessageEvent(said.event, { data: said.data }));
      }
    }
    close() {
      this.readyState = EventSource.CLOSED;
      this.leave();
    }
  }

  const closed = () => {
    const nothing = new EventTarget();
    return Object.assign(nothing, { readyState: EventSource.CLOSED, close() {} });
  };
  htmx.createEventSource = (url) => {
    if (!wanted()) {
      source = closed();
      return source;
    }
    source = new Source(url);
    source.addEventListener("tick", (event) => {
      const tick = JSON.parse(event.data);
      headgate.setServerTime(tick.now);
      newest = tick.newest || "";
      silent = tick.silent || "";
      cursor = tick.cursor;
      body.setAttribute("sse-connect", address());
      heard();
    });
    return source;
  };
  const connect = () => {
    body.setAttribute("sse-connect", address());
    if (source === null) return;
    source.close();
    source.onerror?.(new Event("error")); // the extension's own way to open it again
  };

  const heard = () => {
    heardAt = Date.now();
    show();
  };
  body.addEventListener("htmx:sseOpen", heard);
  body.addEventListener("htmx:sseError", () => show());
  body.addEventListener("htmx:sseBeforeMessage", (event) => {
    if (!wanted()) event.preventDefault();
  });
  body.addEventListener("htmx:sseMessage", () => {
    heard();
    headgate.tickAges();
  });

  // Where there is no stream, the same fragments come as JSON.
  const poll = async () => {
    if (polling) return;
    polling = true;
    polledAt = Date.now();
    try {
      const response = await fetch(address(), { headers: { Accept: "application/json" } });
      if (!response.ok) throw new Error(String(response.status));
      const answer = await response.json();
      headgate.setServerTime(answer.tick.now);
      newest = answer.tick.newest || "";
      silent = answer.tick.silent || "";
      cursor = answer.tick.cursor;
      for (const [event, data] of answer.fragments) {
        document.querySelectorAll(`[sse-swap="${CSS.escape(event)}"]`).forEach((element) => {
          const fragment = new DOMParser().parseFromString(`<template>${data}</template>`, "text/html");
          const fresh = fragment.querySelector("template").content.firstElementChild;
          if (fresh) Idiomorph.morph(element, fresh, { morphStyle: "outerHTML" });
        });
        document.dispatchEvent(new CustomEvent("headgate:data", { detail: { event, data } }));
      }
      heardAt = Date.now();
      headgate.tickAges();
    } catch {
      // shown by its age; the next round tries again
    } finally {
      polling = false;
      show();
    }
  };
  setInterval(() => {
    // A page that was busy or asleep does not call the server silent: it reads first.
    if (Date.now() - roundAt > LATE_MS) wokeAt = Date.now();
    roundAt = Date.now();
    if (open() && roundAt - Math.max(heardAt, wokeAt) > SILENT_MS) connect();
    const every = document.hidden ? HIDDEN_POLL_MS : POLL_MS;
    if (!paused && (!open() || document.hidden) && Date.now() - polledAt >= every - 50) poll();
    show();
  }, 1000);

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) source?.close();
    else if (!paused) connect();
    show();
  });
  window.addEventListener("pagehide", () => source?.close());
  window.addEventListener("pageshow", (event) => {
    if (event.persisted && wanted()) connect();
  });
  button.addEventListener("click", () => {
    paused = !paused;
    sessionStorage.setItem(PAUSED, paused ? "1" : "0");
    if (paused) source?.close();
    else connect();
    headgate.announce(paused ? "Paused" : "Live");
    show();
  });

  const age = document.getElementById("live-age");
  const word = button.querySelector(".live-word");
  const show = () => {
    const unheard = (Date.now() - heardAt) / 1000;
    const state = paused ? "paused" : open() ? "live" : heardAt && unheard < 15 ? "polling" : heardAt ? "down" : "connecting";
    const stale = (state === "live" || state === "polling") && silent !== "";
    const told = stale ? silent : newest;
    const data = told && (headgate.now() - Date.parse(told)) / 1000;
    // Connected, and no driver sends: none runs.
    const quiet = state === "live" && !stale && data > QUIET_S;
    button.dataset.state = state;
    button.toggleAttribute("data-stale", stale);
    button.toggleAttribute("data-quiet", quiet);
    button.setAttribute("aria-pressed", String(!paused));
    word.textContent = stale ? "Stale" : quiet ? "No events" : { paused: "Paused", live: "Live", polling: "Polling", down: "No response", connecting: "Connecting" }[state];
    const seconds = state === "live" || state === "polling" ? data : heardAt && unheard;
    age.textContent = seconds === "" || seconds === 0 || Number.isNaN(seconds) ? "" : headgate.ageWords(Math.max(0, seconds));
    button.title = stale ? "Connected, but a driver on this page has sent nothing for the time shown. Press to pause (l)" : quiet ? "Connected, but no driver has sent an event for the time shown. Press to pause (l)" : {
      paused: "Paused. Press to resume (l)",
      live: "Live. The time shown is the age of the newest event. Press to pause (l)",
      polling: "The stream is down: polling every 5 seconds. Press to pause (l)",
      down: "The server is not responding. The time shown is the age of the page",
      connecting: "Connecting",
    }[state];
  };

  // Other scripts hear named events of the stream without a connection of their own.
  headgate.onLive = (event, handle) => {
    document.addEventListener("headgate:data", (said) => {
      if (said.detail.event === event) handle(said.detail.data);
    });
    const attach = () => {
      if (source && !source[`heard ${event}`]) {
        source[`heard ${event}`] = true;
        source.addEventListener(event, (said) => {
          heard();
          handle(said.data);
        });
      }
    };
    attach();
    body.addEventListener("htmx:sseOpen", attach);
  };

  // A changed phase is said once, politely; numbers are not.
  new MutationObserver((changes) => {
    for (const change of changes) {
      const now = change.target.getAttribute("data-phase");
      const name = change.target.getAttribute("data-name");
      if (change.oldValue && now && now !== change.oldValue && name) {
        headgate.announce(`${name}: ${now.toLowerCase()}`);
      }
    }
  }).observe(body, { attributes: true, attributeFilter: ["data-phase"], attributeOldValue: true, subtree: true });

  body.setAttribute("sse-connect", address());
  show();
})();
