"""The formats of sources, tables and sinks, what each requires, and their object stores.

Spark's own package opens local files and HDFS. Any other store needs a connector with Hadoop's
client for it; without one, the first start fails with "No FileSystem for scheme".
"""

import dataclasses
import re
from collections.abc import Iterable, Mapping

from queries.domain.definitions.allowed_paths import unnamed_places
from queries.domain.definitions.configuration import option_problems
from queries.domain.definitions.declarations import Declared, formats_of
from queries.domain.definitions.locations import on_yarn, path_problem
from queries.domain.definitions.spec import (
    FILES,
    LONGEST_VIEW,
    UNLISTED_SINKS,
    Sink,
    Source,
    SqlQuery,
    Table,
)
from queries.domain.errors import Problem
from queries.domain.kafka.options import (
    group_problems,
    sink_option_problems,
    source_option_problems,
)
from queries.domain.sparks import OURS, TYPES_SINCE, Spark, is_older
from queries.domain.tables.places import ICEBERG
from queries.domain.triggers.kinds import interval_problem
from queries.domain.validation import spark_rules, tables
from queries.domain.validation.tables import table_of

SOURCES = FILES | {"rate", "rate-micro-batch", "socket", "kafka"}
TABLES = FILES
SINKS = FILES | UNLISTED_SINKS
#: Formats missing from Spark's own package -> the connector that provides them.
CONNECTORS = {"kafka": "kafka", "avro": "avro", **{name: name for name in tables.SPARKS}}

_VIEW_NAME = re.compile(rf"[A-Za-z_][A-Za-z0-9_]{{0,{LONGEST_VIEW - 1}}}")
#: Formats with a fixed schema: Spark rejects any other.
_OWN_SCHEMA = frozenset({"rate", "rate-micro-batch", "socket", "kafka", "text"})
_NUMBERS = re.compile(
    r"(max(Files|Bytes)PerTrigger|rowsPer(Second|Batch)|numPartitions|port|numRows)",
    re.IGNORECASE,
)


#: Kind of part -> the formats that need nothing else, and those that Headgate itself knows.
_OWN = {"sources": SOURCES, "tables": TABLES, "sinks": SINKS}


@dataclasses.dataclass(frozen=True, slots=True)
class ConnectorOffer:
    """What an application's connectors offer to its queries."""

    connectors: tuple[str, ...] = ()  # those of the application
    spark: Spark = OURS  # the application's
    conf: Mapping[str, str] = dataclasses.field(default_factory=dict)  # it declares catalogs
    #: Declarations of all installed connectors, by name.
    declared: Mapping[str, Declared] = dataclasses.field(default_factory=dict)

    def formats(self, kind: str) -> frozenset[str]:
        """Return the formats of a kind, including those of missing connectors."""
        of_tables = {name for name, sparks in tables.SPARKS.items() if self.spark in sparks}
        return _OWN[kind] | of_tables | formats_of(self.declared, kind).keys()

    def connector_of(self, name: str, kind: str) -> str | None:
        """Return the connector that provides a format; None if it is part of Spark."""
        if name in _OWN[kind] and name not in CONNECTORS:
            return None
        return CONNECTORS.get(name) or formats_of(self.declared, kind).get(name)

    def options(self, name: str) -> tuple[str, ...]:
        """Return the options that the format's connector declares."""
        declared_options = (connector.options.get(name, ()) for connector in self.declared.values())
        return next(filter(None, declared_options), ())


def no_connector(field: str, value: str, connector: str) -> Problem:
    """Return the problem that an application lacks a connector which this value needs."""
    message = f"needs the {connector} connector, which the application does not have."
    way_out = f'Add "{connector}" to the application\'s connectors.'
    return Problem(field, value[:200], message, way_out, connector=connector)


def source_problems(spec: SqlQuery, *, offer: ConnectorOffer) -> list[Problem]:
    """Return what is wrong with a query's sources and tables."""
    problems = [] if spec.sources else [_no_sources()]
    first_fields: dict[str, str] = {}
    for index, source in enumerate(spec.sources):
        field = f"sources.{index}"
        problems += _name(field, source.name, first_fields)
        problems += _input(field, source, "sources", offer)
        problems += _watermark(field, source)
    for index, table in enumerate(spec.tables):
        field = f"tables.{index}"
        problems += _name(field, table.name, first_fields)
        problems += _input(field, table, "tables", offer)
    return problems + group_problems(
        {
            f"sources.{index}.options": source.options
            for index, source in enumerate(spec.sources)
            if source.format == "kafka"
        }
    )


