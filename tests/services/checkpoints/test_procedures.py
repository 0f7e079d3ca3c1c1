"""Snapshot, clone, rewind and reset: on real files, with workers that die at every step."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import LazySettings
from django.utils import timezone

from queries.checkpoints.inside import Inside
from queries.domain.errors import Conflict, Forbidden, Invalid, NotAllowed
from queries.domain.hosts import Mode, choose
from queries.domain.kafka.topic_ids import GONE, Remembered, as_json, ids_of
from queries.domain.states import OperationOutcome, Reason, Verb
from queries.models.checkpoints import Snapshot
from queries.models.definitions import Checkpoint, Query
from queries.models.history import Operation, Transition
from queries.roles import AuthorRights
from queries.services.checkpoints import clone, preview, rewind_and_reset, snapshot
from queries.services.checkpoints.source_starts import WantedStart
from queries.services.procedures.engine import (
    Procedure,
    ProcedureStep,
    StepContext,
    advance,
    cancel,
    due_operations,
)
from queries.services.supervision import operations
from queries.tasks import PROCEDURES
from tests.checkpoints.forms import (
    names,
    put,
    tree,
    write_batch,
    write_checkpoint,
    write_output,
)
from tests.scenarios.stage import Stage

pytestmark = pytest.mark.django_db


class Crash(BaseException):
    """A worker dies: nothing may catch it."""


class Bench:
    """A query with a checkpoint on disk, driven by a worker that the test may kill."""

    def __init__(self, stage: Stage, folder: Path) -> None:
        self.stage = stage
        stage.now = timezone.now()  # the engine looks at the clock itself, at each step
        self.root = folder / "cps" / "delays"
        self.out = folder / "out"

    def define(self, *, store: str = "", batches: int = 10, sink: bool = False) -> Query:
        spec: dict[str, Any] = {
            "sources": [
                {
                    "name": "flights",
                    "format": "json",
                    "schema": "tail STRING, delay INT",
                    "options": {"path": f"{self.root}-in"},
                }
            ]
        }
        if sink:
            spec["sink"] = {"format": "json", "options": {"path": str(self.out)}}
            for batch in range(batches):
                write_output(self.out, batch)
        query = self.stage.query("delays", **spec)
        Checkpoint.objects.filter(query=query).update(location=f"file://{self.root}")
        write_checkpoint(self.root, batches=range(batches), store=store)
        return query

    def work(self, procedures: dict[Verb, Procedure] | None = None) -> None:
        """Let a worker take every step that can be taken, and supervision with it."""
        # Steps note the time of the clock on the wall, which a slow machine's story falls behind.
        self.stage.now = max(self.stage.now, timezone.now())
        for _ in range(6):
            for operation in due_operations(now=timezone.now()):
                advance(
                    operation,
                    procedures=procedures or PROCEDURES,
                    launcher=self.stage.launcher,
                    now=self.stage.now,
                )
            self.stage.wait(1)

    def recover(self) -> None:
        """A lease of a dead worker runs out."""
        Operation.objects.update(leased_until=None)

    @property
    def location(self) -> str:
        return Checkpoint.objects.get(query__name="delays", retired_at=None).location

    @property
    def place(self) -> Path:
        return Path(self.location.removeprefix("file://"))


@pytest.fixture
def bench(stage: Stage, tmp_path: Path) -> Bench:
    return Bench(stage, tmp_path)


def _done(operation: Operation) -> None:
    operation.refresh_from_db()
    assert (operation.outcome, operation.detail.text) == (OperationOutcome.DONE, "")


# --- snapshots ----------------------------------------------------------------------------


def test_a_snapshot_is_kept_beside_dated_and_sized(bench: Bench) -> None:
    query = bench.define(store="delta")
    before = tree(bench.root)
    operation = snapshot.request_snapshot(
        query=query, actor="otto", now=bench.stage.now, reason="before the release"
    )
    bench.work()
    _done(operation)
    row = Snapshot.objects.get()
    assert (row.batch, row.reason, row.pinned) == (9, "before the release", False)
    place = Path(row.location.removeprefix("file://"))
    assert place.parent == bench.root.parent / ".headgate" / "delays.snapshots"
    assert names(place / "commits") == set("0123456789")
    assert row.bytes == sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
    assert tree(bench.root) == before


def test_a_cancelled_snapshot_leaves_nothing(bench: Bench) -> None:
    query = bench.define()
    operation = snapshot.request_snapshot(query=query, actor="otto", now=bench.stage.now)
    cancel(operation, actor="otto", now=bench.stage.now)
    bench.work()
    assert not Snapshot.objects.exists()
    assert names(bench.root.parent) <= {"delays", ".headgate"}


def test_old_snapshots_are_pruned_and_pinned_ones_stay(
    bench: Bench, settings: LazySettings
) -> None:
    settings.SNAPSHOTS_KEPT = 2
    query = bench.define()
    for number in range(5):
        bench.stage.now += timedelta(minutes=1)
        snapshot.request_snapshot(query=query, actor="otto", now=bench.stage.now)
        bench.work()
        if number == 0:
            snapshot.pin(Snapshot.objects.get(), pinned=True)
    first, *_ = Snapshot.objects.order_by("taken_at")
    assert snapshot.prune(launcher=bench.stage.launcher, now=bench.stage.now) == 2
    left = Snapshot.objects.filter(removed_at=None)
    assert left.count() == 3
    assert first in left
    assert len(names(bench.root.parent / ".headgate" / "delays.snapshots")) == 3
    with pytest.raises(NotAllowed, match="protected"):
        snapshot.remove_snapshot(first, now=bench.stage.now)
    assert snapshot.prune(launcher=bench.stage.launcher, now=bench.stage.now) == 0


def test_a_snapshot_of_nothing_or_of_elsewhere_is_refused(bench: Bench) -> None:
    query = bench.define(batches=0)
    with pytest.raises(NotAllowed, match="not committed a batch yet"):
        snapshot.request_snapshot(query=query, actor="otto", now=bench.stage.now)
    Checkpoint.objects.filter(query=query).update(location="s3a://bucket/delays")
    with pytest.raises(NotAllowed, match="s3a://bucket/delays is being read"):
        snapshot.request_snapshot(query=query, actor="otto", now=bench.stage.now)


# --- rewind -------------------------------------------------------------------------------


def test_a_rewind_points_the_query_at_a_new_directory_and_keeps_the_old(bench: Bench) -> None:
    query = bench.define(store="zip")
    before = tree(bench.root)
    old = Checkpoint.objects.get(query=query)
    operation = rewind_and_reset.request_rewind(
        query=query, batch=6, actor="aude", now=bench.stage.now
    )
    bench.work()
    _done(operation)
    new = Checkpoint.objects.get(query=query, retired_at=None)
    old.refresh_from_db()
    assert (new.built_from, old.retired_at is not None) == (old, True)
    assert new.location == f"file://{bench.root}.r6-{operation.created_at:%Y%m%dT%H%M%S}"
    assert max(map(int, names(bench.place / "commits"))) == 6
    assert tree(bench.root) == before
    change = Transition.objects.get(subject="checkpoint")
    assert (change.before, change.detail.text, change.actor) == ("delays", "to batch 6", "aude")
    assert change.reason == Reason.REWOUND


def test_a_rewind_takes_a_kept_snapshot_of_the_batch_whatever_has_been_purged_since(
    bench: Bench,
) -> None:
    query = bench.define(store="zip")
    taken = snapshot.request_snapshot(query=query, actor="otto", now=bench.stage.now, batch=6)
    bench.work()
    _done(taken)
    for batch in range(7):
        for folder in ("offsets", "commits"):
            (bench.root / folder / str(batch)).unlink()
    put(bench.root / "state/0/_metadata/schema", "of a later revision")
    assert preview.preview_rewind(query, 6).refusal == ""
    operation = rewind_and_reset.request_rewind(
        query=query, batch=6, actor="aude", now=bench.stage.now
    )
    bench.work()
    _done(operation)
    assert max(map(int, names(bench.place / "commits"))) == 6
    schema = bench.place / "state/0/_metadata/schema"
    assert not schema.exists() or schema.read_text() != "of a later revision"


def test_a_second_rewinds_name_does_not_grow(bench: Bench) -> None:
    query = bench.define()
    rewind_and_reset.request_rewind(query=query, batch=6, actor="aude", now=bench.stage.now)
    bench.work()
    bench.stage.now += timedelta(minutes=1)
    rewind_and_reset.request_rewind(query=query, batch=3, actor="aude", now=bench.stage.now)
    bench.work()
    assert bench.location.startswith(f"file://{bench.root}.r3-2026")


def test_a_running_query_is_stopped_and_started_again(bench: Bench) -> None:
    bench.define()
    bench.stage.up("delays")
    operation = rewind_and_reset.request_rewind(
        query=bench.stage.row("delays"), batch=6, actor="aude", now=bench.stage.now
    )
    bench.work()
    operation.refresh_from_db()
    assert operation.detail.text.startswith("Stopping")
    assert bench.place == bench.root  # not before nothing runs any more
    bench.stage.launcher.end_run(bench.stage.run("delays").pk)
    bench.work()
    _done(operation)
    assert bench.stage.row("delays").desired == "RUNNING"
    bench.stage.launcher.leave("delays")
    bench.stage.look()
    assert bench.stage.run("delays").checkpoint.location == bench.location
    assert bench.location.startswith(f"file://{bench.root}.r6-")


def test_a_batch_out_of_reach_costs_no_stop(bench: Bench) -> None:
    query = bench.define(store="delta")
    with pytest.raises(NotAllowed, match="It contains batches 0 to 9"):
        rewind_and_reset.request_rewind(query=query, batch=12, actor="aude", now=bench.stage.now)
    bench.stage.up("delays")
    for partition in "01":
        (bench.root / f"state/0/{partition}/3.delta").unlink()
    operation = rewind_and_reset.request_rewind(
        query=bench.stage.row("delays"), batch=4, actor="aude", now=bench.stage.now
    )
    bench.work()
    operation.refresh_from_db()
    assert operation.outcome == OperationOutcome.FAILED
    assert "version 3 of state/0/" in operation.detail.text
    assert bench.stage.phase("delays") == "RUNNING"
    assert bench.place == bench.root


def test_a_file_sinks_log_goes_back_with_it_and_nothing_is_deleted(bench: Bench) -> None:
    query = bench.define(sink=True)
    put(bench.out / "part-99999-half.json", "{}")  # of a batch that was interrupted
    before = tree(bench.out)
    operation = rewind_and_reset.request_rewind(
        query=query, batch=6, actor="aude", now=bench.stage.now
    )
    bench.work()
    _done(operation)
    visible = {name for name in names(bench.out) if not name.startswith("_")}
    assert visible == {f"part-0000{n}-c000.json" for n in range(7)}
    log = {name for name in names(bench.out / "_spark_metadata") if not name.startswith(".")}
    assert log == set("0123456")
    aside = bench.out / "_headgate" / str(operation.uuid)
    assert tree(aside / "_spark_metadata") == {
        name.removeprefix("_spark_metadata/"): content
        for name, content in before.items()
        if name.startswith("_spark_metadata/")
    }
    assert "part-00009-c000.json" in names(aside)
    assert "part-99999-half.json" in names(aside)
    assert operation.result["sink"]["batches"] == 3


def test_a_sinks_log_that_is_compacted_over_the_batch_is_refused_first(bench: Bench) -> None:
    query = bench.define(sink=True)
    log = bench.out / "_spark_metadata"
    lines = [(log / str(n)).read_text().split("\n")[1] for n in range(10)]
    put(log / "9.compact", "\n".join(["v1", *lines]))
    for n in range(8):
        (log / str(n)).unlink()
    with pytest.raises(NotAllowed, match="entry 0 has been compacted away"):
        rewind_and_reset.request_rewind(query=query, batch=6, actor="aude", now=bench.stage.now)


@pytest.mark.guarantee("G-ISOLATION-11")
def test_within_walls_a_sink_that_a_link_leads_out_of_the_data_roots_is_not_changed(
    bench: Bench, settings: LazySettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = bench.define(sink=True)
    settings.ALLOWED_PATHS = [str(bench.out.parent)]
    elsewhere = tmp_path.with_name(f"{tmp_path.name}-elsewhere")
    bench.out.rename(elsewhere)
    bench.out.symlink_to(elsewhere)
    before = tree(elsewhere)
    walls = choose(Mode.BUBBLEWRAP)
    monkeypatch.setattr(type(bench.stage.launcher), "isolation", lambda _: walls)
    operation = rewind_and_reset.request_rewind(
        query=query, batch=6, actor="aude", now=bench.stage.now
    )
    bench.work()
    operation.refresh_from_db()
    assert "is outside the allowed paths" in f"{operation.steps}"
    assert tree(elsewhere) == before


def _steps(verb: Verb) -> list[str]:
    return [step.name for step in PROCEDURES[verb].steps]


@pytest.mark.parametrize("place", range(len(_steps(Verb.REWIND))))
@pytest.mark.parametrize("after", [False, True])
def test_a_worker_that_dies_in_a_rewind_loses_nothing(
    bench: Bench, place: int, after: bool
) -> None:
    query = bench.define(store="changelog", sink=True)
    before = tree(bench.root)
    operation = rewind_and_reset.request_rewind(
        query=query, batch=6, actor="aude", now=bench.stage.now
    )
    with pytest.raises(Crash):
        bench.work(_dying(Verb.REWIND, place, after=after))
    assert tree(bench.root) == before
    bench.recover()
    bench.work()
    _done(operation)
    assert tree(bench.root) == before
    assert bench.location.startswith(f"file://{bench.root}.r6-")
    assert Checkpoint.objects.filter(query=query).count() == 2
    visible = {name for name in names(bench.out) if not name.startswith("_")}
    assert visible == {f"part-0000{n}-c000.json" for n in range(7)}
    assert not [name for name in names(bench.root.parent) if "building" in name]


def test_a_crash_in_the_middle_of_the_sinks_log_is_gone_on_from(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = bench.define(sink=True)
    operation = rewind_and_reset.request_rewind(
        query=query, batch=6, actor="aude", now=bench.stage.now
    )
    remove, gone = Inside.remove, [0]

    def dying(folder: Inside, name: str) -> None:
        if name.startswith("_spark_metadata/"):
            gone[0] += 1
            if gone[0] == 4:
                raise Crash
        remove(folder, name)

    monkeypatch.setattr(Inside, "remove", dying)
    with pytest.raises(Crash):
        bench.work()
    monkeypatch.setattr(Inside, "remove", remove)
    bench.recover()
    bench.work()
    _done(operation)
    log = {name for name in names(bench.out / "_spark_metadata") if not name.startswith(".")}
    assert log == set("0123456")
    aside = bench.out / "_headgate" / str(operation.uuid)
    assert {name for name in names(aside / "_spark_metadata") if name[0] != "."} == set(
        "0123456789"
    )


def test_a_cancelled_rewind_leaves_the_query_as_it_was(bench: Bench) -> None:
    bench.define()
    bench.stage.up("delays")
    operation = rewind_and_reset.request_rewind(
        query=bench.stage.row("delays"), batch=6, actor="aude", now=bench.stage.now
    )
    bench.work()
    cancel(operation, actor="aude", now=bench.stage.now)
    bench.stage.launcher.end_run(bench.stage.run("delays").pk)
    bench.work()
    assert bench.place == bench.root
    assert names(bench.root.parent) == {"delays"}
    assert bench.stage.row("delays").desired == "RUNNING"


def test_a_start_by_somebody_else_wins_before_the_switch(bench: Bench) -> None:
    query = bench.define()
    operation = rewind_and_reset.request_rewind(
        query=query, batch=6, actor="aude", now=bench.stage.now
    )
    operations.request_start(query=query, actor="otto", now=bench.stage.now)
    bench.work()
    operation.refresh_from_db()
    assert operation.outcome == OperationOutcome.SUPERSEDED
    assert bench.place == bench.root
    turn = StepContext(operation, query, bench.stage.launcher, bench.stage.now)
    with pytest.raises(Conflict, match="ended in the meantime"):
        turn.insist()


# --- clone --------------------------------------------------------------------------------


def test_a_clone_is_a_new_query_with_an_id_and_a_sink_of_its_own(
    bench: Bench, settings: LazySettings
) -> None:
    settings.CHECKPOINTS_DIR = bench.root.parent
    query = bench.define(store="delta", sink=True)
    before = tree(bench.root)
    other = {"format": "json", "options": {"path": f"{bench.out}-2"}}
    operation = clone.request_clone(
        query=query, name="delays-two", sink=other, actor="aude", now=bench.stage.now
    )
    bench.work()
    _done(operation)
    found = Query.objects.get(name="delays-two")
    assert found.desired == "STOPPED"
    assert found.revisions.get().spec["sink"]["options"]["path"] == f"{bench.out}-2"
    place = Path(found.checkpoints.get().location.removeprefix("file://"))
    assert max(map(int, names(place / "commits"))) == 9
    assert (place / "metadata").read_text() != (bench.root / "metadata").read_text()
    # Spark's next compaction wants what stands below it.
    assert names(Path(f"{bench.out}-2/_spark_metadata")) == {"9.compact"}
    assert tree(bench.root) == before


def test_a_clone_must_say_where_it_writes(bench: Bench, settings: LazySettings) -> None:
    settings.CHECKPOINTS_DIR = bench.root.parent
    query = bench.define(sink=True)
    ask: Callable[..., Operation] = clone.request_clone
    given = {"query": query, "name": "two", "actor": "aude", "now": bench.stage.now}
    with pytest.raises(Invalid, match="both would write there"):
        ask(**given)
    with pytest.raises(Invalid, match="destroy each other's log"):
        ask(**given, same_sink=True)
    with pytest.raises(Invalid, match="name"):
        ask(**{**given, "name": "delays"}, sink={"format": "noop"})


def test_a_program_in_an_option_is_not_cloned_into_another_application(
    bench: Bench, settings: LazySettings
) -> None:
    """There it is new: neither that application's authors nor its driver have had it."""
    settings.CHECKPOINTS_DIR = bench.root.parent
    query = bench.define()
    bench.stage.application("others")
    kinit = {"kafka.sasl.kerberos.kinit.cmd": "/opt/kinit", "kafka.bootstrap.servers": "b:9"}
    newest = query.revisions.latest("number")
    source = {"name": "flights", "format": "kafka", "options": kinit | {"subscribe": "t"}}
    newest.spec = newest.spec | {"kind": "sql", "sources": [source], "sql": "SELECT * FROM flights"}
    newest.save()
    given = {"query": query, "sink": {"format": "noop"}, "actor": "sam", "now": bench.stage.now}
    ask: Callable[..., Operation] = clone.request_clone
    with pytest.raises(Forbidden, match=r"sources.flights.options.kafka.sasl.kerberos.kinit.cmd"):
        ask(**given, name="two", application="others")
    with pytest.raises(Invalid):  # the form's other faults; nothing of what is there is new
        ask(**given, name="two", application=query.application.name)
    with pytest.raises(Invalid):
        ask(**given, name="two", application="others", rights=AuthorRights.ALL)


