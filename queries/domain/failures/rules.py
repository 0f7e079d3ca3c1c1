"""Rules for Spark's failures: condition or message -> category, meaning, way out.

The rules come from Spark 4.3.0's source and from failures seen on it. Several failures have no
condition at all, hence the table of messages. Order matters: the first rule that matches wins,
so the narrower one comes first.
"""

from dataclasses import dataclass

from queries.domain.failures.categories import (
    AGAIN,
    GENERAL,
    TO_EARLIEST,
    Advice,
    Category,
    Remedy,
)


@dataclass(frozen=True, slots=True)
class Rule:
    """An advice for what `pattern` (a regular expression) matches."""

    pattern: str
    advice: Advice


ASYNC_PROGRESS_GAP = Advice(
    Category.INCOMPATIBLE,
    "The offset log has a gap, as left by async progress tracking, or an offset was removed.",
    "If async progress tracking was just switched off, use the safe way to switch it off, which "
    "recovers the query (on this page, or POST to the query's async-off/). It starts with it on "
    "and asyncProgressTrackingCheckpointIntervalMs=0, lets two batches commit, then switches it "
    "off. Otherwise start from a backup of the checkpoint or on a new one.",
    Remedy.ASYNC_OFF,
)


#: One record, or a batch of them that the producer cannot split into parts that fit.
TOO_LARGE = Advice(
    Category.DATA,
    "A record of the batch, or the producer's batch of several, is larger than the Kafka producer "
    "or the sink's topic accepts.",
    "Raise both limits: the sink's option kafka.max.request.size (1 MB unless set) and the topic's "
    "setting max.message.bytes (message.max.bytes of its broker); keep the sink's option "
    "kafka.batch.size below the topic's limit. Or write smaller rows. Then start the query: the "
    "same batch is read again. Other queries of the application whose sinks have the same kafka.* "
    "options share the producer and wait for it: give each a kafka.client.id of its own.",
)

#: What is at the source now is not what the checkpoint's offsets are about: nothing to skip.
RECREATED = Advice(
    Category.SOURCE_LOST,
    "A topic was deleted and created again, or partitions of it were deleted: the offsets in the "
    "checkpoint are those of the old one, and none of the new one's records were read.",
    TO_EARLIEST,
    Remedy.TO_EARLIEST,
)


def _rule(pattern: str, category: Category, meaning: str = "", way_out: str = "") -> Rule:
    general = GENERAL[category]
    return Rule(pattern, Advice(category, meaning or general.meaning, way_out or general.way_out))


