"""Snapshot, clone, rewind, reset and copies for probes: of a checkpoint on S3 and on HDFS."""

import json
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from queries.checkpoints import batches
from queries.checkpoints.snapshot import CannotCopy
from queries.domain.errors import NotAllowed
from queries.domain.states import OperationOutcome
from queries.models.checkpoints import Snapshot
from queries.models.definitions import Checkpoint
from queries.selectors.hosts import mirror_of
from queries.services.checkpoints import clone, preview, remote, rewind_and_reset, snapshot
from queries.services.checkpoints.source_starts import WantedStart
from queries.services.probes.inspections import begin_xray
from queries.services.procedures.engine import StepContext
from queries.storage import remote_checkpoint
from queries.storage.hadoop import CopyDone, HadoopStorage
from tests.checkpoints.forms import names, tree, write_batch
from tests.storage.bench import Bench, bench

pytestmark = pytest.mark.django_db

__all__ = ["bench"]


def test_a_snapshot_is_kept_beside_the_original_in_the_bucket(bench: Bench) -> None:
    query = bench.define(store="delta")
    before = tree(bench.root)
    bench.read()  # the copy of the whole folder may have taken longer than a reading is fresh
    bench.done(snapshot.request_snapshot(query=query, actor="otto", now=bench.stage.now))
    row = Snapshot.objects.get()
    place = bench.folder_of(row.location)
    name = bench.location.rpartition("/")[2]
    assert f"/.headgate/{name}.snapshots/" in row.location
    assert (row.batch, names(place / "commits")) == (9, set("0123456789"))
    assert row.bytes == sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
    assert tree(bench.root) == before


def test_a_removed_snapshots_objects_are_deleted_by_the_worker(bench: Bench) -> None:
    query = bench.define()
    bench.done(snapshot.request_snapshot(query=query, actor="otto", now=bench.stage.now))
    row = Snapshot.objects.get()
    snapshot.remove_snapshot(row, now=bench.stage.now)
    assert bench.there(row.location)
    snapshot.prune(launcher=bench.stage.launcher, now=bench.stage.now)
    parent, _, name = bench.location.rpartition("/")
    assert not bench.there(f"{parent}/.headgate/{name}.snapshots")


@pytest.mark.promise
@pytest.mark.parametrize("store", ["", "delta", "zip", "v2"])
def test_a_rewind_builds_a_new_place_in_the_bucket(bench: Bench, store: str) -> None:
    query = bench.define(store=store)
    before = tree(bench.root)
    bench.read()  # the copy of the whole folder may have taken longer than a reading is fresh
    bench.done(
        rewind_and_reset.request_rewind(query=query, batch=6, actor="aude", now=bench.stage.now)
    )
    assert bench.current != bench.location
    assert max(map(int, names(bench.new / "commits"))) == 6
    assert max(map(int, names(bench.new / "offsets"))) == 6
    assert tree(bench.root) == before


def test_a_snapshot_in_the_bucket_is_read_once_for_a_rewind_or_a_clone_from_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(remote, "read_snapshot_soon", asked.append)
    query = bench.define()
    bench.done(snapshot.request_snapshot(query=query, batch=6, actor="otto", now=bench.stage.now))
    row = Snapshot.objects.get()
    bench.read()
    assert "is being read" in preview.preview_rewind(query, 6).refusal
    assert "is being read" in preview.preview_rewind(query, 6).refusal
    assert asked == [row.pk]
    assert not remote.read_snapshot(row.pk, launcher=bench.stage.launcher, now=timezone.now())
    assert preview.preview_rewind(query, 6).refusal == ""
    bench.done(
        rewind_and_reset.request_rewind(query=query, batch=6, actor="aude", now=bench.stage.now)
    )
    assert max(map(int, names(bench.new / "commits"))) == 6
    snapshot.remove_snapshot(row, now=bench.stage.now)
    with pytest.raises(NotAllowed, match="No checkpoint or snapshot"):
        remote.readable_logs(row.location)


