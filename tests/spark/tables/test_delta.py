"""Delta tables in SQL queries: written, read as stream and as table, and guarded.

The tests share one driver for each version of Spark.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from queries.domain.tables.places import DELTA
from queries.domain.validation.tables import SPARKS
from tests.spark.driver_under_test import write_rows
from tests.spark.tables.lake import Lake, flights_into, lake, of_files, rows_of, sql

pytestmark = pytest.mark.spark

ROWS: list[dict[str, Any]] = [{"id": 1, "name": "ada"}, {"id": 2, "name": "bob"}]


@pytest.fixture(scope="module", params=SPARKS[DELTA])
def one(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with lake(tmp_path_factory.mktemp("delta"), "delta", request.param, {}) as made:
        yield made


def at(path: Path, **options: str) -> dict[str, Any]:
    return {"format": "delta", "options": {"path": str(path), **options}}


def written(one: Lake, name: str) -> tuple[Path, int]:
    """Return a table that a query has written from files, and the query's run."""
    write_rows(one.data / f"{name}-in", "1.json", ROWS)
    table = one.data / name
    run = one.start(sql(of_files(one.data / f"{name}-in"), at(table)))
    one.completed(run)
    return table, run


@pytest.mark.promise
def test_rows_go_from_files_to_a_table_and_through_a_stream_and_a_join_with_the_table(
    one: Lake,
) -> None:
    table, first = written(one, "people")
    assert (table / "_delta_log" / "00000000000000000000.json").exists()
    out = one.data / "out"
    text = (
        "SELECT read.id, static.name, direct.id + 1 AS next FROM read "
        f"JOIN static USING (id) JOIN delta.`{table}` AS direct USING (id)"
    )
    tables = [{"name": "static", **at(table)}]
    files = {"format": "json", "options": {"path": str(out)}}
    second = one.start(sql(at(table, maxFilesPerTrigger="1"), files, text, tables=tables))
    one.completed(second)
    assert rows_of(out) == [{**row, "next": row["id"] + 1} for row in ROWS]

    write_rows(one.data / "people-in", "2.json", [{"id": 3, "name": "cy"}])
    one.completed(one.again(first))
    one.completed(one.again(second))
    assert [row["id"] for row in rows_of(out)] == [1, 2, 3]


def test_the_demos_flights_go_through_two_tables(one: Lake) -> None:
    flights_into(one, "delta")


def test_complete_mode_replaces_the_table(one: Lake) -> None:
    table, _ = written(one, "counted")
    counts = one.data / "counts"
    spec = sql(at(table), at(counts), "SELECT name, count(*) AS n FROM read GROUP BY name")
    spec["sink"]["output_mode"] = "complete"
    one.completed(one.start(spec))
    log = (counts / "_delta_log" / "00000000000000000000.json").read_text()
    assert '"outputMode":"Complete"' in log


@pytest.mark.guarantee("G-PATH-6")
def test_a_table_outside_the_data_roots_is_refused_wherever_it_is_named(
    one: Lake, tmp_path: Path
) -> None:
    inside, _ = written(one, "mine")
    outside = tmp_path / "theirs"
    shutil.copytree(inside, outside)
    linked = one.data / "linked"
    linked.symlink_to(outside)
    noop = {"format": "noop"}
    refused = [
        sql(at(outside), noop),
        sql(at(linked), noop),
        sql(at(inside), at(outside)),
        sql(at(inside), noop, tables=[{"name": "static", **at(outside)}]),
        *(
            sql(at(inside), noop, f"SELECT read.id FROM read JOIN {named} AS other USING (id)")
            for named in (
                f"delta.`{outside}`",
                f"delta.`{linked}`",
                f"spark_catalog.delta.`{outside}`",
                f"table_changes_by_path('{outside}', 0)",
                f"table_changes('delta.`{outside}`', 0)",
            )
        ),
    ]
    for run in [one.start(spec) for spec in refused]:
        said = one.failed(run)
        assert "outside the allowed paths" in said or "is not allowed" in said, said


def test_a_statement_of_deltas_own_is_a_command(one: Lake) -> None:
    table, _ = written(one, "kept")
    for text in (f"DESCRIBE HISTORY delta.`{table}`", f"VACUUM delta.`{table}`"):
        run = one.start(sql(at(table), {"format": "noop"}, text))
        assert "the SQL is a command" in one.failed(run)


def test_a_new_column_ends_the_run_and_the_next_one_reads_it(one: Lake) -> None:
    table, _ = written(one, "grows")
    out = one.data / "grown"
    files = {"format": "json", "options": {"path": str(out)}}
    every = {"kind": "processing_time", "interval": "500 milliseconds"}
    run = one.start(sql(at(table), files, trigger=every))
    one.batches(run, 0)
    more = sql(of_files(one.data / "grows-in"), at(table, mergeSchema="true"))
    more["sql"] = "SELECT *, id * 10 AS score FROM read"
    one.completed(one.start(more))
    assert one.failed(run)
    ended = one.driver.run(run)
    assert ended is not None
    assert ended.error is not None
    assert ended.error.error_class == "DELTA_SCHEMA_CHANGED_WITH_VERSION"
    one.driver.entries[run].spec["trigger"] = {"kind": "available_now"}
    one.completed(one.again(run))
    assert [(row["id"], row.get("score")) for row in rows_of(out) if "score" in row] == [
        (1, 10),
        (2, 20),
    ]
