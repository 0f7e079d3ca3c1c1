"""Rules for sources and tables: Kafka's data loss and errors, changes and losses in Delta and
Iceberg.

Advice that could make users give up records must match the exact condition: Kafka's connector
throws one type for eighteen conditions; seven of them are about loss.

They come from the code of Delta 4.4.0 (on Spark 4.2) and Iceberg 1.11.0 (on Spark 4.1), and from
failures recorded with them. Iceberg's failures, and some of Delta's, have a message but no
condition.
"""

import re
from dataclasses import replace

from queries.domain.failures.categories import (
    AGAIN,
    Category,
    FailureAdvice,
    FailureRule,
    Remedy,
    rule,
)

#: One record, or a batch that the producer cannot split into small enough parts.
TOO_LARGE = FailureAdvice(
    Category.DATA,
    "A record in the batch, or a group of records that the producer sends together, is larger "
    "than the Kafka producer or the sink's topic accepts.",
    "Raise both limits: the sink's kafka.max.request.size option (1 MB unless set) and the "
    "topic's max.message.bytes setting (message.max.bytes on its broker); keep the sink's "
    "kafka.batch.size option below the topic's limit. Or write smaller rows. Then {start}: the "
    "same batch is read again. Other queries of the application whose sinks have the same kafka.* "
    "options share the producer and wait for it; give each sink its own kafka.client.id.",
)
#: The source no longer matches the checkpoint's offsets: there is nothing to skip.
RECREATED = FailureAdvice(
    Category.SOURCE_LOST,
    "A topic was deleted and recreated, or partitions of it were deleted: the offsets in the "
    "checkpoint belong to the old topic, and no records of the new one were read.",
    "{to_earliest}",
    Remedy.TO_EARLIEST,
)
#: startingOffsets or startingOffsetsByTimestamp does not match the topics.
PARTITIONS = FailureAdvice(
    Category.CONFIGURATION,
    "Starting offsets per partition must list every partition of the topics and no others. "
    "Nothing was read, so nothing is lost.",
    "List all partitions in startingOffsets (-2 is earliest, -1 latest) or "
    "startingOffsetsByTimestamp, or use earliest or latest; then {start}.",
)

KAFKA_CONDITIONS: tuple[FailureRule, ...] = (
    FailureRule(
        r"HEADGATE_TOPIC_RECREATED|KAFKA_DATA_LOSS\.(PARTITIONS_DELETED"
        r"|INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS)",
        RECREATED,
    ),
    rule(r"KAFKA_DATA_LOSS", Category.SOURCE_LOST),
    FailureRule(r"HEADGATE_KAFKA_BATCH_TOO_LARGE", TOO_LARGE),
    FailureRule(r"KAFKA_(START|TIMESTAMP)_OFFSET_DOES_NOT_MATCH_ASSIGNED", PARTITIONS),
    rule(
        r"MISMATCHED_TOPIC_PARTITIONS_BETWEEN_START_OFFSET_AND_END_OFFSET"
        r"|(UN)?RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET",
        Category.CONFIGURATION,
        "The starting and ending offsets of a Kafka read do not match: they list different "
        "partitions, or a start is beyond the end. Nothing was read, so nothing is lost.",
        "Correct startingOffsets and endingOffsets, or the times; a recreated topic may end "
        "before the start. Then {start}.",
    ),
    rule(
        r"MISMATCHED_TOPIC_PARTITIONS_BETWEEN_END_OFFSET_AND_PREFETCHED"
        r"|END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN"
        r"|LOST_TOPIC_PARTITIONS_IN_END_OFFSET_WITH_TRIGGER_AVAILABLENOW",
        Category.CONNECTION,
        "The partitions or end offsets that the broker reported changed while the available_now "
        "trigger was reading up to them. This may be temporary and does not mean that records are "
        "lost.",
        "The query retries. If it fails again, check whether the topic was recreated or some of "
        "its partitions were deleted.",
    ),
    rule(
        r"KAFKA_NULL_TOPIC_IN_DATA",
        Category.DATA,
        "A row of the batch has no topic: its topic column is null, and the sink has no topic "
        "option.",
        "Set the sink's topic option, or filter out rows without a topic; then "
        f"{{restart}}{AGAIN}.",
    ),
    rule(
        r"KAFKA_MALFORMED_RECORD_TIMESTAMP",
        Category.DATA,
        "A record has a timestamp that Spark cannot represent: its producer probably writes "
        "microseconds or nanoseconds, but Kafka uses milliseconds.",
        "Change the producer to write milliseconds. The record stays unreadable: "
        "{past_record}. The root cause shows its partition and offset.",
    ),
    rule(
        r"KAFKA_DATA_SOURCE_NOT_ENABLED|DATA_SOURCE_NOT_FOUND",
        Category.CONFIGURATION,
        "The driver has no data source for this format.",
        "Add the connector to the application, or correct the format.",
    ),
)

