"""What Spark's own parser and analyzer found in SQL: relations, and a verdict with its report.

Spark parses the SQL and analyzes nothing, so no catalog is contacted. The result depends on the SQL
alone; it is stored with the revision, and lineage uses it.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from headgate_ground.masking import is_reference
from queries.domain.definitions.configuration import is_analyzed, withheld
from queries.domain.definitions.spec import FILES, Source, SqlQuery, Table
from queries.domain.errors import Problem
from queries.domain.sparks import OURS, Spark

#: More relations than anybody writes; a text that names more is unknown.
MOST_RELATIONS = 2_000


@dataclass(frozen=True, slots=True)
class SqlReads:
    """The relations in SQL, and why others are unknown, as sentence fragments."""

    relations: tuple[tuple[str, ...], ...] = ()  # parts of names, without the names of WITH
    unknown: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the verdict in the form stored in revisions."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Any) -> Self:
        """Return the verdict from its JSON form; raise ValueError if it is invalid."""
        if not isinstance(stored, Mapping) or set(stored) != {"relations", "unknown"}:
            raise ValueError("not the relations of a text")
        relations, unknown = stored["relations"], stored["unknown"]
        if not isinstance(relations, list | tuple) or not all(map(_is_texts, relations)):
            raise ValueError("the relations of a text are not names")
        if len(relations) > MOST_RELATIONS or not all(relations) or not _is_texts(unknown):
            raise ValueError("the relations of a text are too many, or without a name")
        return cls(tuple(tuple(names) for names in relations), tuple(unknown))


#: A text that Spark's parser rejects.
REJECTED = SqlReads(unknown=("Spark's parser rejects it",))


def _is_texts(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(text, str) for text in value)


#: "[PARSE_SYNTAX_ERROR] Syntax error at or near 'b': extra input 'b'. SQLSTATE: 42601 (line 1, …"
_UNBOUND = re.compile(r"\[UNBOUND_SQL_PARAMETER\] Found the unbound parameter: (\w+)\.")
#: Spark's name of a `?`: its position.
_NUMBERED = re.compile(r"_\d+")
#: Markers that Spark's parser rejects.
_MARKER = re.compile(r"\{\{?\s*\w+\s*\}?\}|[$@]\w+")
_WORD = re.compile(r"\w+")
_SPARK_MESSAGE = re.compile(r"\[[A-Z_.0-9]{1,100}\]\s?([^\n]{1,400}?)(?:\s?SQLSTATE|\n|$)")
#: Configuration that gives Spark a different grammar from the bare parser's.
_OWN_GRAMMAR = re.compile(
    r"spark\.sql\.(extensions|parser\..*|ansi\.(enforceReservedKeywords|doubleQuotedIdentifiers))"
)
_EXTENSIONS = "spark.sql.extensions"
#: Extensions that add commands and functions only: they leave queries to Spark's own parser.
_SAME_QUERIES = frozenset(
    {
        "io.delta.sql.DeltaSparkSessionExtension",
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    }
)
#: A catalog that behaves as Spark's own, except for Delta tables.
_SAME_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"


_TRUE = "true"
#: Spark 4.3: `KafkaRecordToRowConverter`, `RateStreamProvider`, `TextSocketReader`, `TextOptions`.
_KAFKA = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, "
    "timestampType INT"
)
_HEADERS = ", headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
_FIXED = {
    "rate": "timestamp TIMESTAMP, value BIGINT",
    "rate-micro-batch": "timestamp TIMESTAMP, value BIGINT",
    "socket": "value STRING",
    "text": "value STRING",
    "kafka": _KAFKA,
}
#: The hidden column of file sources; it is added as a column if a text mentions it.
FILE_METADATA = (
    "_metadata STRUCT<file_path: STRING, file_name: STRING, file_size: BIGINT, "
    "file_block_start: BIGINT, file_block_length: BIGINT, file_modification_time: TIMESTAMP, "
    "row_index: BIGINT>"
)
#: Analyzer conditions that no function, catalog or setting of a driver can fix: names and numbers
#: within the text. Any other condition is left to the first start.
_CERTAIN = re.compile(
    r"\[(UNRESOLVED_COLUMN|AMBIGUOUS_REFERENCE|AMBIGUOUS_COLUMN_OR_FIELD|FIELD_NOT_FOUND|"
    r"MISSING_AGGREGATION|MISSING_GROUP_BY|GROUP_BY_[A-Z_]+|NUM_COLUMNS_MISMATCH|"
    r"EVENT_TIME_IS_NOT_ON_TIMESTAMP_TYPE|UNRESOLVED_USING_COLUMN_FOR_JOIN|"
    r"UNBOUND_SQL_PARAMETER)\b"
)


@dataclass(frozen=True, slots=True)
class View:
    """A source or a table as the analyzer sees it: its name, columns and watermark."""

    name: str
    columns: str  # as a DDL schema
    streaming: bool
    watermark: tuple[str, str] | None = None  # column and delay


@dataclass(frozen=True, slots=True)
class SqlQuestion:
    """A SQL statement, the views that it can read, and the settings for its analysis."""

    text: str
    views: tuple[View, ...] = ()
    conf: Mapping[str, str] = field(default_factory=dict)
    output_mode: str = "append"
    unknown: str = ""  # why column names cannot be checked, "" if they can
    spark: Spark = OURS  # the application's
    params: Mapping[str, Any] = field(default_factory=dict)  # of the text, by their defaults


@dataclass(frozen=True, slots=True)
class SqlVerdict:
    """Spark's verdict; `line` and `column` count from 1, None if it gives no position."""

    ok: bool
    message: str = ""  # Spark's full message
    line: int | None = None
    column: int | None = None
    unjudged: str = ""  # why column names were not checked; "" if they were
    state: dict[str, Any] | None = None  # `plan_shapes.Shapes` as JSON; None: unknown
    spark: str = ""  # the exact version of the analyzer that found `state`
    reads: dict[str, Any] | None = None  # `sql_reads.SqlReads` as JSON; None: not parsed