#: On Spark's condition, matched from its start.
CONDITION_RULES: tuple[Rule, ...] = (
    Rule(
        r"HEADGATE_TOPIC_RECREATED|KAFKA_DATA_LOSS\.(PARTITIONS_DELETED"
        r"|INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS)",
        RECREATED,
    ),
    _rule(r"KAFKA_DATA_LOSS", Category.SOURCE_LOST),
    Rule(r"HEADGATE_KAFKA_BATCH_TOO_LARGE", TOO_LARGE),
    _rule(
        r"KAFKA_DATA_SOURCE_NOT_ENABLED|DATA_SOURCE_NOT_FOUND",
        Category.CONFIGURATION,
        "The driver has no data source of this format.",
        "Add the connector to the application, or correct the format.",
    ),
    _rule(
        r"STREAMING_OUTPUT_MODE|UNSUPPORTED_STREAMING_OPERATOR_WITHOUT_WATERMARK",
        Category.CONFIGURATION,
        "The sink's output mode does not fit the query's aggregation.",
        "Append needs a watermark on the event time that is grouped by; update and complete do "
        "not. File sinks support only append.",
    ),
    _rule(
        r"STREAMING_REAL_TIME_MODE|INVALID_STREAMING_REAL_TIME_MODE",
        Category.CONFIGURATION,
        "This query does not meet the limits of real-time mode.",
        "Real-time mode needs a Kafka source, output mode update, an interval of 5 s or more, a "
        "Kafka, console or memory sink, and no Python functions on rows. Otherwise use a "
        "processing-time trigger.",
    ),
    _rule(
        r"HEADGATE_QUERY_IDENTITY",
        Category.CONFIGURATION,
        "The script starts a query that is not known, and has not started one that is. It may be "
        "the same under another name; a new checkpoint would then read again, or leave out, what "
        "the old one has processed. Nothing of it was started.",
        "An author says on the application's page which it is. Or give the query its old name "
        "back in the script, and start it again.",
    ),
    _rule(r"STREAMING_QUERY_EVOLUTION_ERROR|HEADGATE_CONFIGURATION", Category.CONFIGURATION),
    _rule(
        r"STATE_STORE_INVALID_CONFIG_AFTER_RESTART|STATE_STORE_INVALID_VARIABLE_TYPE_CHANGE"
        r"|STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA"
        r"|STATE_STORE_(KEY|VALUE|COLUMN_FAMILY)_SCHEMA_(NOT_COMPATIBLE|INCOMPATIBLE)"
        r"|STATE_STORE_INVALID_VALUE_SCHEMA_EVOLUTION|STATE_STORE_\w+_SCHEMA_NOT_COMPATIBLE"
        r"|STATE_STORE_(KEY|VALUE)_ROW_FORMAT_VALIDATION_FAILURE"
        r"|CANNOT_LOAD_STATE_STORE\.(KEY|VALUE)_ROW_FORMAT_VALIDATION_FAILURE"
        r"|STREAM_STREAM_JOIN_INCOMPATIBLE_STATE_STORE_CONFIGS",
        Category.INCOMPATIBLE,
        "The state in the checkpoint was written by a different version of this query: keys, "
        "aggregates, operators or their types have changed.",
    ),
    _rule(
        r"STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY",
        Category.DAMAGED,
        "The checkpoint has no state for a stateful operator of this query: its files are "
        "missing, or the query became stateful after the checkpoint was created.",
        "Restore the earlier revision, restore the files, or start on a new checkpoint.",
    ),
    _rule(
        r"STREAMING_CHECKPOINT_MISSING_METADATA_FILE",
        Category.DAMAGED,
        "The checkpoint contains offsets, but its metadata file is missing.",
    ),
    _rule(
        r"STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY",
        Category.DAMAGED,
        "The state folder contains files of another query, or of this query from before its "
        "checkpoint was replaced.",
    ),
    _rule(r"CANNOT_LOAD_STATE_STORE\.\w*OUT_OF_MEMORY", Category.CAPACITY),
    _rule(
        r"CANNOT_LOAD_STATE_STORE\.(\w*MISSING\w*|\w*NOT_EXISTS|CANNOT_READ_STREAMING_STATE_FILE"
        r"|CANNOT_FIND_BASE_SNAPSHOT_CHECKPOINT|INVALID_CHECKPOINT_LINEAGE"
        r"|SNAPSHOT_PARTITION_ID_NOT_FOUND)",
        Category.DAMAGED,
    ),
    _rule(
        r"CANNOT_LOAD_STATE_STORE\.(CANNOT_READ_\w+_SIZE|UNEXPECTED_FILE_SIZE)"
        r"|CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED"
        r"|STATE_STORE_ROW_CHECKSUM_VERIFICATION_FAILED"
        r"|STATE_STORE_UNEXPECTED_EMPTY_FILE_IN_ROCKSDB_ZIP",
        Category.CORRUPTION,
    ),
    _rule(
        r"CONCURRENT_SCHEDULER_INSUFFICIENT_SLOT|UNABLE_TO_ACQUIRE_MEMORY|\w+_OUT_OF_MEMORY",
        Category.CAPACITY,
    ),
    _rule(
        r"STREAMING_CHECKPOINT_LOG_WRITE_FAILURE|FAILED_RENAME_TEMP_FILE"
        r"|CANNOT_LOAD_STATE_STORE\.UNRELEASED_THREAD_ERROR"
        r"|CANNOT_LOAD_STATE_STORE|CANNOT_WRITE_STATE_STORE|STREAMING_ASYNC_OPERATION_FAILED",
        Category.STORAGE,
    ),
    _rule(
        r"CONCURRENT_STREAM_LOG_UPDATE|CONCURRENT_QUERY|_LEGACY_ERROR_TEMP_2207",
        Category.OWNERSHIP,
    ),
    _rule(
        r"MALFORMED_LOG_FILE|BATCH_METADATA_NOT_FOUND|INVALID_LOG_VERSION",
        Category.DAMAGED,
        "A log of the checkpoint, or of the file sink, has a gap or cannot be read.",
    ),
    _rule(
        r"FAILED_READ_FILE",
        Category.DATA,
        "A file of the source cannot be read: it is damaged, in another format, or missing.",
        "Repair or remove the file named in the root cause, or set the source's option "
        "ignoreCorruptFiles or ignoreMissingFiles to true; then restart the query.",
    ),
    _rule(
        r"DIVIDE_BY_ZERO|INTERVAL_DIVIDED_BY_ZERO|REMAINDER_BY_ZERO",
        Category.DATA,
        "A row of the batch divides by zero, and Spark's ANSI mode makes that an error.",
        "Use try_divide(a, b), or a / nullif(b, 0), or filter such rows out; then restart the "
        f"query{AGAIN}.",
    ),
    _rule(
        r"CAST_INVALID_INPUT|CAST_OVERFLOW|CONVERSION_INVALID_INPUT|CANNOT_PARSE_",
        Category.DATA,
        "A value of the batch does not fit the type that the query casts it to.",
        "Use try_cast or try_to_timestamp, or filter such rows out; then restart the query.",
    ),
    _rule(
        r"ARITHMETIC_OVERFLOW|BINARY_ARITHMETIC_OVERFLOW|NUMERIC_VALUE_OUT_OF_RANGE"
        r"|DATETIME_OVERFLOW",
        Category.DATA,
        "A result is too large for its type.",
        "Cast to a wider type (bigint, decimal, double) or use try_add, try_multiply…; then "
        "restart the query.",
    ),
    _rule(
        r"MALFORMED_RECORD_IN_PARSING|MALFORMED_CSV_RECORD|INVALID_ARRAY_INDEX"
        r"|NOT_NULL_ASSERT_VIOLATION|USER_RAISED_EXCEPTION|\w*_USER_RAISED_EXCEPTION"
        r"|DUPLICATED_MAP_KEY|MAP_KEY_DOES_NOT_EXIST|CHECK_CONSTRAINT_VIOLATION",
        Category.DATA,
    ),
    _rule(r"STREAMING_PYTHON_RUNNER_INITIALIZATION_(TIMEOUT|COMM)", Category.PROCESS),
    _rule(
        r"STREAMING_SHUFFLE_WRITER_CONNECTION_TIMEOUT|INTERNAL_ERROR_NETWORK", Category.CONNECTION
    ),
)

