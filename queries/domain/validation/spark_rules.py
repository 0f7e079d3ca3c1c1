"""What Spark accepts: known options by format, DDL schemas, and features missing in older versions.

Spark has the final say; only definite errors are rejected here.

The names come from Spark's documentation of its data sources and from its classes (JSONOptions,
CSVOptions, AvroOptions, …: getAllOptions).

Unknown options are not always harmless: Spark passes every option of its file formats to Hadoop as
configuration, where `fs.file.impl` changes the meaning of paths and
`parquet.private.read.filter.predicate` is decoded into objects. So this list is complete for
Spark's own file formats. Other formats, including connectors', have their own options, and none of
these belong to Hadoop.
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from queries.domain.definitions import declarations
from queries.domain.definitions.configuration import RESERVED_OPTIONS, unknown_class
from queries.domain.definitions.spec import PythonQuery, RealTime, SqlQuery
from queries.domain.errors import Problem
from queries.domain.kafka.options import CLOSE
from queries.domain.sparks import (
    FEATURES_SINCE,
    SINK_NAMES,
    SOURCE_NAMES,
    TRIGGERS_SINCE,
    Feature,
    Spark,
    has_feature,
    has_trigger,
    is_older,
    key_since,
)
from queries.domain.triggers.async_progress import FIELD, has_async_progress, stateful_because

_TYPES = frozenset(
    {"string", "char", "varchar", "boolean", "byte", "tinyint", "short", "smallint", "int"}
    | {"integer", "long", "bigint", "float", "real", "double", "decimal", "dec", "numeric"}
    | {"date", "timestamp", "timestamp_ntz", "timestamp_ltz", "time", "binary", "array", "map"}
    | {"struct", "interval", "variant", "void", "null", "geometry", "geography"}
)
_COLUMN = re.compile(r"\s*(`(?:[^`]|``)+`|[^\s:`,<>()]+)(?:\s*:\s*|\s+)([A-Za-z_]+)(.*)", re.DOTALL)


class NotASchema(ValueError):
    """The string is not a DDL schema; the message is a sentence without the field."""


def columns(ddl: str) -> dict[str, str]:
    """Return each column's name -> type in lower case; raise `NotASchema` with the reason."""
    types: dict[str, str] = {}
    for part in _split(ddl):
        column = _COLUMN.fullmatch(part)
        if not column:
            raise NotASchema(f"does not give a name and a type in {part.strip()!r}.")
        name, kind = column[1].strip("`"), column[2].lower()
        if kind not in _TYPES:
            raise NotASchema(
                f"gives column {name} the type {column[2]}: {column[2]} is not a Spark type."
            )
        if name.lower() in {former.lower() for former in types}:
            raise NotASchema(f"names column {name} twice.")
        types[name] = kind
    return types


def _split(ddl: str) -> list[str]:
    """Split at the commas outside brackets and quotes."""
    parts, depth, quote = [""], 0, ""
    for character in ddl:
        if quote:
            quote = "" if character == quote else quote
        elif character in "`'\"":
            quote = character
        elif character in "<(":
            depth += 1
        elif character in ">)":
            depth -= 1
        if depth < 0:
            break
        if character == "," and depth == 0 and not quote:
            parts.append("")
        else:
            parts[-1] += character
    if depth or quote:
        raise NotASchema("has brackets or quotes that are not closed.")
    return parts


