"""Parse error output and log lines: classes, causes, frames of user code, fingerprints,
severities.

A failed query leaves one long message: Spark's condition in brackets, the tasks' stack, sometimes a
Python traceback inside a Java one. All such messages are parsed here, so that classification and
fingerprint agree about their contents.

Spark, Python and users' code write to one file. Entries from the first two begin with a time and a
level; lines without these (a stack trace, printed output) belong to the preceding entry.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")


def left_out(read: Callable[[], T], otherwise: U) -> T | U:
    """Return the result of `read`, or `otherwise` if it fails for any reason.

    The failure's cause may also break every attempt to inspect it: out of memory, a full disk, a
    dying JVM. So `read` must be bounded, and no decision may depend on its result alone.
    """
    try:
        return read()
    except Exception:
        return otherwise


TEXT_LIMIT = 64 * 1024  # characters of a text that are parsed: its head and its tail
LINE_LIMIT = 4_000  # of one line, from its beginning
#: How many of Spark's suggestions for an unknown name are shown.
SUGGESTIONS = 3
NAME_LIMIT = 200  # of a type

#: "[DIVIDE_BY_ZERO]" or "[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED]", as Spark prints a condition.
_CONDITION = re.compile(r"\[(_?[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+(?:\.[A-Z][A-Z0-9_]*)?)\]")
_SQLSTATE = re.compile(r"SQLSTATE:? ?([0-9A-Z]{5})")
#: "pkg.SomeError: text" at the start of a line, in a Python traceback or a Java stack.
_EXCEPTION_LINE = re.compile(
    r"^(?:Caused by: |: |\w+ in thread \S+ )?"
    r"((?:[A-Za-z_][\w$]*\.)*"
    r"(?:\w[\w$]*(?:Error|Exception|Timeout|Exit|Interrupt)|gaierror|herror|timeout))"
    r"(?::[ \t]*(.*))?$"
    # or the line below the frames of a traceback, whatever the type is named
    r"|^Traceback \(most recent call last\):\n(?:[ \t].*\n)*([A-Za-z_][\w.]*)(?::[ \t]*(.*))?$",
    re.MULTILINE,
)
_PYTHON_FRAME = re.compile(r'^[ \t]*File "([^"\n]+)", line \d+, in (\S+)', re.MULTILINE)
_JAVA_FRAME = re.compile(r"^[ \t]*at ((?:[\w$]+\.)+[\w$<>]+)\(", re.MULTILINE)
_SQL_CONTEXT = re.compile(r"^== SQL.*==[ \t]*\n(.*)\n([ \t]*)(\^+)", re.MULTILINE)
#: The position of an error in a query's text, 1-based; a parse error has "pos", which is 0-based
#: (Spark's `SQLQueryContext.summary`, `ParseException`). "== SQL of VIEW" refers to another text.
_SQL_POSITION = re.compile(
    r"^(?!== SQL of ).*?\(line (\d{1,6}), (pos|position) (\d{1,6})\)", re.MULTILINE
)
_MISSING_MODULE = re.compile(r"No module named '([\w.]{1,200})'")
#: The plan and offsets that Spark prints into the message: they contain the query's text, not the
#: error's.
_QUERY_SECTION = re.compile(
    r"=== Streaming Query ===.*?(?=^[ \t]+at |^Caused by: |\Z)", re.DOTALL | re.MULTILINE
)
#: py4j's report that a Python callback raised an exception: all that remains if the condition is
#: lost.
_PROXY = "raised by the Python Proxy"
_PYTHON_NOT_OWN = re.compile(
    r"(site-packages|dist-packages|/python\d?\.\d+/|/lib/python|/pyspark/|pyspark\.zip|/py4j|py4j-|^<"
    r"|/queries/runtime/|/listeners/spark/)"
)
_JAVA_NOT_OWN = re.compile(
    r"^(org\.apache\.|java\.|javax\.|jdk\.|sun\.|com\.sun\.|scala\.|py4j\.|org\.rocksdb\.|io\.netty\.|org\.slf4j\.)"
)
#: What varies between occurrences of one failure.
_VARYING = (
    # of a request to a store: letters, digits and Base64, by the AWS SDK and hadoop-azure
    (re.compile(r"\b(request ?id|rid|hostid)[:=] ?[^\s,;)\"]+", re.IGNORECASE), "<id>"),
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE), "<id>"),
    (re.compile(r"\b[a-z][a-z0-9+.-]{0,30}:/+[^\s'\",;)\]}]+", re.IGNORECASE), "<path>"),
    (re.compile(r"(?<![\w<>])(?:~|\.{1,2})?/[^\s'\",;)\]}]+"), "<path>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?"), "<n>"),
    (re.compile(r"\b0x[0-9a-f]+\b", re.IGNORECASE), "<hex>"),
    (
        re.compile(
            r"(?<=@)[0-9a-f]+(?![\w<])|\b(?=\w*\d)(?=\w*[a-f])[0-9a-f]{8,}\b", re.IGNORECASE
        ),
        "<hex>",
    ),
    (re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?"), "<n>"),
)
#: Conditions that only wrap another one, which is more specific.
WRAPPERS = frozenset(
    {
        "STREAM_FAILED",
        "TASK_WRITE_FAILED",
        "INTERNAL_ERROR",
        "CANNOT_LOAD_STATE_STORE.UNCATEGORIZED",
        "CANNOT_WRITE_STATE_STORE.CANNOT_COMMIT",
        "STREAMING_ASYNC_OPERATION_FAILED",
    }
)

#: Message of Spark 3.5 -> the condition of the same failure in 4.0. There, it has none, or one with
#: a temporary name. Source: the failures of 3.5.9, and the texts in its jars.
_FORMER_MESSAGES = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        (r"output mode not supported (when|on)", "STREAMING_OUTPUT_MODE"),
        (
            r"Data source [^\n]{1,200} does not support \w+ output mode",
            "STREAMING_OUTPUT_MODE.UNSUPPORTED_DATASOURCE",
        ),
        (
            r"not supported on streaming DataFrames/DataSets without watermark",
            "UNSUPPORTED_STREAMING_OPERATOR_WITHOUT_WATERMARK",
        ),
        (r"UnsupportedLogVersion: maximum supported", "INVALID_LOG_VERSION"),
        (
            r"schema doesn't match to the schema for existing state",
            "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE",
        ),
        (
            r"Error reading (delta|snapshot|streaming state) file [^\n]{1,1000} does not exist",
            "CANNOT_LOAD_STATE_STORE.CANNOT_READ_STREAMING_STATE_FILE",
        ),
        (
            r"Error reading (delta|snapshot) file [^\n]{1,1000}(key|value) size cannot be",
            "CANNOT_LOAD_STATE_STORE.CANNOT_READ_DELTA_FILE_KEY_SIZE",
        ),
        (r"the underlying files have been updated", "FAILED_READ_FILE.FILE_NOT_EXIST"),
        (
            r"Encountered error while reading file|Could not read footer for file"
            r"|is not a Parquet file\.",
            "FAILED_READ_FILE.NO_HINT",
        ),
        (r"Null value appeared in non-nullable field", "NOT_NULL_ASSERT_VIOLATION"),
        (r"Checkpoint block \S+ not found!", "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"),
        (  # raise_error() and assert_true()
            r"java\.lang\.RuntimeException: [^\n]*\n\s*at "
            r"org\.apache\.spark\.sql\.catalyst\.expressions\.GeneratedClass",
            "USER_RAISED_EXCEPTION",
        ),
    )
)


def bounded(text: str, limit: int = TEXT_LIMIT) -> str:
    """Return the string cut in the middle: three quarters of its head, then its tail."""
    if len(text) <= limit:
        return text
    head = limit * 3 // 4
    return f"{text[:head]}…{text[head + 1 - limit :]}"


def without_plan(text: str) -> str:
    """Return the message without the plan and offsets that Spark adds to it."""
    return _QUERY_SECTION.sub("", text)


def conditions(*texts: str) -> list[str]:
    """Return Spark's conditions in order of appearance, without repeats, wrappers last."""
    names: list[str] = []
    for text in texts:
        names += _CONDITION.findall(text)
    return sorted(dict.fromkeys(names), key=lambda name: name in WRAPPERS)


