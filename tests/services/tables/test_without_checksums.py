"""The lag behind a table whose writer leaves no checksums, as pages and REST show it."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from queries.domain.tables.metadata import LOG
from queries.selectors.kafka.lag import lag_lines, lag_of
from queries.selectors.tables import TableLine
from tests.domain.tables.logs import UNCHECKED, WITHOUT_CHECKSUMS, metadata
from tests.scenarios.stage import Stage
from tests.services.tables.test_lag import NOW, Make, _forgetful, at, delta, look, make, write_batch
from tests.storage.delta_checkpoints import write_checkpoint
from tests.web.browserless import Page

__all__ = ["_forgetful", "make"]

pytestmark = pytest.mark.django_db

SKIPS = {"skipChangeCommits": "true"}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    shutil.copytree(WITHOUT_CHECKSUMS, tmp_path / "t" / LOG)
    return tmp_path / "t"


def source(table: Path, **options: str) -> dict[str, Any]:
    named = delta(table)
    return named | {"options": named["options"] | options}


def offset(version: int, index: int, *, initial: bool = False, of: str = UNCHECKED) -> Any:
    return at(version, index, of) | {"isStartingVersion": initial}


@pytest.fixture
def line(make: Make, stage: Stage, table: Path) -> Any:
    """Return the line of a query that reads the table, after a look."""

    def made(*offsets: Any, **options: str) -> TableLine:
        query = make("delays", *offsets, sources=[source(table, **options)])
        look(stage)
        (found,) = lag_of(query, now=NOW).tables
        return found

    return made


def numbers(line: TableLine) -> tuple[int | None, int | None, int | None]:
    return line.lag.versions, line.lag.files, line.lag.bytes


@pytest.mark.parametrize("place", [(1, -1), (0, 0)])
def test_versions_that_change_rows_are_skipped_or_stop_the_query(
    line: Any, place: tuple[int, int]
) -> None:
    found = line(offset(*place), **SKIPS)
    assert (numbers(found), found.row.error) == ((4, 2, 1910), "")
    assert found.row.committed == 1
    assert found.lag.clock is not None


def test_where_the_query_will_fail_is_shown(
    line: Any, client: Client, viewer: User, stage: Stage
) -> None:
    found = line(offset(1, -1))
    assert numbers(found) == (4, None, None)
    assert found.lag.problem == ""  # nothing is lost
    client.force_login(viewer)
    told = "ersion 2 changes rows of the table. The query will fail there"
    assert told in Page(client, "/queries/delays/lag/").text
    (rest,) = client.get("/api/v1/queries/delays/lag/").json()["tables"]
    assert told in rest["error"]
    assert (rest["versions"], rest["files"], rest["bytes"]) == (4, None, None)


def test_in_the_first_reading_later_versions_are_still_to_come(line: Any) -> None:
    found = line(offset(0, 0, initial=True), **SKIPS)
    assert (found.row.committed, *numbers(found)) == (0, 5, 2, None)
    assert "as of version 0 for the first time" in found.row.error


@pytest.mark.parametrize("version", [0, 1, 5, 70])
def test_another_tables_id_is_a_loss_at_any_version(line: Any, version: int) -> None:
    found = line(offset(version, -1, of="another"))
    assert numbers(found) == (None, None, None)
    assert found.lag.problem.startswith("the table was dropped and created again")
    assert found.lag.clock is None


def test_of_two_tables_the_one_that_was_created_again_is_known(
    make: Make, stage: Stage, table: Path, tmp_path: Path
) -> None:
    shutil.copytree(table, tmp_path / "u")
    first = tmp_path / "u" / LOG / f"{0:020}.json"
    first.write_text(first.read_text().replace(UNCHECKED, "new"))
    sources = [source(table, **SKIPS), source(tmp_path / "u", **SKIPS)]
    query = make("delays", offset(1, -1), offset(9, -1, of="old"), sources=sources)
    look(stage)
    kept, replaced = lag_of(query, now=NOW).tables
    assert numbers(kept) == (4, 2, 1910)
    assert replaced.lag.problem.startswith("the table was dropped and created again")


def test_before_the_first_batch_the_files_of_the_first_reading_are_known(line: Any) -> None:
    found = line()
    assert numbers(found) == (None, 2, 1850)
    assert found.row.error.endswith(
        "As of version 4, the first reading takes 2 files with 1,850 bytes."
    )
    assert found.row.query_id not in lag_lines([found.row.query_id], now=NOW)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingVersion": "1"}, (4, 2, 1910)),
        ({"startingVersion": "latest"}, (None, None, None)),
        ({"startingTimestamp": "2026-11-01"}, (None, None, None)),
    ],
)
def test_a_source_without_an_offset_begins_where_its_options_say(
    line: Any, options: dict[str, str], expected: Any
) -> None:
    assert numbers(line(**SKIPS, **options)) == expected


def test_a_checkpoint_that_cannot_be_read_is_not_one_without_a_batch(
    make: Make, stage: Stage, table: Path, tmp_path: Path
) -> None:
    query = make("delays", sources=[source(table)])
    write_batch(tmp_path / "checkpoints" / "delays", 3, offset(1, -1))
    (tmp_path / "checkpoints" / "delays" / "offsets" / "3").write_text("v1\n{half")
    look(stage)
    (found,) = lag_of(query, now=NOW).tables
    assert numbers(found) == (None, None, None)
    assert found.row.error == "The offsets of batch 3 cannot be read."


def test_of_a_table_that_is_read_twice_with_different_options_changes_are_unknown(
    make: Make, stage: Stage, table: Path
) -> None:
    sources = [source(table), source(table, **SKIPS)]
    query = make("delays", offset(1, -1), offset(1, -1), sources=sources)
    look(stage)
    (found,) = lag_of(query, now=NOW).tables
    assert (*numbers(found), found.row.error) == (4, None, None, "")


@pytest.fixture
def begun_late(table: Path) -> None:
    """The log begins with the checkpoint of version 4."""
    log = table / LOG
    about = {"metaData": metadata() | {"id": UNCHECKED}}
    live = [{"add": {"path": path, "size": size}} for path, size in (("c", 890), ("d", 960))]
    write_checkpoint(log / f"{4:020}.checkpoint.parquet", about, *live)
    (log / "_last_checkpoint").write_text('{"version":4,"size":3}')
    for version in range(4):
        (log / f"{version:020}.json").unlink()


@pytest.mark.usefixtures("begun_late")
def test_a_log_that_begins_with_a_checkpoint_is_read(line: Any) -> None:
    assert numbers(line()) == (None, 2, 1850)


@pytest.mark.usefixtures("begun_late")
def test_versions_before_the_checkpoint_are_gone(line: Any) -> None:
    lost = line(offset(2, -1))
    assert "versions 2 to 3 were removed from the table's log" in lost.lag.problem


@pytest.mark.guarantee("G-LOSS-3")
def test_a_table_whose_id_is_unknown_has_an_unknown_lag(line: Any, table: Path) -> None:
    (table / LOG / f"{0:020}.json").unlink()
    found = line(offset(3, -1))
    assert numbers(found) == (None, None, None)
    assert found.row.error == (
        "The table's ID is unknown, so the lag is, too: its log has no checkpoint, and its first "
        "commits were removed or are very many."
    )