KAFKA_MESSAGES: tuple[FailureRule, ...] = (
    rule(
        r"SaslAuthenticationException|SslAuthenticationException|SSLHandshakeException"
        r"|Could not find a 'KafkaClient' entry in the JAAS",
        Category.CONFIGURATION,
        "The Kafka broker rejected the login: the user, password, mechanism or certificate is "
        "wrong.",
        "Correct the secret used in the options (kafka.sasl.jaas.config: user and password; "
        "kafka.ssl.…), kafka.sasl.mechanism or kafka.security.protocol; then {start}.",
    ),
    rule(
        r"(Topic|Group|Cluster|TransactionalId)AuthorizationException",
        Category.CONFIGURATION,
        "The Kafka user lacks the required permission.",
        "Grant the user the permission named in the root cause (READ and DESCRIBE on the "
        "source's topics and on groups that begin with groupIdPrefix; WRITE on the sink's "
        "topic); then {start}.",
    ),
    FailureRule(
        r"RecordTooLargeException|RecordBatchTooLargeException|MESSAGE_TOO_LARGE"
        r"|larger than the max message size the server will accept",
        TOO_LARGE,
    ),
    FailureRule(
        r"Partitions .{1,400} have been deleted|Cannot find initial offsets for partitions",
        RECREATED,
    ),
    FailureRule(r"you must specify all TopicPartitions", PARTITIONS),
    rule(
        r"some data may have been lost|OffsetOutOfRange"
        r"|Cannot fetch records? in (interval|offset)",
        Category.SOURCE_LOST,
    ),
    rule(
        r"No offset matched from request of topic-partition",
        Category.CONFIGURATION,
        "startingTimestamp is later than the last record of a partition.",
        "Set startingOffsetsByTimestampStrategy=latest, or an earlier time; then {start}.",
    ),
    rule(
        r"UnknownTopicOrPartition|not present in metadata after",
        Category.CONNECTION,
        "The topic does not exist on the broker at the moment.",
        "The query retries. Create the topic, or correct the topic's name in the definition.",
    ),
)


def detailed(advice: FailureAdvice, text: str) -> FailureAdvice:
    """Return the advice with the partitions and offsets in Spark's message."""
    if advice is PARTITIONS:
        return _with_partitions(advice, text)
    if advice.category is not Category.SOURCE_LOST:
        return advice
    resets = re.findall(r"offset was changed from (\d{1,19}) to (\d{1,19})", text)
    if any(int(after) < int(before) for before, after in resets):
        return RECREATED  # no gap before the remaining records, so nothing to skip
    match = re.search(r"offset \[(\d+), (\d+)\) for topic partition (\S+?-\d+)", text)
    if not match:
        return advice
    first, last, partition = match.groups()
    # The range is what was to be read: only its beginning is missing.
    most = int(last) - int(first)
    detail = (
        f" The batch was reading partition {partition} from offset {first} up to {last}; at most "
        f"{most:,} of these offsets {'is' if most == 1 else 'are'} lost, from the first one on."
    )
    return replace(advice, meaning=advice.meaning + detail)


def _with_partitions(advice: FailureAdvice, text: str) -> FailureAdvice:
    """List the missing and the extra partitions; at most ten of each."""
    match = re.search(r"Specified: \w*\(([^()]{0,4000})\)\s+Assigned: \w*\(([^()]{0,4000})\)", text)
    if not match:
        return advice
    specified, assigned = (set(re.findall(r"[\w.-]+-\d+", part)) for part in match.groups())
    sentences = [
        f" {words} {', '.join(sorted(names)[:10])}."
        for words, names in (
            ("Missing:", assigned - specified),
            ("Not in the topics:", specified - assigned),
        )
        if names
    ]
    return replace(advice, meaning=advice.meaning + "".join(sentences))