def condition(error_class: str, root_cause: str, message: str) -> str:
    """Return the most specific condition, "" if there is none.

    This is the one passed in, unless it only wraps another; in that case, it is the first one in
    the messages. For a message of Spark 3.5 without a condition, it is that of 4.0.
    """
    name = error_class
    if not name or name in WRAPPERS:
        if _PROXY in message or _PROXY in root_cause:
            return "FOREACH_BATCH_USER_FUNCTION_ERROR"
        name = telling([*conditions(root_cause, message), error_class])
    if name and not name.startswith("_LEGACY_ERROR"):
        return name
    text = f"{root_cause}\n{message}"
    return next((new for pattern, new in _FORMER_MESSAGES if pattern.search(text)), name)


def sql_position(*texts: str) -> tuple[int, int] | None:
    """Return the 1-based line and column of a SQL error in the messages; None if there is none."""
    for text in texts:
        if match := _SQL_POSITION.search(without_plan(text)):
            line, word, column = match.groups()
            return int(line), int(column) + (word == "pos")
    return None


def telling(names: list[str]) -> str:
    """Return the first condition that is not a wrapper, else the first other than STREAM_FAILED."""
    ordered = sorted(names, key=lambda name: name in WRAPPERS)
    return next((name for name in ordered if name not in ("", "STREAM_FAILED")), "")


