"""The Spark versions: features older ones lack, keys pinned by checkpoints, and version changes.

Headgate itself runs on `OURS`. Each other version is a folder with its PySpark, which precedes
Headgate's own PySpark on a driver's import path (docs/decisions/0035-a-spark-is-a-folder.md).

A version that lacks a condition reports the failure with a message only, or with a more general
condition; the rules for messages then classify the failure.

Source: `error/error-conditions.json` in the jars of 4.0.5, 4.1.4, 4.2.1 and 4.3.0, and
`error/error-classes.json` in those of 3.5.9.

The offset log of every batch contains the values of these keys. Spark continues with them, whatever
the definition says. If the log lacks a key because an older version wrote the log, Spark continues
with the behaviour of older versions, and pins it from then on. A version omits keys that it does
not know from the logs that it writes.

Source: `OffsetSeqMetadata.relevantSQLConfs` and `relevantSQLConfDefaultValues` of 3.5.9, 4.0.5,
4.1.4, 4.2.1 and 4.3.0, read from their jars, and the defaults of their `SQLConf`.

Spark promises that a newer version continues a checkpoint of an older one, but not the reverse. If
the older version is known to fail, or to continue with wrong values, the rollback is rejected. What
the logs alone cannot show is a doubt, which a preflight with the older version resolves.

Source: checkpoints with aggregations, deduplication, stream-stream joins and transformWithState,
written by 4.3.0 and 4.2.1, continued by 4.2.1 and 4.1.4, and compared with a batch computation.
The same with session windows and applyInPandasWithState, without transformWithState, written by
4.3.0, 4.0.5 and 3.5.9, continued by 3.5.9 and 4.3.0, and compared with 4.3.0 alone.
Those between 3.5.9 or 4.0.5 and newer versions: `tests/spark/test_upgrades.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, get_args

from queries.domain.errors import NotAllowed

Spark = Literal["3.5", "4.0", "4.1", "4.2", "4.3"]
SPARKS: tuple[Spark, ...] = get_args(Spark)
#: The version that Headgate's own Python environment contains (requirements.txt).
OURS: Spark = "4.3"
#: Trigger kind -> the first version whose PySpark has it (`DataStreamWriter.trigger`).
TRIGGERS_SINCE: Mapping[str, Spark] = {"real_time": "4.2"}


class Feature(StrEnum):
    """A feature that an older version lacks; the value is its name in a sentence."""

    STATE_IN_REAL_TIME = "state in real-time mode"
    ASYNC_IN_REAL_TIME = "async progress tracking in real-time mode"
    STATE_INSPECTION = "state inspection"


#: The first version with each feature. Source: the condition STREAMING_REAL_TIME_MODE of each
#: version's jars; 4.2 refuses both. 3.5 has no readers of state.
FEATURES_SINCE: Mapping[Feature, Spark] = {
    Feature.STATE_IN_REAL_TIME: "4.3",
    Feature.ASYNC_IN_REAL_TIME: "4.3",
    Feature.STATE_INSPECTION: "4.0",
}
#: Type of a column -> the first version whose parser knows it.
TYPES_SINCE: Mapping[str, Spark] = {
    "variant": "4.0",
    "time": "4.1",
    "geometry": "4.1",
    "geography": "4.1",
}


def spark_named(text: object) -> Spark | None:
    """Return the version with this name; None if no version has it."""
    return next((spark for spark in SPARKS if spark == text), None)


def has_trigger(spark: Spark, kind: str) -> bool:
    """Return whether a Spark version has a kind of trigger."""
    return not is_older(spark, TRIGGERS_SINCE.get(kind, SPARKS[0]))


def has_feature(spark: Spark, feature: Feature) -> bool:
    """Return whether a Spark version has a feature."""
    return not is_older(spark, FEATURES_SINCE[feature])


def is_older(spark: Spark, other: Spark) -> bool:
    """Return whether one version is older than another."""
    return SPARKS.index(spark) < SPARKS.index(other)


def spark_of(application: Mapping[str, Any]) -> Spark:
    """Return the version in an application's JSON form; `OURS` if it names none of `SPARKS`."""
    return spark_named(application.get("spark")) or OURS


