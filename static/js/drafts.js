// A definition that is being typed: a warning before it is lost, and a draft in this tab.
(() => {
  "use strict";
  const form = document.getElementById("definition");
  if (!form) return;
  const key = `headgate-draft:${location.pathname}`;
  const KEPT_MS = 24 * 3600 * 1000;
  const OURS = ["csrfmiddlewaretoken", "do", "base", "reviewed"];

  const typed = () => [...new FormData(form)].filter(([name, value]) => !OURS.includes(name) && typeof value === "string");
  const text = () => JSON.stringify(typed());
  // A secret that is typed in clear is refused when sent, and is never written into the browser.
  const secret = new RegExp(`((?:${form.dataset.secretNames})[^=:\\n]{0,200}[=:]\\s{0,200})(?!["']?(?:env|file):)\\S.*`, "gi");
  const CODE = /^\s*"?(?:sql|schema|ddl_schema|function)"?\s*[=:]/;
  const kept = () =>
    typed().map(([name, value]) => [
      name,
      /(?:^|[-_.])(?:sql|schema|function)$/.test(name)
        ? value
        : value.split("\n").map((line) => (CODE.test(line) ? line : line.replace(secret, "$1"))).join("\n"),
    ]);
  // A form that comes back from the server with what was typed is as unsaved as before.
  const untouched = "typed" in form.dataset ? null : text();
  const dirty = () => text() !== untouched;
  const read = () => {
    try {
      const draft = JSON.parse(sessionStorage.getItem(key));
      return draft && Date.now() - draft.at < KEPT_MS ? draft : null;
    } catch {
      return null;
    }
  };
  const keep = () => {
    if (dirty()) sessionStorage.setItem(key, JSON.stringify({ at: Date.now(), fields: kept() }));
    else sessionStorage.removeItem(key);
  };

  let sending = false;
  form.addEventListener("input", keep);
  form.addEventListener("submit", (event) => {
    sending = true;
    keep();
    // The page after a success has no such form: the shell drops the draft there.
    if (event.submitter && ["save", "apply", "create", "create-start"].includes(event.submitter.value)) {
      sessionStorage.setItem("headgate-draft-sent", key);
    } else {
      sessionStorage.removeItem("headgate-draft-sent");
    }
  });
  document.querySelectorAll("[data-discard]").forEach((link) =>
    link.addEventListener("click", () => {
      sending = true;
      sessionStorage.removeItem(key);
    }),
  );
  window.addEventListener("beforeunload", (event) => {
    if (!sending && dirty()) event.preventDefault();
  });

  const draft = read();
  if (draft && untouched !== null && JSON.stringify(draft.fields) !== untouched) {
    const note = document.createElement("div");
    note.className = "note";
    note.dataset.tone = "busy";
    note.id = "draft";
    const at = new Date(draft.at).toISOString().slice(11, 16);
    note.innerHTML = `<span>Your unsaved input from ${at} UTC is still available.</span> <button type="button" class="btn btn-sm">Restore</button> <button type="button" class="btn btn-sm">Discard</button>`;
    const [restore, forget] = note.querySelectorAll("button");
    restore.addEventListener("click", () => {
      // By way of the server, which draws as many rows as there were.
      const sent = form.cloneNode(false);
      sent.removeAttribute("id");
      sent.hidden = true;
      const fields = OURS.filter((name) => name !== "do").flatMap((name) => [...form.querySelectorAll(`input[type=hidden][name=${name}]`)].map((input) => [name, input.value]));
      for (const [name, value] of [...fields, ...draft.fields]) {
        const input = document.createElement("textarea");
        input.name = name;
        input.value = value;
        sent.append(input);
      }
      document.body.append(sent);
      sending = true;
      sent.submit();
    });
    forget.addEventListener("click", () => {
      sessionStorage.removeItem(key);
      note.remove();
    });
    form.prepend(note);
  }
})();