_FILES = (
    "path maxFilesPerTrigger maxBytesPerTrigger latestFirst fileNameOnly maxFileAge maxCachedFiles "
    "discardCachedInputRatio cleanSource sourceArchiveDir pathGlobFilter recursiveFileLookup "
    "modifiedBefore modifiedAfter ignoreMissingFiles ignoreCorruptFiles basePath compression "
    "extension mergeSchema inferSchema "
    "retention maxRecordsPerFile checkpointLocation"
)
_TEXTS = "encoding charset lineSep locale timeZone dateFormat timestampFormat timestampNTZFormat"
_RECORDS = (
    "mode columnNameOfCorruptRecord enableDateTimeParsingFallback multiLine samplingRatio "
    "timeFormat singleVariantColumn"
)
_BY_FORMAT = {
    "json": f"{_FILES} {_TEXTS} {_RECORDS} primitivesAsString prefersDecimal allowComments "
    "allowUnquotedFieldNames allowSingleQuotes allowNumericLeadingZeros allowNonNumericNumbers "
    "allowBackslashEscapingAnyCharacter allowUnquotedControlChars dropFieldIfAllNull "
    "ignoreNullFields inferTimestamp explodeEmbeddedArray pretty sortKeys useUnsafeRow "
    "writeNonAsciiCharacterAsCodePoint",
    "csv": f"{_FILES} {_TEXTS} {_RECORDS} sep delimiter quote escape comment header inferSchema "
    "preferDate enforceSchema ignoreLeadingWhiteSpace ignoreTrailingWhiteSpace nullValue nanValue "
    "positiveInf negativeInf maxColumns maxCharsPerColumn charToEscapeQuoteEscaping emptyValue "
    "unescapedQuoteHandling escapeQuotes quoteAll codec columnPruning inputBufferSize",
    "text": f"{_FILES} {_TEXTS} wholetext",
    "parquet": f"{_FILES} datetimeRebaseMode int96RebaseMode",
    "orc": _FILES,
    "avro": f"{_FILES} avroSchema avroSchemaUrl recordName recordNamespace mode datetimeRebaseMode "
    "positionalFieldMatching enableStableIdentifiersForUnionType ignoreExtension "
    "stableIdentifierPrefixForUnionType recursiveFieldMaxDepth",
    # Formats that only SQL can read (xml.`/path`). rowValidationXSDPath is left out, because a
    # validation schema can include other files.
    "xml": f"{_FILES} {_TEXTS} {_RECORDS} rowTag rootTag declaration arrayElementName nullValue "
    "attributePrefix valueTag excludeAttribute ignoreNamespace ignoreSurroundingSpaces preferDate "
    "prefersDecimal validateName wildcardColName indent useLegacyXMLParser",
    "binaryfile": _FILES,
    "rate": "rowsPerSecond rampUpTime numPartitions",
    "rate-micro-batch": "rowsPerBatch numPartitions startTimestamp advanceMillisPerBatch",
    "console": "numRows truncate",
    "socket": "host port includeTimestamp numPartitions",
}
#: The format whose options any file reader accepts.
ANY_FILES = "binaryfile"
#: Format -> {name in lower case, as Spark compares it: name as written}.
OPTIONS_BY_FORMAT = MappingProxyType(
    {
        name: {option.lower(): option for option in options.split()}
        for name, options in _BY_FORMAT.items()
    }
)


#: Formats whose options Spark passes to Hadoop: those that read and write files.
_HANDED_ON = frozenset(name for name, options in _BY_FORMAT.items() if options.startswith(_FILES))
#: Formats that also accept tuning options of Parquet's or ORC's writers ("parquet.block.size").
_TUNED = ("parquet", "orc")
#: Options that Spark reads from any writer (AsyncProgressTrackingMicroBatchExecution).
_OF_WRITERS = frozenset(
    {
        "asyncprogresstrackingenabled",
        "asyncprogresstrackingcheckpointintervalms",
        "_asyncprogresstrackingoverridesinksupportcheck",
    }
)
#: Options whose value specifies a codec: Spark loads a class of that name.
_CODECS = frozenset({"compression", "codec", "parquet.compression", "orc.compress"})


def option_problems(
    field: str, name: str, options: Mapping[str, str], declared: Iterable[str] = ()
) -> list[Problem]:
    """Return a problem for each option of a format that Spark would ignore or pass on."""
    spelling_problems = misspelt(field, name, options, declared)
    wrong_fields = {problem.field for problem in spelling_problems}
    return spelling_problems + [
        problem for problem in refused(field, name, options) if problem.field not in wrong_fields
    ]


def refused(field: str, name: str, options: Mapping[str, str]) -> list[Problem]:
    """Return a problem for each option that would become Hadoop configuration or load a class.

    The driver rejects these options as well, so this must not depend on what connectors declare.
    """
    return [
        Problem(f"{field}.{written}", value[:200], *why)
        for written, value in options.items()
        if (why := _refusal(name.lower(), written.lower(), value))
    ]


def _refusal(name: str, option: str, value: str) -> tuple[str, str] | None:
    """Return why an option is rejected, and the remedy; None if it is allowed."""
    if name == "kafka" or option in RESERVED_OPTIONS or option in _OF_WRITERS:
        return None  # handled by their own rules
    if name in _HANDED_ON and option not in OPTIONS_BY_FORMAT[name] and not _tunes(name, option):
        message = f"is not an option of {name}; Spark would pass it to Hadoop."
        return message, _elsewhere(option, value)
    if name not in _HANDED_ON and declarations.is_foreign_to_hadoop(option):
        message = "is a Hadoop or Spark setting, not a format option."
        return message, _elsewhere(option, value)
    if option in _CODECS and (loaded := unknown_class(value)):
        return f"makes the driver load {loaded}.", "Use a codec name: gzip, snappy, zstd, …"
    return None


