"""Datasets (topics, paths, tables) by one canonical identity, and how a query uses them.

A definition names the sources and the sink of a SQL query. What code reads and writes is known only
from the descriptions in Spark's progress events, and those do not name everything: what stays
unknown is stated in a sentence.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import Any

from headgate_ground.masking import mask_text
from queries.domain.catalogs import PREFIX as CATALOG
from queries.domain.definitions.locations import NotALocation, canonical, normalized_location
from queries.domain.definitions.spec import FILES, UNKEPT_SINKS
from queries.domain.definitions.sql_verdict import SqlReads, has_own_grammar
from queries.domain.kafka.lag import kafka_offsets
from queries.domain.kafka.options import SERVERS
from queries.domain.tables.places import (
    DELTA,
    ICEBERG,
    MAIN,
    TABLES,
    TablePlace,
    described_table,
    table_named,
    table_of,
)


class DatasetKind(StrEnum):
    """What a dataset is."""

    TOPIC = "topic"
    PATH = "path"  # of files, or of a table in a folder
    TABLE = "table"  # by name, in a catalog whose folder is not known


class KnownFrom(StrEnum):
    """Where a use of a dataset is known from."""

    DEFINITION = "definition"
    SPARK = "spark"  # a description or an offset in a progress event


@dataclass(frozen=True, slots=True, order=True)
class Dataset:
    """A dataset; two uses of equal datasets use the same data."""

    kind: DatasetKind
    store: str  # a topic's brokers, a table's catalog; "" for a path, or if unknown
    name: str  # of the topic or table; the canonical location of a path

    @property
    def title(self) -> str:
        """Return its name as users write it."""
        return self.name.removeprefix("file://")


@dataclass(frozen=True, slots=True)
class DatasetUse:
    """One use of a dataset by a query."""

    dataset: Dataset
    known_from: KnownFrom = KnownFrom.DEFINITION
    as_of: datetime | None = None  # time of Spark's report; None: known from the definition
    pattern: bool = False  # the name is a pattern of topics, or a path with wildcards
    recursive: bool = False  # of a path: files in folders below it are read too


@dataclass(frozen=True, slots=True)
class Uses:
    """A query's inputs and outputs, and sentences on the unknown parts of each."""

    reads: tuple[DatasetUse, ...] = ()
    writes: tuple[DatasetUse, ...] = ()
    unread: tuple[str, ...] = ()
    unwritten: tuple[str, ...] = ()

    @property
    def unknown(self) -> tuple[str, ...]:
        """Return all sentences, each once."""
        return tuple(dict.fromkeys((*self.unread, *self.unwritten)))


@dataclass(frozen=True, slots=True)
class BatchReport:
    """The sources and the sink of a query's newest progress event."""

    sources: Any  # Spark's JSON, as received
    sink: Any
    at: datetime | None


#: Formats and descriptions without a dataset: generated rows, sockets, sinks that keep nothing.
_NO_DATA = frozenset({"rate", "rate-micro-batch", "socket", *UNKEPT_SINKS})
_NO_DATA_DESCRIBED = re.compile(
    r"Rate\w*Stream|RateStream|TextSocket|MemoryS|MemoryPlan|ConsoleTable|NoopTable|NoopDataSource"
)
#: Spark's descriptions (their `toString`): KafkaMicroBatchStream, FileStreamSource, FileStreamSink.
_SUBSCRIBED = re.compile(r"Kafka\w*\[Subscribe\[(.*)\]\]")
_FILES = re.compile(r"(?:FileStreamSource|FileSink)\[(.+)\]")
_HASH = re.compile(r"@[0-9a-f]+$")
_GLOB = re.compile(r"[*?\[\]{}]")
#: The catalog of names without one, and the setting that replaces it (`SQLConf`).
_SESSION_CATALOG, _DEFAULT_CATALOG = "spark_catalog", "spark.sql.defaultCatalog"
#: Formats whose path can follow them in a text: json.`/data/in`.
_BEFORE_PATHS = frozenset({*FILES, *TABLES})
#: Delta's version or time at the end of a path (`DeltaTimeTravelSpec`).
_OF_VERSION = re.compile(r"@(?:v\d+|\d{17})$")
#: The last part of a name that selects a version of an Iceberg table (`SparkCatalog`).
_SELECTS = re.compile(r"(branch|tag|snapshot_id|at_timestamp)_(.+)")
_SHOWN = 200  # characters of a name or description
#: Many queries share a few brokers and catalogs.
_masked = lru_cache(4096)(mask_text)


