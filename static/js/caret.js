// The caret of a query's form, put where a failure says that the SQL failed.
(() => {
  "use strict";
  const form = document.getElementById("definition");
  const sql = form?.querySelector("textarea[name$=sql]");
  if (!sql) return;
  const lines = sql.value.split("\n");
  const line = Math.min(Number(form.dataset.line), lines.length) - 1;
  const before = lines.slice(0, line).reduce((sum, text) => sum + text.length + 1, 0);
  const at = before + Math.min(Number(form.dataset.column) - 1, lines[line].length);
  sql.focus();
  sql.setSelectionRange(at, at);
  const style = getComputedStyle(sql);
  const height = parseFloat(style.lineHeight) || parseFloat(style.fontSize) * 1.5;
  sql.scrollTop = Math.max(0, (line - 2) * height);
  sql.scrollIntoView({ block: "center" });
})();