def test_a_clone_of_a_snapshot_begins_where_that_was_taken(
    bench: Bench, settings: LazySettings
) -> None:
    settings.CHECKPOINTS_DIR = bench.root.parent
    query = bench.define()
    snapshot.request_snapshot(query=query, actor="otto", now=bench.stage.now)
    bench.work()
    for batch in (10, 11):
        write_batch(bench.root, batch)
    clone.request_clone(
        query=query,
        name="two",
        sink={"format": "noop"},
        snapshot_id=Snapshot.objects.get().pk,
        actor="aude",
        now=bench.stage.now,
    )
    bench.work()
    place = bench.root.parent / "two"
    assert max(map(int, names(place / "commits"))) == 9


@pytest.mark.parametrize("place", range(len(_steps(Verb.CLONE))))
@pytest.mark.parametrize("after", [False, True])
def test_a_worker_that_dies_in_a_clone_leaves_one_clone(
    bench: Bench, settings: LazySettings, place: int, after: bool
) -> None:
    settings.CHECKPOINTS_DIR = bench.root.parent
    query = bench.define(store="zip")
    before = tree(bench.root)
    operation = clone.request_clone(
        query=query, name="two", sink={"format": "noop"}, actor="aude", now=bench.stage.now
    )
    with pytest.raises(Crash):
        bench.work(_dying(Verb.CLONE, place, after=after))
    bench.recover()
    bench.work()
    _done(operation)
    assert Query.objects.filter(name="two").count() == 1
    assert tree(bench.root) == before


