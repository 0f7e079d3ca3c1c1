"""Rules for table formats that are read as a stream: Delta and Iceberg."""

from queries.domain.failures.categories import Advice, Category, Remedy, Rule, rule

EXPIRED = Advice(
    Category.SOURCE_LOST,
    "The table no longer has the version or snapshot that the checkpoint points to: it was "
    "expired, vacuumed or removed before the query read the next one.",
    "{from_start} Configure the table to keep its snapshots and log longer than the query can "
    "be down.",
    Remedy.TO_EARLIEST,
)

CONDITIONS: tuple[Rule, ...] = (
    rule(
        r"DELTA_STREAMING_(METADATA|SCHEMA)_EVOLUTION$"
        r"|DELTA_SCHEMA_CHANGED(_WITH_VERSION|_WITH_STARTING_OPTIONS)?$",
        Category.EVOLVED,
    ),
    rule(
        r"DELTA_STREAMING_CANNOT_CONTINUE_PROCESSING|DELTA_STREAMING_INCOMPATIBLE_SCHEMA_CHANGE"
        r"|DELTA_STREAMING_CHECK_COLUMN_MAPPING|DELTA_SOURCE_(TABLE_)?IGNORE_(CHANGES|DELETE)",
        Category.CONFIGURATION,
        "Delta does not read past this table change (a column renamed, dropped or retyped, or "
        "rows updated or deleted) unless you allow it.",
        "Set the option or configuration named in the root cause (schemaTrackingLocation, "
        "skipChangeCommits, spark.databricks.delta.streaming.…), then {start}.",
    ),
    Rule(
        r"DELTA_LOG_FILE_NOT_FOUND|DELTA_VERSIONS_NOT_CONTIGUOUS"
        r"|DELTA_MISSING_FILES_UNEXPECTED_VERSION|DELTA_CHANGE_DATA_FILE_NOT_FOUND",
        EXPIRED,
    ),
)

MESSAGES: tuple[Rule, ...] = (
    Rule(
        r"Cannot load current offset at snapshot|snapshot \S{1,40} was expired or removed"
        r"|Cannot find (a )?snapshot (after|with id|older than)",
        EXPIRED,
    ),
)