def unsupported(spark: Spark, python: tuple[int, int], java: int | None) -> str:
    """Explain why a version does not run on a host's Python or Java; "" if it does.

    `python` is the major and minor version, `java` the major one, None if it is not known. Newer
    versions of Spark run on all that Headgate runs on. Source: the documentation of 3.5.9, which
    names Java 17 as the newest; our Java classes need 16.
    """
    if spark != "3.5":
        return ""
    if python > (3, 11):
        return (
            f"Spark 3.5 supports Python up to 3.11, but drivers on this host use {python[0]}."
            f"{python[1]}. Install Headgate with Python 3.11 here, or choose a newer Spark."
        )
    if java not in (17, None):
        return (
            f"In Headgate, Spark 3.5 runs on Java 17, but drivers on this host use Java {java}. "
            "Set JAVA_HOME to a Java 17 and restart the worker, or choose a newer Spark."
        )
    return ""


ANSI = "spark.sql.ansi.enabled"


def differences(before: Spark, after: Spark) -> tuple[str, ...]:
    """Return, as sentences, how the same query behaves differently after a change of version.

    Source: ANSI mode is on by default since 4.0 (its migration guide).
    """
    if is_older(before, "4.0") == is_older(after, "4.0"):
        return ()
    if is_older(before, after):
        return (
            f"Unless {ANSI} is set, a division by zero, an invalid cast or an overflow fails the "
            f"batch on Spark {after}; Spark {before} continues with NULL, or with the overflowed "
            f"number. To keep these results, set {ANSI} to false in the application's "
            "configuration.",
        )
    return (
        f"Unless {ANSI} is set, Spark {after} continues with NULL after a division by zero or an "
        f"invalid cast, and with the overflowed number after an overflow; Spark {before} fails the "
        f"batch. To keep these errors, set {ANSI} to true in the application's configuration.",
    )


def command(spark: str) -> str:
    """Return the command that downloads a version."""
    return f"make spark ARGS={spark}"


def installable(spark: str, connector: str = "") -> str:
    """Return the name of an installable: a Spark version, or a connector for it."""
    return f"connector {connector} for Spark {spark}" if connector else f"Spark {spark}"


