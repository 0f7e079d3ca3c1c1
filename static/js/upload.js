// Code that is dropped or chosen on a definition's form: sent to REST, whose digest the form then names.
(() => {
  "use strict";
  const box = document.querySelector("[data-code-upload]");
  const form = document.getElementById("definition");
  if (!box || !form) return;
  const address = box.dataset.codeUpload;
  const most = Number(box.dataset.most);
  const leftOut = new Set(box.dataset.leftOut.split(" "));
  const digest = form.querySelector("[name$=code_upload]");
  const script = form.querySelector("[name$=script_file]");
  const [status, error] = [box.querySelector("[role=status]"), box.querySelector("[role=alert]")];
  const entry = box.querySelector("[data-entry]");
  const buttons = [...box.querySelectorAll("[data-choose]")];

  // --- what is sent -------------------------------------------------------------------------
  const isCode = (path) => !path.endsWith(".pyc") && !path.split("/").some((part) => leftOut.has(part));
  const padded = (size) => new Uint8Array((512 - (size % 512)) % 512);
  const header = (name, size, kind) => {
    const block = new Uint8Array(512);
    const put = (text, at) => block.set(new TextEncoder().encode(text), at);
    put(name, 0);
    put("0000644\0" + "0000000\0".repeat(2), 100);
    put(size.toString(8).padStart(11, "0") + "\0" + "0".repeat(11) + "\0" + " ".repeat(8) + kind, 124);
    put("ustar\0" + "00", 257);
    put(block.reduce((sum, one) => sum + one, 0).toString(8).padStart(6, "0") + "\0 ", 148);
    return block;
  };
  // POSIX pax: what fits no header of old says its name in a record before it.
  const named = (path) => {
    const name = new TextEncoder().encode(path);
    if (name.length <= 100 && name.length === path.length) return [];
    let size = name.length + 7; // " path=" and the end of the line, and then its own digits
    size += String(size + String(size).length).length;
    const record = new TextEncoder().encode(`${size} path=${path}\n`);
    return [header("pax", record.length, "x"), record, padded(record.length)];
  };
  const packed = (files) =>
    new Blob([...files.flatMap(([path, file]) => [...named(path), header(named(path).length ? "file" : path, file.size, "0"), file, padded(file.size)]), new Uint8Array(1024)]);

  // --- what was dropped or chosen -----------------------------------------------------------
  const readAll = async (folder) => {
    const reader = folder.createReader();
    const found = [];
    for (;;) {
      const some = await new Promise((done, failed) => reader.readEntries(done, failed));
      if (!some.length) return found;
      found.push(...some);
    }
  };
  const filesIn = async (entries, path) => (await Promise.all(entries.map((one) => filesOf(one, path)))).flat();
  const filesOf = async (one, path) => {
    if (!isCode(path + one.name)) return [];
    if (one.isFile) return [[path + one.name, await new Promise((done, failed) => one.file(done, failed))]];
    return filesIn(await readAll(one), `${path}${one.name}/`);
  };
  const inside = (files) => files.map(([path, file]) => [path.slice(path.indexOf("/") + 1), file]);
  const wanted = (files) => {
    const [path, file] = files[0] || [];
    const alone = files.length === 1 && !path.includes("/");
    if (alone && /\.(zip|whl)$/i.test(path)) return { body: file, kind: "application/zip" };
    if (alone && /\.(tar\.gz|tgz)$/i.test(path)) return { body: file, kind: "application/gzip" };
    if (alone && /\.py$/.test(path)) return { body: file, kind: "text/x-python", asked: `?name=${encodeURIComponent(path)}` };
    if (alone) return { wrong: `“${path}” cannot be uploaded. Choose a folder, a .zip, a .whl or a .py file.` };
    if (!files.length) return { wrong: "The folder contains no code files. Choose another one." };
    return { body: packed(files), kind: "application/x-tar" };
  };

  // --- sent, and shown ----------------------------------------------------------------------
  let busy = false;
  const say = (text, wrong = "") => {
    status.textContent = text;
    error.textContent = wrong;
  };
  const bytes = (count) => (count < 1024 ? `${count} bytes` : count < 1048576 ? `${(count / 1024).toFixed(1)} KiB` : `${(count / 1048576).toFixed(1)} MiB`);
  const show = (found, act) => {
    const names = found.paths.slice(0, 8).join(", ");
    const rest = found.files - Math.min(8, found.paths.length);
    const listed = found.paths.length ? `: ${names}${rest > 0 ? ` and ${rest} more` : ""}` : "";
    say(`${act} ${found.files === 1 ? "1 file" : `${found.files} files`}, ${bytes(found.bytes)}${listed}.`);
    if (!entry || !script) return;
    const modules = found.paths.filter((path) => path.endsWith(".py"));
    const select = entry.querySelector("select");
    select.replaceChildren(new Option("Choose…", ""), ...modules.map((path) => new Option(path, path)));
    if (modules.length === 1 && !script.value) {
      script.value = modules[0];
      script.dispatchEvent(new Event("input", { bubbles: true }));
    }
    select.value = modules.includes(script.value) ? script.value : "";
    entry.hidden = !modules.length;
  };
  const wrongOf = (answer) =>
    (answer.problems || [])
      .map((one) => `${one.field}: ${one.value ? `“${one.value}” ` : ""}${one.message} ${one.way_out}`)
      .join(" ") || `${answer.detail} ${answer.way_out || ""}`;
  const send = async (files) => {
    const { body, kind, asked = "", wrong } = wanted(files);
    if (wrong) return say("", wrong);
    if (body.size > most) return say("", `${bytes(body.size)} is more than the ${bytes(most)} that an upload may have. Leave data out, or choose a smaller folder.`);
    say(`Uploading ${bytes(body.size)}…`);
    const response = await fetch(address + asked, {
      method: "POST",
      body,
      headers: { Accept: "application/json", "Content-Type": kind, "X-CSRFToken": form.querySelector("[name=csrfmiddlewaretoken]").value },
    });
    const answer = await response.json();
    if (!response.ok) return say("", wrongOf(answer));
    digest.value = answer.digest;
    show(answer, "Uploaded:");
    digest.dispatchEvent(new Event("input", { bubbles: true })); // a draft keeps it
  };
  const take = async (files) => {
    if (busy) return;
    busy = true;
    buttons.forEach((button) => (button.disabled = true));
    say("Reading…");
    try {
      await send(await files());
    } catch (failure) {
      const unread = failure instanceof DOMException;
      say("", unread ? "A file cannot be read. Check that it still exists, and try again." : "The server is not responding. Try again.");
    } finally {
      busy = false;
      buttons.forEach((button) => (button.disabled = false));
    }
  };

  for (const button of buttons) {
    const input = button.nextElementSibling;
    button.addEventListener("click", () => input.click());
    input.addEventListener("change", () => {
      const chosen = [...input.files];
      input.value = "";
      if (!chosen.length) return;
      take(async () => {
        const files = chosen.map((file) => [file.webkitRelativePath || file.name, file]);
        return (input.webkitdirectory ? inside(files) : files).filter(([path]) => isCode(path));
      }).then(() => button.focus());
    });
  }
  const drop = box.querySelector("[data-drop]");
  const over = (event, is) => {
    if (![...event.dataTransfer.types].includes("Files")) return;
    event.preventDefault();
    drop.toggleAttribute("data-over", is);
  };
  drop.addEventListener("dragenter", (event) => over(event, true));
  drop.addEventListener("dragover", (event) => over(event, true));
  drop.addEventListener("dragleave", (event) => over(event, drop.contains(event.relatedTarget)));
  drop.addEventListener("drop", (event) => {
    over(event, false);
    // Read at once: what was dropped is out of reach after this event.
    const dropped = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry()).filter(Boolean);
    if (!dropped.length) return;
    take(async () => filesIn(dropped.length === 1 && dropped[0].isDirectory ? await readAll(dropped[0]) : dropped, ""));
  });
  entry?.querySelector("select").addEventListener("change", (event) => {
    if (!event.target.value) return;
    script.value = event.target.value;
    script.dispatchEvent(new Event("input", { bubbles: true }));
  });
  form.addEventListener("submit", (event) => {
    if (!busy) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    say(`${status.textContent} Wait until it has finished, then save.`);
  }, true);

  box.hidden = false;
  const known = async () => {
    if (!/^sha256:[0-9a-f]{64}$/.test(digest.value)) return say("");
    const response = await fetch(`${address}${digest.value}/`, { headers: { Accept: "application/json" } });
    if (response.ok) show(await response.json(), "Contains");
    else if (response.status === 404) say("", "No code with this digest has been uploaded to this installation.");
  };
  const look = () => known().catch(() => say("")); // what it holds is a help, no more
  digest.addEventListener("change", look);
  if (digest.value) look();
})();
