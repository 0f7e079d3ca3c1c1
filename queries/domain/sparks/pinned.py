"""Configuration that a checkpoint pins, by the version of Spark that writes it.

The offset log of every batch contains the values of these keys. Spark continues with them, whatever
the definition says. If the log lacks a key because an older version wrote the log, Spark continues
with the behaviour of older versions, and pins it from then on. A version omits keys that it does
not know from the logs that it writes.

Source: `OffsetSeqMetadata.relevantSQLConfs` and `relevantSQLConfDefaultValues` of 4.1.4, 4.2.1 and
4.3.0, read from their jars, and the defaults of their `SQLConf`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from queries.domain.sparks import SPARKS, Spark, is_older


@dataclass(frozen=True, slots=True)
class Pin:
    """One key: the first version that pins it, and its values."""

    since: Spark
    new: str  # in a new checkpoint, unless the key is configured
    old: str  # what Spark uses if the log lacks the key; "" for the session's value


_STATE = "spark.sql.streaming.stateStore"
PROVIDER = f"{_STATE}.providerClass"
ENCODING = f"{_STATE}.encodingFormat"
CHECKSUM = f"{_STATE}.rowChecksum.enabled"
MERGE = f"{_STATE}.rocksdb.mergeOperatorVersion"
JOIN_FORMAT = "spark.sql.streaming.join.stateFormatVersion"
KEY_ORDER = "spark.sql.dropDuplicates.deterministicKeyOrder.enabled"
SOURCE_NAMES = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
SINK_NAMES = "spark.sql.streaming.queryEvolution.enableSinkEvolution"

_OLDEST = SPARKS[0]
PINS: Mapping[str, Pin] = {
    KEY_ORDER: Pin("4.3", "true", "false"),
    "spark.sql.function.protobufExtensions.enabled": Pin("4.2", "false", "false"),
    "spark.sql.optimizer.pruneFiltersCanPruneStreamingSubplan": Pin(_OLDEST, "false", "true"),
    "spark.sql.shuffle.partitions": Pin(_OLDEST, "200", ""),
    "spark.sql.streaming.aggregation.stateFormatVersion": Pin(_OLDEST, "2", "1"),
    "spark.sql.streaming.flatMapGroupsWithState.stateFormatVersion": Pin(_OLDEST, "2", "1"),
    JOIN_FORMAT: Pin(_OLDEST, "2", "1"),
    "spark.sql.streaming.multipleWatermarkPolicy": Pin(_OLDEST, "min", "min"),
    SOURCE_NAMES: Pin("4.2", "false", "false"),
    f"{_STATE}.compression.codec": Pin(_OLDEST, "lz4", "lz4"),
    ENCODING: Pin(_OLDEST, "unsaferow", "unsaferow"),
    PROVIDER: Pin(
        _OLDEST,
        "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
        "",
    ),
    f"{_STATE}.rocksdb.formatVersion": Pin(_OLDEST, "5", ""),
    MERGE: Pin("4.2", "2", "1"),
    CHECKSUM: Pin("4.2", "false", "false"),
    "spark.sql.streaming.statefulOperator.alwaysNullableOutput.enabled": Pin(
        "4.3", "true", "false"
    ),
    "spark.sql.streaming.statefulOperator.useStrictDistribution": Pin(_OLDEST, "true", "false"),
}
#: Keys that no log contains: they only affect the definition or the start of a query.
_UNPINNED: Mapping[str, Spark] = {
    SINK_NAMES: "4.2",
    "spark.sql.streaming.realTimeMode.asyncProgressTrackingByDefault.enabled": "4.3",
}


#: Keys that no log contains, but that decide how a checkpoint is written: its logs, or the files
#: and rows of its state. Source: the `SQLConf` of 4.3.0 and its descriptions, which warn that state
#: does not fit between versions, or that a key must not change after the first run.
FORMATS = frozenset(
    {
        SINK_NAMES,
        "spark.sql.streaming.offsetLog.formatVersion",
        "spark.sql.streaming.sessionWindow.stateFormatVersion",
        "spark.sql.streaming.transformWithState.stateSchemaVersion",
        f"{_STATE}.checkpointFormatVersion",
    }
)


def pinned_by(spark: Spark) -> frozenset[str]:
    """Return the keys that a version writes into the log of a checkpoint."""
    return frozenset(key for key, pin in PINS.items() if not is_older(spark, pin.since))


def key_since(key: str) -> Spark:
    """Return the first version that has a configuration key; the oldest if it is not listed."""
    pin = PINS.get(key)
    return pin.since if pin is not None else _UNPINNED.get(key, _OLDEST)
