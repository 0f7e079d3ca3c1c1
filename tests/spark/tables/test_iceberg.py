"""Iceberg tables in SQL queries, in a Hadoop catalog: written, read, and guarded.

The tests share one driver for each version of Spark.
"""

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from queries.domain.tables.places import ICEBERG
from queries.domain.validation.tables import SPARKS
from tests.spark.driver_under_test import write_rows
from tests.spark.tables.lake import Lake, flights_into, lake, manifests, of_files, rows_of, sql

pytestmark = pytest.mark.spark

ROWS: list[dict[str, Any]] = [{"id": 1, "name": "ada"}, {"id": 2, "name": "bob"}]


@pytest.fixture(scope="module", params=SPARKS[ICEBERG])
def one(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    home = tmp_path_factory.mktemp("iceberg")
    conf = manifests("iceberg", home / "data")["flights-iceberg"]["conf"]
    theirs = {key.replace(".lake", ".theirs"): value for key, value in conf.items()}
    theirs["spark.sql.catalog.theirs.warehouse"] = str(home / "theirs")
    with lake(home, "iceberg", request.param, conf | theirs) as made:
        yield made


def table(name: str, **options: str) -> dict[str, Any]:
    return {"format": "iceberg", "options": {"table": name, **options}}


def written(one: Lake, name: str) -> int:
    """Let a query write a table of the catalog `lake` from files, and return its run."""
    write_rows(one.data / f"{name}-in", "1.json", ROWS)
    spec = sql(of_files(one.data / f"{name}-in"), table(f"lake.air.{name}"))
    spec["sink"]["partition_by"] = ["name"]
    spec["sink"]["options"]["fanout-enabled"] = "true"
    run = one.start(spec)
    one.completed(run)
    return run


@pytest.mark.promise
def test_rows_go_from_files_to_a_table_and_through_a_stream_and_a_join_with_the_table(
    one: Lake,
) -> None:
    first = written(one, "people")  # Spark creates the table
    assert (one.data / "out/lake/air/people/metadata/version-hint.text").exists()
    out = one.data / "out"
    text = (
        "SELECT read.id, static.name, direct.id + 1 AS next FROM read "
        "JOIN static USING (id) JOIN lake.air.people AS direct USING (id)"
    )
    files = {"format": "json", "options": {"path": str(out)}}
    stream = table("lake.air.people", **{"streaming-max-files-per-micro-batch": "1"})
    tables = [{"name": "static", **table("lake.air.people")}]
    second = one.start(sql(stream, files, text, tables=tables))
    one.completed(second)
    assert rows_of(out) == [{**row, "next": row["id"] + 1} for row in ROWS]

    write_rows(one.data / "people-in", "2.json", [{"id": 3, "name": "cy"}])
    one.completed(one.again(first))
    one.completed(one.again(second))
    assert [row["id"] for row in rows_of(out)] == [1, 2, 3]


def test_the_demos_flights_go_through_two_tables(one: Lake) -> None:
    flights_into(one, "iceberg")


@pytest.mark.guarantee("G-PATH-6")
def test_a_table_outside_the_data_roots_is_refused_wherever_it_is_named(one: Lake) -> None:
    written(one, "mine")
    shutil.copytree(one.data / "out" / "lake", one.data.parent / "theirs")
    noop = {"format": "noop"}
    inside, outside = table("lake.air.mine"), table("theirs.air.mine")
    refused = [
        sql(outside, noop),
        sql(inside, outside),
        sql(inside, noop, tables=[{"name": "static", **outside}]),
        sql(table("nowhere.air.mine"), noop),
        *(
            sql(inside, noop, f"SELECT read.id FROM read JOIN {named} AS other USING (id)")
            for named in (
                "theirs.air.mine",
                "lake.`../../theirs/air`.mine",
                "lake.air.mine.changes",
            )
        ),
    ]
    for run in [one.start(spec) for spec in refused]:
        said = one.failed(run)
        assert any(
            why in said
            for why in (
                "outside the allowed paths",
                "not declared as an Iceberg catalog",
                "Write its name only",
                "Read the table itself",
            )
        ), said


@pytest.mark.guarantee("G-CONFIG-5")
def test_a_procedure_of_the_catalog_is_a_command_and_is_not_called(one: Lake) -> None:
    written(one, "called")
    folder = one.data / "out" / "lake" / "air" / "called" / "metadata"
    before = sorted(folder.iterdir())
    spec = sql(table("lake.air.called"), {"format": "noop"})
    for procedure in (
        "expire_snapshots(table => 'air.called', retain_last => 1)",
        f"remove_orphan_files(table => 'air.called', location => '{one.data.parent}')",
    ):
        run = one.start({**spec, "sql": f"CALL lake.system.{procedure}"})
        assert "the SQL is a command (Call" in one.failed(run)
    assert sorted(folder.iterdir()) == before