def _elsewhere(option: str, value: str) -> str:
    """Return the remedy for a Hadoop key: configuration, if it is allowed there."""
    if declarations.hadoop_refusal(option, value):
        return "Remove it."
    return "Remove it, or set it in the application's configuration: spark.hadoop.…"


def _tunes(name: str, option: str) -> bool:
    prefix = f"{name}."
    return name in _TUNED and option.startswith(prefix) and declarations.is_hadoop_tuning(option)


def misspelt(
    field: str, name: str, options: Mapping[str, str], declared: Iterable[str] = ()
) -> list[Problem]:
    """Return a problem for each option that Spark would ignore, with the one probably intended.

    `declared` are the options that the format's connector declares.
    """
    spellings = OPTIONS_BY_FORMAT.get(name) or {option.lower(): option for option in declared}
    problems = []
    for written, value in options.items():
        lower = written.lower()
        near = difflib.get_close_matches(lower, sorted(spellings), n=1, cutoff=CLOSE)
        if lower not in spellings and near:
            message = f"is not a known option of {name}; Spark would ignore it."
            way_out = f"Did you mean {spellings[near[0]]}?"
            problems.append(Problem(f"{field}.{written}", value[:200], message, way_out))
    return problems


def query_problems(spec: SqlQuery | PythonQuery, spark: Spark) -> list[Problem]:
    """Return a problem for each thing that a query uses and a Spark version lacks."""
    kind = str(spec.trigger.kind)
    problems = conf_problems(spec.conf, spark)
    if not has_trigger(spark, kind):
        message = f"does not exist in the application's Spark {spark}."
        way_out = f"Use Spark {TRIGGERS_SINCE[kind]} or newer, or a processing-time trigger."
        return [*problems, Problem("trigger.kind", kind, message, way_out)]
    return problems + (_in_real_time(spec, spark) if isinstance(spec.trigger, RealTime) else [])


def conf_problems(conf: Mapping[str, str], spark: Spark) -> list[Problem]:
    """Return the configuration keys that a Spark version would silently ignore."""
    return [
        Problem(
            f"conf.{key}",
            value[:200],
            f"does not exist in the application's Spark {spark}, which would ignore it.",
            f"Use Spark {since} or newer, or remove it.",
        )
        for key, value in conf.items()
        if is_older(spark, since := key_since(key))
    ]


def naming_problems(
    spec: SqlQuery | PythonQuery, application_conf: Mapping[str, str]
) -> list[Problem]:
    """Return a problem if Spark would insist on names that Headgate's sources and sinks lack.

    With source or sink evolution, Spark refuses to start a query in which one has no name
    (STREAMING_QUERY_EVOLUTION_ERROR). A Python function can name the sources, and the sink that it
    writes to itself.
    """
    conf = {**application_conf, **spec.conf}
    unnamed = {SOURCE_NAMES: "sources"} if isinstance(spec, SqlQuery) else {}
    if spec.sink is not None:
        unnamed[SINK_NAMES] = "sink"
    return [
        Problem(
            f"conf.{key}",
            conf[key],
            f"changes what a checkpoint contains, and requires names that this query's {what} "
            "cannot have: Spark would refuse to start it.",
            f"Remove it, or use a Python function that names its {what} with name().",
        )
        for key, what in unnamed.items()
        if conf.get(key, "").lower() == "true"
    ]


def _in_real_time(spec: SqlQuery | PythonQuery, spark: Spark) -> list[Problem]:
    problems = []
    because = stateful_because(spec) if isinstance(spec, SqlQuery) else ""
    if because and not has_feature(spark, Feature.STATE_IN_REAL_TIME):
        message = (
            f"is not supported by Spark {spark} for stateful queries, and this query {because}."
        )
        way_out = (
            f"Use Spark {FEATURES_SINCE[Feature.STATE_IN_REAL_TIME]} or newer, or a "
            "processing-time trigger."
        )
        problems.append(Problem("trigger.kind", "real_time", message, way_out))
    if has_async_progress(spec) and not has_feature(spark, Feature.ASYNC_IN_REAL_TIME):
        message = f"is not supported in real-time mode by Spark {spark}."
        way_out = f"Use Spark {FEATURES_SINCE[Feature.ASYNC_IN_REAL_TIME]} or newer, or remove it."
        problems.append(Problem(FIELD, "true", message, way_out))
    return problems
