"""Delta and Iceberg tables in definitions: options, output modes, names, catalogs and Sparks.

The configuration declares a catalog:

    spark.sql.catalog.lake = org.apache.iceberg.spark.SparkCatalog
    spark.sql.catalog.lake.type = hadoop
    spark.sql.catalog.lake.warehouse = /data/lake

Or an admin has declared it as a catalog service (`queries.domain.catalogs`). With the configuration
above, table lake.flights.delays is in the folder /data/lake/flights/delays (Iceberg:
`HadoopCatalog`), so a table's folder follows from its name and the configuration.

The option names are those of `DeltaOptions` (4.4.0), `SparkReadOptions` and `SparkWriteOptions`
(Iceberg 1.11.0). Both ignore all other names, and detect a wrong value only when the query runs.
Missing here are the options of batch writes, Delta's txnAppId and txnVersion (a streaming sink sets
its own), and Delta's schemaTrackingLocation.
"""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType

from headgate_ground.masking import is_reference
from queries.domain.catalogs import CATALOG_CLASS, PREFIX, CatalogType
from queries.domain.errors import Problem
from queries.domain.kafka.options import CLOSE
from queries.domain.sparks import Spark
from queries.domain.tables.places import DELTA, ICEBERG

#: The option that names a table in a definition.
TABLE = "table"
#: How to declare a catalog.
CATALOG = (
    "Write {name} in the application's catalogs, if an administrator has declared it. Or set "
    f"{PREFIX}{{name}}={CATALOG_CLASS}, {PREFIX}{{name}}.type=hadoop and "
    f"{PREFIX}{{name}}.warehouse=FOLDER in its configuration."
)
_NAME = re.compile(r"\w+(\.\w+){2,}")


class NotATable(Exception):
    """A name does not denote a table in a declared Hadoop catalog; `way_out` says what to do."""

    def __init__(self, message: str, way_out: str) -> None:
        super().__init__(message)
        self.way_out = way_out


def names_of(conf: Mapping[str, str]) -> list[str]:
    """Return the names of the catalogs that a configuration declares, of any class."""
    names = (key.removeprefix(PREFIX) for key in conf if key.startswith(PREFIX))
    return sorted(name for name in names if "." not in name)


def table_of(options: Mapping[str, str]) -> str:
    """Return the name of the Iceberg table in a definition's options; "" if there is none."""
    return next((value for key, value in options.items() if key.lower() == TABLE), "")


def table_folder(name: str, conf: Mapping[str, str]) -> str:
    """Return the folder of a table as a path or URL; raise `NotATable`."""
    if not _NAME.fullmatch(name):
        message = "is not the name of a table in a catalog."
        raise NotATable(message, 'Write "catalog.database.table", with letters, digits and _.')
    parts = name.split(".")
    if conf.get(f"{PREFIX}{parts[0]}") != CATALOG_CLASS:
        message = f"is in the catalog {parts[0]}, which is not declared as an Iceberg catalog."
        raise NotATable(message, CATALOG.format(name=parts[0]))
    if not (folder := folder_of(parts, conf)):
        message = f"is in the catalog {parts[0]}, which is not a Hadoop catalog with a warehouse."
        raise NotATable(message, CATALOG.format(name=parts[0]))
    return folder


def folder_of(parts: Sequence[str], conf: Mapping[str, str]) -> str:
    """Return the folder of a name's parts; "" if they are not in a Hadoop catalog."""
    prefix = f"{PREFIX}{parts[0]}"
    warehouse = conf.get(f"{prefix}.warehouse", "")
    if conf.get(f"{prefix}.type", "").lower() != "hadoop" or not warehouse:
        return ""
    return "/".join([warehouse.rstrip("/"), *parts[1:]])


def _is_service(catalog: str, conf: Mapping[str, str]) -> bool:
    """Return whether an admin has declared a catalog: definitions cannot set such a type."""
    return conf.get(f"{PREFIX}{catalog}.type") in set(CatalogType)


def conf_keys(catalog: str) -> tuple[str, ...]:
    """Return the keys that decide where a catalog's tables are."""
    return tuple(f"{PREFIX}{catalog}{end}" for end in ("", ".type", ".warehouse"))


