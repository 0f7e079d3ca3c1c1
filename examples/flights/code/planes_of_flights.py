"""Build two streams that call a remote store for each flight: a lookup, and a deduplication.

The store responds after slightly more than 2 ms, so one call after the other would process about
400 flights a second in a task. `map_async` keeps many calls in flight, in order within a tail
number.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import redis
import redis.asyncio
from pyspark.sql import DataFrame, SparkSession

from headgate_async import map_async

PLANE = "key STRING, value STRING"
SEEN_S = 3600  # how long the store remembers a window's keys
#: redis-py's errors are not Python's: a retry needs them named.
PASSING = (ConnectionError, TimeoutError, redis.ConnectionError, redis.TimeoutError)


@asynccontextmanager
async def store(address: str) -> AsyncIterator[Any]:
    """Open the store whose address is in a file; the file is read each time the store is opened."""
    try:
        where = json.loads(Path(address).read_text())
    except FileNotFoundError:
        raise ConnectionError(f"the store is not running: {address} does not exist") from None
    client = redis.asyncio.Redis(**where, decode_responses=True, max_connections=256)
    try:
        yield client
    finally:
        await client.aclose()


def flights(spark: SparkSession, params: dict[str, Any]) -> DataFrame:
    """Return the flights' records: the tail number (the record's key), the JSON, and offsets."""
    options = {
        "kafka.bootstrap.servers": params["servers"],
        "subscribe": params["topic"],
        "startingOffsets": "latest",
        "failOnDataLoss": "false",
        "maxOffsetsPerTrigger": "20000",
    }
    return (
        spark.readStream.format("kafka")
        .options(**options)
        .load()
        .selectExpr(
            "CAST(key AS STRING) AS tail_number",
            "CAST(value AS STRING) AS flight",
            "timestamp",
            *("topic", "partition", "offset"),
        )
    )


def each(spark: SparkSession, params: dict[str, Any], call: Any) -> DataFrame:
    """Return the store's result for each flight, as Kafka records."""
    return map_async(
        flights(spark, params),
        call,
        key="tail_number",
        schema=PLANE,
        setup=partial(store, params["store"]),
        transient=PASSING,
        broken=PASSING,
        timeout_s=5.0,
        retries=8,
    )


def with_planes(spark: SparkSession, params: dict[str, Any]) -> DataFrame:
    """Return each flight with its plane, as Kafka records."""
    return each(spark, params, look_up)


async def look_up(row: Any, client: Any) -> dict[str, Any]:
    """Look up a flight's plane, and add it to the flight."""
    plane = await client.hgetall(f"plane:{row.tail_number}") if row.tail_number else {}
    known = {name: plane[name] for name in ("manufacturer", "model", "year") if name in plane}
    return {"key": row.tail_number, "value": json.dumps({**json.loads(row.flight), **known})}


def first_in_window(spark: SparkSession, params: dict[str, Any]) -> DataFrame:
    """Return each plane's first flight in each ten-minute window of arrival times."""
    return each(spark, params, first_only)


async def first_only(row: Any, client: Any) -> dict[str, Any] | None:
    """Pass a flight on if it is its plane's first in the window.

    The store contains the identity of the first flight. A repeated batch finds its own identity
    there and returns the same result, so the deduplication survives a replay.
    """
    if row.tail_number is None:
        return None
    window = int(row.timestamp.timestamp()) // 600
    name = f"seen:{window}:{row.tail_number}"
    first = await client.set(name, row.identity, nx=True, get=True, ex=SEEN_S)
    return {"key": row.tail_number, "value": row.flight} if first in (None, row.identity) else None
