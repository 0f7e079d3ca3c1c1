"""Options that Spark knows, by format; it silently ignores all others.

The names come from Spark's documentation of its data sources and from its classes (JSONOptions,
CSVOptions, AvroOptions, …: getAllOptions).

Unknown options are not always harmless: Spark passes every option of its file formats to Hadoop as
configuration, where `fs.file.impl` changes the meaning of paths and
`parquet.private.read.filter.predicate` is decoded into objects. So this list is complete for
Spark's own file formats. Other formats, including connectors', have their own options, and none of
these belong to Hadoop.
"""

import difflib
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from queries.domain.definitions import hadoop
from queries.domain.definitions.configuration import RESERVED_OPTIONS, unknown_class
from queries.domain.errors import Problem
from queries.domain.kafka.options import CLOSE

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
    misspelled = misspelt(field, name, options, declared)
    reported = {problem.field for problem in misspelled}
    return misspelled + [
        problem for problem in refused(field, name, options) if problem.field not in reported
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
    if name not in _HANDED_ON and hadoop.is_foreign(option):
        message = "is a Hadoop or Spark setting, not a format option."
        return message, _elsewhere(option, value)
    if option in _CODECS and (loaded := unknown_class(value)):
        return f"makes the driver load {loaded}.", "Use a codec name: gzip, snappy, zstd, …"
    return None


def _elsewhere(option: str, value: str) -> str:
    """Return the remedy for a Hadoop key: configuration, if it is allowed there."""
    if hadoop.refusal(option, value):
        return "Remove it."
    return "Remove it, or set it in the application's configuration: spark.hadoop.…"


def _tunes(name: str, option: str) -> bool:
    prefix = f"{name}."
    return name in _TUNED and option.startswith(prefix) and hadoop.is_tuning(option)


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
