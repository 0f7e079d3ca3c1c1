"""A file sink's log on S3 and on HDFS follows a rewind, a clone and a reset of its query."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.conf import LazySettings

from queries.checkpoints.snapshot import CannotCopy
from queries.domain.errors import Invalid, NotAllowed
from queries.domain.states import OperationOutcome
from queries.models.definitions import Checkpoint
from queries.models.history import Operation
from queries.services.checkpoints import clone, preview, rewind_and_reset
from queries.services.checkpoints.remote import NotReadYet
from queries.services.checkpoints.source_starts import WantedStart
from queries.storage import remote_sink
from queries.storage.hadoop import HadoopStorage, StorageFailed
from queries.storage.remote_sink import RemoteSink
from tests.checkpoints.forms import names, tree, write_output
from tests.storage.bench import Bench, bench

pytestmark = pytest.mark.django_db

__all__ = ["bench"]


def part(batch: int) -> str:
    return f"part-{batch:05}-c000.json"


def asked(bench: Bench) -> dict[str, Any]:
    return {"query": bench.stage.row("delays"), "actor": "aude", "now": bench.stage.now}


def to_batch_6(bench: Bench) -> Operation:
    return rewind_and_reset.request_rewind(batch=6, **asked(bench))


def from_earliest(bench: Bench) -> Operation:
    return rewind_and_reset.request_reset(wish=WantedStart("earliest"), **asked(bench))


@pytest.fixture
def out(bench: Bench) -> str:
    return bench.store.place("out")


def sink_of(bench: Bench, place: str) -> RemoteSink:
    return RemoteSink(bench.jvm.storage, place, bench.jvm.socket.parent / "tmp")


# --- rewind -------------------------------------------------------------------------------


@pytest.mark.parametrize("local", [False, True], ids=["both-there", "checkpoint-here"])
def test_a_rewind_takes_the_log_and_the_files_back_and_deletes_nothing(
    bench: Bench, out: str, local: bool
) -> None:
    bench.define(sink=out, local=local)
    bench.jvm.storage.write(out, "part-99999-half.json", b"{}")  # of an interrupted batch
    before = tree(bench.folder_of(out))
    if not local:
        bench.read()  # the copy of the whole folder may have taken longer than a reading is fresh
    operation = to_batch_6(bench)
    bench.done(operation)
    after = tree(bench.folder_of(out))
    aside = f"_headgate/{operation.uuid}/"
    visible = {name for name in after if not name.startswith("_headgate/")}
    assert visible == {
        *(part(batch) for batch in range(7)),
        *(f"_spark_metadata/{batch}" for batch in range(7)),
    }
    for name, content in before.items():
        assert content in (after.get(name), after.get(f"{aside}{name}"))
    assert {name for name in before if name.startswith("_spark_metadata/")} == {
        name.removeprefix(aside) for name in after if name.startswith(f"{aside}_spark_metadata/")
    }
    assert operation.result["sink"] == {"batches": 3, "files": 4, "aside": f"{out}/{aside[:-1]}"}


def test_a_rewind_of_a_checkpoint_on_the_store_takes_a_local_log_back(
    bench: Bench, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    bench.define(sink=out.as_uri())
    for batch in range(10):
        write_output(out, batch)
    bench.done(to_batch_6(bench))
    assert {name for name in names(out) if name.startswith("part-")} == {
        part(batch) for batch in range(7)
    }


def test_batches_that_run_again_are_listed_anew(bench: Bench, out: str) -> None:
    bench.define(sink=out, local=True)
    bench.read_sink()
    bench.done(to_batch_6(bench))
    bench.write_files(out, range(7, 9))
    bench.read_sink()
    with sink_of(bench, out).copied_log() as log:
        assert log is not None
        assert set(log.entries()) == set(range(9))
    found = preview.preview_rewind(bench.stage.row("delays"), 5)
    assert found.sink[0].startswith("3 files of batch 6 are moved")


@pytest.mark.guarantee("G-STORE-1")
def test_a_log_that_is_compacted_over_the_batch_is_refused_before_the_query_stops(
    bench: Bench, out: str
) -> None:
    bench.define(sink=out, local=True)
    compact(bench, out)
    bench.stage.up("delays")
    operation = to_batch_6(bench)  # the log has not been read yet
    bench.work(operation)
    assert operation.outcome == OperationOutcome.FAILED
    assert f"{out}/_spark_metadata cannot be rolled back to batch 6" in operation.detail.text
    assert bench.stage.phase("delays") == "RUNNING"
    bench.read_sink()
    with pytest.raises(NotAllowed, match="entry 0 has been compacted away"):
        to_batch_6(bench)


def compact(bench: Bench, out: str) -> None:
    """Compact the log over its first batches, as Spark does."""
    log = f"{out}/_spark_metadata"
    found = bench.jvm.storage.read(log, [str(batch) for batch in range(10)], most=1000)
    lines = [found[str(batch)].data.decode().split("\n")[1] for batch in range(10)]
    bench.jvm.storage.write(log, "9.compact", "\n".join(["v1", *lines]).encode())
    for batch in range(10):
        bench.jvm.storage.delete(f"{log}/{batch}")


@pytest.mark.parametrize("ask", [to_batch_6, from_earliest])
def test_a_sink_that_cannot_be_reached_is_refused_before_the_query_stops(
    bench: Bench, ask: Callable[[Bench], Operation], settings: LazySettings
) -> None:
    settings.ALLOWED_PATHS = (*settings.ALLOWED_PATHS, "s3a://no-such-bucket")
    bench.define(store="delta", sink="s3a://no-such-bucket/out", local=True)
    bench.stage.up("delays")
    operation = ask(bench)
    bench.work(operation)
    assert operation.outcome == OperationOutcome.FAILED
    assert "s3a://no-such-bucket/out" in operation.detail.text
    assert "Check the storage, its keys and its address." in operation.detail.text
    assert bench.stage.phase("delays") == "RUNNING"
    assert bench.current == bench.location


def test_a_sink_whose_place_is_not_a_location_is_refused(bench: Bench) -> None:
    query = bench.define(store="delta", local=True)
    revision = query.revisions.get()
    revision.spec = {**revision.spec, "sink": {"format": "json", "options": {"path": "out"}}}
    revision.save()
    assert "whose log" in preview.preview_reset(query, WantedStart("earliest")).refusal
    for ask in (to_batch_6, from_earliest):
        with pytest.raises(NotAllowed, match=r"to out, whose log .* is not absolute"):
            ask(bench)


def test_a_sink_of_too_many_objects_is_rolled_back_and_says_what_was_left(
    bench: Bench, out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_sink, "MOST_LISTED", 5)
    bench.define(sink=out, local=True)
    operation = bench.work(to_batch_6(bench))
    assert operation.outcome == OperationOutcome.DONE
    assert "were not searched for" in operation.steps[3]["detail"]
    assert part(7) not in bench.files_in(out)


# --- preview ------------------------------------------------------------------------------


def test_a_preview_says_what_is_moved_and_what_that_costs(bench: Bench, out: str) -> None:
    query = bench.define(sink=out)
    with pytest.raises(NotReadYet, match="is being read"):
        preview.preview_rewind(query, 6)
    bench.read_sink()
    effect, cost = preview.preview_rewind(query, 6).sink
    assert effect.startswith(f"3 files of batches 7 to 9 are moved to {out}/_headgate")
    assert "each file (3 files, 0.0 MB) is copied within the store and then deleted" in cost
    assert "At the speed of the last move" not in cost
    bench.done(to_batch_6(bench))
    assert "At the speed of the last move" in preview._moving(out, 3, 0)[0]


def test_a_preview_of_a_stateful_reset_counts_every_file(bench: Bench, out: str) -> None:
    query = bench.define(store="delta", sink=out, local=True)
    bench.read_sink()
    effect, cost = preview.preview_reset(query, WantedStart("earliest")).sink
    assert f"Everything it has written to {out} is moved to {out}/_headgate" in effect
    assert "each file (10 files" in cost


def test_a_preview_of_a_stateless_reset_leaves_the_files(bench: Bench, out: str) -> None:
    query = bench.define(sink=out, local=True)
    (effect,) = preview.preview_reset(query, WantedStart("earliest")).sink
    assert effect.startswith(f"{out} keeps its files")


# --- reset --------------------------------------------------------------------------------


def test_a_stateful_reset_moves_the_whole_log_and_all_files_aside(bench: Bench, out: str) -> None:
    bench.define(store="delta", sink=out, local=True)
    bench.jvm.storage.write(out, "notes.txt", b"mine")
    operation = from_earliest(bench)
    bench.done(operation)
    found = tree(bench.folder_of(out))
    assert {name for name in found if not name.startswith("_headgate/")} == {"notes.txt"}
    aside = f"_headgate/{operation.uuid}"
    assert {f"{aside}/{part(3)}", f"{aside}/_spark_metadata/3"} <= found.keys()
    assert operation.result["sink"]["aside"] == f"{out}/{aside}"


def test_a_stateless_reset_leaves_the_sink_alone(bench: Bench, out: str) -> None:
    bench.define(sink=out, local=True)
    before = tree(bench.folder_of(out))
    bench.done(from_earliest(bench))
    assert tree(bench.folder_of(out)) == before


# --- clone --------------------------------------------------------------------------------


def test_a_clone_starts_the_log_of_its_own_sink_at_the_copys_batch(
    bench: Bench, out: str, settings: LazySettings, tmp_path: Path
) -> None:
    settings.CHECKPOINTS_DIR = tmp_path
    bench.define(sink=out, local=True)
    other = {"format": "json", "options": {"path": f"{out}-2"}}
    bench.done(clone.request_clone(name="late", sink=other, batch=6, **asked(bench)))
    assert Checkpoint.objects.filter(query__name="late").exists()
    assert bench.files_in(f"{out}-2") == [f"_spark_metadata/{batch}" for batch in range(7)]


def test_a_clone_does_not_write_where_the_original_does(bench: Bench, out: str) -> None:
    bench.define(sink=out, local=True)
    with pytest.raises(Invalid, match="destroy each other's log"):
        clone.request_clone(name="late", same_sink=True, **asked(bench))
    same = {"format": "json", "options": {"path": f"{out}/./"}}
    with pytest.raises(Invalid, match="destroy each other's log"):
        clone.request_clone(name="late", sink=same, **asked(bench))
    nowhere = {"format": "json", "options": {"path": "s3n://flights/out"}}
    with pytest.raises(Invalid, match="which Hadoop removed"):
        clone.request_clone(name="late", sink=nowhere, **asked(bench))


def test_a_seed_is_completed_and_any_other_log_is_left_alone(bench: Bench, out: str) -> None:
    sink = sink_of(bench, out)
    bench.jvm.storage.write(sink.log, "9.compact", b"")  # of a worker that died
    sink.seed(11)
    found = bench.jvm.storage.read(sink.log, ["9.compact", "10", "11"], most=10)
    assert [content.data for content in found.values()] == [b"v1"] * 3
    sink.seed(200)
    assert bench.files_in(sink.log) == ["10", "11", "9.compact"]


# --- crashes ------------------------------------------------------------------------------


class Crash(BaseException):
    """The worker dies."""


@pytest.mark.guarantee("G-STORE-1")
@pytest.mark.parametrize("verb", ["put_back", "move_aside"])
@pytest.mark.parametrize("bench", [pytest.param("s3", marks=pytest.mark.s3)], indirect=True)
def test_a_worker_that_dies_at_any_call_loses_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """The effect of an interrupted and repeated change is that of a change without a crash."""

    def change(place: str) -> None:
        sink = sink_of(bench, place)
        if verb == "put_back":
            sink.put_back(1, "trial")
        else:
            sink.move_aside("trial")

    def outcome(place: str) -> set[str]:
        return set(bench.files_in(place)) - {"_headgate/trial/log.json"}

    def written() -> str:
        place = f"{bench.store.place('out')}-{uuid4().hex[:4]}"
        bench.write_files(place, range(4))
        return place

    plain = written()
    change(plain)
    wanted = outcome(plain)
    assert {f"_headgate/trial/_spark_metadata/{batch}" for batch in range(4)} <= wanted
    calls, dies_at = 0, 0

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == dies_at:
                raise Crash
            return real(*given, **named)

        return call

    for method in ("copy", "write", "delete", "move"):
        monkeypatch.setattr(HadoopStorage, method, counted(getattr(HadoopStorage, method)))
    for dies_at in range(1, 20):
        dies_at, at = 0, dies_at
        place = written()
        calls, dies_at = 0, at
        try:
            change(place)
        except Crash:
            dies_at = 0
            change(place)
        else:
            break
        finally:
            dies_at = 0
        assert outcome(place) == wanted, f"it died at call {at}"
    assert at > 5


def test_a_log_that_does_not_reach_the_batch_is_not_touched(bench: Bench, out: str) -> None:
    bench.write_files(out, range(10))
    compact(bench, out)
    before = set(bench.files_in(out))
    with pytest.raises(CannotCopy):
        sink_of(bench, out).put_back(6, "trial")
    assert before <= set(bench.files_in(out))
    bench.jvm.storage.write(f"{out}/_headgate/trial", "log.json", b"{}")
    with pytest.raises(StorageFailed, match=r"log\.json is damaged"):
        sink_of(bench, out).put_back(9, "trial")


def test_a_sink_that_was_never_written_has_nothing_to_take_back(bench: Bench, out: str) -> None:
    assert sink_of(bench, out).put_back(3, "trial").files == 0
    assert sink_of(bench, out).move_aside("trial").files == 0
    assert bench.files_in(out) == []