# --- reset --------------------------------------------------------------------------------


def test_a_stateless_reset_to_now_counts_what_is_there_as_read_and_goes_on_counting(
    bench: Bench,
) -> None:
    query = bench.define(sink=True)
    for name in ("a.json", "b.json", "_hidden", ".c.crc"):
        put(Path(f"{bench.root}-in/{name}"), "{}")
    before = tree(bench.root)
    operation = rewind_and_reset.request_reset(
        query=query, wish=WantedStart("latest"), actor="aude", now=bench.stage.now
    )
    bench.work()
    _done(operation)
    assert names(bench.place / "commits") == {"9"}
    assert names(bench.place / "offsets") == {"8", "9"}
    assert (bench.place / "offsets/9").read_text().split("\n")[2] == '{"logOffset":0}'
    log = (bench.place / "sources/0/0").read_text()
    assert "a.json" in log
    assert "b.json" in log
    assert "_hidden" not in log
    assert tree(bench.root) == before
    assert len(names(bench.out / "_spark_metadata")) == 20  # the sink goes on at batch 10


def test_a_stateful_reset_begins_at_batch_0_with_an_empty_sink(bench: Bench) -> None:
    query = bench.define(store="delta", sink=True)
    with pytest.raises(NotAllowed, match="only start with its first file"):
        rewind_and_reset.request_reset(
            query=query, wish=WantedStart("latest"), actor="aude", now=bench.stage.now
        )
    operation = rewind_and_reset.request_reset(
        query=query, wish=WantedStart("earliest"), actor="aude", now=bench.stage.now
    )
    bench.work()
    _done(operation)
    assert Transition.objects.get(subject="checkpoint").reason == Reason.RESET
    assert names(bench.place) == {"metadata"}
    assert names(bench.out) == {"_headgate"}
    aside = bench.out / "_headgate" / str(operation.uuid)
    assert len([name for name in names(aside) if name.startswith("part-")]) == 10