def test_a_copys_batches_keep_the_times_of_their_commits(bench: Bench) -> None:
    query = bench.define()
    old = mirror_of(bench.location).checkpoint / "commits" / "5"
    at = old.stat().st_mtime
    bench.done(
        rewind_and_reset.request_rewind(query=query, batch=6, actor="aude", now=bench.stage.now)
    )
    bench.read()
    current = Checkpoint.objects.get(query=query, retired_at=None)
    copied = mirror_of(current.location).checkpoint / "commits" / "5"
    assert copied.stat().st_mtime == pytest.approx(at, abs=1)


def test_a_batch_that_is_gone_is_refused_in_words_about_the_bucket(bench: Bench) -> None:
    query = bench.define()
    operation = rewind_and_reset.request_rewind(
        query=query, batch=6, actor="aude", now=bench.stage.now
    )
    bench.jvm.storage.delete(f"{bench.location}/offsets/6")
    bench.work(operation)
    assert operation.outcome == OperationOutcome.FAILED
    assert bench.location in operation.detail.text
    assert "stage" not in operation.detail.text
    assert bench.current == bench.location


@pytest.mark.guarantee("G-STORE-1")
def test_a_file_that_disappears_during_a_copy_fails_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = bench.define(store="delta")
    operation = rewind_and_reset.request_rewind(
        query=query, batch=6, actor="aude", now=bench.stage.now
    )
    real = HadoopStorage.copy

    def purged(storage: HadoopStorage, place: str, names: Iterable[str], to: str) -> CopyDone:
        storage.delete(f"{place}/state/0/0/3.delta")
        return real(storage, place, names, to)

    monkeypatch.setattr(HadoopStorage, "copy", purged)
    bench.work(operation)
    assert operation.outcome == OperationOutcome.FAILED
    assert "state/0/0/3.delta" in operation.detail.text
    assert bench.current == bench.location