def sink_problems(sink: Sink | None, *, required: bool, offer: ConnectorOffer) -> list[Problem]:
    """Return what is wrong with a sink; a Python function may provide its own."""
    if sink is None:
        missing = Problem("sink", "", "is missing.", "Set where the rows go: parquet, kafka, noop…")
        return [missing] if required else []
    problems = _format("sink", sink.format, "sinks", offer)
    problems += option_problems("sink.options", sink.options)
    if sink.format in tables.SPARKS:
        problems += _table("sink", "sinks", sink, offer)
        problems += tables.mode_problems(sink.format, sink.output_mode)
    elif sink.format != "kafka":
        problems += _whole_numbers("sink.options", sink.options)
        problems += spark_rules.option_problems(
            "sink.options", sink.format, sink.options, offer.options(sink.format)
        )
    if sink.format in FILES:
        problems += _path("sink", sink.options)
        if sink.output_mode != "append":
            message = f"cannot be written to {sink.format} files."
            way_out = "File sinks support only append."
            problems.append(Problem("sink.output_mode", sink.output_mode, message, way_out))
    if sink.partition_by and sink.format in UNLISTED_SINKS:
        problems.append(
            Problem(
                "sink.partition_by",
                ", ".join(sink.partition_by),
                f"has no effect on a {sink.format} sink.",
                "Remove it; only files and tables have partitions.",
            )
        )
    if sink.format == "kafka":
        problems += sink_option_problems("sink.options", sink.options)
    return problems


def own_output_problems(spec: SqlQuery) -> list[Problem]:
    """Return a problem if a query reads the folder that it writes to."""
    if spec.sink is None:
        return []
    if table := table_of(spec.sink.options):
        message = "is a table that source {name} reads: the query would read its own output."
        return [
            Problem(
                "sink.options.table", table, message.format(name=reader.name), "Use another table."
            )
            for reader in spec.sources
            if table_of(reader.options) == table
        ]
    output = spec.sink.options.get("path", "").rstrip("/")
    if not output:
        return []
    return [
        Problem(
            "sink.options.path",
            output,
            f"is inside the folder that source {source.name} reads: the query would read its "
            "own output.",
            "Write to another folder.",
        )
        for source in spec.sources
        if (read := source.options.get("path", "").rstrip("/"))
        and f"{output}/".startswith(f"{read}/")
    ]


def connector_way_out(name: str, recipes: frozenset[str], spark: Spark = OURS) -> str:
    """Return the sentence that explains how to install a connector for a Spark version.

    `recipes` are the connectors that a command downloads; the command for Kafka also starts a trial
    broker.
    """
    if name in recipes:
        command = "make kafka" if name == "kafka" else f"make connector ARGS={name}"
        if spark != OURS:
            command = f'make connector ARGS="{name} --spark {spark}"'
        return f"Install it with `{command}`."
    if missing := tables.no_release(name, spark):
        return f"It {' '.join(missing)}"
    folder = name[:80] if spark == OURS else f"{spark}/{name[:80]}"
    return f"Put its jars in a folder named {folder} in HEADGATE_CONNECTORS, or correct the name."


def _no_sources() -> Problem:
    return Problem("sources", "", "are missing.", "A query needs at least one streaming source.")


def _name(field: str, name: str, first_fields: dict[str, str]) -> list[Problem]:
    if not _VIEW_NAME.fullmatch(name):
        way_out = "Use letters, digits and _, not starting with a digit."
        return [Problem(f"{field}.name", name, "cannot be used as a table name.", way_out)]
    first = first_fields.setdefault(name.lower(), field)
    if first == field:
        return []
    return [
        Problem(f"{field}.name", name, f"is also the name of {first}.", "Rename one of the two.")
    ]


def _input(field: str, part: Source | Table, kind: str, offer: ConnectorOffer) -> list[Problem]:
    problems = _format(field, part.format, kind, offer)
    problems += option_problems(f"{field}.options", part.options)
    if part.format in FILES:
        problems += _path(field, part.options)
    if part.format == "kafka":
        problems += source_option_problems(f"{field}.options", part.options)
    elif part.format in tables.SPARKS:
        problems += _table(field, kind, part, offer)
    else:
        problems += _whole_numbers(f"{field}.options", part.options)
        problems += spark_rules.option_problems(
            f"{field}.options", part.format, part.options, offer.options(part.format)
        )
    if part.format == "socket":
        problems += _need(field, part.options, "host", '"127.0.0.1"')
        problems += _need(field, part.options, "port", '"9999"')
    return problems + _schema(field, part, offer.spark)


def _table(
    field: str, kind: str, part: Source | Table | Sink, offer: ConnectorOffer
) -> list[Problem]:
    """Return the problems of a Delta or Iceberg table: its place and its options."""
    at = f"{field}.options"
    problems = spark_rules.refused(at, part.format, part.options)
    refused_fields = {problem.field for problem in problems}
    table_problems = tables.table_problems(at, part.format, kind, part.options)
    problems += [problem for problem in table_problems if problem.field not in refused_fields]
    if part.format == ICEBERG:
        return problems + tables.name_problems(at, part.options, offer.conf)
    return problems + _path(field, part.options)


