"""Find the tables that a definition reads and writes, with their format and location."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from headgate_ground.tolerant import whole
from queries.domain.catalogs import CATALOG_CLASS
from queries.domain.catalogs import PREFIX as CATALOG
from queries.domain.definitions.locations import NotALocation, canonical

DELTA, ICEBERG = "delta", "iceberg"
#: The branch whose snapshot an Iceberg table's metadata calls current (`SnapshotRef`).
MAIN = "main"
#: Formats of tables whose log Headgate can read.
TABLES = frozenset({DELTA, ICEBERG})
#: Delta's names for its source and its sink in progress events (their `toString`).
_DESCRIBED = re.compile(r"Delta(?:Source|Sink)\[(.+)\]")


class Changes(StrEnum):
    """What a Delta source does with versions that update or delete rows.

    Source: `DeltaSource.validateCommitAndDecideSkipping`, Delta 4.4.0.
    """

    FAIL = "fail"
    PASS_DELETES = "pass deletes"  # ignoreDeletes: fails if the version also adds files
    READ = "read"  # ignoreChanges: the files that the version adds
    SKIP = "skip"  # skipChangeCommits
    UNKNOWN = "unknown"  # the options are in code; or it reads the change feed instead


@dataclass(frozen=True, slots=True)
class DeltaStart:
    """Where a Delta source without an offset begins; with neither: at the table as it is then."""

    version: int | None = None  # startingVersion
    unknown: bool = False  # at a time, after the newest version, or the options are in code


@dataclass(frozen=True, slots=True)
class TablePlace:
    """One table in a definition."""

    format: str  # of `TABLES`
    name: str  # as written: a path, or "catalog.db.table"
    location: str = ""  # the canonical location of its folder; "" if it is unknown
    problem: str = ""  # why its location is unknown, as a sentence
    changes: Changes = Changes.UNKNOWN  # of a Delta source
    start: DeltaStart = DeltaStart(unknown=True)  # of a Delta source


def source_tables(spec: Mapping[str, Any], conf: Mapping[str, str]) -> list[TablePlace | None]:
    """Return the table of each source of a definition's JSON form, in order; None for others.

    `conf` is the application's configuration; the query's own takes precedence.
    """
    sources = spec.get("sources")
    merged_conf = {**conf, **(spec.get("conf") or {})}
    return [
        table_of(source, merged_conf) for source in (sources if isinstance(sources, list) else ())
    ]


def sink_table(spec: Mapping[str, Any], conf: Mapping[str, str]) -> TablePlace | None:
    """Return the table that a definition's sink writes; None if the sink is not a table."""
    return table_of(spec.get("sink"), {**conf, **(spec.get("conf") or {})})


def described_table(description: Any) -> TablePlace | None:
    """Return the Delta table in a description of a source or sink in a progress event.

    None for others. An Iceberg source's description does not name its table.
    """
    match = _DESCRIBED.fullmatch(description) if isinstance(description, str) else None
    return table_at(DELTA, match[1]) if match else None


def table_at(table_format: str, name: str) -> TablePlace:
    """Return the table at a path."""
    try:
        return TablePlace(table_format, name, canonical(name))
    except NotALocation as error:
        return TablePlace(table_format, name, problem=f"The table's path {name!r} {error}")


def table_of(part: Any, conf: Mapping[str, str]) -> TablePlace | None:
    """Return the table of one source, table or sink; None if its format is not a table format."""
    if not isinstance(part, Mapping) or part.get("format") not in TABLES:
        return None
    options = {str(key).lower(): str(value) for key, value in (part.get("options") or {}).items()}
    name = options.get("path") or options.get("table") or str(part.get("table") or "")
    branch = options.get("branch", MAIN)
    if part["format"] == ICEBERG and branch != MAIN:
        problem = f"The query uses the table's branch {branch}; Headgate reads only {MAIN}."
        return TablePlace(ICEBERG, name, problem=problem)
    if part["format"] == DELTA:
        return replace(table_at(DELTA, name), changes=_changes(options), start=_start(options))
    if "/" in name:
        return table_at(ICEBERG, name)
    return table_named(name.split("."), conf)


def _changes(options: Mapping[str, str]) -> Changes:
    on = {key for key, value in options.items() if value.strip().lower() == "true"}
    if on & {"readchangefeed", "readchangedata"}:
        return Changes.UNKNOWN
    if "skipchangecommits" in on:
        return Changes.SKIP
    if on & {"ignorechanges", "ignorefiledeletion"}:
        return Changes.READ
    return Changes.PASS_DELETES if "ignoredeletes" in on else Changes.FAIL


def _start(options: Mapping[str, str]) -> DeltaStart:
    if "startingversion" in options:
        version = whole(options["startingversion"].strip())
        return DeltaStart(version, unknown=version is None)
    return DeltaStart(unknown="startingtimestamp" in options)


def table_named(parts: Sequence[str], conf: Mapping[str, str]) -> TablePlace:
    """Return the table of a name's parts, such as catalog, db and table, in a Hadoop catalog.

    Source: Iceberg's HadoopCatalog, which keeps a table in WAREHOUSE/db/table.
    """
    name = ".".join(parts)
    catalog, *parts = parts
    if not parts or not all(parts):
        return TablePlace(ICEBERG, name, problem=f"{name!r} is not the name of a catalog's table.")
    kind = conf.get(f"{CATALOG}{catalog}.type", "")
    warehouse = conf.get(f"{CATALOG}{catalog}.warehouse", "")
    if not kind and conf.get(f"{CATALOG}{catalog}") == CATALOG_CLASS:
        problem = f"The table is in the catalog service {catalog}, which only Spark reads."
        return TablePlace(ICEBERG, name, problem=problem)
    if kind.lower() != "hadoop" or not warehouse:
        return TablePlace(
            ICEBERG,
            name,
            problem="Only tables of a Hadoop catalog with a warehouse can be read without Spark; "
            f"{CATALOG}{catalog}.type is {kind or 'not set'}.",
        )
    table = table_at(ICEBERG, "/".join((warehouse.rstrip("/"), *parts)))
    return replace(table, name=name)
