"""How far a query is behind a table, and when what it needs can be removed."""

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from queries.domain.tables.lag import (
    Removal,
    RemovalDeadline,
    TableLag,
    clock_words,
    delta_lag,
    iceberg_lag,
    table_risk,
)
from queries.domain.tables.metadata import TableState, read_checksum, read_commit, read_metadata
from queries.domain.tables.replay import DeltaOffset, IcebergOffset
from tests.domain.tables.logs import TABLE, add, checksum, commit, iceberg, remove, snapshot

AT = datetime(2026, 11, 27, 1, 30, tzinfo=UTC)
NOW = datetime(2026, 11, 27, 12, 0, tzinfo=UTC)
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)


def delta(offset: DeltaOffset, *texts: bytes, first: int = 0, **more: Any) -> TableLag:
    """Return the lag behind a table with these commits, the first of which has a number."""
    commits = {first + i: read_commit(first + i, text) for i, text in enumerate(texts)}
    latest = first + len(texts) - 1
    state = more.pop("state", None) or read_checksum(latest, checksum())
    return delta_lag(offset, latest=latest, commits=commits, state=state, **more)


def at(version: int, index: int = -1, **more: Any) -> DeltaOffset:
    return DeltaOffset(TABLE, version, index, **more)


def test_what_is_read_up_to_the_newest_version_is_not_behind() -> None:
    found = delta(at(2), commit(AT, add("a")), commit(AT, add("b")))
    assert found == TableLag(next=2, latest=2, versions=0, files=0, bytes=0)


def test_the_lag_is_counted_in_versions_files_and_bytes() -> None:
    found = delta(
        at(1),
        commit(AT, add("a", 1)),
        commit(AT + MINUTE, add("b", 20), add("c", 300)),
        commit(AT + 2 * MINUTE, add("d", 4000)),
    )
    assert (found.next, found.latest, found.versions) == (1, 3, 2)
    assert (found.files, found.bytes, found.unread_at) == (3, 4320, AT + MINUTE)


def test_of_a_version_that_is_partly_read_the_rest_counts() -> None:
    text = commit(AT, add("a", 1), add("b", 20), add("c", 300))
    assert delta(at(0, 0), text).bytes == 320
    assert delta(at(0, 0), text).files == 2
    done = delta(at(0, 2), text)
    assert (done.versions, done.files, done.next) == (0, 0, 1)


def test_what_cannot_be_read_is_unknown_and_not_0() -> None:
    found = delta(at(0), commit(AT, add("a")) + b"{half", commit(AT, add("b")))
    assert (found.versions, found.files, found.bytes) == (2, None, None)
    missing = delta_lag(at(4), latest=9, commits={}, state=TableState(9), written={4: AT})
    assert (missing.versions, missing.files, missing.unread_at) == (6, None, AT)
    assert delta(at(0), commit(AT, {"add": {"path": "a"}})).bytes is None
    rotten = delta(at(0, 0), commit(AT, add("a")) + b"{half")
    assert (rotten.next, rotten.files) == (0, None)


def test_the_first_read_of_a_table_counts_the_files_of_its_version() -> None:
    initial = read_checksum(1, checksum(files=10, size=5000))
    texts = (commit(AT), commit(AT), commit(AT, add("a", 7)))
    begun = delta(at(1, 3, initial=True), *texts, initial=initial)
    assert (begun.versions, begun.files, begun.bytes) == (2, 7, None)
    fresh = delta(at(1, -1, initial=True), *texts, initial=initial)
    assert (fresh.files, fresh.bytes) == (11, 5007)
    unknown = delta(at(1, -1, initial=True), *texts)
    assert (unknown.versions, unknown.files, unknown.bytes) == (2, None, None)


def test_another_table_at_the_same_place_is_named() -> None:
    found = delta(DeltaOffset("another", 0, -1), commit(AT, add("a")))
    assert "dropped and created again" in found.problem
    assert found.versions is None


def test_a_log_that_ends_before_the_offset_is_named() -> None:
    found = delta(at(1203), commit(AT, add("a")))
    assert found.problem.startswith("the query has read up to version 1,203, but the table's log")


