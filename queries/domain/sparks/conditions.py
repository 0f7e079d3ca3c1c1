"""Error conditions of Spark that our failure rules name and that not every version has.

A version that lacks a condition reports the failure with a message only, or with a more general
condition; the rules for messages then classify the failure.

Source: `error/error-conditions.json` in the jars of 4.1.4, 4.2.1 and 4.3.0.
"""

from collections.abc import Mapping

from queries.domain.sparks import SPARKS, Spark, is_older

CONDITIONS_SINCE: Mapping[str, Spark] = {
    "CONCURRENT_SCHEDULER_INSUFFICIENT_SLOT": "4.3",
    "KAFKA_DATA_SOURCE_NOT_ENABLED": "4.3",
    "PYTHON_EXCEPTION": "4.2",
    "STATE_STORE_ROW_CHECKSUM_VERIFICATION_FAILED": "4.2",
    "STATE_STORE_UNKNOWN_INTERNAL_COLUMN_FAMILY": "4.2",
    "STREAMING_ASYNC_OPERATION_FAILED": "4.3",
    "STREAMING_CHECKPOINT_LOG_WRITE_FAILURE": "4.3",
    "STREAMING_CHECKPOINT_MISSING_METADATA_FILE": "4.2",
    "STREAMING_QUERY_EVOLUTION_ERROR": "4.2",
    "STREAMING_SHUFFLE_WRITER_CONNECTION_TIMEOUT": "4.3",
    "STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY": "4.2",
    "STREAMING_UNFINISHED_REPARTITION_DETECTED": "4.2",
    "STREAM_STREAM_JOIN_INCOMPATIBLE_STATE_STORE_CONFIGS": "4.3",
    "STREAM_STREAM_JOIN_INCONSISTENT_STATE": "4.2",
}


def conditions_between(spark: Spark, other: Spark) -> tuple[str, ...]:
    """Return the conditions that only the newer of two versions has, by name."""
    older, newer = sorted((spark, other), key=SPARKS.index)
    return tuple(
        sorted(
            name
            for name, since in CONDITIONS_SINCE.items()
            if is_older(older, since) and not is_older(newer, since)
        )
    )