#: The type of a missing module that has been added to the code since the driver started.
MODULE_ADDED_LATER = "ModuleAddedLater"

#: Packages that Spark itself imports: by the name of the module, how they are installed.
SPARK_PACKAGES = {
    "google": "protobuf",  # without it there is often no package `google` at all
    "google.protobuf": "protobuf",
    "grpc": "grpcio",
    "numpy": "numpy",
    "pandas": "pandas",
    "pyarrow": "pyarrow",
    "zstandard": "zstandard",
}
#: Conditions of PySpark for a package that is missing or too old.
PACKAGE_CONDITIONS = frozenset({"PACKAGE_NOT_INSTALLED", "UNSUPPORTED_PACKAGE_VERSION"})


def package_missing(package: str) -> Advice:
    """Return the advice for a package that Spark needs; "": the root cause names it."""
    named = package or "what the root cause names"
    what = f" with `pip install {package}`" if package else ""
    return Advice(
        Category.CONFIGURATION,
        f"Spark needs the Python package {package} for this query, and it is not installed."
        if package
        else "Spark needs a Python package for this query that is not installed, or is too old.",
        f"Install {named} in the Python environment that Headgate runs in{what}, then restart "
        "the application and start the query.",
    )


#: On the type, for what our own driver refuses to start (`queries.runtime`).
TYPE_RULES: tuple[Rule, ...] = (
    _rule(
        r"NotAWriter|StartsItself|QueryOnly|CallsNeedBatches",
        Category.CONFIGURATION,
        "The definition does not produce a stream that Headgate can start.",
        "Do what the root cause says, then start the query.",
    ),
    _rule(r"KillsDriver", Category.CULPRIT),
    _rule(
        MODULE_ADDED_LATER,
        Category.USER_CODE,
        "The code on disk has this module. The driver does not: it runs the copy of the code that "
        "was made when it started.",
        "Restart the application: its new driver runs the code on disk. Until then the query "
        "retries.",
    ),
    _rule(
        r"ExitInUsersCode",
        Category.USER_CODE,
        "The query's own code asked for the end of the process (sys.exit(), for instance). A query "
        "cannot end its driver, in which others may run.",
        "Remove the call at the line in the root cause, or raise an error instead; then restart "
        "the query.",
    ),
    _rule(
        r"StartTimedOut",
        Category.UNKNOWN,
        "Nothing was started within the limit: a function of the query's code, or a service that "
        "it waits for, does not return.",
        "Look at the line in the root cause, where there is one, and give such calls a time-out. A "
        "thread that does not end keeps its checkpoint locked; a fresh driver ends it.",
    ),
    _rule(
        r"ReferenceMissing",
        Category.CONFIGURATION,
        "A secret that the definition names is missing on the driver's host.",
        "Put it there (the environment or the secrets folder), then start the query.",
    ),
)