def _schema(field: str, part: Source | Table, spark: Spark) -> list[Problem]:
    own = part.format in _OWN_SCHEMA or part.format in tables.SPARKS
    if own and part.ddl_schema:
        message = f"cannot be set: {part.format} has a fixed schema."
        return [Problem(f"{field}.schema", part.ddl_schema[:200], message, "Leave it empty.")]
    if not part.ddl_schema:
        if own or part.format not in FILES or isinstance(part, Table):
            return []
        message = "is missing; a file stream does not infer its columns."
        way_out = 'Write them as DDL: "id BIGINT, name STRING".'
        return [Problem(f"{field}.schema", "", message, way_out)]
    try:
        types = spark_rules.columns(part.ddl_schema).values()
    except spark_rules.NotASchema as error:
        way_out = 'Write columns as "id BIGINT, name STRING".'
        return [Problem(f"{field}.schema", part.ddl_schema[:200], str(error), way_out)]
    return [
        Problem(
            f"{field}.schema",
            part.ddl_schema[:200],
            f"contains the type {kind.upper()}, which Spark {spark} does not have.",
            f"Use Spark {since} or newer, or read the column as STRING.",
        )
        for kind in dict.fromkeys(types)
        if (since := TYPES_SINCE.get(kind)) is not None and is_older(spark, since)
    ]


def _watermark(field: str, source: Source) -> list[Problem]:
    if source.watermark is None:
        return []
    problem = interval_problem(f"{field}.watermark.delay", source.watermark.delay)
    problems = [problem] if problem else []
    try:
        column_types = spark_rules.columns(source.ddl_schema) if source.ddl_schema else {}
    except spark_rules.NotASchema:
        return problems
    column = source.watermark.column
    kinds = {name.lower(): kind for name, kind in column_types.items()}
    if column_types and "." not in column and column.lower() not in kinds:
        message = "is not a column of the source's schema."
        way_out = f"Choose {', '.join(column_types)}."
        problems.append(Problem(f"{field}.watermark.column", column, message, way_out))
    elif kinds.get(column.lower(), "timestamp") not in ("timestamp", "timestamp_ltz", "struct"):
        message = f"is of type {kinds[column.lower()]}; event time must be a timestamp."
        way_out = "Give the column the type TIMESTAMP in the schema."
        problems.append(Problem(f"{field}.watermark.column", column, message, way_out))
    return problems


def _format(field: str, name: str, kind: str, offer: ConnectorOffer) -> list[Problem]:
    allowed = offer.formats(kind)
    if name not in allowed and (missing := tables.no_release(name, offer.spark)):
        return [Problem(f"{field}.format", name, *missing)]
    if name not in allowed:
        message = "is not a supported format here."
        return [Problem(f"{field}.format", name, message, f"Choose {', '.join(sorted(allowed))}.")]
    connector = offer.connector_of(name, kind)
    if connector and connector not in offer.connectors:
        return [no_connector(f"{field}.format", name, connector)]
    return []


def _path(field: str, options: Mapping[str, str]) -> list[Problem]:
    path = next((value for key, value in options.items() if key.lower() == "path"), "")
    if not path:
        return _need(field, options, "path", "an absolute path")
    problem = path_problem(f"{field}.options.path", path)
    return [problem] if problem else []


def _need(field: str, options: Mapping[str, str], key: str, example: str) -> list[Problem]:
    if any(name.lower() == key.lower() and value for name, value in options.items()):
        return []
    return [Problem(f"{field}.options.{key}", "", "is missing.", f"Set it to {example}.")]


def _whole_numbers(field: str, options: Mapping[str, str]) -> list[Problem]:
    return [
        Problem(f"{field}.{key}", value, "is not a whole number.", "Write digits only.")
        for key, value in options.items()
        if _NUMBERS.fullmatch(key) and not re.fullmatch(r"\d+[bkmgt]?", value.lower())
    ]


#: URL scheme -> connector with its file system (Hadoop: hadoop-aws, hadoop-azure, hadoop-gcp).
_CONNECTORS = {
    "s3a": "s3",
    "abfs": "azure",
    "abfss": "azure",
    "wasb": "azure",
    "wasbs": "azure",
    "gs": "gcs",
}


def connector_of(location: str) -> str:
    """Return the connector that opens a place, a path or URL; "" if Spark itself does."""
    scheme, colon, _ = location.strip().partition(":")
    return _CONNECTORS.get(scheme.lower(), "") if colon else ""


def yarn_problems(places: Iterable[tuple[str, str]], master: str) -> list[Problem]:
    """Return a problem for each place that a YARN cluster would complete, and Headgate would not.

    Everywhere else, drivers set the default file system to the host's disk.
    """
    if master != "yarn":
        return []
    return [on_yarn(field, text) for field, text in unnamed_places(places)]


def store_problems(
    places: Iterable[tuple[str, str]], connectors: Iterable[str], recipes: frozenset[str]
) -> list[Problem]:
    """Return a problem for each location (field and value) that no connector opens.

    `connectors` are those of the application. One without a recipe of ours may contain the client
    of any store, so nothing is known then.
    """
    declared_connectors = frozenset(connectors)
    if declared_connectors - recipes:
        return []
    return [
        no_connector(field, location, connector)
        for field, location in places
        if (connector := connector_of(location)) and connector not in declared_connectors
    ]