def question_about(
    spec: SqlQuery,
    *,
    conf: Mapping[str, str],
    partitioned: Mapping[str, str],
    spark: Spark = OURS,
) -> SqlQuestion:
    """Return the request to Spark about a definition.

    `conf` and `spark` are the application's; `partitioned` contains the folders whose partitions
    may add columns to a source or table, each with the reason.
    """
    views, unknown = [], ""
    parts: list[Source | Table] = [*spec.sources, *spec.tables]
    for part in parts:
        columns = columns_of(part)
        watermark = part.watermark if isinstance(part, Source) else None
        folder = folder_of(part)
        if columns is None:
            unknown = unknown or f"only Spark can determine the columns of {part.name}"
            continue
        if folder and folder in partitioned:
            unknown = unknown or f"{part.name} has partition folders: {partitioned[folder]}"
        if folder is not None and "_metadata" in spec.sql:
            columns = f"{columns}, {FILE_METADATA}"
        event_time = (watermark.column, watermark.delay) if watermark else None
        views.append(View(part.name, columns, isinstance(part, Source), event_time))
    merged_conf = {**conf, **spec.conf}
    plain = {
        key: value
        for key, value in merged_conf.items()
        if key.startswith("spark.sql.") and key != _EXTENSIONS and value != _SAME_CATALOG
    }
    if any(key.startswith("spark.sql.catalog") for key in plain):
        unknown = unknown or "catalogs are configured"
    plain = {key: value for key, value in plain.items() if not is_reference(value)}
    if (unclear := withheld(plain)) and not unknown:
        unknown = f"{unclear} can change them, and is not used before the query starts"
    return SqlQuestion(
        text=spec.sql,
        views=() if unknown else tuple(views),
        conf={key: value for key, value in plain.items() if is_analyzed(key, value)},
        output_mode=spec.sink.output_mode if spec.sink else "append",
        unknown=unknown,
        spark=spark,
        params=dict(spec.params),
    )


def read_question(document: Mapping[str, Any]) -> SqlQuestion:
    """Parse a request from its JSON form.

    Anyone who can write to Redis can send one: settings that `question_about` would withhold are
    left out.
    """
    views = [
        View(**{**view, "watermark": tuple(view["watermark"]) if view["watermark"] else None})
        for view in document["views"]
    ]
    conf = {key: value for key, value in document["conf"].items() if is_analyzed(key, value)}
    return SqlQuestion(**{**document, "views": tuple(views), "conf": conf})