def uses_of(
    spec: Mapping[str, Any],
    conf: Mapping[str, str],
    report: BatchReport | None,
    sql_reads: Any = None,
) -> Uses:
    """Return a query's datasets, from its definition's JSON form and Spark's newest report.

    `conf` is the application's configuration; `sql_reads` is the JSON form of the relations in its
    SQL, None if Spark's parser has not read it. The definition takes precedence: the report adds
    what code uses, and the topics that a pattern matched.
    """
    conf = {**conf, **_mapping(spec.get("conf"))}
    if spec.get("kind") == "sql":
        uses = _of_sql(spec, conf, sql_reads)
        if report is not None and any(
            use.pattern and use.dataset.kind is DatasetKind.TOPIC for use in uses.reads
        ):
            uses = replace(uses, reads=(*uses.reads, *_reported_topics(report, uses)))
        return uses
    return _of_code(spec, conf, report)


def _of_sql(spec: Mapping[str, Any], conf: Mapping[str, str], sql_reads: Any) -> Uses:
    reads: list[DatasetUse] = []
    unknown: list[str] = []
    for part in (*_list(spec.get("sources")), *_list(spec.get("tables"))):
        uses, why = _part(part, conf, reads=True)
        reads += uses
        unknown += [f"Reads of {part.get('name') or 'a source'}: {why}"] if why else []
    if str(spec.get("sql") or "").strip():
        uses, more = _in_text(spec, conf, sql_reads)
        reads += uses
        unknown += [f"Reads of the SQL: {why}" for why in more]
    writes, why = _part(_mapping(spec.get("sink")), conf, reads=False)
    return Uses(tuple(reads), tuple(writes), tuple(unknown), (f"Writes: {why}",) if why else ())


def _of_code(spec: Mapping[str, Any], conf: Mapping[str, str], report: BatchReport | None) -> Uses:
    reads: list[DatasetUse] = []
    unread: list[str] = []
    writes: list[DatasetUse] = []
    unwritten = ""
    sources = _list(report.sources) if report is not None else []
    for source in sources:
        uses, why = _described(source, conf, report, "Reads")
        reads += uses
        unread += [why] if why else []
    if not sources:
        unread.append("Reads: unknown until Spark reports a batch.")
    if spec.get("sink"):
        writes, why = _part(_mapping(spec["sink"]), conf, reads=False)
        unwritten = f"Writes: {why}" if why else ""
    elif report is None or not report.sink:
        unwritten = "Writes: unknown until Spark reports a batch."
    else:
        writes, unwritten = _described(_mapping(report.sink), conf, report, "Writes")
    unwritten_reasons = (unwritten,) if unwritten else ()
    return Uses(tuple(reads), tuple(writes), tuple(dict.fromkeys(unread)), unwritten_reasons)


# --- definitions --------------------------------------------------------------------------


def _part(
    part: Mapping[str, Any], conf: Mapping[str, str], *, reads: bool
) -> tuple[list[DatasetUse], str]:
    """Return the datasets of one source, table or sink, and why one is unknown ("" if none is)."""
    name = str(part.get("format") or "")
    options = {key.lower(): str(value) for key, value in _mapping(part.get("options")).items()}
    if name in _NO_DATA or not name:
        return [], ""
    if name == "kafka":
        return _kafka(options, reads=reads)
    if name in TABLES and (options.get("path") or options.get("table")):
        return [_in_format(name, options, conf)], ""
    if path := options.get("path"):
        use = _path_use(path, recursive=options.get("recursivefilelookup") == "true")
        return (
            ([use], "")
            if use
            else ([], f"unknown; the path {mask_text(path[:_SHOWN])!r} is not a valid location.")
        )
    if table := options.get("table"):
        return [DatasetUse(_table(table, conf))], ""
    return [], f"unknown; Headgate does not know which option of {name} names its data."


