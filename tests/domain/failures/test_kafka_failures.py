"""Failures of Kafka and of files are what they are, and each advice leads out of them."""

import pytest

from queries.domain.failures.categories import Category, Remedy
from queries.domain.failures.diagnosis import Classified, classify
from queries.domain.states import Policy

DATA_LOSS = (
    "Some data may have been lost because they are not available in Kafka any more; either the "
    "data was aged out by Kafka or the topic may have been deleted before all the data in the "
    "topic was processed. Reason: "
)


def _classified(type_name: str, text: str, error_class: str = "") -> Classified:
    return classify(
        error_class=error_class,
        type_name=type_name,
        root_cause=text,
        message=f"org.apache.spark.SparkException: {text}",
    )


@pytest.mark.parametrize(
    "type_name",
    [
        "java.nio.file.NoSuchFileException",
        "java.nio.file.NotDirectoryException",
        "java.nio.file.FileSystemException",
        "java.nio.file.DirectoryNotEmptyException",
        "java.nio.file.FileAlreadyExistsException",
        "java.nio.file.AtomicMoveNotSupportedException",
        "java.nio.channels.ClosedChannelException",
        "java.io.EOFException",
        "org.apache.hadoop.fs.PathIOException",
        "org.apache.hadoop.fs.ParentNotDirectoryException",
        "software.amazon.awssdk.services.s3.model.NoSuchKeyException",
    ],
)
def test_a_file_that_is_gone_is_storage_and_is_tried_again(type_name: str) -> None:
    found = _classified(type_name, "/data/flights/part-00000.json")
    assert (found.category, found.policy) == (Category.STORAGE, Policy.RETRY)


@pytest.mark.parametrize(
    "type_name",
    [
        "org.apache.spark.sql.catalyst.analysis.NoSuchTableException",
        "org.apache.spark.sql.catalyst.analysis.NoSuchDatabaseException",
        "org.apache.spark.sql.catalyst.analysis.NoSuchFunctionException",
        "org.apache.spark.sql.AnalysisException",
    ],
)
def test_what_spark_cannot_find_while_it_plans_is_the_plan(type_name: str) -> None:
    found = _classified(type_name, "delays")
    assert (found.category, found.policy) == (Category.PLAN, Policy.FATAL)


@pytest.mark.parametrize("name", ["NoSuchElementException", "NoSuchMethodException"])
def test_what_java_cannot_find_is_no_plan(name: str) -> None:
    found = _classified(f"java.util.{name}", "None.get")
    assert (found.category, found.policy) == (Category.UNKNOWN, Policy.RETRY)


@pytest.mark.parametrize(
    ("error_class", "type_name", "text"),
    [
        (
            "TASK_WRITE_FAILED",
            "org.apache.kafka.common.errors.RecordTooLargeException",
            "The message is 2000086 bytes when serialized which is larger than 1048576, which is "
            "the value of the max.request.size configuration.",
        ),
        (
            "",
            "org.apache.kafka.common.errors.RecordTooLargeException",
            "The request included a message larger than the max message size the server will "
            "accept.",
        ),
        (
            "HEADGATE_KAFKA_BATCH_TOO_LARGE",
            "org.apache.kafka.common.errors.TimeoutException",
            "Expiring 9 record(s) for out-0:120001 ms has passed since batch creation",
        ),
    ],
)
def test_a_record_too_large_names_the_settings_and_is_held_as_poison(
    error_class: str, type_name: str, text: str
) -> None:
    found = _classified(type_name, text, error_class)
    assert (found.category, found.policy) == (Category.DATA, Policy.POISON)
    assert "kafka.max.request.size" in found.way_out
    assert "max.message.bytes" in found.way_out


def test_a_time_out_of_the_producer_alone_is_the_connection() -> None:
    text = "Expiring 9 record(s) for out-0:120001 ms has passed since batch creation"
    found = _classified("org.apache.kafka.common.errors.TimeoutException", text)
    assert (found.category, found.policy) == (Category.CONNECTION, Policy.RETRY)


@pytest.mark.parametrize(
    ("error_class", "text"),
    [
        ("HEADGATE_TOPIC_RECREATED", "Topic flights was deleted and recreated."),
        ("KAFKA_DATA_LOSS.PARTITIONS_DELETED", "Partitions Set(flights-1) have been deleted."),
        ("", f"{DATA_LOSS}Partitions Set(flights-1) have been deleted."),
        (
            "KAFKA_DATA_LOSS.PARTITIONS_DELETED_AND_GROUP_ID_CONFIG_PRESENT",
            "Partitions Set(flights-1) have been deleted. Kafka option 'kafka.group.id' has been "
            "set on this query",
        ),
        (
            "KAFKA_DATA_LOSS.INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS",
            "Cannot find initial offsets for partitions Set(flights-2).",
        ),
        (
            "KAFKA_DATA_LOSS.PARTITION_OFFSET_CHANGED",
            "Partition flights-0 offset was changed from 4000 to 0.",
        ),
        ("", f"{DATA_LOSS}Partition flights-0 offset was changed from 4000 to 0."),
    ],
)
def test_where_nothing_can_be_gone_over_the_way_out_is_the_beginning(
    error_class: str, text: str
) -> None:
    found = _classified(
        "org.apache.spark.sql.kafka010.KafkaIllegalStateException", text, error_class
    )
    assert (found.category, found.policy) == (Category.SOURCE_LOST, Policy.FATAL)
    assert found.remedy is Remedy.TO_EARLIEST
    assert found.way_out.startswith("Reset the query to earliest")


@pytest.mark.parametrize(
    ("error_class", "text"),
    [
        (
            "KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE",
            "Could not read records in offset [100, 180) for topic partition flights-0",
        ),
        ("KAFKA_DATA_LOSS.PARTITION_OFFSET_CHANGED", "flights-0 offset was changed from 1 to 5."),
        ("", f"{DATA_LOSS}Added partition flights-3 starts from 12 instead of 0."),
    ],
)
def test_where_there_is_a_gap_the_way_out_goes_over_it(error_class: str, text: str) -> None:
    found = _classified(
        "org.apache.spark.sql.kafka010.KafkaIllegalStateException", text, error_class
    )
    assert found.category is Category.SOURCE_LOST
    assert "Skip the lost data" in found.way_out
