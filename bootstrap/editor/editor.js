// The SQL field of a query's form. The textarea below stays the form's field: it holds the text
// that is sent, kept as a draft and checked, and is what browsers without JavaScript show.
import { autocompletion, completionKeymap, ifNotIn } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { SQLDialect, sql } from "@codemirror/lang-sql";
import { bracketMatching, syntaxHighlighting } from "@codemirror/language";
import { EditorState, StateField } from "@codemirror/state";
import { Decoration, EditorView, keymap, lineNumbers, placeholder } from "@codemirror/view";
import { tagHighlighter, tags } from "@lezer/highlight";

// Browsers hide the attribute from scripts and stylesheets, not the property.
const nonce = document.currentScript.nonce;

// Words of Spark's queries (commands are refused): https://spark.apache.org/docs/latest/sql-ref-ansi-compliance.html
const Spark = SQLDialect.define({
  keywords:
    "all and anti any array as asc at between both bucket by case cast collate cross cube " +
    "current current_date current_timestamp date day day_hour desc distinct div else end escape " +
    "except exclude exists extract false filter first following for from full function group " +
    "grouping having hour ilike in inner intersect interval into is join last lateral leading left " +
    "like limit map minus minute month natural no not null nulls of offset on or order out outer " +
    "over overlay partition percent pivot position preceding qualify range recursive " +
    "regexp respect ignore right rlike rollup row rows second select semi sets some sort struct " +
    "table tablesample then time timestamp to trailing true try_cast unbounded union unknown " +
    "unpivot using values watermark when where window with within year",
  types:
    "array bigint binary boolean byte char date dec decimal double float int integer interval long " +
    "map numeric real short smallint string struct timestamp timestamp_ltz timestamp_ntz tinyint " +
    "variant varchar void",
  builtin:
    "abs approx_count_distinct array_agg avg coalesce collect_list collect_set concat concat_ws " +
    "count count_if date_format date_trunc element_at explode first_value from_json from_unixtime " +
    "get_json_object greatest if ifnull last_value least length lower max max_by md5 min min_by " +
    "named_struct nullif nvl parse_json percentile_approx regexp_extract regexp_replace round " +
    "row_number schema_of_json session_window sha2 size split substring sum to_date to_json " +
    "to_timestamp transform trim try_divide try_to_timestamp try_variant_get unix_timestamp upper " +
    "variant_get window window_time",
  backslashEscapes: true,
  doubleQuotedStrings: true,
  identifierQuotes: "`",
  specialVar: ":",
});

// The classes of the console's other code (static/css/headgate.css).
const colours = tagHighlighter([
  { tag: [tags.keyword, tags.bool, tags.null], class: "k" },
  { tag: [tags.string, tags.special(tags.string)], class: "s" },
  { tag: tags.number, class: "m" },
  { tag: tags.comment, class: "c" },
  { tag: [tags.typeName, tags.standard(tags.name), tags.special(tags.name)], class: "nb" },
]);

// What the form's sources and tables offer, as it stands now.
const relations = (form) =>
  [...form.querySelectorAll(".relation")]
    .map((row) => ({
      name: row.querySelector("input[name$='-name']")?.value.trim(),
      detail: row.id.startsWith("tables") ? "table" : "source",
      columns: columns(row.querySelector("textarea[name$='-ddl_schema']")?.value ?? ""),
    }))
    .filter(({ name }) => name);
const columns = (ddl) => {
  let flat = ddl;
  for (let before = ""; before !== flat; ) {
    before = flat;
    flat = flat.replace(/<[^<>]*>|\([^()]*\)/g, "");
  }
  return flat.split(",").flatMap((one) => one.trim().match(/^(?:`([^`]+)`|([^\s:]+))/)?.slice(1).filter(Boolean) ?? []);
};
const option = (label, type, detail, boost) => ({
  label,
  type,
  detail,
  boost,
  apply: /^\w+$/.test(label) ? label : `\`${label}\``,
});
const names = (form) => (context) => {
  const word = context.matchBefore(/(?:\w+\.)?\w*/);
  if (!word || (word.from === word.to && !context.explicit)) return null;
  const dot = word.text.indexOf(".");
  const known = relations(form);
  const owner = known.filter(({ name }) => dot > 0 && name === word.text.slice(0, dot));
  const offered = (owner.length ? owner : known).flatMap((one) => one.columns.map((column) => option(column, "property", one.name, 1)));
  if (dot < 0) offered.push(...known.map((one) => option(one.name, "class", one.detail, 2)));
  return { from: word.from + dot + 1, options: offered, validFor: /^\w*$/ };
};