def _kafka(options: Mapping[str, str], *, reads: bool) -> tuple[list[DatasetUse], str]:
    store = options.get(SERVERS, "")
    if not reads:
        topic = options.get("topic")
        if topic:
            return [DatasetUse(_topic(store, topic))], ""
        return [], "unknown; each row names its Kafka topic."
    if pattern := options.get("subscribepattern"):
        return [DatasetUse(_topic(store, pattern), pattern=True)], ""
    topics = options.get("subscribe", "").split(",")
    if assigned := options.get("assign"):
        try:
            topics = [str(topic_name) for topic_name in json.loads(assigned)]
        except (ValueError, TypeError):
            return [], "unknown; the option assign is not a valid JSON object."
    return [
        DatasetUse(_topic(store, topic_name.strip())) for topic_name in topics if topic_name.strip()
    ], ""


def _topic(store: str, name: str) -> Dataset:
    return Dataset(DatasetKind.TOPIC, _masked(store.strip()), name)  # it may be a pattern: not cut


def _in_format(form: str, options: Mapping[str, str], conf: Mapping[str, str]) -> DatasetUse:
    """Return the use of a Delta or Iceberg table; a branch other than main is part of its name."""
    branch = options.get("branch", MAIN)
    main = {name: value for name, value in options.items() if name != "branch"}
    table = table_of({"format": form, "options": main}, conf)
    return _named(table or TablePlace(form, ""), conf, "" if branch == MAIN else branch)


def _named(table: TablePlace, conf: Mapping[str, str], branch: str = "") -> DatasetUse:
    if table.location:
        dataset = Dataset(DatasetKind.PATH, "", normalized_location(table.location))
    else:
        dataset = _table(table.name, conf)
    return DatasetUse(replace(dataset, name=f"{dataset.name}@{branch}") if branch else dataset)


def _table(name: str, conf: Mapping[str, str]) -> Dataset:
    """Return a table by name; its catalog is known by its address, not by its local name."""
    name = name.removeprefix(f"{_SESSION_CATALOG}.")
    catalog, _, rest = name.partition(".")
    address = next((conf[key] for key in _addresses(catalog) if conf.get(key)), "")
    if rest and address:
        return Dataset(DatasetKind.TABLE, _masked(address), rest[:_SHOWN])
    return Dataset(DatasetKind.TABLE, "", name[:_SHOWN])


def _addresses(catalog: str) -> tuple[str, str]:
    return f"{CATALOG}{catalog}.uri", f"{CATALOG}{catalog}.warehouse"


def _in_text(
    spec: Mapping[str, Any], conf: Mapping[str, str], sql_reads: Any
) -> tuple[list[DatasetUse], list[str]]:
    """Return the tables and paths named in SQL, and why others are unknown."""
    if sql_reads is None:
        return [], ["unknown until Spark's parser has read it."]
    try:
        named = SqlReads.from_json(sql_reads)
    except ValueError:
        return [], ["unknown; another release has stored them."]
    unknown = [f"unknown; {why}." for why in named.unknown]
    if has_own_grammar(conf):
        unknown.append("unknown; spark.sql.extensions or parser settings change Spark's grammar.")
    parts = (*_list(spec.get("sources")), *_list(spec.get("tables")))
    views = {str(part.get("name")).lower() for part in parts}
    uses = []
    for relation in named.relations:
        if len(relation) == 1 and relation[0].lower() in views:
            continue
        use = _relation(relation, conf)
        if use is None:
            shown = mask_text(".".join(relation)[:_SHOWN])
            unknown.append(f"unknown; {shown!r} is no source, table or location of the query.")
        else:
            uses.append(use)
    return uses, unknown


def _relation(parts: Sequence[str], conf: Mapping[str, str]) -> DatasetUse | None:
    """Return the use of a relation named in SQL; None if its kind is unknown."""
    form, last = parts[0].lower(), parts[-1]
    is_file = len(parts) == 2 and form in _BEFORE_PATHS
    if is_file or (len(parts) > 1 and ("/" in last or ":" in last)):
        return _path_use(_OF_VERSION.sub("", last) if form == DELTA else last)
    catalogs = {key[len(CATALOG) :].partition(".")[0] for key in conf if key.startswith(CATALOG)}
    if parts[0] not in catalogs and conf.get(_DEFAULT_CATALOG) in catalogs and len(parts) > 1:
        parts = (conf[_DEFAULT_CATALOG], *parts)
    if len(parts) == 1:
        return None
    branch, version = "", _SELECTS.fullmatch(parts[-1])
    if version is not None and len(parts) > 3:
        parts = parts[:-1]
        branch = version[2] if version[1] == "branch" and version[2] != MAIN else ""
    return _named(table_named(parts, conf), conf, branch)