def test_versions_removed_before_they_were_read_are_named() -> None:
    found = delta(at(3), commit(AT, add("a")), first=5, earliest=5)
    assert found.problem.startswith("versions 3 to 4 were removed from the table's log")
    assert (found.next, found.earliest, found.latest, found.versions) == (3, 5, 6, 3)


def test_a_commit_can_go_at_the_first_day_that_is_older_than_the_retention() -> None:
    conf = {"delta.logRetentionDuration": "interval 2 days"}
    state = read_checksum(0, checksum(**conf))
    found = delta(at(0), commit(AT, add("a")), state=state).clock
    assert found == RemovalDeadline(datetime(2026, 11, 30, tzinfo=UTC), AT, Removal.LOG, 0)
    midnight = datetime(2026, 11, 27, tzinfo=UTC)
    found = delta(at(0), commit(AT, add("a")), state=state, written={0: midnight}).clock
    assert found == RemovalDeadline(datetime(2026, 11, 29, tzinfo=UTC), midnight, Removal.LOG, 0)


def test_nothing_is_said_of_a_log_that_is_not_cleaned_up_or_not_known() -> None:
    kept = read_checksum(0, checksum(**{"delta.enableExpiredLogCleanup": "false"}))
    assert delta(at(0), commit(AT, add("a")), state=kept).clock is None
    assert delta(at(0), commit(AT, add("a")), state=TableState(0)).clock is None
    assert delta_lag(at(0), latest=3, commits={}, state=kept).clock is None
    endless = {"delta.logRetentionDuration": "interval 999999999 days"}
    state = read_checksum(0, checksum(**endless))
    assert delta(at(0), commit(AT, add("a")), state=state).clock is None


def test_a_file_that_a_later_version_removed_can_be_vacuumed() -> None:
    found = delta(
        at(1),
        commit(AT, add("old")),
        commit(AT, add("a")),
        commit(AT, add("b")),
        commit(AT + MINUTE, remove("old", AT), remove("b", AT + MINUTE), add("c", change=False)),
    ).clock
    assert found == RemovalDeadline(AT + MINUTE + 7 * DAY, AT + MINUTE, Removal.VACUUM, 2)


def test_a_file_that_is_read_already_may_be_vacuumed() -> None:
    found = delta(
        at(0, 0),
        commit(AT, add("a"), add("b")),
        commit(AT, remove("a", AT)),
    ).clock
    assert found is not None
    assert found.removal is Removal.LOG


def test_while_the_table_is_read_the_first_time_any_of_its_files_is_needed() -> None:
    found = delta(
        at(1, 4, initial=True),
        commit(AT, add("a")),
        commit(AT, remove("z", AT)),
        commit(AT, remove("a", AT)),
    ).clock
    assert found == RemovalDeadline(AT + 7 * DAY, AT, Removal.VACUUM, 1)


def test_a_removal_without_a_time_is_not_guessed() -> None:
    bare = {"remove": {"path": "part-a.snappy.parquet", "dataChange": True}}
    found = delta(at(0), commit(AT, add("a")), commit(AT, bare)).clock
    assert found is not None
    assert found.removal is Removal.LOG


@given(
    st.lists(st.lists(st.integers(0, 10**6), max_size=4), min_size=1, max_size=6),
    st.data(),
)
def test_read_and_unread_files_are_all_files_of_a_delta_table(
    sizes: list[list[int]], data: st.DataObject
) -> None:
    texts = [
        commit(AT, *(add(f"{version}-{i}", size) for i, size in enumerate(row)))
        for version, row in enumerate(sizes)
    ]
    version = data.draw(st.integers(0, len(sizes)))
    most = len(sizes[version]) - 1 if version < len(sizes) else -1
    index = data.draw(st.integers(-1, most))
    found = delta(at(version, index), *texts)
    left = sizes[version][index + 1 :] if version < len(sizes) else []
    rest = left + [size for row in sizes[version + 1 :] for size in row]
    assert (found.files, found.bytes) == (len(rest), sum(rest))


# --- Iceberg ------------------------------------------------------------------------------


def table(*snapshots: Any, **properties: str) -> Any:
    return read_metadata(iceberg(*snapshots, **properties))