#: Version -> the conditions named in our rules that it was the first to have.
_NEW_CONDITIONS: Mapping[Spark, str] = {
    "4.0": (
        "CANNOT_LOAD_STATE_STORE CANNOT_WRITE_STATE_STORE CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND "
        "EMITTING_ROWS_OLDER_THAN_WATERMARK_NOT_ALLOWED FAILED_READ_FILE "
        "FOREACH_BATCH_USER_FUNCTION_ERROR ILLEGAL_STATE_STORE_VALUE INTERNAL_ERROR_TWS "
        "INVALID_CONF_VALUE INVALID_LOG_VERSION MALFORMED_LOG_FILE NOT_NULL_ASSERT_VIOLATION "
        "STATE_STORE_INVALID_CONFIG_AFTER_RESTART STATE_STORE_INVALID_VALUE_SCHEMA_EVOLUTION "
        "STATE_STORE_INVALID_VARIABLE_TYPE_CHANGE STDS_INTERNAL_ERROR STREAMING_OUTPUT_MODE "
        "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA UNSUPPORTED_CONNECT_FEATURE "
        "UNSUPPORTED_STREAMING_OPERATOR_WITHOUT_WATERMARK USER_RAISED_EXCEPTION"
    ),
    "4.1": (
        "CANNOT_LOAD_CHECKPOINT_FILE_MANAGER CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED "
        "CHECK_CONSTRAINT_VIOLATION MALFORMED_STATE_IN_RATE_PER_MICRO_BATCH_SOURCE "
        "REMAINDER_BY_ZERO STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY "
        "STATE_STORE_COMMIT_VALIDATION_FAILED STATE_STORE_UNEXPECTED_EMPTY_FILE_IN_ROCKSDB_ZIP "
        "STREAMING_REAL_TIME_MODE"
    ),
    "4.2": (
        "PYTHON_EXCEPTION STATE_STORE_ROW_CHECKSUM_VERIFICATION_FAILED "
        "STATE_STORE_UNKNOWN_INTERNAL_COLUMN_FAMILY STREAMING_CHECKPOINT_MISSING_METADATA_FILE "
        "STREAMING_QUERY_EVOLUTION_ERROR STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY "
        "STREAMING_UNFINISHED_REPARTITION_DETECTED STREAM_STREAM_JOIN_INCONSISTENT_STATE"
    ),
    "4.3": (
        "CONCURRENT_SCHEDULER_INSUFFICIENT_SLOT KAFKA_DATA_SOURCE_NOT_ENABLED "
        "STREAMING_ASYNC_OPERATION_FAILED STREAMING_CHECKPOINT_LOG_WRITE_FAILURE "
        "STREAMING_SHUFFLE_WRITER_CONNECTION_TIMEOUT "
        "STREAM_STREAM_JOIN_INCOMPATIBLE_STATE_STORE_CONFIGS"
    ),
}
CONDITIONS_SINCE: Mapping[str, Spark] = {
    name: since for since, names in _NEW_CONDITIONS.items() for name in names.split()
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
SCHEMA_CHECK = f"{_STATE}.stateSchemaCheck"
JOIN_FORMAT = "spark.sql.streaming.join.stateFormatVersion"
PRUNED = "spark.sql.optimizer.pruneFiltersCanPruneStreamingSubplan"
KEY_ORDER = "spark.sql.dropDuplicates.deterministicKeyOrder.enabled"
SOURCE_NAMES = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
SINK_NAMES = "spark.sql.streaming.queryEvolution.enableSinkEvolution"

_OLDEST = SPARKS[0]
PINS: Mapping[str, Pin] = {
    KEY_ORDER: Pin("4.3", "true", "false"),
    "spark.sql.function.protobufExtensions.enabled": Pin("4.2", "false", "false"),
    PRUNED: Pin(_OLDEST, "false", "true"),
    "spark.sql.shuffle.partitions": Pin(_OLDEST, "200", ""),
    "spark.sql.streaming.aggregation.stateFormatVersion": Pin(_OLDEST, "2", "1"),
    "spark.sql.streaming.flatMapGroupsWithState.stateFormatVersion": Pin(_OLDEST, "2", "1"),
    JOIN_FORMAT: Pin(_OLDEST, "2", "1"),
    "spark.sql.streaming.multipleWatermarkPolicy": Pin(_OLDEST, "min", "min"),
    SOURCE_NAMES: Pin("4.2", "false", "false"),
    f"{_STATE}.compression.codec": Pin(_OLDEST, "lz4", "lz4"),
    ENCODING: Pin("4.0", "unsaferow", "unsaferow"),
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
    "spark.sql.scripting.enabled": "4.0",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "4.1",
    "spark.sql.streaming.offsetLog.formatVersion": "4.2",
    f"{_STATE}.autoSnapshotRepair.enabled": "4.2",
    f"{_STATE}.checkpointFormatVersion": "4.0",
    "spark.sql.streaming.transformWithState.stateSchemaVersion": "4.0",
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


#: Names of state operators in a checkpoint's metadata.
_JOIN = "symmetricHashJoin"
_DEDUPLICATES = frozenset({"dedupe", "dedupeWithinWatermark"})
_PROCESSOR = "transformWithState"  # prefix of the names, which differ between Scala and Python
#: Size up to which Scala's sets keep their order, and so the order of the columns in the key.
_IN_ORDER = 4


WAY_OUT = (
    "Keep the newer Spark; or rewind the query to a snapshot or batch from before the upgrade, or "
    "reset it."
)


#: Why there is no rollback to what wrote a checkpoint before Headgate ran the query.
UNSUPPORTED_SPARK = "The checkpoint was written by Spark {}, which Headgate does not run."


class NoWayBack(NotAllowed):
    """The Spark version cannot continue the checkpoint."""

    code = "no-way-back"


@dataclass(frozen=True, slots=True)
class Written:
    """What the newest batch of a checkpoint says about the version that wrote it."""

    offsets: str = "v1"  # version of the offset log's format
    commits: str = "v1"  # version of the commit log's format
    conf: Mapping[str, str] = field(default_factory=dict)  # pinned configuration
    operators: tuple[str, ...] = ()  # names of the state operators, "" if unknown

    @property
    def versions(self) -> str:
        """Return the versions that may have written the batch, to follow "Spark" in a sentence.

        Source: 4.0 was the first to pin the encoding of the state (SPARK-50526), and 4.1 added no
        key. 3.5.9 pins the pruning of filters; the first releases of 3.5, and 3.4, do not. A log
        without any of these keys is continuous, or not Spark's.
        """
        newest = self._newest
        if newest == "4.0":
            return "4.0 or 4.1"
        if newest == "3.5" and PRUNED not in self.conf:
            return "3.5 or earlier"
        return newest or "of an unknown version"

    @property
    def back(self) -> Spark | None:
        """Return the version that would continue the batch as before; None if none is here.

        Of versions that cannot be told apart, it is the newest, which has the longest support.
        """
        return "4.1" if self._newest == "4.0" else self._newest

    @property
    def _newest(self) -> Spark | None:
        """Return the first version that pins all keys in the log; None if it contains none."""
        releases = {PINS[key].since for key in self.conf if key in PINS}
        return max(releases, key=SPARKS.index, default=None)


@dataclass(frozen=True, slots=True)
class Pinning:
    """One pinned key whose presence differs between two versions."""

    key: str
    value: str  # "" for the session's


def pins_added(written: Written, spark: Spark) -> tuple[Pinning, ...]:
    """Return the keys that a version will pin from now on, each with the value that it will use.

    The value represents the behaviour of older versions; it is not the default for a new
    checkpoint.
    """
    missing = sorted(pinned_by(spark) - written.conf.keys())
    return tuple(Pinning(key, PINS[key].old) for key in missing)


def pins_lost(written: Written, spark: Spark) -> tuple[Pinning, ...]:
    """Return the keys that a version drops from the log, with the values that are lost.

    After a later return to a version that has these keys, the behaviour is that of older versions.
    """
    keys = sorted((written.conf.keys() & PINS.keys()) - pinned_by(spark))
    return tuple(Pinning(key, written.conf[key]) for key in keys)


def cannot_go_back(written: Written, spark: Spark) -> str:
    """Explain why a version cannot continue a checkpoint; "" if it may be able to."""
    for since, reason in (*_logs(written), *_state(written)):
        if is_older(spark, since):
            return f"Spark {spark} cannot continue this checkpoint: {reason}"
    return ""


def refuse_no_way_back(written: Written, spark: Spark, query: str) -> None:
    """Raise `NoWayBack` if a version cannot continue a query's checkpoint."""
    if refused := cannot_go_back(written, spark):
        raise NoWayBack(f"{query}: {refused}", way_out=WAY_OUT)


def doubts_about(written: Written, spark: Spark) -> tuple[str, ...]:
    """Return, as sentences, the doubts that only a preflight with the version can resolve.

    Source: 4.0.5 and 4.3.0 compare whether the columns of a join's state can be NULL with the
    schema that 3.5.9 stored, and differ in what they infer. 3.5 does not store which operators keep
    state. Without the check, the results were those of 4.3.0 alone.
    """
    doubts = []
    if written.back == "3.5" and not is_older(spark, "4.0"):
        doubts.append(
            f"If the query joins streams, Spark {spark} may reject the state that Spark 3.5 wrote "
            "(STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE). Run a preflight first. If it fails so, do "
            f"not change the query, and set {SCHEMA_CHECK} to false in its configuration."
        )
    by_order = written.conf.get(KEY_ORDER) == "true"
    if is_older(spark, PINS[KEY_ORDER].since) and by_order and _DEDUPLICATES & {*written.operators}:
        doubts.append(
            f"Spark {spark} rejects the state if the query removes duplicates by more than "
            f"{_IN_ORDER} columns, because it orders these columns differently. Run a preflight "
            "first."
        )
    return tuple(doubts)


def _logs(written: Written) -> list[tuple[Spark, str]]:
    findings: list[tuple[Spark, str]] = []
    if written.offsets != "v1":
        findings.append(
            ("4.2", f"its offset log has format {written.offsets}, which names sources.")
        )
    if written.commits == "v2":
        findings.append(("4.0", "its commit log has format v2, which names versions of state."))
    if written.commits == "v3":
        findings.append(("4.2", "its commit log has format v3, which names sinks."))
    return findings


def _state(written: Written) -> list[tuple[Spark, str]]:
    """Return each property of the state that older versions cannot read, with the first that can.

    Stateless queries pin the same configuration, without any effect.
    """
    conf, operators = written.conf, written.operators
    findings: list[tuple[Spark, str]] = []
    if operators and conf.get(CHECKSUM) == "true":
        findings.append(("4.2", f"its state has a checksum in each row ({CHECKSUM}=true)."))
    if operators and (encoding := conf.get(ENCODING, "unsaferow")) != "unsaferow":
        findings.append(("4.0", f"its state is encoded as {encoding} ({ENCODING})."))
    if _JOIN in operators and conf.get(JOIN_FORMAT) == "3":
        findings.append(("4.1", f"the state of its join has format 3 ({JOIN_FORMAT})."))
    if _JOIN in operators and conf.get(JOIN_FORMAT) == "4":
        findings.append(("4.3", f"the state of its join has format 4 ({JOIN_FORMAT})."))
    processes = any(name.startswith(_PROCESSOR) for name in operators)
    if processes and "RocksDB" in conf.get(PROVIDER, "") and conf.get(MERGE, "1") != "1":
        findings.append(
            ("4.2", f"lists in its state are stored in version {conf[MERGE]} ({MERGE}).")
        )
    if processes:
        findings.append(("4.0", f"it contains the state of {_PROCESSOR}."))
    return findings


def as_json(old: Written, new: Written, spark: Spark, back: Spark | None) -> dict[str, Any]:
    """Return the effect of a version change on a checkpoint, in JSON form.

    `old` is the checkpoint before; `new` a copy on which `spark` has run, or `old` if it has not.
    `back` is the version that ran on it until now; None if only the checkpoint shows it ("from"),
    which need not be a version that can be chosen here ("back" is "" then).
    """
    back, origin = back or old.back, back or old.versions
    oldest = back or SPARKS[0]
    return {
        "from": origin,
        "back": back or "",
        "to": spark,
        "changes": list(differences(back, spark)) if back else [],
        "conditions": list(conditions_between(oldest, spark)),
        "added": [[pinning.key, pinning.value] for pinning in pins_added(old, spark)],
        "lost": [[pinning.key, pinning.value] for pinning in pins_lost(old, spark)],
        "format": [
            [what, before, after]
            for what, before, after in (
                ("offset log", old.offsets, new.offsets),
                ("commit log", old.commits, new.commits),
                ("state operators", ", ".join(old.operators), ", ".join(new.operators)),
            )
            if before != after
        ],
        "refused": cannot_go_back(old, spark),
        "doubts": list(doubts_about(old, spark)),
        "no_way_back": cannot_go_back(new, back) if back else UNSUPPORTED_SPARK.format(origin),
        "back_doubts": list(doubts_about(new, oldest)),
        "back_lost": [[pinning.key, pinning.value] for pinning in pins_lost(new, oldest)],
    }