def sqlstate(*texts: str) -> str:
    """Return the innermost SQLSTATE in the messages, ignoring XXKST; "" if there is none."""
    states = [state for text in texts for state in _SQLSTATE.findall(text)]
    return next((state for state in states if not state.startswith("XX")), "")


def exceptions(text: str) -> list[tuple[str, str]]:
    """Return every (type, text) in a stack or traceback, in the order printed."""
    return [
        (name or below, (detail or below_detail).strip())
        for name, detail, below, below_detail in _EXCEPTION_LINE.findall(text)
    ]


def short_type(name: str) -> str:
    """Return the last part of a dotted or nested type name."""
    return re.split(r"[.$]", name)[-1][:NAME_LIMIT]


#: py4j's own line, above the error of the Java method that it called.
_CALLING = re.compile(r"\AAn error occurred while calling \S{1,200}(?: Trace:)?\s*\n:?[ \t]*")
#: An object that Java printed: "FetchPosition{offset=5, …}", "GroupCoordinator@1a2b3c".
_JAVA_OBJECT = re.compile(r"[ ]?\b[A-Z][\w$.]{0,100}\{[^{}]*\}|@[0-9a-f]{5,16}\b")
#: "FetchPosition{…LeaderAndEpoch{leader=Optional[…" nests this deep, or deeper objects stay.
_NESTED = 4


def readable(text: str) -> str:
    """Return an error's text without py4j's line above it and without objects that Java printed."""
    text = _CALLING.sub("", text.lstrip(), count=1)
    for _ in range(_NESTED):
        without = _JAVA_OBJECT.sub("", text)
        if without == text:
            break
        text = without
    return text


def first_sentence(text: str, *, limit: int = 160) -> str:
    """Return a message's first sentence without Spark's class and state, cut at `limit`."""
    text = _CONDITION.sub("", text.strip()[:LINE_LIMIT], count=1)
    text = re.sub(r"\s{0,20}SQLSTATE:? ?[0-9A-Z]{5}\s{0,20}", " ", text).strip()
    lines = text.splitlines()
    sentence = re.split(r"(?<=[.!?])\s", lines[0], maxsplit=1)[0].strip() if lines else ""
    return sentence if len(sentence) <= limit else sentence[: limit - 1] + "…"


def suggestion(text: str) -> str:
    """Return Spark's suggestion for an unknown name, "" if there is none.

    "Did you mean one of the following? [`dep_delay`, `delay`]." -> "Did you mean `dep_delay`, …?"
    """
    match = re.search(
        r"Did you mean one of the following\? \[([^\]\n]{1,1000})\]", text[:LINE_LIMIT]
    )
    names = match[1].split(", ")[:SUGGESTIONS] if match else []
    return f"Did you mean {', '.join(names)}?" if names else ""


def innermost_line(text: str) -> str:
    """Return the line that names the innermost error: a traceback's last, else the first."""
    raised = exceptions(text) if "Traceback" in text else []
    if raised:
        kind, detail = raised[-1]
        return f"{short_type(kind)}: {first_sentence(detail)}"
    return (text.strip().splitlines() or [""])[0]


def top_frame(message: str) -> str:
    """Return the innermost frame of the user's own code or SQL, "" if none is shown.

    A Python frame is "file.py in function", a Java one "package.Class.method", and a SQL fragment
    "sql: arr_delay / dep_delay". Line numbers are left out because they move with each edit.
    """
    python = [
        (path, function)
        for path, function in _PYTHON_FRAME.findall(message)
        if not _PYTHON_NOT_OWN.search(path)
    ]
    if python:
        path, function = python[-1]
        return f"{_module_path(path)} in {function}"
    fragment = _SQL_CONTEXT.search(message)
    if fragment:
        line, indent, carets = fragment.groups()
        marked = line[len(indent) : len(indent) + len(carets)] or line
        return f"sql: {' '.join(marked.split())}"
    innermost = message.rsplit("Caused by: ", maxsplit=1)[-1]
    java = [frame for frame in _JAVA_FRAME.findall(innermost) if not _JAVA_NOT_OWN.match(frame)]
    return java[0] if java else ""


def _module_path(path: str) -> str:
    """Return the file with its package; a content-addressed folder is not a package."""
    *folders, name = path.split("/")
    parent = folders[-1] if folders else ""
    keep = re.fullmatch(r"(?![0-9a-f]{16,}$)[a-z_]+", parent) and parent != "code"
    return f"{parent}/{name}" if keep else name


