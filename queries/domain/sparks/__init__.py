"""The versions of Spark that an application can choose, and what the older ones lack.

Headgate itself runs on `OURS`. Each other version is a folder with its PySpark, which precedes
Headgate's own PySpark on a driver's import path (docs/decisions/0035-a-spark-is-a-folder.md).
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal, get_args

Spark = Literal["4.1", "4.2", "4.3"]
SPARKS: tuple[Spark, ...] = get_args(Spark)
#: The version that Headgate's own Python environment contains (requirements.txt).
OURS: Spark = "4.3"
#: Trigger kind -> the first version whose PySpark has it (`DataStreamWriter.trigger`).
TRIGGERS_SINCE: Mapping[str, Spark] = {"real_time": "4.2"}


class Feature(StrEnum):
    """A feature that an older version lacks; the value is its name in a sentence."""

    STATE_IN_REAL_TIME = "state in real-time mode"
    ASYNC_IN_REAL_TIME = "async progress tracking in real-time mode"


#: The first version with each feature. Source: the condition STREAMING_REAL_TIME_MODE of each
#: version's jars; 4.2 refuses both.
FEATURES_SINCE: Mapping[Feature, Spark] = {
    Feature.STATE_IN_REAL_TIME: "4.3",
    Feature.ASYNC_IN_REAL_TIME: "4.3",
}


def spark_named(text: object) -> Spark | None:
    """Return the version with this name; None if no version has it."""
    return next((spark for spark in SPARKS if spark == text), None)


def has_trigger(spark: Spark, kind: str) -> bool:
    """Return whether a version of Spark has a kind of trigger."""
    return not is_older(spark, TRIGGERS_SINCE.get(kind, SPARKS[0]))


def has_feature(spark: Spark, feature: Feature) -> bool:
    """Return whether a version of Spark has a feature."""
    return not is_older(spark, FEATURES_SINCE[feature])


def is_older(spark: Spark, other: Spark) -> bool:
    """Return whether one version is older than another."""
    return SPARKS.index(spark) < SPARKS.index(other)


def spark_of(application: Mapping[str, Any]) -> Spark:
    """Return the version in an application's JSON form; `OURS` if it names none of `SPARKS`."""
    return spark_named(application.get("spark")) or OURS


def command(spark: str) -> str:
    """Return the command that downloads a version."""
    return f"make spark ARGS={spark}"


def installable(spark: str, connector: str = "") -> str:
    """Return the name of what can be installed: a version of Spark, or a connector for it."""
    return f"connector {connector} for Spark {spark}" if connector else f"Spark {spark}"
