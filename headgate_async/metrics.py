"""Send metrics along with the rows: in hidden columns, collected by `df.observe`.

Spark puts observed metrics into each progress event, so every listener of a query's progress also
gets these, at no additional cost. Latency and waiting time have their own columns, with one value
per row; all other metrics are summed, in an array that only the first row of an Arrow batch
contains.
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.types import ArrayType, BooleanType, DoubleType, StructField

from headgate_async.counts import NAMES, Counts

#: Prefix of an observation's name, followed by the operator's name.
PREFIX = "headgate_async:"

COUNTS, LATENCY, WAITED = "_async_counts", "_async_latency_ms", "_async_waited_ms"
VISIBLE = "_async_kept"
HIDDEN = (COUNTS, LATENCY, WAITED, VISIBLE)
_TYPES = (ArrayType(DoubleType()), DoubleType(), DoubleType(), BooleanType())
FIELDS = tuple(map(StructField, HIDDEN, _TYPES))
_COUNTS_TYPE = pa.list_(pa.float64())
PERCENTILES = (0.5, 0.95, 0.99)
#: Spark's default of 10,000 costs memory for metrics that nobody reads to four digits.
ACCURACY = 1000


def hidden_columns(
    counts: Counts,
    latency: Sequence[float | None],
    waited: Sequence[float | None],
    visible: Sequence[bool],
) -> list[pa.Array]:
    """Return the hidden columns of an Arrow batch."""
    first = [counts.as_list(), *[None] * (len(visible) - 1)]
    return [
        pa.array(first, _COUNTS_TYPE),
        pa.array(latency, pa.float64()),
        pa.array(waited, pa.float64()),
        pa.array(visible, pa.bool_()),
    ]


def observe(df: Any, name: str, *, cap: int) -> Any:
    """Collect the hidden columns in one observation, and drop them."""
    from pyspark.sql import functions as f

    sums = [
        f.sum(f.get(COUNTS, f.lit(at))).alias(count_name) for at, count_name in enumerate(NAMES)
    ]
    watched = df.observe(
        PREFIX + name,
        *sums,
        f.percentile_approx(LATENCY, list(PERCENTILES), ACCURACY).alias("latency_ms"),
        f.percentile_approx(WAITED, list(PERCENTILES), ACCURACY).alias("waited_ms"),
        f.max(f.lit(cap)).alias("cap"),
    )
    return watched.where(VISIBLE).drop(*HIDDEN)
