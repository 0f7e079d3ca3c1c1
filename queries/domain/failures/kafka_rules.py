"""Rules for Kafka: data loss, transient errors, and mistakes in a definition.

Advice that could lead users to give up records must match the exact condition: Kafka's connector
throws one type for eighteen conditions, of which seven are about loss.
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

CONDITIONS: tuple[FailureRule, ...] = (
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

MESSAGES: tuple[FailureRule, ...] = (
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
    """Return the advice with the partitions and offsets that Spark reports in the text."""
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
