"""The versions of Spark that an application can choose, and what the older ones lack.

Headgate itself runs on `OURS`. Each of the others is a folder with PySpark of that version, which
precedes ours on a driver's import path (docs/decisions/0035-a-spark-is-a-folder.md).
"""

from collections.abc import Mapping
from typing import Literal, get_args

Spark = Literal["4.1", "4.2", "4.3"]
SPARKS: tuple[Spark, ...] = get_args(Spark)
#: The version that Headgate's own Python environment contains (requirements.txt).
OURS: Spark = "4.3"
#: Trigger kind -> the first version whose PySpark has it (`DataStreamWriter.trigger`).
TRIGGERS_SINCE: Mapping[str, Spark] = {"real_time": "4.2"}


def has_trigger(spark: Spark, kind: str) -> bool:
    """Return whether a version of Spark has a kind of trigger."""
    since = TRIGGERS_SINCE.get(kind, SPARKS[0])
    return SPARKS.index(spark) >= SPARKS.index(since)


def command(spark: str) -> str:
    """Return the command that downloads a version."""
    return f"make spark ARGS={spark}"