#: The table no longer has the version or snapshot that the checkpoint points to.
EXPIRED = FailureAdvice(
    Category.SOURCE_LOST,
    "The table no longer has the version or snapshot that the checkpoint points to: that version "
    "or snapshot expired or was removed before the query read the next one.",
    "{from_start} A Delta table is read as it is now; a stream of an Iceberg table begins with its "
    "oldest snapshot, so a batch job must write the rows of expired snapshots. Configure the table "
    "to keep its snapshots and log longer than the query can be down.",
    Remedy.TO_EARLIEST,
)
#: The log exists, but data files that it names do not.
VACUUMED = FailureAdvice(
    Category.SOURCE_LOST,
    "A data file of the source table no longer exists: it was vacuumed or removed before the "
    "query read it.",
    "Restore the file named in the root cause, then {start}. Otherwise: {from_start} Keep removed "
    "files longer than the query can be down.",
    Remedy.TO_EARLIEST,
)
ANOTHER = FailureAdvice(
    Category.SOURCE_LOST,
    "The table was deleted and created again, or its path now leads to another table. The "
    "checkpoint belongs to the former table.",
    "{from_start}",
    Remedy.TO_EARLIEST,
)
RENAMED = FailureAdvice(
    Category.CONFIGURATION,
    "A column of the source table was renamed, dropped or retyped. Delta does not read past such a "
    "change.",
    "To continue with the columns as they are now, set spark.databricks.delta.streaming."
    "unsafeReadOnIncompatibleColumnMappingSchemaChanges.enabled to true in the application's "
    "configuration, change the SQL if it uses the old names, then {start}. Otherwise: "
    "{from_start}",
    Remedy.TO_EARLIEST,
)
CHANGED_ROWS = (
    "Rows that the source table already had were updated or deleted. A stream reads only added "
    "rows."
)
#: The sink's table has other columns than the query.
COLUMNS = FailureAdvice(
    Category.CONFIGURATION,
    "The columns of the query do not match those of the sink's table.",
    "Change the SQL to return the table's columns and types, or let the sink add new columns with "
    "its mergeSchema option (Iceberg: the table property write.spark.accept-any-schema is needed "
    "as well); then {start}.",
)
#: The table does not exist yet: its writer may start later than its reader.
NOT_YET = FailureAdvice(
    Category.CONNECTION,
    "The source's table does not exist at the moment.",
    "The query retries. Let its writer create the table, or correct the source's path or "
    "table name.",
)