@pytest.mark.parametrize("place", range(len(_steps(Verb.RESET))))
@pytest.mark.parametrize("after", [False, True])
def test_a_worker_that_dies_in_a_reset_loses_nothing(bench: Bench, place: int, after: bool) -> None:
    query = bench.define(store="zip", sink=True)
    before = tree(bench.root)
    operation = rewind_and_reset.request_reset(
        query=query, wish=WantedStart("earliest"), actor="aude", now=bench.stage.now
    )
    with pytest.raises(Crash):
        bench.work(_dying(Verb.RESET, place, after=after))
    bench.recover()
    bench.work()
    _done(operation)
    assert tree(bench.root) == before
    assert names(bench.out) == {"_headgate"}
    assert Checkpoint.objects.filter(query=query).count() == 2


# --- workers that die ---------------------------------------------------------------------


def _dying(verb: Verb, place: int, *, after: bool) -> dict[Verb, Procedure]:
    """Return the procedures with one step in which the worker dies, before or after the act."""
    procedure = PROCEDURES[verb]
    step = procedure.steps[place]

    def act(turn: StepContext) -> Any:
        if after:
            step.act(turn)
        raise Crash

    steps = list(procedure.steps)
    steps[place] = ProcedureStep(step.name, act, step.commits)
    dying = Procedure(verb, tuple(steps), procedure.limit, procedure.undo)
    return {**PROCEDURES, verb: dying}