#: On the whole text, for what carries no condition. Matched anywhere, case ignored.
MESSAGE_RULES: tuple[Rule, ...] = (
    _rule(
        r"SaslAuthenticationException|SslAuthenticationException|SSLHandshakeException"
        r"|Could not find a 'KafkaClient' entry in the JAAS",
        Category.CONFIGURATION,
        "The Kafka broker rejected the login: user, password, mechanism or certificate are not "
        "what it expects.",
        "Correct the secret that the options name (kafka.sasl.jaas.config: user and password; "
        "kafka.ssl.…), kafka.sasl.mechanism or kafka.security.protocol; then start the query.",
    ),
    _rule(
        r"(Topic|Group|Cluster|TransactionalId)AuthorizationException",
        Category.CONFIGURATION,
        "The Kafka user does not have the permission for this.",
        "Grant the user what the root cause names (READ and DESCRIBE of the source's "
        "topics and of groups that begin with groupIdPrefix; WRITE of the sink's topic); then "
        "start the query.",
    ),
    Rule(
        r"RecordTooLargeException|RecordBatchTooLargeException|MESSAGE_TOO_LARGE"
        r"|larger than the max message size the server will accept",
        TOO_LARGE,
    ),
    Rule(
        r"Partitions .{1,400} have been deleted|Cannot find initial offsets for partitions",
        RECREATED,
    ),
    _rule(
        r"some data may have been lost|OffsetOutOfRange|KafkaIllegalStateException"
        r"|Cannot fetch records? in (interval|offset)",
        Category.SOURCE_LOST,
    ),
    Rule(r"batch -?\d+ (doesn't exist|not found in offset log)", ASYNC_PROGRESS_GAP),
    _rule(
        r"There are \[\d+\] sources in the checkpoint",
        Category.INCOMPATIBLE,
        "The number of sources has changed since the checkpoint was created.",
    ),
    _rule(
        r"Incomplete log file|Malformed log file|Failed to read log file",
        Category.DAMAGED,
        "A log file of the checkpoint is incomplete.",
    ),
    _rule(
        r"\A(?=(?s:.*)NullPointerException)(?=(?s:.*)WatermarkTracker)",
        Category.INCOMPATIBLE,
        "The checkpoint was written by continuous processing, whose offsets carry no watermark; "
        "micro-batches cannot continue from it.",
        "Switch back to the continuous trigger, or start on a new checkpoint.",
    ),
    _rule(
        r"Multiple streaming queries are concurrently using"
        r"|terminated because another run of this query was started"
        r"|another instance of the same streaming query",
        Category.OWNERSHIP,
    ),
    _rule(
        r"does not support async progress tracking"
        r"|Async progress tracking cannot be used with",
        Category.CONFIGURATION,
        "Async progress tracking supports only stateless queries, a processing-time trigger and a "
        "Kafka, console, memory, noop or foreach sink.",
        "Remove asyncProgressTrackingEnabled from the sink's options, or change what it does not "
        "support.",
    ),
    _rule(
        r"No offset matched from request of topic-partition",
        Category.CONFIGURATION,
        "startingTimestamp is after the last record of a partition.",
        "Set startingOffsetsByTimestampStrategy=latest, or an earlier time.",
    ),
    _rule(
        r"UnknownTopicOrPartition|not present in metadata after",
        Category.CONNECTION,
        "The broker has no such topic at the moment.",
        "The query retries. Create the topic, or correct its name in the definition.",
    ),
    _rule(
        r"Failed to find data source|Unable to find (Kafka )?data source",
        Category.CONFIGURATION,
        "The driver has no data source of this format.",
        "Add the connector to the application, or correct the format.",
    ),
    _rule(
        r"OutOfMemoryError|GC overhead limit exceeded|Java heap space",
        Category.MEMORY,
    ),
    _rule(
        r"No space left on device|Disk quota exceeded",
        Category.STORAGE,
        "A disk is full.",
        "The query retries. Free space where the driver writes.",
    ),
    _rule(
        r"Too many open files|unable to create (new )?native thread",
        Category.CAPACITY,
        "The host's limit of open files or threads is reached.",
        "The query retries. Raise the limit of the account that runs drivers.",
    ),
    _rule(
        r"Py4JNetworkError|Answer from Java side is empty|Error while sending or receiving"
        r"|SparkContext (was|has been|is already) (shut ?down|stopped)"
        r"|Cannot call methods on a stopped SparkContext",
        Category.PROCESS,
        "The JVM of the driver ended while the query ran.",
    ),
    _rule(
        r"Python worker (exited unexpectedly|failed to connect back)|Executor heartbeat timed out"
        r"|ExecutorLostFailure",
        Category.PROCESS,
        "A worker process of the driver died.",
        "The query retries. If the failure persists, its function may need more memory.",
    ),
    _rule(
        r"Permission denied|AccessControlException|AccessDeniedException",
        Category.STORAGE,
        "The drivers' account may not read or write a file.",
        "The query retries. Give the account access to the path in the root cause.",
    ),
    _rule(
        r"Path does not exist|FileNotFoundException|NoSuchFileException|No such file or directory"
        r"|NotDirectoryException|NoSuch(Key|Bucket|Upload)Exception",
        Category.STORAGE,
        "A file or folder does not exist.",
        "The query retries. Create it, or correct the path in the definition.",
    ),
)
