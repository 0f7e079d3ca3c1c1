// The shell's small comforts. Every page works without them.
(() => {
  "use strict";
  const root = document.documentElement;
  const dialog = document.getElementById("dialog");

  // Theme: at once, and kept in the cookie that the server reads.
  document.querySelectorAll("[data-theme-switch]").forEach((form) => {
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const theme = event.submitter.value;
      root.setAttribute("data-bs-theme", theme);
      root.setAttribute("data-theme-chosen", "");
      document.cookie = `theme=${theme};path=/;max-age=31536000;samesite=lax`;
      document.dispatchEvent(new CustomEvent("headgate:theme"));
    });
  });

  // What a form has kept of what was typed goes once it was saved (js/drafts.js).
  const saved = sessionStorage.getItem("headgate-draft-sent");
  if (saved && !document.getElementById("definition")) {
    sessionStorage.removeItem(saved);
    sessionStorage.removeItem("headgate-draft-sent");
  }

  // Who signs out leaves nothing behind for the next one at this browser.
  document.querySelectorAll("[data-sign-out]").forEach((form) =>
    form.addEventListener("submit", () => {
      for (const key of Object.keys(sessionStorage)) {
        if (key.startsWith("headgate-draft")) sessionStorage.removeItem(key);
      }
    }),
  );

  // Menus close when one looks elsewhere.
  document.addEventListener("click", (event) => {
    document.querySelectorAll("details.menu[open]").forEach((menu) => {
      if (!menu.contains(event.target)) menu.open = false;
    });
  });

  // Copy buttons.
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy], [data-copy-from]");
    if (!button) return;
    const from = button.dataset.copyFrom && document.querySelector(button.dataset.copyFrom);
    try {
      await navigator.clipboard.writeText(from ? from.textContent : button.dataset.copy);
      button.classList.add("copied");
      announce("Copied");
      setTimeout(() => button.classList.remove("copied"), 1500);
    } catch {
      announce("Could not copy");
    }
  });

  // Links with data-dialog open the same page's content in a dialog.
  const openDialog = async (address, label) => {
    const response = await fetch(address, { headers: { "X-Fragment": "dialog" } });
    if (!response.ok || response.redirected) {
      window.location.assign(address);
      return;
    }
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    const content = page.querySelector(".confirm, .shortcuts, .find");
    if (!content) {
      window.location.assign(address);
      return;
    }
    dialog.replaceChildren(content);
    window.htmx?.process(content);
    dialog.setAttribute("aria-label", content.querySelector("h2")?.textContent || label);
    dialog.showModal();
    dialog.dispatchEvent(new CustomEvent("headgate:shown"));
  };
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-dialog]");
    if (!link || event.metaKey || event.ctrlKey || event.shiftKey) return;
    event.preventDefault();
    openDialog(link.dataset.dialog || link.href, link.textContent).catch(() =>
      window.location.assign(link.href),
    );
  });
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog || event.target.closest("[data-close]")) {
      event.preventDefault();
      dialog.close();
    }
  });

  // Find anything: Ctrl-K opens it, arrows move, Enter follows the first or the chosen one.
  const findOpen = document.querySelector("[data-find-open]");
  const openFind = () =>
    openDialog(findOpen.href, "Find").then(
      () => dialog.querySelector("#find")?.focus(),
      () => window.location.assign(findOpen.href),
    );
  findOpen?.addEventListener("click", (event) => {
    if (event.metaKey || event.ctrlKey || event.shiftKey) return;
    event.preventDefault();
    openFind();
  });
  const follow = (link) => {
    if ("foundDialog" in link.dataset) openDialog(link.href, link.textContent).catch(() => window.location.assign(link.href));
    else window.location.assign(link.href);
  };
  document.addEventListener("click", (event) => {
    const link = event.target.closest("[data-found-dialog]");
    if (!link || event.metaKey || event.ctrlKey || event.shiftKey) return;
    event.preventDefault();
    follow(link);
  });
  document.addEventListener("submit", (event) => {
    if (!event.target.matches("[data-find]")) return;
    const first = event.target.closest(".find").querySelector("[data-found]");
    // What was typed last may not have been answered yet: then the page answers.
    const answered = !event.target.querySelector(".htmx-request") && !event.target.matches(".htmx-request");
    if (!first || !answered) return;
    event.preventDefault();
    follow(first);
  });
  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && !event.shiftKey && !event.altKey && event.key.toLowerCase() === "k" && findOpen && localStorage.getItem("headgate-keyboard-off") !== "1") {
      event.preventDefault();
      if (!dialog.open) openFind();
      return;
    }
    const box = event.target.closest?.(".find");
    if (!box || !["ArrowDown", "ArrowUp"].includes(event.key)) return;
    event.preventDefault();
    const stops = [box.querySelector("#find"), ...box.querySelectorAll("[data-found]")];
    const at = stops.indexOf(document.activeElement);
    stops[Math.min(stops.length - 1, Math.max(0, at + (event.key === "ArrowDown" ? 1 : -1)))].focus();
  });

  // Acts that need no other page: asked in place, answered by a line at the corner.
  const toasts = document.createElement("div");
  toasts.className = "toasts";
  document.body.append(toasts);
  const toast = (tone, text) => {
    const note = document.createElement("p");
    note.className = "note";
    note.dataset.tone = tone;
    note.textContent = text;
    toasts.append(note);
    announce(text);
    setTimeout(() => note.remove(), tone === "bad" ? 12000 : 5000);
  };
  document.addEventListener("submit", async (event) => {
    const form = event.target;
    if (!form.matches("form[data-act], .dialog .confirm")) return;
    event.preventDefault();
    const button = event.submitter || form.querySelector("button");
    button.disabled = true;
    try {
      const response = await fetch(form.action, {
        method: "POST",
        body: new URLSearchParams(new FormData(form)),
        headers: { Accept: "application/json" },
      });
      if (!(response.headers.get("Content-Type") || "").includes("json")) throw new Error("page");
      const answer = await response.json();
      // What is typed in a dialog stays for another try.
      if (![403, 429, 500, 503].includes(response.status)) dialog.close();
      if (answer.again) await openDialog(answer.again);
      else toast(answer.tone, answer.text);
    } catch (error) {
      if (error.message === "page") window.location.reload();
      else toast("bad", "The server is not responding. The request may not have been carried out: check before you try again.");
    } finally {
      button.disabled = false;
    }
  });

  // htmx leaves a form as it is when its request fails; the reason stands at the corner.
  document.body.addEventListener("htmx:responseError", (event) => {
    if (event.detail.requestConfig.verb !== "post") return;
    let text = `The server answered ${event.detail.xhr.status}.`;
    try {
      text = JSON.parse(event.detail.xhr.responseText).text || text;
    } catch {
      // A proxy's page.
    }
    toast("bad", `${text} What you entered is still here: try again.`);
  });
  document.body.addEventListener("htmx:sendError", (event) => {
    if (event.detail.requestConfig.verb !== "post") return;
    toast("bad", "The server is not responding. What you entered is still here: try again.");
  });

  // Logs are read from their end.
  document.querySelectorAll("[data-scroll-end]").forEach((log) => (log.scrollTop = log.scrollHeight));

  // What scrolls can be reached with the keyboard, and says what it is.
  const SCROLLS = ".scroll, main pre, .log-end, .tabs";
  const reach = () =>
    document.querySelectorAll(SCROLLS).forEach((box) => {
      const over = box.scrollWidth > box.clientWidth + 1 || box.scrollHeight > box.clientHeight + 1;
      if (over && !box.hasAttribute("tabindex")) {
        box.tabIndex = 0;
        box.dataset.scrolls = "";
        const caption = box.querySelector("caption")?.textContent;
        if (caption && !box.hasAttribute("role")) {
          box.setAttribute("role", "group");
          box.setAttribute("aria-label", caption);
        }
      } else if (!over && "scrolls" in box.dataset) {
        box.removeAttribute("tabindex");
        delete box.dataset.scrolls;
      }
    });
  reach();
  window.addEventListener("resize", reach);
  // Live parts are drawn again by the server, which knows no widths.
  let looking = 0;
  new MutationObserver(() => {
    cancelAnimationFrame(looking);
    looking = requestAnimationFrame(reach);
  }).observe(document.body, { childList: true, subtree: true, attributeFilter: ["tabindex"] });

  // Say state changes, and nothing else, to screen readers.
  const announcer = document.getElementById("announcer");
  function announce(text) {
    announcer.textContent = "";
    requestAnimationFrame(() => (announcer.textContent = text));
  }

  // Keyboard; can be switched off.
  const OFF = "headgate-keyboard-off";
  const off = () => localStorage.getItem(OFF) === "1";
  const showSwitch = () => {
    document.querySelectorAll("#keyboard-off").forEach((box) => {
      box.checked = off();
      box.onchange = () => localStorage.setItem(OFF, box.checked ? "1" : "0");
    });
  };
  dialog.addEventListener("headgate:shown", showSwitch);
  showSwitch();

  const rows = () => [...document.querySelectorAll("[data-row] a[data-row-link]")].filter((a) => a.offsetParent);
  const step = (by) => {
    const links = rows();
    const at = links.findIndex((link) => link.closest("[data-row]").contains(document.activeElement));
    const next = links[at < 0 ? (by > 0 ? 0 : links.length - 1) : Math.min(links.length - 1, Math.max(0, at + by))];
    if (next) {
      next.focus();
      next.closest("[data-row]").scrollIntoView({ block: "nearest" });
    }
  };
  let going = 0;
  const go = { o: "Overview", q: "Queries", a: "Applications", f: "Failures", r: "Runs", c: "Checkpoints" };
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input:not([type=checkbox]):not([type=radio]), textarea, select, [contenteditable]");
    if (event.key === "Escape" && typing && typing.id === "search") typing.blur();
    if (typing || event.metaKey || event.ctrlKey || event.altKey || off() || dialog.open) return;
    if (going && Date.now() - going < 1200 && go[event.key]) {
      going = 0;
      const entry = [...document.querySelectorAll(".side nav a")].find((a) => a.querySelector("span").textContent === go[event.key]);
      if (entry) window.location.assign(entry.href);
      return;
    }
    going = event.key === "g" ? Date.now() : 0;
    const act = {
      "/": () => document.getElementById("search")?.select(),
      j: () => step(1),
      k: () => step(-1),
      x: () => document.activeElement.closest("[data-row]")?.querySelector("input[type=checkbox]")?.click(),
      l: () => document.getElementById("live")?.click(),
      "?": () => document.querySelector("a[data-dialog$='/shortcuts/']")?.click(),
    }[event.key];
    if (act) {
      event.preventDefault();
      act();
    }
  });

  // "Select all" boxes, and the bar that counts what is selected.
  const count = () => {
    const boxes = [...document.querySelectorAll("[data-row] input[type=checkbox][name=name]")];
    const chosen = boxes.filter((box) => box.checked).length;
    document.querySelectorAll("[data-selected]").forEach((bar) => {
      const all = bar.querySelector("[name=matching]")?.checked;
      bar.dataset.selected = all ? "all" : String(chosen);
      const text = bar.querySelector("[data-selected-text]");
      if (text) text.textContent = all ? "All selected" : chosen ? `${chosen} selected` : "Select queries to start, restart or stop together.";
    });
    document.querySelectorAll("[data-select-all]").forEach((box) => {
      box.checked = chosen > 0 && chosen === boxes.length;
      box.indeterminate = chosen > 0 && chosen < boxes.length;
    });
  };
  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-select-all]")) {
      document.querySelectorAll("[data-row] input[type=checkbox][name=name]").forEach((box) => {
        box.checked = event.target.checked;
      });
    }
    if (event.target.matches("input[type=checkbox]")) count();
    const form = event.target.closest("form[data-submit-on-change]");
    if (form) form.requestSubmit();
  });
  count();

  window.headgate = Object.assign(window.headgate || {}, { announce, openDialog });
})();