def test_what_an_attempt_left_is_not_in_the_copy_of_a_later_batch(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = bench.define(store="delta")
    operation = snapshot.request_snapshot(query=query, actor="otto", now=bench.stage.now)
    real, tried = HadoopStorage.copy, []

    def purged(storage: HadoopStorage, place: str, names: Iterable[str], to: str) -> CopyDone:
        done = real(storage, place, names, to)
        tried.append(to)
        if len(tried) > 1:
            return done
        storage.write(to, "offsets/left", b"")
        return CopyDone(done.files, done.bytes, ("commits/0",))

    monkeypatch.setattr(HadoopStorage, "copy", purged)
    bench.done(operation)
    assert len(tried) == 2
    monkeypatch.undo()
    place = bench.folder_of(Snapshot.objects.get().location)
    assert names(place / "offsets") == set("0123456789")


def test_a_clone_gets_an_id_of_its_own_and_a_place_beside(bench: Bench) -> None:
    query = bench.define()
    bench.done(
        clone.request_clone(
            query=query, name="late", same_sink=True, actor="aude", now=bench.stage.now
        )
    )
    location = Checkpoint.objects.get(query__name="late").location
    assert location == f"{bench.location.rpartition('/')[0]}/late"
    place, root = bench.folder_of(location), bench.root
    mine, its = (json.loads((at / "metadata").read_text())["id"] for at in (root, place))
    assert mine != its
    assert names(place / "offsets") == names(root / "offsets")


def test_a_reset_starts_elsewhere_and_keeps_the_batch_numbers(bench: Bench) -> None:
    query = bench.define()
    wish = WantedStart("earliest")
    bench.done(
        rewind_and_reset.request_reset(query=query, wish=wish, actor="aude", now=bench.stage.now)
    )
    assert names(bench.new / "commits") == {"9"}
    assert names(bench.new / "offsets") == {"8", "9"}


def test_a_rewind_is_previewed_from_the_mirror(bench: Bench) -> None:
    query = bench.define()
    found = preview.preview_rewind(query, 6)
    assert (found.refusal, found.newest, found.batches) == ("", 9, 3)


def test_an_x_ray_reads_a_whole_copy_on_this_host(bench: Bench) -> None:
    query = bench.define(store="zip")
    operation = bench.work(begin_xray(query=query, actor="aude", now=bench.stage.now))
    assert operation.steps[0]["state"] == "DONE", operation.steps[0]
    ((_, probe),) = [
        (key, each) for key, each in bench.stage.launcher.probes.items() if "x-ray" in each.task
    ]
    copy = Path(json.loads(probe.task)["checkpoint"].removeprefix("file://"))
    assert max(map(int, names(copy / "commits"))) == 9
    zips = list((copy / "state").rglob("*.zip"))
    assert zips
    assert all(path.read_bytes()[:2] == b"PK" for path in zips)


def test_a_mirror_follows_the_query_and_forgets_what_spark_purges(bench: Bench) -> None:
    bench.define(store="delta")
    mirror = mirror_of(bench.location)
    assert names(mirror.checkpoint / "commits") == set("0123456789")
    write_batch(bench.mine, 10)
    bench.upload()
    bench.jvm.storage.delete(f"{bench.location}/commits/0")
    bench.read()
    assert names(mirror.checkpoint / "commits") == {*"123456789", "10"}
    sizes = {path.name: path.stat().st_size for path in (bench.root / "state/0/0").glob("*.delta")}
    shown = mirror.checkpoint / "state/0/0"
    assert {path.name: path.stat().st_size for path in shown.glob("*.delta")} == sizes


def test_an_entry_that_is_too_large_is_unreadable_and_hides_no_other(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_checkpoint, "MOST_OF_ENTRY", 1000)
    monkeypatch.setattr(remote_checkpoint, "MOST_OF_PART", 300)  # several parts
    bench.define()
    write_batch(bench.mine, 10)
    (bench.mine / "offsets" / "10").write_text("v1\n" + "x" * 2000)
    bench.upload()
    bench.read()
    logs = remote.readable_logs(bench.location)
    found = {batch.number: batch.state for batch in batches.page(logs)}
    assert found == {**dict.fromkeys(range(10), "committed"), 10: "unreadable"}


@pytest.mark.guarantee("G-STORE-1")
def test_a_request_before_the_first_reading_is_asked_to_come_again(bench: Bench) -> None:
    query = bench.define()
    Checkpoint.objects.filter(query=query).update(location=bench.store.place("checkpoints/other"))
    with pytest.raises(NotAllowed) as refused:
        snapshot.request_snapshot(query=query, actor="otto", now=bench.stage.now)
    assert "is being read" in str(refused.value)


def test_a_storage_that_refuses_is_quoted(bench: Bench) -> None:
    query = bench.define()
    checkpoint = Checkpoint.objects.get(query=query)
    checkpoint.location = "s3a://no-such-bucket/checkpoints/delays"
    checkpoint.save()
    remote.read_checkpoint(checkpoint.pk, launcher=bench.stage.launcher, now=timezone.now())
    assert "no-such-bucket" in mirror_of(checkpoint.location).about().problem


def test_mirrors_that_nobody_looks_at_are_deleted_after_a_day(bench: Bench) -> None:
    query = bench.define()
    checkpoint = Checkpoint.objects.get(query=query)
    now = timezone.now()
    remote.read_if_old(checkpoint, now=now + timedelta(minutes=1))
    remote.prune(now=now + timedelta(hours=23))
    assert mirror_of(bench.location).about().read_at is not None
    remote.prune(now=now + timedelta(hours=25))
    assert mirror_of(bench.location).about().read_at is None


def test_a_worker_that_dies_in_a_copy_leaves_nothing_behind(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = bench.define()
    operation = snapshot.request_snapshot(query=query, actor="otto", now=bench.stage.now)
    context = StepContext(operation, query, bench.stage.launcher, bench.stage.now)
    with monkeypatch.context() as patch:
        patch.setattr(type(bench.jvm.storage), "write", _die)
        with pytest.raises(CannotCopy, match="died"):
            snapshot.PROCEDURE.steps[0].act(context)
    bench.done(operation)
    row = Snapshot.objects.get()
    assert names(bench.folder_of(row.location) / "commits") == set("0123456789")


def _die(*_: object) -> None:
    raise CannotCopy("died")