def ice(number: int, position: int = 0, **more: Any) -> IcebergOffset:
    return IcebergOffset(number * 1_000_003, position, **more)


def test_an_iceberg_lag_is_counted_in_snapshots_files_and_bytes() -> None:
    rows = [snapshot(n, AT + n * MINUTE, files=2, size=1000 * n) for n in (1, 2, 3)]
    whole = iceberg_lag(ice(1), table(*rows))
    assert (whole.next, whole.latest, whole.earliest, whole.versions) == (1, 4, 1, 3)
    assert (whole.files, whole.bytes, whole.unread_at) == (6, 6000, AT + MINUTE)
    part = iceberg_lag(ice(2, 1), table(*rows))
    assert (part.next, part.versions, part.files, part.bytes) == (2, 2, 3, None)
    done = iceberg_lag(ice(2, 2), table(*rows))
    assert (done.next, done.versions, done.files, done.bytes) == (3, 1, 2, 3000)
    none = iceberg_lag(ice(3, 2), table(*rows))
    assert (none.next, none.versions, none.files, none.unread_at) == (4, 0, 0, None)


def test_a_source_that_has_read_nothing_is_behind_the_whole_table() -> None:
    rows = [snapshot(n, AT) for n in (1, 2)]
    assert iceberg_lag(IcebergOffset(None), table(*rows)).versions == 2
    empty = iceberg_lag(IcebergOffset(None), table())
    assert (empty.next, empty.latest, empty.earliest, empty.versions) == (1, 1, None, 0)


def test_snapshots_that_a_source_passes_over_have_no_files_to_read() -> None:
    rows = [snapshot(1, AT), snapshot(2, AT, operation="replace"), snapshot(3, AT)]
    found = iceberg_lag(ice(1, 1), table(*rows))
    assert (found.versions, found.files, found.bytes) == (2, 1, 1000)
    assert iceberg_lag(ice(2), table(*rows)).versions == 1


def test_the_first_read_of_an_iceberg_table_counts_all_its_files() -> None:
    rows = [snapshot(1, AT), snapshot(2, AT)]
    found = iceberg_lag(ice(2, 0, initial=True), table(*rows))
    assert (found.versions, found.files, found.bytes) == (1, 2, None)
    bare = snapshot(2, AT, summary={"operation": "append"})
    assert iceberg_lag(ice(2, 0, initial=True), table(snapshot(1, AT), bare)).files is None


def test_tables_without_sequence_numbers_are_counted_by_place() -> None:
    rows = [snapshot(n, AT, **{"sequence-number": 0}) for n in (1, 2, 3)]
    found = iceberg_lag(ice(2, 1), table(*rows))
    assert (found.next, found.latest, found.versions) == (3, 4, 1)


def test_an_expired_snapshot_is_named() -> None:
    found = iceberg_lag(ice(1), table(snapshot(2, AT), snapshot(3, AT)))
    assert found.problem.startswith("snapshot 1000003, from which the query continues, has expired")
    assert found.versions is None


def test_a_damaged_snapshot_is_unknown_lag_and_not_an_expired_one() -> None:
    rows = [{"snapshot-id": "x"}, snapshot(2, AT), snapshot(3, AT)]
    lost = iceberg_lag(ice(1), table(*rows))
    assert "cannot be read" in lost.problem
    found = iceberg_lag(ice(2), table(*rows))
    assert (found.versions, found.files, found.bytes) == (None, None, None)


def test_a_snapshot_can_expire_by_its_age_unless_it_is_one_of_the_newest() -> None:
    rows = [snapshot(n, AT + n * MINUTE) for n in (1, 2, 3)]
    found = iceberg_lag(ice(2, 1), table(*rows)).clock
    assert found == RemovalDeadline(AT + 2 * MINUTE + 5 * DAY, AT + 2 * MINUTE, Removal.EXPIRE, 2)
    assert iceberg_lag(ice(3, 1), table(*rows)).clock is None
    first = iceberg_lag(IcebergOffset(None), table(*rows)).clock
    assert first is not None
    assert first.version == 1
    kept = {"history.expire.min-snapshots-to-keep": "2"}
    assert iceberg_lag(ice(2, 1), table(*rows, **kept)).clock is None
    never = {"history.expire.max-snapshot-age-ms": str(2**63 - 1)}
    assert iceberg_lag(ice(2, 1), table(*rows, **never)).clock is None