// The line and the word where the text failed: the server counts both from 1, in the text without
// the blanks around it.
const place = (form, text) => {
  const line = Number(form.dataset.line);
  if (!line) return null;
  const trimmed = text.trim();
  const lines = trimmed.split("\n");
  const row = Math.min(line, lines.length) - 1;
  const before = lines.slice(0, row).reduce((sum, one) => sum + one.length + 1, text.indexOf(trimmed));
  return before + Math.min(Number(form.dataset.column || 1) - 1, lines[row].length);
};
const failing = (at) =>
  StateField.define({
    create: ({ doc, wordAt }) => {
      const line = doc.lineAt(at);
      const end = Math.min(at + (/^\w+/.exec(line.text.slice(at - line.from))?.[0].length ?? 1), line.to);
      const marks = [Decoration.line({ class: "cm-failing" }).range(line.from)];
      if (at < end) marks.push(Decoration.mark({ class: "cm-failing-at" }).range(at, end));
      return Decoration.set(marks);
    },
    update: (marks, { changes }) => marks.map(changes),
    provide: (field) => EditorView.decorations.from(field),
  });

const edit = (field) => {
  const { form } = field;
  const label = field.labels[0];
  const at = place(form, field.value);
  const aria = [...field.attributes].filter(({ name }) => name.startsWith("aria-")).map(({ name, value }) => [name, value]);
  const view = new EditorView({
    doc: field.value,
    selection: at === null ? undefined : { anchor: at },
    extensions: [
      EditorView.cspNonce.of(nonce),
      lineNumbers(),
      history(),
      bracketMatching(),
      sql({ dialect: Spark, keywordCompletion: (word, type) => ({ label: type === "keyword" ? word.toUpperCase() : word, type, boost: -1 }) }),
      Spark.language.data.of({ autocomplete: ifNotIn(["String", "LineComment", "BlockComment", "QuotedIdentifier"], names(form)) }),
      autocompletion({ icons: false }),
      syntaxHighlighting(colours),
      placeholder(field.placeholder),
      EditorState.tabSize.of(4),
      // Tab is not bound: it leaves the field.
      keymap.of([...completionKeymap, ...historyKeymap, ...defaultKeymap]),
      EditorView.contentAttributes.of({ tabindex: "0", "aria-label": label.textContent.trim(), ...Object.fromEntries(aria) }),
      at === null ? [] : failing(at),
      EditorView.domEventHandlers({
        // The browser itself would keep the look of the text that it replaces, in a style attribute
        // that the policy forbids.
        beforeinput: (event, it) => {
          // The editor's own selection can be behind the browser's here.
          const { startContainer, startOffset, endContainer, endOffset, collapsed } = getSelection().getRangeAt(0);
          if (event.inputType !== "insertText" || collapsed || it.composing) return false;
          event.preventDefault();
          const typed = event.data ?? "";
          const from = it.posAtDOM(startContainer, startOffset);
          const changes = { from, to: it.posAtDOM(endContainer, endOffset), insert: typed };
          it.dispatch({ changes, selection: { anchor: from + typed.length }, userEvent: "input.type", scrollIntoView: true });
          return true;
        },
      }),
      EditorView.updateListener.of(({ docChanged, state }) => {
        if (!docChanged || field.value === state.doc.toString()) return;
        field.value = state.doc.toString();
        field.dispatchEvent(new Event("input", { bubbles: true }));
      }),
    ],
  });
  field.addEventListener("input", () => {
    const { doc } = view.state;
    if (field.value !== doc.toString()) view.dispatch({ changes: { from: 0, to: doc.length, insert: field.value } });
  });
  label.addEventListener("click", (event) => {
    event.preventDefault();
    view.focus();
  });
  field.classList.add("visually-hidden");
  field.tabIndex = -1;
  field.ariaHidden = "true";
  field.after(view.dom);
  if (at === null) return;
  view.dispatch({ effects: EditorView.scrollIntoView(at, { y: "center" }) });
  if ("go" in form.dataset) {
    view.focus();
    view.dom.scrollIntoView({ block: "center" });
  }
};

const open = () => document.querySelectorAll("#definition textarea[name=sql]:not([aria-hidden])").forEach(edit);
open();
// A row that is added or removed draws the form again.
document.body.addEventListener("htmx:load", open);