def missing_module(type_name: str, text: str) -> str:
    """Return the module that an import could not find ("prices.rules"), "" for other errors."""
    if short_type(type_name) != "ModuleNotFoundError":
        return ""
    match = _MISSING_MODULE.search(text)
    return match[1] if match else ""


def fingerprint(*, error_class: str, type_name: str, root_cause: str, message: str) -> str:
    """Return a 32-digit fingerprint shared by failures with the same cause.

    It is computed from the condition, the type and the top frame of user code; if there is no such
    frame, from the root cause without IDs, paths, times, hexadecimal and other numbers.
    """
    root_cause = bounded(root_cause)
    message = without_plan(bounded(message))
    frame = top_frame(message) or top_frame(root_cause)
    position = frame or normalised(innermost_line(root_cause or message))
    name = condition(error_class, root_cause, message)
    parts = (name, short_type(type_name), position)
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:32]


def normalised(text: str) -> str:
    """Return the message without its varying parts, at most 300 characters."""
    text = text[:LINE_LIMIT]
    for pattern, name in _VARYING:
        text = pattern.sub(name, text)
    return re.sub(r"<n>([,.: ]+<n>)+", "<n>", " ".join(text.split()))[:300].strip()


class Level(IntEnum):
    """How severe an entry is."""

    DEBUG = 10
    INFO = 20
    WARN = 30
    ERROR = 40


#: "26/11/23 16:13:16.212 WARN Utils: …" of log4j, "2026-11-23 16:13:16,341 ERROR x: …" of Python.
_ENTRY = re.compile(
    rb"(?:\d\d/\d\d/\d\d|\d{4}-\d\d-\d\d)[ T]\d\d:\d\d:\d\d(?:[.,]\d{1,6})?"
    rb" (TRACE|DEBUG|INFO|WARN|WARNING|ERROR|FATAL|CRITICAL)\b"
)
_LEVELS = {
    b"TRACE": Level.DEBUG,
    b"DEBUG": Level.DEBUG,
    b"INFO": Level.INFO,
    b"WARN": Level.WARN,
    b"WARNING": Level.WARN,
    b"ERROR": Level.ERROR,
    b"FATAL": Level.ERROR,
    b"CRITICAL": Level.ERROR,
}
#: Maximum characters shown of one line; nobody reads the rest of a plan on one line.
LOG_LINE_LIMIT = 8_000
#: Maximum characters read of one line: it is masked before it is cut, or half a secret would show.
_READ = 65_536


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of a log."""

    at: int  # byte offset at which it begins; it stays the same while the file grows
    level: Level | None  # of its entry; None: unknown
    text: str


def lines_of(data: bytes, start: int, *, whole: bool = False) -> Iterator[LogLine]:
    """Yield the lines of the part of a file that begins at `start`.

    The first is left out unless `whole` is true, because it may be the end of an earlier line.
    """
    at, level = start, None
    for number, raw in enumerate(data.split(b"\n")):
        if entry := _ENTRY.match(raw):
            level = _LEVELS[entry[1]]
        if (number or whole) and (raw or at + 1 < start + len(data)):
            text = raw[:_READ].decode("utf-8", errors="replace").replace("\0", "\ufffd")
            yield LogLine(at, level, text.rstrip("\r"))
        at += len(raw) + 1


def select(
    lines: Sequence[LogLine],
    *,
    words: str,
    least: Level | None,
    most: int,
    most_masked: int,
    mask: Callable[[str], str],
) -> tuple[list[LogLine], int | None]:
    """Return the newest masked lines that match, and the offset before which none was looked at.

    The offset is None if these are all of them. Matching lines contain the words and belong to
    entries of at least this level. They must also contain the words after masking, so that a search
    never reveals a secret. It ends after `most` lines, or before more than `most_masked` characters
    are masked, but masks at least one line.
    """
    wanted = words.casefold()
    selected_lines: list[LogLine] = []
    masked = 0
    after: int | None = None  # the last line that was masked
    for line in reversed(lines):
        if least is not None and (line.level is None or line.level < least):
            continue
        if wanted and wanted not in line.text.casefold():
            continue
        masked += len(line.text)
        if len(selected_lines) == most or (after is not None and masked > most_masked):
            return selected_lines[::-1], after
        after = line.at
        shown = mask(line.text)
        if wanted and wanted not in shown.casefold():
            continue
        shown = f"{shown[:LOG_LINE_LIMIT]}…" if len(shown) > LOG_LINE_LIMIT else shown
        selected_lines.append(LogLine(line.at, line.level, shown))
    return selected_lines[::-1], None