# --- offsets of real batches --------------------------------------------------------------

#: Files in the versions 1, 2 and 3, of which each batch reads two at most. After each of six
#: batches, so many are left.
FILES, LEFT = {1: 5, 2: 3, 3: 3}, [9, 7, 6, 4, 2, 0]


def test_each_batch_of_delta_leaves_as_many_files_as_it_has_not_read() -> None:
    """The offsets are those of Delta 4.4.0 with maxFilesPerTrigger=2."""
    texts = [commit(AT)]
    texts += [commit(AT, *(add(f"{v}-{i}") for i in range(n))) for v, n in FILES.items()]
    initial = read_checksum(1, checksum(files=5))
    offsets = [
        at(1, 1, initial=True),
        at(1, 3, initial=True),
        at(2, -1),
        at(2, 1),
        at(3, 0),
        at(4, -1),
    ]
    assert [delta(one, *texts, initial=initial).files for one in offsets] == LEFT


def test_each_batch_of_iceberg_leaves_as_many_files_as_it_has_not_read() -> None:
    """The offsets are those of Iceberg 1.11.0 with streaming-max-files-per-micro-batch=2."""
    known = table(*(snapshot(number, AT, files=files) for number, files in FILES.items()))
    offsets = [ice(1, 2), ice(1, 4), ice(1, 5), ice(2, 2), ice(3, 1), ice(3, 3)]
    assert [iceberg_lag(one, known).files for one in offsets] == LEFT


# --- in words -----------------------------------------------------------------------------


def test_a_clock_says_what_goes_when_and_what_it_waits_for() -> None:
    at_ = NOW + timedelta(hours=3)
    assert clock_words(RemovalDeadline(at_, AT, Removal.LOG, 1120), now=NOW) == (
        "In 3 h, the commit of version 1,120 can be removed from the table's log at the next "
        "checkpoint of the log (delta.logRetentionDuration)."
    )
    assert clock_words(RemovalDeadline(NOW, AT, Removal.VACUUM, 7), now=NOW) == (
        "From now on, files of version 7, which a later version removed, can be deleted if "
        "someone runs VACUUM (delta.deletedFileRetentionDuration)."
    )
    assert "if someone runs expire_snapshots" in clock_words(
        RemovalDeadline(at_, AT, Removal.EXPIRE, 7), now=NOW
    )


def risk_of(lag: TableLag, **more: Any) -> str | None:
    found = table_risk([("flights", lag)], **{"running": False, "within": DAY, **more}, now=NOW)
    return found.sentence if found else None


def test_a_query_is_at_risk_when_something_can_go_soon() -> None:
    soon = TableLag(clock=RemovalDeadline(NOW + timedelta(hours=3), AT, Removal.LOG, 5))
    assert (risk_of(soon) or "").startswith("flights: In 3 h, the commit of version 5")
    assert risk_of(soon, within=MINUTE) is None
    assert risk_of(TableLag()) is None


def test_a_running_query_is_at_risk_only_after_half_the_time() -> None:
    soon = RemovalDeadline(NOW + timedelta(hours=3), NOW - timedelta(hours=1), Removal.LOG, 5)
    assert risk_of(TableLag(clock=soon), running=True) is None
    late = RemovalDeadline(NOW + timedelta(hours=3), NOW - timedelta(hours=4), Removal.LOG, 5)
    assert risk_of(TableLag(clock=late), running=True) is not None
    at_once = RemovalDeadline(NOW, NOW, Removal.LOG, 5)
    assert risk_of(TableLag(clock=at_once), running=True) is not None


def test_what_is_lost_goes_before_what_will_be() -> None:
    assert risk_of(TableLag(problem="it is gone.")) == "flights: it is gone."


def test_a_time_beyond_the_calendar_is_never() -> None:
    rows = [snapshot(n, datetime(9999, 12, 30, tzinfo=UTC)) for n in (1, 2)]
    assert iceberg_lag(ice(1, 1), table(*rows)).clock is None
