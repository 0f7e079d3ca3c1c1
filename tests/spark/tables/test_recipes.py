"""The recipes for `foreachBatch` write every batch once, although their driver is killed between.

Their driver is killed once all have written a batch, before Spark commits it, so that Spark
executes each batch again. What the tables have is compared with what the files have.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from queries.domain.protocol import RunState
from queries.domain.sparks import Spark
from queries.domain.tables.places import DELTA, ICEBERG
from queries.domain.validation.tables import SPARKS
from tests import pieces
from tests.spark.driver_under_test import DriverUnderTest, write_rows
from tests.spark.tables.reading import CONF, selected

pytestmark = [pytest.mark.spark, pytest.mark.faults]

CODE = (
    str(Path(__file__).parent / "code"),
    str(Path(__file__).parents[3] / "examples" / "tables" / "code"),
)
FILES, ROWS = 3, 50

Totals = dict[str, tuple[int, int]]


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    """Return the server's address: `host:port/database`."""
    if missing := pieces.missing_postgres():
        pytest.skip(missing)
    with pieces.postgres_server() as url:
        yield url.partition("@")[2]


def flights(folder: Path) -> list[dict[str, Any]]:
    """Write the files that the queries read, and return their flights."""
    rows = [
        {"carrier": "ABC"[number % 3], "tailnum": f"N{number}", "dep_delay": number % 40 - 5}
        for number in range(FILES * ROWS)
    ]
    for number in range(FILES):
        write_rows(folder, f"{number}.json", rows[number * ROWS : (number + 1) * ROWS])
    return rows


def totals(rows: list[dict[str, Any]]) -> Totals:
    """Return flights and minutes by carrier, as a batch computation."""
    flights = Counter(row["carrier"] for row in rows)
    delay: Counter[str] = Counter()
    for row in rows:
        delay[row["carrier"]] += row["dep_delay"]
    return {carrier: (flights[carrier], delay[carrier]) for carrier in flights}


def run_to_the_end(
    home: Path, queries: dict[str, dict[str, Any]], version: Spark, **changes: Any
) -> bool:
    """Run the queries in a driver, and in the next one; return whether the first was killed."""
    killed = home / "killed"
    killed.mkdir(parents=True)
    env = {"KILLED": str(killed), "RECIPES": ",".join(queries)}
    spark = pieces.spark_folder(version)
    for epoch in (1, 2):
        driver = DriverUnderTest(home, application="recipes", epoch=epoch)
        roots, digest = driver.launcher.freeze_code(CODE)
        code: dict[str, Any] = {"code_roots": roots, "code_sha256": digest}
        try:
            driver.launch(spark=spark, env=env, memory="700m", **code, **changes)
            for number, (name, params) in enumerate(queries.items(), 1):
                function = {"kind": "python", "function": f"killed_once:{name}"}
                params = {**params, "max_files_per_trigger": 1}
                trigger = {"trigger": {"kind": "available_now"}}
                driver.start(10 * number + epoch, {**function, "params": params, **trigger})
            if epoch == 1:
                driver.wait_exit()
                continue
            for run in driver.entries:
                assert driver.wait_run(run, RunState.ENDED, RunState.FAILED).error is None
        finally:
            driver.end()
    return (killed / "now").exists()


@pytest.mark.parametrize("version", SPARKS[DELTA])
def test_batches_into_delta_and_postgresql_are_written_once(
    tmp_path: Path, database: str, version: Spark
) -> None:
    if missing := pieces.missing_connector("delta", version) or pieces.missing_connector("jdbc"):
        pytest.skip(missing)
    jars = pieces.connector_jars("delta", version) + pieces.connector_jars("jdbc")
    rows = flights(tmp_path / "in")
    table, every, late = (str(tmp_path / name) for name in ("totals", "all", "late"))
    with psycopg.connect(f"postgresql://{database}", user="headgate") as connection:
        connection.execute("DROP TABLE IF EXISTS carriers")  # of the test on another Spark
    server = {"server": database, "user": "headgate", "password": "not-asked-for"}
    given = {"input": str(tmp_path / "in")}
    assert run_to_the_end(
        tmp_path / "home",
        {
            "merge": {**given, "table": table},
            "append": {**given, "all": every, "late": late},
            "jdbc": {**given, **server},
        },
        version,
        jars=jars,
        conf={**CONF["delta"], "spark.sql.shuffle.partitions": "2"},
    )
    [merged, in_all, in_late] = selected(
        tmp_path,
        "delta",
        version,
        {},
        f"SELECT carrier, flights, delay FROM delta.`{table}`",
        f"SELECT tailnum FROM delta.`{every}`",
        f"SELECT tailnum FROM delta.`{late}`",
    )
    with psycopg.connect(f"postgresql://{database}", user="headgate") as connection:
        stored = connection.execute("SELECT carrier, flights, delay FROM carriers").fetchall()
        left = connection.execute(
            "SELECT tablename FROM pg_tables WHERE tablename LIKE 'staging%'"
        ).fetchall()
    expected = totals(rows)
    assert {carrier: tuple(more) for carrier, *more in merged} == expected
    assert {carrier: tuple(more) for carrier, *more in stored} == expected
    assert sorted(name for (name,) in in_all) == sorted(row["tailnum"] for row in rows)
    assert sorted(name for (name,) in in_late) == sorted(
        row["tailnum"] for row in rows if row["dep_delay"] >= 15
    )
    assert left == [], "staging tables of killed drivers are dropped by the next batch"


@pytest.mark.parametrize("version", SPARKS[ICEBERG])
def test_batches_into_iceberg_are_written_once(tmp_path: Path, version: Spark) -> None:
    if missing := pieces.missing_connector("iceberg", version):
        pytest.skip(missing)
    jars = pieces.connector_jars("iceberg", version)
    rows = flights(tmp_path / "in")
    conf = {
        "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.ice.type": "hadoop",
        "spark.sql.catalog.ice.warehouse": str(tmp_path / "warehouse"),
    }
    assert run_to_the_end(
        tmp_path / "home",
        {"iceberg": {"input": str(tmp_path / "in"), "table": "ice.db.totals"}},
        version,
        jars=jars,
        conf={**CONF["iceberg"], **conf, "spark.sql.shuffle.partitions": "2"},
    )
    [merged] = selected(
        tmp_path, "iceberg", version, conf, "SELECT carrier, flights, delay FROM ice.db.totals"
    )
    assert {carrier: tuple(more) for carrier, *more in merged} == totals(rows)
