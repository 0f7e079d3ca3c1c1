"""Options that Spark knows, by format; it ignores the others without a word.

Names as in Spark's documentation of its data sources and in its classes (JSONOptions, CSVOptions,
AvroOptions, …: getAllOptions).

Ignoring is not all: Spark hands every option of its file formats to Hadoop as configuration, where
`fs.file.impl` gives paths another meaning and `parquet.private.read.filter.predicate` is decoded
into objects. So for Spark's own formats of files these options are all there are. Other formats, a
connector's among them, have options of their own, and none that are Hadoop's.
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
    # Formats that SQL alone can read (xml.`/path`). Without rowValidationXSDPath: a schema for
    # validation includes other files.
    "xml": f"{_FILES} {_TEXTS} {_RECORDS} rowTag rootTag declaration arrayElementName nullValue "
    "attributePrefix valueTag excludeAttribute ignoreNamespace ignoreSurroundingSpaces preferDate "
    "prefersDecimal validateName wildcardColName indent useLegacyXMLParser",
    "binaryfile": _FILES,
    "rate": "rowsPerSecond rampUpTime numPartitions",
    "rate-micro-batch": "rowsPerBatch numPartitions startTimestamp advanceMillisPerBatch",
    "console": "numRows truncate",
    "socket": "host port includeTimestamp numPartitions",
}
#: The format whose options any reader of files has.
ANY_FILES = "binaryfile"
#: Format -> {the name in lower case, as Spark compares it: the name as it is written}.
KNOWN = MappingProxyType(
    {
        name: {option.lower(): option for option in options.split()}
        for name, options in _BY_FORMAT.items()
    }
)


#: Formats whose options Spark hands to Hadoop: those that read and write files.
_HANDED_ON = frozenset(name for name, options in _BY_FORMAT.items() if options.startswith(_FILES))
#: Formats whose options are tuning of Parquet's or ORC's writers too ("parquet.block.size").
_TUNED = ("parquet", "orc")
#: Options that Spark reads of any writer (AsyncProgressTrackingMicroBatchExecution).
_OF_WRITERS = frozenset(
    {
        "asyncprogresstrackingenabled",
        "asyncprogresstrackingcheckpointintervalms",
        "_asyncprogresstrackingoverridesinksupportcheck",
    }
)
#: Options whose value names a codec: Spark loads a class of that name.
_CODECS = frozenset({"compression", "codec", "parquet.compression", "orc.compress"})


def option_problems(
    field: str, name: str, options: Mapping[str, str], declared: Iterable[str] = ()
) -> list[Problem]:
    """Return the options of a format that Spark would ignore, or would not keep to itself."""
    found = misspelt(field, name, options, declared)
    said = {one.field for one in found}
    return found + [one for one in refused(field, name, options) if one.field not in said]


def refused(field: str, name: str, options: Mapping[str, str]) -> list[Problem]:
    """Return the options of a format that would be configuration of Hadoop's, or load a class.

    The driver refuses them as well, so it may not depend on what connectors declare.
    """
    return [
        Problem(f"{field}.{written}", value[:200], *why)
        for written, value in options.items()
        if (why := _refusal(name.lower(), written.lower(), value))
    ]


def _refusal(name: str, option: str, value: str) -> tuple[str, str] | None:
    """Return why an option is refused, and the way out; None where it is not."""
    if name == "kafka" or option in RESERVED_OPTIONS or option in _OF_WRITERS:
        return None  # said by their own rules
    if name in _HANDED_ON and option not in KNOWN[name] and not _tunes(name, option):
        message = f"is not an option of {name}, and Spark would hand it to Hadoop."
        return message, _elsewhere(option, value)
    if name not in _HANDED_ON and hadoop.is_foreign(option):
        message = "is configuration of Hadoop or Spark, not an option of a format."
        return message, _elsewhere(option, value)
    if option in _CODECS and (loaded := unknown_class(value)):
        return f"has the driver load {loaded}.", "Name a codec: gzip, snappy, zstd, …"
    return None


def _elsewhere(option: str, value: str) -> str:
    """Return the way out for a key of Hadoop's: configuration, where nobody refuses it there."""
    if hadoop.refusal(option, value):
        return "Remove it."
    return "Remove it, or set it in the application's configuration: spark.hadoop.…"


def _tunes(name: str, option: str) -> bool:
    prefix = f"{name}."
    return name in _TUNED and option.startswith(prefix) and hadoop.is_tuning(option)


def misspelt(
    field: str, name: str, options: Mapping[str, str], declared: Iterable[str] = ()
) -> list[Problem]:
    """Return the options of a format that Spark would ignore, each with the one that is meant.

    `declared` are those that the format's connector names.
    """
    known = KNOWN.get(name) or {option.lower(): option for option in declared}
    problems = []
    for written, value in options.items():
        lower = written.lower()
        near = difflib.get_close_matches(lower, sorted(known), n=1, cutoff=CLOSE)
        if lower not in known and near:
            message = f"is not an option of {name} that Spark knows, and would be ignored."
            way_out = f"Did you mean {known[near[0]]}?"
            problems.append(Problem(f"{field}.{written}", value[:200], message, way_out))
    return problems