def read_verdict(answer: Mapping[str, Any]) -> SqlVerdict:
    """Return a verdict from the JSON form that a parser's process has sent.

    Raises ValueError if it is invalid: that process has parsed an author's SQL, so its answer is
    not trusted either.
    """
    kinds: dict[str, tuple[type, ...]] = {
        "ok": (bool,),
        "message": (str,),
        "line": (int, type(None)),
        "column": (int, type(None)),
        "unjudged": (str,),
        "state": (dict, type(None)),
        "spark": (str,),
        "reads": (dict, type(None)),
    }
    if set(answer) != set(kinds):
        raise ValueError(
            f"not the fields of a verdict: {', '.join(sorted(map(str, answer)))[:200]}"
        )
    for name, allowed in kinds.items():
        if not isinstance(answer[name], allowed):
            raise ValueError(f"the verdict's {name} is a {type(answer[name]).__name__}")
    reads = None if answer["reads"] is None else SqlReads.from_json(answer["reads"]).as_json()
    return SqlVerdict(**{**answer, "reads": reads})


def is_certain(message: str) -> bool:
    """Return whether the analyzer's error would occur in every driver."""
    return _CERTAIN.match(message.strip()) is not None


def has_own_grammar(conf: Mapping[str, object]) -> bool:
    """Return whether Spark would parse SQL with rules other than its parser's defaults."""
    return any(
        _OWN_GRAMMAR.fullmatch(key)
        and not (key == _EXTENSIONS and _SAME_QUERIES.issuperset(str(value).split(",")))
        for key, value in conf.items()
    )


def refused(text: str, verdict: SqlVerdict) -> Problem:
    """Return a rejection as a problem that shows the line, with a caret below the position."""
    if unbound := _UNBOUND.match(verdict.message):
        return not_bound("?") if _NUMBERED.fullmatch(unbound[1]) else without_default(unbound[1])
    match = _SPARK_MESSAGE.search(verdict.message)
    message = match[1].strip() if match else " ".join(verdict.message.split())[:400]
    if verdict.line is None or verdict.column is None:
        # Spark's errors have a code; without one, it is a driver that would refuse the text.
        what = "is not valid Spark SQL" if match else "cannot be run"
        return Problem("sql", text[:200], f"{what}: {message}", "Correct the SQL.")
    lines = text.splitlines() or [""]
    line = lines[min(verdict.line, len(lines)) - 1].replace("\t", " ")
    if marker := _MARKER.match(line, verdict.column - 1):
        return not_bound(marker[0])
    position = f"line {verdict.line}, column {verdict.column}"
    begin = max(0, verdict.column - 80)  # skip the beginning of a very long line
    shown, caret = line[begin : begin + 120], " " * (verdict.column - 1 - begin) + "^"
    return Problem(
        "sql",
        text[:200],
        f"is not valid Spark SQL: {message} ({position})",
        f"\n{shown}\n{caret}",
        verdict.line,
        verdict.column,
    )


def without_default(name: str) -> Problem:
    """Return what is wrong with a parameter in the SQL that is missing from `params`."""
    way_out = f"Add {name} with a default to params, or write the value itself."
    return Problem("sql", f":{name}", "is a parameter without a default.", way_out)


def not_bound(marker: str) -> Problem:
    """Return the problem with a marker of another language, such as `?` or `{low}`."""
    name = "".join(_WORD.findall(marker)) or "name"
    way_out = f"Write :{name}, and add {name} with a default to params."
    return Problem("sql", marker, "is not a parameter syntax that Headgate supports.", way_out)


def columns_of(part: Source | Table) -> str | None:
    """Return the columns as a DDL schema; None if only Spark can determine them."""
    options = {name.lower(): value.lower() for name, value in part.options.items()}
    name = part.format.lower()
    if name == "kafka":
        return _KAFKA + (_HEADERS if options.get("includeheaders") == _TRUE else "")
    if name == "socket" and options.get("includetimestamp") == _TRUE:
        return "value STRING, timestamp TIMESTAMP"
    if name in _FIXED:
        return _FIXED[name]
    return part.ddl_schema or None if name in FILES else None


def folder_of(part: Source | Table) -> str | None:
    """Return the folder whose partitions add columns; None if it is not a file format."""
    if part.format.lower() not in FILES:
        return None
    return _path(part.options)


def _path(options: Mapping[str, str]) -> str:
    return next((value for name, value in options.items() if name.lower() == "path"), "")