def _path_use(text: str, *, recursive: bool = False) -> DatasetUse | None:
    """Return the use of a path, which may contain wildcards; None if it is not a location."""
    parts = text.strip().split("/")
    at = next((number for number, part in enumerate(parts) if _GLOB.search(part)), len(parts))
    try:
        fixed = normalized_location(canonical("/".join(parts[:at])))
    except NotALocation:
        return None
    rest = [part for part in parts[at:] if part]
    name = mask_text("/".join((fixed, *rest)))
    pattern = _GLOB.search(name) is not None  # masking may have removed the wildcards
    return DatasetUse(Dataset(DatasetKind.PATH, "", name), pattern=pattern, recursive=recursive)


# --- what Spark reports -------------------------------------------------------------------


def _described(
    part: Mapping[str, Any], conf: Mapping[str, str], report: BatchReport | None, does: str
) -> tuple[list[DatasetUse], str]:
    """Return the datasets of a source or sink in a progress event, and why one is unknown.

    `does` begins that sentence: "Reads" or "Writes".
    """
    text = part.get("description")
    text = text if isinstance(text, str) else ""
    uses: list[DatasetUse] = []
    if topics := _topics(part, text):
        uses = [DatasetUse(_topic("", topic)) for topic in topics]
    elif files := _FILES.fullmatch(text):
        use = _path_use(files[1])
        uses = [use] if use else []
    elif table := described_table(text):
        uses = [_named(table, conf)]
    elif _is_table(text, conf):
        uses = [_in_format(ICEBERG, {"table": text}, conf)]
    at = report.at if report is not None else None
    dated_uses = [replace(use, known_from=KnownFrom.SPARK, as_of=at) for use in uses]
    return dated_uses, "" if uses else _not_named(text, does)


def _is_table(text: str, conf: Mapping[str, str]) -> bool:
    """Return whether a description is a table's name in a configured catalog, as of Iceberg."""
    catalog, dot, _ = text.partition(".")
    return bool(dot) and any(
        key == f"{CATALOG}{catalog}" or key.startswith(f"{CATALOG}{catalog}.") for key in conf
    )


def _topics(part: Mapping[str, Any], text: str) -> list[str]:
    if match := _SUBSCRIBED.fullmatch(text):
        return [topic.strip() for topic in match[1].split(",") if topic.strip()]
    if not text.startswith("Kafka"):
        return []
    offsets: dict[str, Any] = {}
    for name in ("startOffset", "endOffset", "latestOffset"):
        offsets |= kafka_offsets(part.get(name))
    return sorted(offsets)


def _not_named(text: str, does: str) -> str:
    """Return why a description names no dataset; "" if there is no dataset."""
    if _NO_DATA_DESCRIBED.search(text):
        return ""
    if "ForeachBatch" in text:
        return f"{does} by foreachBatch: unknown."
    if "ForeachWriter" in text or "ForeachTable" in text:
        return f"{does} by foreach: unknown."
    if "KafkaTable" in text:
        return f"{does}: unknown; Spark does not report the topics of a Kafka sink."
    shown = mask_text(_HASH.sub("", text)[:_SHOWN])
    return f"{does}: unknown; Spark reports {f'only {shown}' if shown else 'no description'}."


def _reported_topics(report: BatchReport, uses: Uses) -> Iterable[DatasetUse]:
    """Return the topics that Spark read for the patterns of a definition."""
    stores = {use.dataset.store for use in uses.reads if use.dataset.kind is DatasetKind.TOPIC}
    store = next(iter(stores)) if len(stores) == 1 else ""
    listed_names = {use.dataset.name for use in uses.reads}
    for source in _list(report.sources):
        for name in _topics(source, str(source.get("description") or "")):
            if name not in listed_names:
                yield DatasetUse(_topic(store, name), KnownFrom.SPARK, report.at)


# --- JSON of any shape --------------------------------------------------------------------


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Mapping[str, Any]]:
    return [part for part in value if isinstance(part, Mapping)] if isinstance(value, list) else []
