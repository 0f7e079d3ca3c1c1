"""Decide which `spark.sql.*` settings of an author reach Spark's analyzer when SQL is checked.

The analyzer runs on a worker's host before anybody has started the query, so it gets only settings
that change names, types or state, and only values that cannot be a class, a file or an address.
The names are those of `SQLConf` in Spark 4.0 to 4.3.
"""

import re
from collections.abc import Mapping

#: What the analyzer reads: the meaning of names, types and operators.
_READ = re.compile(
    r"spark\.sql\.("
    r"analyzer\.(allow|canonicalization|dontDeduplicate|expand|fail|lowerEmpty|preferColumn|"
    r"scalarSubquery|subqueryAlias|union|uniqueNecessary)[A-Za-z.]*|"
    r"ansi\.(enabled|relationPrecedence)|caseSensitive|charAsVarchar|"
    r"collation\.[A-Za-z.]+|crossJoin\.enabled|decimalOperations\.allowPrecisionLoss|"
    r"defaultColumn\.[A-Za-z.]+|function\.(concatBinaryAsString|eltOutputAsString)|"
    r"groupByAliases|groupByOrdinal|lateralColumnAlias\.enableImplicitResolution|"
    r"legacy\.[A-Za-z0-9.]+|orderByOrdinal|preserveCharVarcharTypeInfo|"
    r"readSideCharPadding|retainGroupColumns|session\.timeZone|stableDerivedColumnAlias\.enabled|"
    r"storeAssignmentPolicy|timestampType|timeType\.enabled|variable\.substitute)"
)
#: Words, numbers and time zones; a class, a path or an address has a dot, or begins with a slash.
_VALUE = re.compile(r"[A-Za-z0-9_+-][A-Za-z0-9_+\-/:]{0,63}")
#: What only the planner, the execution, a data source or a page reads, so that names and types are
#: the same without it.
_NOT_READ = re.compile(
    r"spark\.sql\.("
    r"(adaptive|artifact|autoBroadcastJoinThreshold|avro|broadcastTimeout|bucketing|"
    r"cartesianProductExec|catalogImplementation|cbo|chunkBase64String|cli|codegen|columnVector|"
    r"connect|constraintPropagation|csv|debug|exchange|execution|extensions|files|hive|"
    r"inMemoryColumnarStorage|join|json|leafNodeDefaultParallelism|limit|"
    r"maxConcurrentOutputFileWriters|maxMetadataStringLength|maxPlanStringLength|maven|"
    r"objectHashAggregate|optimizer|orc|parquet|planChangeLog|pyspark|redaction|repl|"
    r"sessionWindow|shuffle|shuffleDependency|shuffledHashJoinFactor|sort|sortMergeJoinExec|"
    r"sources|statistics|streaming|subexpressionElimination|thriftserver|thriftServer|"
    r"truncateTable|ui|warehouse|window|windowExec)(\..*)?|catalog\..*)"
)


def is_analyzed(key: str, value: str) -> bool:
    """Return whether a setting is handed to the analyzer."""
    return bool(_READ.fullmatch(key) and _VALUE.fullmatch(value))


def withheld(conf: Mapping[str, str]) -> str:
    """Return the first setting that could change names or types, but is not handed over; or ""."""
    unclear = (
        key
        for key, value in sorted(conf.items())
        if not is_analyzed(key, value) and not _NOT_READ.fullmatch(key)
    )
    return next(unclear, "")
