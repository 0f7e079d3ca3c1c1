"""The lag behind a table whose writer leaves no checksums; versions 2 and 3 change rows."""

from datetime import UTC, datetime, timedelta

import pytest

from queries.domain.tables.lag import Removal, RemovalDeadline, TableLag, delta_lag, first_lag
from queries.domain.tables.metadata import NEW, TableState, read_commit, replayed
from queries.domain.tables.places import Changes
from queries.domain.tables.replay import DeltaOffset
from tests.domain.tables.logs import UNCHECKED, WITHOUT_CHECKSUMS

COMMITS = {
    version: read_commit(version, file.read_bytes())
    for version, file in enumerate(sorted(WITHOUT_CHECKSUMS.glob("*.json")))
}
STATE = replayed(NEW, COMMITS.values())
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
BEGAN = datetime(2026, 11, 18, 11, 6, 40, tzinfo=UTC)  # version 0; each next one a minute later


def lag(
    offset: tuple[int, int, bool], changes: Changes = Changes.SKIP, table: str = UNCHECKED
) -> TableLag:
    version, index, initial = offset
    return delta_lag(
        DeltaOffset(table, version, index, initial),
        latest=4,
        commits=COMMITS,
        state=STATE,
        initial=replayed(NEW, (COMMITS[one] for one in range(min(version, 4) + 1))),
        changes=changes,
    )


#: Two offsets for the same place: after version 0.
AFTER_0 = [(1, -1, False), (0, 0, False)]


def test_the_tables_id_its_files_and_its_clock_are_in_its_commits() -> None:
    assert (STATE.table, STATE.files, STATE.bytes) == (UNCHECKED, 2, 890 + 960)
    assert STATE.live == {"c.parquet": 890, "d.parquet": 960}
    assert (STATE.log_retention, STATE.file_retention) == (30 * DAY, 7 * DAY)
    found = lag((4, -1, False))
    day = datetime(2026, 11, 19, tzinfo=UTC)
    assert found.clock == RemovalDeadline(day + 30 * DAY, BEGAN + 4 * MINUTE, Removal.LOG, 4)


@pytest.mark.parametrize("offset", AFTER_0)
def test_with_skip_change_commits_only_appended_files_are_unread(
    offset: tuple[int, int, bool],
) -> None:
    found = lag(offset)
    assert (found.next, found.latest, found.versions) == (1, 5, 4)
    assert (found.files, found.bytes, found.note) == (2, 950 + 960, "")
    assert found.unread_at == BEGAN + MINUTE
    # b, which version 3 removed
    assert found.clock == RemovalDeadline(
        BEGAN + 3 * MINUTE + 7 * DAY, BEGAN + 3 * MINUTE, Removal.VACUUM, 1
    )


@pytest.mark.parametrize("offset", AFTER_0)
def test_without_it_the_query_fails_at_the_first_version_that_changes_rows(
    offset: tuple[int, int, bool],
) -> None:
    found = lag(offset, Changes.FAIL)
    assert (found.next, found.versions, found.files, found.bytes) == (1, 4, None, None)
    assert found.note == (
        "version 2 changes rows of the table. The query will fail there, because its source does "
        "not set skipChangeCommits. How many files it will read is therefore unknown."
    )
    assert found.problem == ""  # it can continue from its offset


@pytest.mark.parametrize(
    ("changes", "begin", "files", "fails"),
    [
        (Changes.PASS_DELETES, 1, None, "version 2 changes rows"),
        (Changes.PASS_DELETES, 3, 1, ""),
        (Changes.FAIL, 3, None, "version 3 deletes rows"),
        (Changes.FAIL, 4, 1, ""),
        (Changes.READ, 1, 3, ""),
        (Changes.UNKNOWN, 1, None, ""),
        (Changes.UNKNOWN, 4, 1, ""),
        (Changes.SKIP, 2, 1, ""),
    ],
)
def test_what_counts_follows_from_the_sources_options(
    changes: Changes, begin: int, files: int | None, fails: str
) -> None:
    found = lag((begin, -1, False), changes)
    assert (found.versions, found.files) == (5 - begin, files)
    assert found.note.startswith(fails)
    assert bool(found.note) is bool(fails)


def test_in_the_first_reading_the_later_versions_are_still_to_come() -> None:
    found = lag((0, 0, True))
    assert (found.next, found.versions, found.files) == (0, 5, 2)
    assert found.note == (
        "the query is reading the table as of version 0 for the first time; later versions follow."
    )
    assert "version 2 changes rows" in lag((0, 0, True), Changes.FAIL).note


@pytest.mark.guarantee("G-LOSS-3")
@pytest.mark.parametrize("version", [0, 1, 4, 5, 1000])
@pytest.mark.parametrize("initial", [True, False])
def test_another_tables_id_is_another_table_at_any_version(version: int, initial: bool) -> None:
    found = lag((version, -1, initial), table="another")
    assert found.problem.startswith("the table was dropped and created again")
    assert found == TableLag(latest=5, problem=found.problem)


def test_before_the_first_batch_the_first_reading_takes_the_live_files() -> None:
    found = first_lag(STATE)
    assert (found.versions, found.files, found.bytes) == (None, 2, 1850)
    assert found.note == (
        "No batch has committed yet, so the lag is unknown. As of version 4, the first reading "
        "takes 2 files with 1,850 bytes."
    )
    assert first_lag(TableState(4, UNCHECKED, files=1)).note.endswith("takes 1 file.")
    unknown = first_lag(TableState(4, UNCHECKED))
    assert (unknown.files, unknown.bytes) == (None, None)
    assert unknown.note == "No batch has committed yet, so the lag is unknown."
