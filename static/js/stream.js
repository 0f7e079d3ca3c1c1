// One stream for all tabs of a browser: over HTTP/1.1 it has six connections to a host, and a tab
// that needs a seventh does not even load. Runs as a SharedWorker; live.js talks to it.
(() => {
  "use strict";
  const TABS_AT_MOST = 40; // in one stream; as in queries.views.console.live
  const TOGETHER_MS = 50; // tabs that come and go at once are one change
  const GONE_MS = 180000; // a tab says that it is there with each tick; one that crashed says nothing

  const tabs = new Map(); // port -> { topics, cursor, heardAt }
  let address = "";
  let source = null;
  let timer = 0;

  const tell = (ports, said) => ports.forEach(([port]) => port.postMessage(said));

  const open = () => {
    timer = 0;
    source?.close();
    source = null;
    const shown = [...tabs].slice(0, TABS_AT_MOST);
    tell([...tabs].slice(TABS_AT_MOST), { error: true, closed: true });
    if (!shown.length) return;
    const parameters = new URLSearchParams();
    for (const [, tab] of shown) {
      parameters.append("topics", tab.topics);
      parameters.append("cursor", tab.cursor);
    }
    const opened = new EventSource(`${address}?${parameters}`);
    source = opened;
    opened.onopen = () => tell(shown, { open: true });
    opened.onerror = () => tell(shown, { error: true, closed: opened.readyState === EventSource.CLOSED });
    opened.onmessage = (event) => {
      const end = event.data.indexOf("\n"); // the tab's number, then what it is told
      const [port, tab] = shown[event.data.slice(0, end)];
      tab.cursor = event.lastEventId;
      if (tabs.get(port) === tab) port.postMessage(JSON.parse(event.data.slice(end + 1)));
    };
  };
  const changed = () => {
    timer ||= setTimeout(open, TOGETHER_MS);
  };

  setInterval(() => {
    for (const [port, tab] of tabs) {
      if (Date.now() - tab.heardAt > GONE_MS && tabs.delete(port)) changed();
    }
  }, GONE_MS / 3);

  addEventListener("connect", (connected) => {
    const port = connected.ports[0];
    port.onmessage = ({ data }) => {
      if (data.topics) {
        address = data.address;
        tabs.set(port, { topics: data.topics, cursor: data.cursor, heardAt: Date.now() });
        changed();
      } else if (data.here && tabs.has(port)) {
        tabs.get(port).heardAt = Date.now();
      } else if (data.leave && tabs.delete(port)) {
        changed();
      }
    };
  });
})();