TABLE_CONDITIONS: tuple[FailureRule, ...] = (
    rule(
        r"DELTA_STREAMING_SCHEMA_MISMATCH_ON_RESTART",
        Category.EVOLVED,
        "The schema of the source table changed after the query had been planned, so the plan no "
        "longer fits the table.",
        "No action is needed: the query is restarted immediately, up to three times, and each run "
        "plans the query for the table as it is then. If it keeps failing, the part of the query "
        "that the root cause names does not match the new schema.",
    ),
    rule(
        r"DELTA_STREAMING_(METADATA|SCHEMA)_EVOLUTION$"
        r"|DELTA_SCHEMA_CHANGED(_WITH_VERSION|_WITH_STARTING_OPTIONS)?$",
        Category.EVOLVED,
    ),
    FailureRule(
        r"DELTA_STREAMING_CANNOT_CONTINUE_PROCESSING|DELTA_STREAMING_INCOMPATIBLE_SCHEMA_CHANGE"
        r"|DELTA_STREAMING_CHECK_COLUMN_MAPPING",
        RENAMED,
    ),
    rule(
        r"DELTA_SOURCE_IGNORE_DELETE",
        Category.CONFIGURATION,
        CHANGED_ROWS,
        "To ignore deletes of whole partitions, set the source's ignoreDeletes option to true. To "
        "skip all updates and deletes, set skipChangeCommits instead. Then {start}. Rows that the "
        "query has already written are kept.",
    ),
    rule(
        r"DELTA_SOURCE_(TABLE_)?IGNORE_CHANGES",
        Category.CONFIGURATION,
        CHANGED_ROWS,
        "To skip commits with such changes, including the rows that they added, set the source's "
        "skipChangeCommits option to true, then {start}. To read the changed table instead: "
        "{from_start}",
    ),
    FailureRule(
        r"DELTA_LOG_FILE_NOT_FOUND|DELTA_VERSIONS_NOT_CONTIGUOUS|DELTA_TRUNCATED_TRANSACTION_LOG"
        r"|DELTA_MISSING_FILES_UNEXPECTED_VERSION",
        EXPIRED,
    ),
    FailureRule(r"DELTA_(CHANGE_DATA_)?FILE_NOT_FOUND", VACUUMED),
    rule(
        r"FAILED_READ_FILE\.FILE_NOT_EXIST",
        Category.DATA,
        "A source file no longer exists: it was removed, or vacuumed from its Delta table, before "
        "the query read it.",
        "Restore the file named in the root cause, or skip missing files with "
        "spark.sql.files.ignoreMissingFiles=true in the query's configuration; then {restart}.",
    ),
    rule(
        r"DELTA_ILLEGAL_OPTION|DELTA_STARTING_VERSION_AND_TIMESTAMP_BOTH_SET"
        r"|DELTA_TIMESTAMP_INVALID",
        Category.CONFIGURATION,
        "Delta does not accept the value of an option.",
        "Correct the option named in the root cause, then {start}.",
    ),
    FailureRule(r"DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE", ANOTHER),
    rule(
        r"DELTA_(VERSION_NOT_FOUND|TIMESTAMP_(GREATER|EARLIER)_THAN_)",
        Category.CONFIGURATION,
        "The table does not have the version or time at which the query should begin.",
        "Correct the source's startingVersion or startingTimestamp option, then {start}.",
    ),
    rule(
        r"DELTA_MISSING_CHANGE_DATA",
        Category.CONFIGURATION,
        "The table has no change feed for some of the versions that the query reads.",
        "Remove the source's readChangeFeed option, or set startingVersion to a version after the "
        "one that set the table's property delta.enableChangeDataFeed. Then {start}.",
    ),
    FailureRule(r"DELTA_SCHEMA_NOT_SET", NOT_YET),
    FailureRule(r"TABLE_OR_VIEW_NOT_FOUND", NOT_YET, text=r"(?m)^(source|table) '\w+' \(iceberg\)"),
    rule(
        r"DELTA_METADATA_MISMATCH",
        Category.CONFIGURATION,
        "The sink's partition columns differ from those of the table.",
        "Set the sink's partition columns to those of the table, then {start}.",
        text=r"Partition columns do not match",
    ),
    FailureRule(
        r"DELTA_METADATA_MISMATCH|DELTA_FAILED_TO_MERGE_FIELDS|DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS",
        COLUMNS,
    ),
    rule(
        r"DELTA_UNSUPPORTED_OUTPUT_MODE",
        Category.CONFIGURATION,
        "A Delta table does not support this output mode.",
        "Use append or complete, then {start}. To update rows, use a Python query with "
        "foreachBatch and MERGE.",
    ),
    rule(
        r"DELTA_CONCURRENT_\w+|DELTA_MAX_COMMIT_RETRIES_EXCEEDED|DELTA_METADATA_CHANGED"
        r"|DELTA_PROTOCOL_CHANGED",
        Category.STORAGE,
        "Another writer changed the sink's table at the same time.",
        "The query retries. If it keeps failing, let only one writer change the table's schema or "
        "existing rows.",
    ),
    rule(
        r"DELTA_UNSUPPORTED_FEATURES_FOR_(READ|WRITE)|DELTA_INVALID_PROTOCOL_VERSION",
        Category.CONFIGURATION,
        "The table uses features that this version of Delta does not have.",
        "Use an application with a newer connector, or drop the feature from the table; then "
        "{start}.",
    ),
)

TABLE_MESSAGES: tuple[FailureRule, ...] = (
    FailureRule(
        r"Cannot load current offset at snapshot|snapshot \S{1,40} was expired or removed"
        r"|Cannot find (a )?snapshot (after|with id|older than)"
        r"|Could not find any delta files for version",
        EXPIRED,
    ),
    FailureRule(r"iceberg\.exceptions\.NotFoundException: File does not exist", VACUUMED),
    rule(
        r"Cannot process (delete|overwrite|\w{1,20}) snapshot",
        Category.CONFIGURATION,
        CHANGED_ROWS,
        "To skip such changes, set the source option that the root cause names "
        "(streaming-skip-delete-snapshots or streaming-skip-overwrite-snapshots) to true, then "
        "{start}. A stream of an Iceberg table cannot read such changes.",
    ),
    FailureRule(
        r"Cannot write incompatible dataset to table with schema"
        r"|Field \S{1,200} not found in source schema",
        COLUMNS,
    ),
    rule(
        r"violate the writer assumption that records are clustered",
        Category.CONFIGURATION,
        "The rows of a batch are not sorted by the table's partitions.",
        "Set the sink's fanout-enabled option to true, then {start}.",
    ),
    rule(
        r"does not support Update mode",
        Category.CONFIGURATION,
        "An Iceberg table does not support this output mode.",
        "Use append or complete, then {start}. To update rows, use a Python query with "
        "foreachBatch and MERGE.",
    ),
    rule(
        r"iceberg\.exceptions\.(CommitFailed|Validation)Exception",
        Category.STORAGE,
        "Another writer changed the sink's table at the same time.",
        "The query retries. If it keeps failing, let only one writer change the table's schema or "
        "existing rows.",
    ),
)