#: Format -> the versions of Spark for which it has a release, newest first.
SPARKS: Mapping[str, tuple[Spark, ...]] = MappingProxyType(
    {DELTA: ("4.2", "4.1", "4.0", "3.5"), ICEBERG: ("4.1", "4.0", "3.5")}
)
#: The output modes of their sinks (Spark asks the sink: DELTA_UNSUPPORTED_OUTPUT_MODE,
#: STREAMING_OUTPUT_MODE.UNSUPPORTED_DATASOURCE).
MODES = ("append", "complete")

_FLAG, _COUNT, _VERSION, _NUMBER, _SIZE, _TIME, _MILLIS, _ANY = range(8)
#: Kind of value -> its pattern, and how to write it.
_VALUES = {
    _FLAG: (r"true|false", "Write true or false."),
    _COUNT: (r"0*[1-9]\d*", "Write a whole number, 1 or more."),
    _VERSION: (r"\d+|latest", 'Write a version number, or "latest".'),
    _NUMBER: (r"\d+", "Write a version number."),
    _SIZE: (r"0*[1-9]\d*([bkmgtp]b?)?", 'Write a size such as "512m" or "10g".'),
    _MILLIS: (r"\d+", "Write milliseconds since 1970, as digits only."),
    _ANY: (r".+", "Write a value."),
}
_WHEN = 'Write a time such as "2026-11-27" or "2026-11-27 08:30:00".'

_DELTA_LIMITS = {"maxFilesPerTrigger": _COUNT, "maxBytesPerTrigger": _SIZE}
_FLAGS = {
    "ignoreDeletes": _FLAG,
    "ignoreChanges": _FLAG,
    "ignoreFileDeletion": _FLAG,
    "skipChangeCommits": _FLAG,
    "failOnDataLoss": _FLAG,
    "readChangeFeed": _FLAG,
    "readChangeData": _FLAG,
}
_OPTIONS: Mapping[tuple[str, str], Mapping[str, int]] = MappingProxyType(
    {
        (DELTA, "sources"): {
            "path": _ANY,
            **_DELTA_LIMITS,
            **_FLAGS,
            "startingVersion": _VERSION,
            "startingTimestamp": _TIME,
            "excludeRegex": _ANY,
        },
        (DELTA, "tables"): {"path": _ANY, "versionAsOf": _NUMBER, "timestampAsOf": _TIME},
        (DELTA, "sinks"): {
            "path": _ANY,
            "mergeSchema": _FLAG,
            "overwriteSchema": _FLAG,
            "optimizeWrite": _FLAG,
            "maxRecordsPerFile": _COUNT,
            "compression": _ANY,
            "userMetadata": _ANY,
        },
        (ICEBERG, "sources"): {
            TABLE: _ANY,
            "stream-from-timestamp": _MILLIS,
            "streaming-max-files-per-micro-batch": _COUNT,
            "streaming-max-rows-per-micro-batch": _COUNT,
            "streaming-skip-delete-snapshots": _FLAG,
            "streaming-skip-overwrite-snapshots": _FLAG,
            "async-micro-batch-planning-enabled": _FLAG,
            "streaming-snapshot-polling-interval-ms": _COUNT,
            "async-queue-preload-file-limit": _COUNT,
            "async-queue-preload-row-limit": _COUNT,
            "split-size": _COUNT,
            "lookback": _COUNT,
            "file-open-cost": _COUNT,
            "vectorization-enabled": _FLAG,
            "batch-size": _COUNT,
            "branch": _ANY,
        },
        (ICEBERG, "tables"): {
            TABLE: _ANY,
            "versionAsOf": _ANY,
            "timestampAsOf": _TIME,
            "branch": _ANY,
            "split-size": _COUNT,
            "lookback": _COUNT,
            "file-open-cost": _COUNT,
            "vectorization-enabled": _FLAG,
            "batch-size": _COUNT,
        },
        (ICEBERG, "sinks"): {
            TABLE: _ANY,
            "fanout-enabled": _FLAG,
            "target-file-size-bytes": _COUNT,
            "write-format": _ANY,
            "check-nullability": _FLAG,
            "check-ordering": _FLAG,
            "merge-schema": _FLAG,
            "mergeSchema": _FLAG,
            "distribution-mode": _ANY,
            "compression-codec": _ANY,
            "compression-level": _ANY,
            "branch": _ANY,
        },
    }
)
_CODECS = ("gzip", "lz4", "snappy", "uncompressed", "zstd")
#: Option -> the only values that it accepts, if there are few.
_CHOICES = {
    "compression": _CODECS,
    "compression-codec": _CODECS,
    "write-format": ("parquet", "avro", "orc"),
    "distribution-mode": ("none", "hash", "range"),
}
#: Pairs of options that exclude each other.
_EITHER = (("startingVersion", "startingTimestamp"), ("versionAsOf", "timestampAsOf"))
_SNAPSHOT_PROPERTY = "snapshot-property."


