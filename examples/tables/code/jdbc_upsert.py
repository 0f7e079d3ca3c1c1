"""Add up flights in a PostgreSQL table, each batch exactly once.

After a crash, Spark executes the last batch again, and adding it twice would be wrong. So one
transaction both adds the batch and stores its number for the query: the database has either both
or neither. A batch whose number is already stored is skipped.

First, all tasks of the batch write their rows to a staging table. Needs the connector
`jdbc` and the package `psycopg[binary]`; `params["password"]` refers to a secret (`file:NAME`).
"""

from functools import partial
from typing import Any
from uuid import uuid4

import psycopg
from batches import by_carrier, flights, query_id
from psycopg import sql
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter

#: A statement that waits longer for another driver's lock fails, and the query is restarted.
LOCK_S = 60
CREATE = """
CREATE TABLE IF NOT EXISTS carriers (carrier text PRIMARY KEY, flights bigint, delay bigint);
CREATE TABLE IF NOT EXISTS written_batches (query text PRIMARY KEY, batch bigint NOT NULL)
"""
#: Returns a row if the batch is new. A second driver waits here for the first one's transaction.
CLAIM = """
INSERT INTO written_batches VALUES (%s, %s)
ON CONFLICT (query) DO UPDATE SET batch = excluded.batch
WHERE written_batches.batch < excluded.batch
RETURNING batch
"""
ADD = """
INSERT INTO carriers SELECT carrier, flights, delay FROM {staging}
ON CONFLICT (carrier) DO UPDATE SET
    flights = carriers.flights + excluded.flights, delay = carriers.delay + excluded.delay
"""
LEFT = r"SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename LIKE %s"


def build(spark: SparkSession, params: dict[str, Any]) -> DataStreamWriter:
    """Return the writer.

    `params`: `input`, `server` (host:port/database), `user`, `password`.
    """
    with _connected(params) as database:
        database.execute(CREATE)
    return flights(spark, params).writeStream.foreachBatch(partial(_add, params))


def _add(params: dict[str, Any], batch: DataFrame, number: int) -> None:
    query = query_id(batch)
    prefix = f"staging_{query[:8]}_"
    staging = f"{prefix}{number}_{uuid4().hex[:8]}"
    by_carrier(batch).write.format("jdbc").options(
        url=f"jdbc:postgresql://{params['server']}",
        user=params["user"],
        password=params["password"],
        driver="org.postgresql.Driver",
        dbtable=staging,
    ).save()
    with _connected(params) as database:
        if database.execute(CLAIM, (query, number)).fetchone():
            database.execute(sql.SQL(ADD).format(staging=sql.Identifier(staging)))
        # Also drop the tables that a killed driver could not drop.
        for (name,) in database.execute(LEFT, (prefix.replace("_", r"\_") + "%",)).fetchall():
            database.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(name)))


def _connected(params: dict[str, Any]) -> psycopg.Connection[Any]:
    """Return a connection, which commits at the end of its block."""
    return psycopg.connect(
        f"postgresql://{params['server']}",
        user=params["user"],
        password=params["password"],
        connect_timeout=30,
        options=f"-c lock_timeout={LOCK_S}s",
    )
