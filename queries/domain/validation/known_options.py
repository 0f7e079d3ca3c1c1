"""Options that Spark knows, by format; it ignores the others without a word.

Names as in Spark's documentation of its data sources. A name that resembles none of them passes: a
plug-in may read it.
"""

import difflib
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from queries.domain.errors import Problem
from queries.domain.kafka.options import CLOSE

_FILES = (
    "path maxFilesPerTrigger maxBytesPerTrigger latestFirst fileNameOnly maxFileAge maxCachedFiles "
    "discardCachedInputRatio cleanSource sourceArchiveDir pathGlobFilter recursiveFileLookup "
    "modifiedBefore modifiedAfter ignoreMissingFiles ignoreCorruptFiles basePath compression "
    "retention maxRecordsPerFile checkpointLocation"
)
_TEXTS = "encoding charset lineSep locale timeZone dateFormat timestampFormat timestampNTZFormat"
_RECORDS = "mode columnNameOfCorruptRecord enableDateTimeParsingFallback multiLine samplingRatio"
_BY_FORMAT = {
    "json": f"{_FILES} {_TEXTS} {_RECORDS} primitivesAsString prefersDecimal allowComments "
    "allowUnquotedFieldNames allowSingleQuotes allowNumericLeadingZeros allowNonNumericNumbers "
    "allowBackslashEscapingAnyCharacter allowUnquotedControlChars dropFieldIfAllNull "
    "ignoreNullFields inferTimestamp",
    "csv": f"{_FILES} {_TEXTS} {_RECORDS} sep delimiter quote escape comment header inferSchema "
    "preferDate enforceSchema ignoreLeadingWhiteSpace ignoreTrailingWhiteSpace nullValue nanValue "
    "positiveInf negativeInf maxColumns maxCharsPerColumn charToEscapeQuoteEscaping emptyValue "
    "unescapedQuoteHandling escapeQuotes quoteAll",
    "text": f"{_FILES} {_TEXTS} wholetext",
    "parquet": f"{_FILES} mergeSchema datetimeRebaseMode int96RebaseMode",
    "orc": f"{_FILES} mergeSchema",
    "rate": "rowsPerSecond rampUpTime numPartitions",
    "rate-micro-batch": "rowsPerBatch numPartitions startTimestamp advanceMillisPerBatch",
    "console": "numRows truncate",
    "socket": "host port includeTimestamp numPartitions",
}
#: Format -> {the name in lower case, as Spark compares it: the name as it is written}.
KNOWN = MappingProxyType(
    {
        name: {option.lower(): option for option in options.split()}
        for name, options in _BY_FORMAT.items()
    }
)


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