def no_release(name: str, spark: Spark) -> tuple[str, str] | None:
    """Return why a format or connector is not available for a Spark, and what to do; else None.

    None also for a name that is neither Delta nor Iceberg.
    """
    sparks = SPARKS.get(name)
    if sparks is None or spark in sparks:
        return None
    choices = " or ".join(filter(None, (", ".join(sparks[:-1]), sparks[-1])))
    return f"has no release for Spark {spark}.", f"Choose Spark {choices}."


def table_problems(field: str, name: str, kind: str, options: Mapping[str, str]) -> list[Problem]:
    """Return the problems of a table's options; `kind` is "sources", "tables" or "sinks"."""
    spellings = {option.lower(): option for option in _OPTIONS[name, kind]}
    problems = []
    for written, value in options.items():
        at = f"{field}.{written}"
        option = spellings.get(written.lower())
        if option is not None:
            problems += _value(at, option, _OPTIONS[name, kind][option], value)
        elif (name, kind) != (ICEBERG, "sinks") or not written.startswith(_SNAPSHOT_PROPERTY):
            near = difflib.get_close_matches(written.lower(), sorted(spellings), n=1, cutoff=CLOSE)
            message = f"is not a known option of a streaming {name} {kind[:-1]}."
            if kind == "tables":
                message = f"is not a known option of a static {name} table."
            way_out = f"Did you mean {spellings[near[0]]}?" if near else "Remove it."
            problems.append(Problem(at, value[:200], message, way_out))
    written_names = {written.lower() for written in options}
    for first, second in _EITHER:
        if {first.lower(), second.lower()} <= written_names:
            message = f"cannot be combined with {second}."
            problems.append(Problem(f"{field}.{first}", "", message, "Remove one of the two."))
    return problems


def _value(field: str, option: str, kind: int, value: str) -> list[Problem]:
    if is_reference(value):
        return []
    if option in _CHOICES and value.lower() not in _CHOICES[option]:
        way_out = f"Choose {', '.join(_CHOICES[option])}."
        return [Problem(field, value[:200], "is not supported.", way_out)]
    if kind == _TIME:
        return [] if _is_time(value) else [Problem(field, value[:200], "is not a time.", _WHEN)]
    pattern, way_out = _VALUES[kind]
    if re.fullmatch(pattern, value, re.IGNORECASE):
        return []
    return [Problem(field, value[:200], "is not a valid value.", way_out)]


def _is_time(value: str) -> bool:
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return False
    return True


def mode_problems(name: str, mode: str) -> list[Problem]:
    """Return a problem if a sink of this format does not support an output mode."""
    if mode in MODES:
        return []
    message = f"is not supported by a {name} table."
    way_out = (
        f"Use {' or '.join(MODES)}. To update rows, use a Python query with foreachBatch and MERGE."
    )
    return [Problem("sink.output_mode", mode, message, way_out)]


def name_problems(field: str, options: Mapping[str, str], conf: Mapping[str, str]) -> list[Problem]:
    """Return the problems of an Iceberg table's name, also a missing one, and of its catalog.

    `conf` declares the catalogs.
    """
    at, name = f"{field}.{TABLE}", table_of(options)
    if not name:
        return [Problem(at, "", "is missing.", 'Set it to "catalog.database.table".')]
    try:
        if not (_NAME.fullmatch(name) and _is_service(name.split(".")[0], conf)):
            table_folder(name, conf)
    except NotATable as error:
        return [Problem(at, name[:200], str(error), error.way_out)]
    return []


def catalog_problems(names: Iterable[str], conf: Mapping[str, str]) -> list[Problem]:
    """Return a problem for each table name in SQL whose catalog is not declared in `conf`."""
    declared_catalogs = {*names_of(conf), "spark_catalog", "system"}
    return [
        Problem(
            "sql",
            name,
            f"is in the catalog {name.split('.')[0]}, which is not declared.",
            CATALOG.format(name=name.split(".")[0]),
        )
        for name in sorted(names)
        if name.split(".")[0] not in declared_catalogs
    ]