# --- Kafka's topic ids --------------------------------------------------------------------


def _remember(query: Query, **held: Remembered) -> None:
    ids = as_json({"flights": dict(held)})
    Checkpoint.objects.filter(query=query, retired_at=None).update(topic_ids=ids)


def _remembered(name: str) -> dict[str, Remembered]:
    return ids_of(Checkpoint.objects.get(query__name=name, retired_at=None).topic_ids)["flights"]


def test_a_rewind_carries_the_topics_that_its_batch_has_read(bench: Bench) -> None:
    query = bench.define(store="zip")
    _remember(query, same=Remembered("a"), later=Remembered("b", since=8))
    rewind_and_reset.request_rewind(query=query, batch=6, actor="aude", now=bench.stage.now)
    bench.work()
    assert _remembered("delays") == {"same": Remembered("a"), "later": Remembered(GONE)}


def test_a_clone_carries_the_topics_of_its_origin(bench: Bench, settings: LazySettings) -> None:
    settings.CHECKPOINTS_DIR = bench.root.parent
    query = bench.define(store="delta", sink=True)
    _remember(query, same=Remembered("a"), later=Remembered("b", since=8))
    for name, batch in (("newest", None), ("earlier", 7)):
        other = {"format": "json", "options": {"path": f"{bench.out}-{name}"}}
        clone.request_clone(
            query=query, name=name, sink=other, batch=batch, actor="aude", now=bench.stage.now
        )
        bench.work()
    assert _remembered("newest") == {"same": Remembered("a"), "later": Remembered("b", since=8)}
    assert _remembered("earlier") == {"same": Remembered("a"), "later": Remembered(GONE)}


def test_a_reset_takes_whichever_topics_are_there(bench: Bench) -> None:
    query = bench.define()
    _remember(query, gone=Remembered("a", now="b"))
    rewind_and_reset.request_reset(
        query=query, wish=WantedStart("earliest"), actor="aude", now=bench.stage.now
    )
    bench.work()
    new = Checkpoint.objects.get(query=query, retired_at=None)
    assert (new.built_from_id is not None, new.topic_ids) == (True, {})
