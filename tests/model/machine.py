"""The state machine: what operators, faults and workers may do, and what must hold after each.

Real rows, the real `reconcile` and `decide`, the operator's real verbs; below them a `World` in
place of processes. Every rule is one step. The invariants are judged on what is so in the world,
not on what a driver says; a run of rules ends with every fault over, and the desired state of
each query must be reached then.
"""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, TypeVar

import pytest
from django.conf import settings
from django.db import connection, transaction
from django.db.models import Min, QuerySet
from django.db.models.functions import Now
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from queries.domain.errors import HeadgateError
from queries.domain.protocol import RunError, RunState, Want
from queries.domain.states import (
    BLOCKED_PHASES,
    DISPATCHED_KINDS,
    OPEN_DRIVER_STATES,
    PLAIN_VERBS,
    STOPPED_PHASES,
    Desired,
    DriverKind,
    OperationOutcome,
    Phase,
    Reason,
    RunOutcome,
    StopMode,
)
from queries.domain.supervision.decide import decide
from queries.models.applications import Application
from queries.models.definitions import Checkpoint, Query
from queries.models.drivers import Driver, Host, Run
from queries.models.history import Operation
from queries.services.definitions import catalog
from queries.services.supervision import adoption, decision_rows, operations, reconcile, standbys
from queries.services.supervision.application_operations import (
    request_application_restart,
    request_application_stop,
)
from queries.services.system import installation
from tests.launchers.in_memory import ENDED, Crash, _Driver
from tests.model.world import Thread, World
from tests.scenarios.stage import BROKEN_PIPE, DIVIDE, NO_SUCH_SOURCE, Stage

T = TypeVar("T")

#: Applications that the rules act on; `quiet` is the bystander that none of them touches.
SHARED, ALONE, OTHER, IN_POD, QUIET = "shared", "alone", "other", "in-pod", "quiet"
APPLICATIONS = (SHARED, ALONE, OTHER, IN_POD)
#: Two of them have a standby driver; the driver of one is a pod.
WANTS: dict[str, dict[str, Any]] = {
    SHARED: {"standby": "own"},
    ALONE: {"standby": "own"},
    IN_POD: {"driver": "pod"},
}
OUT_OF_MEMORY = RunError("", "java.lang.OutOfMemoryError", "Java heap space", "Java heap space")
FAILURES = {  # one of each policy, and of what a dying JVM leaves
    "retry": (BROKEN_PIPE, None),
    "poison": (DIVIDE, 4),
    "fatal": (NO_SUCH_SOURCE, None),
    "memory": (OUT_OF_MEMORY, 2),
}
#: Points of a worker's step between which it may die, or somebody else may act.
POINTS = ("decide", "write", "launch", "seal", "assign", "named", "terminate", "kill")
#: Seconds that may pass at once: a look, a tick, the deadlines of a stop and of a start, a backoff,
#: a retry probe.
PAUSES = (1, 5, 31, 61, 125, 185, 310, 1810)
#: How far the clock may be set, in seconds.
CLOCK_STEPS = (-600, -30, 30, 3600)
#: What may change around everything; most of the time it is all well.
SURROUNDINGS = (
    "well",
    "clock",
    "clock",
    "host silent",
    "no API server",
    "no Java",
    "overloaded",
    "installation stops",
    "another host looks",
)
#: What may happen to a pod or its node, besides what its driver does.
POD_NEWS = (
    "a user deletes it",
    "it is removed",  # by force, or once it has ended
    "its node is silent",
    *("its node is lost",) * 2,  # … and Kubernetes says so
    *("its node is lost and it is removed",) * 2,
    "its node returns",
    "it is superseded",
)
#: Where the checkpoints of pods are.
STORAGE = "s3a://bucket/checkpoints/"
#: The host whose worker looks while the one that the drivers are on is silent.
OTHER_HOST = "another-host"
#: In how many looks everything must be where it should be, once the faults are over.
SETTLES_WITHIN = 400

_any = st.integers(0, 23)  # chooses among what there is at that moment


def pick(found: list[T], number: int) -> T:
    """Return one of those that there are."""
    return found[number % len(found)]


class Select:
    """A SELECT whose text is made once: the same is read after every step."""

    def __init__(self, rows: QuerySet[Any, Any]) -> None:
        self._text, self._parameters = rows.query.sql_with_params()

    def __call__(self) -> list[tuple[Any, ...]]:
        """Return the rows as the database has them now."""
        with connection.cursor() as cursor:
            cursor.execute(self._text, self._parameters)
            return list(cursor.fetchall())


_editable = Query.objects.filter(archived_at=None).exclude(application__name=QUIET)
_drivers = Driver.objects.values_list("application__name", "epoch")
EDITABLE = Select(_editable.order_by("pk").values_list("pk"))
ENDED_DRIVERS = Select(
    _drivers.values_list("application__name", "epoch", "exit_python")
    .filter(kind__in=DISPATCHED_KINDS)
    .exclude(state__in=sorted(OPEN_DRIVER_STATES))
)
WANTED = Select(
    _drivers.filter(kind__in=DISPATCHED_KINDS, state__in=sorted(OPEN_DRIVER_STATES)).exclude(
        end_wanted=Reason.HOST_GONE
    )
)
STANDBYS = Select(Driver.objects.filter(kind=DriverKind.STANDBY).values_list("epoch"))
OPEN_ROWS = Select(_drivers.filter(ended_at=None))
OVER = Select(
    Run.objects.filter(
        outcome__in=(RunOutcome.STOPPED, RunOutcome.COMPLETED, RunOutcome.DRIVER_ENDED)
    ).values_list("pk")
)
OPEN_RUNS = Select(Run.objects.filter(outcome=RunOutcome.OPEN).values_list("query"))
BYSTANDER = Select(
    Run.objects.filter(query__name="q").values_list(
        "pk", "driver__epoch", "outcome", "query__phase"
    )
)
OPERATIONS = Select(
    Operation.objects.filter(outcome=OperationOutcome.OPEN, verb__in=PLAIN_VERBS).values_list("pk")
)


class Opening:
    """Where every history begins: four applications and a bystander, asked to start.

    Played once in the transaction of a test; each history goes on from a copy, in a savepoint.
    """

    def __init__(self) -> None:
        self.stage = Stage()
        self._home = TemporaryDirectory()
        self.archives = Path(self._home.name) / "archives"
        world = World(clock=self.stage.clock, in_pods=frozenset({IN_POD}))
        world.pods.use(Path(self._home.name) / "hosts", self.archives)
        self.stage.launcher = world
        names = (*APPLICATIONS, QUIET)
        self.keys = {name: self.stage.application(name, **WANTS.get(name, {})).pk for name in names}
        for name, application in (
            *(("a", SHARED), ("b", SHARED), ("c", ALONE), ("p", IN_POD), ("q", QUIET)),
        ):
            self.stage.query(name, application)
        Checkpoint.objects.filter(query__name="p").update(location=f"{STORAGE}p")
        for name in ("q", "a", "b", "c", "p"):
            operations.request_start(query=self.stage.row(name), actor="olga", now=self.stage.now)
        for _ in range(3):  # two drivers start at a time
            self._sweep()
            world.goes_well(unless=lambda _: False)
            self.stage.now += timedelta(seconds=1)
        Application.objects.update(reconcile_after=self.stage.now)
        self._sweep()
        bystander = next(t for t in world.threads.values() if t.application == QUIET)
        self.quiet = (bystander.run, bystander.driver)

    def _sweep(self) -> None:
        for application in reconcile.due_applications(now=self.stage.now):
            reconcile.reconcile(application, launcher=self.stage.launcher, now=self.stage.now)


class Supervision(RuleBasedStateMachine):
    """One installation with four applications, a bystander, and everything that may befall it."""

    steps: ClassVar[int] = 0  # rules taken by all machines of this process
    opening: ClassVar[Opening]

    def __init__(self) -> None:
        super().__init__()
        logging.disable(logging.CRITICAL)
        self._rows = transaction.atomic()
        self._rows.__enter__()
        self.stage = deepcopy(self.opening.stage)
        assert isinstance(self.stage.launcher, World)
        self.world = self.stage.launcher
        self._home = TemporaryDirectory()
        self.world.pods.use(Path(self._home.name), self.opening.archives)
        self._hook()
        self.names = self.turns = 0
        self.quiet: tuple[int, int] | None = self.opening.quiet
        self.home = settings.HEADGATE_HOST
        self.at_work = [self.home]  # hosts whose workers look; the first is the one of the rules
        self.given_up: set[tuple[str, int]] = set()  # drivers whose host was declared gone

    def teardown(self) -> None:
        """End the faults, see the desired states reached, and forget everything."""
        try:
            if sys.exc_info()[0] is None:
                self.settle()
        finally:
            self._patch.undo()
            transaction.set_rollback(True)
            self._rows.__exit__(None, None, None)
            self._home.cleanup()
            logging.disable(logging.NOTSET)

    def _hook(self) -> None:
        """Make the points inside a step that no launcher sees."""
        update_query = decision_rows.update_query

        def decide_here(*arguments: Any) -> Any:
            self.world.point("decide")
            return decide(*arguments)

        def write_here(*arguments: Any, **more: Any) -> None:
            self.world.point("write")
            update_query(*arguments, **more)

        self._patch = pytest.MonkeyPatch()
        self._patch.setattr(reconcile, "decide", decide_here)
        self._patch.setattr(decision_rows, "update_query", write_here)

    # --- what there is --------------------------------------------------------------------

    def queries(self) -> list[Query]:
        """Return the queries that operators may act on."""
        rows = Query.objects.select_related("application").filter(archived_at=None)
        return list(rows.exclude(application__name=QUIET).order_by("pk"))

    def _query(self, which: int) -> Query:
        key = pick(EDITABLE(), which)[0]
        return Query.objects.select_related("application").get(pk=key)

    def threads(self, *, told: bool = True) -> list[Thread]:
        """Return what is left of runs in living drivers; `told`: somebody tells of it."""
        world = self.world
        return [
            thread
            for thread in world.threads.values()
            if thread.holds and thread.application != QUIET and world.jvm(thread)
            if not told or world.has_python(thread)
        ]

    def writers(self) -> list[Thread]:
        """Return every thread that may write, and whose run nobody has called ended."""
        return [thread for thread in self.threads() if thread.alive and not thread.error]

    def drivers(self) -> list[tuple[str, int, _Driver]]:
        """Return the drivers whose Python lives, without the bystander's."""
        return [each for each in self.world.alive_drivers() if each[0] != QUIET]

    def _asked(self, thread: Thread) -> bool:
        status = self.world.said(thread)
        return status is not None and status.asked_for is not Want.RUN

    def _open(self, thread: Thread) -> bool:
        status = self.world.said(thread)
        return status is not None and status.state not in ENDED

    # --- operators ------------------------------------------------------------------------

    def _try(self, act: Callable[[], object]) -> None:
        Supervision.steps += 1
        with suppress(HeadgateError):
            act()

    def _verb(self, verb: str, query: Query) -> Callable[[], object]:
        who: dict[str, Any] = {"query": query, "actor": "olga", "now": self.stage.now}
        return {
            "start": lambda: operations.request_start(**who),
            "stop": lambda: operations.request_stop(mode=StopMode.GRACEFUL, **who),
            "now": lambda: operations.request_stop(mode=StopMode.NOW, **who),
            "restart": lambda: operations.request_restart(**who),
            "take over": lambda: operations.confirm_takeover(**who),
        }[verb]

    VERBS_MEANWHILE = ("start", "stop", "now", "restart")
    VERBS = st.sampled_from(["start", "stop", "now", "restart", "take over", "start"])

    @precondition(lambda self: bool(EDITABLE()))
    @rule(verb=VERBS, which=_any, lost=st.booleans())
    def operator_asks(self, verb: str, which: int, lost: bool) -> None:
        query = self._query(which)
        self._try(self._verb(verb, query))
        if not lost:  # the nudge arrives
            self._reconcile(query.application_id)

    @rule(name=st.sampled_from(APPLICATIONS), verb=st.sampled_from(["restart", "stop", "now"]))
    def operator_asks_an_application(self, name: str, verb: str) -> None:
        row = Application.objects.get(name=name)
        who: dict[str, Any] = {"application": row, "actor": "olga", "now": self.stage.now}
        if verb == "restart":
            self._try(lambda: request_application_restart(**who))
        else:
            mode = StopMode.NOW if verb == "now" else StopMode.GRACEFUL
            self._try(lambda: request_application_stop(mode=mode, **who))

    @rule(
        what=st.sampled_from(["edits", "edits", "deletes", "defines"]),
        name=st.sampled_from(APPLICATIONS),
        which=_any,
        ends=st.booleans(),
    )
    def an_author_changes_a_definition(self, what: str, name: str, which: int, ends: bool) -> None:
        queries = len(EDITABLE())
        if what == "defines" and queries < 5:
            self._try(lambda: self._define(name, which))
        elif what == "deletes" and queries:
            query = self._query(which)
            self._try(
                lambda: operations.archive_query(query=query, actor="ada", now=self.stage.now)
            )
        elif queries:
            self._try(lambda: self._edit(self._query(which), ends))

    def _edit(self, query: Query, ends: bool) -> None:
        self.names += 1
        spec = dict(query.revisions.order_by("-number")[0].spec, description=f"no {self.names}")
        spec["trigger"] = {"kind": "processing_time", "interval": "5 seconds"}
        if ends:
            spec["trigger"] = {"kind": "available_now"}
        catalog.revise_query(
            query=query, spec=spec, expected_revision=None, actor="ada", now=self.stage.now
        )

    def _define(self, name: str, which: int) -> None:
        """A checkpoint that its query has given free goes to another, wherever that runs."""
        held = set(Checkpoint.objects.filter(retired_at=None).values_list("location", flat=True))
        known = {*Checkpoint.objects.values_list("location", flat=True)} - held
        free = sorted(place for place in known if place.startswith(STORAGE) == (name == IN_POD))
        self.names += 1
        query = self.stage.query(f"n{self.names}", name)
        if name == IN_POD:
            Checkpoint.objects.filter(query=query).update(location=f"{STORAGE}{query.name}")
        if free:
            Checkpoint.objects.filter(query=query).update(location=pick(free, which))
        operations.request_start(query=query, actor="ada", now=self.stage.now)

    # --- workers --------------------------------------------------------------------------

    def _reconcile(self, application: int) -> None:
        for _ in self._each_host():
            with suppress(Crash):
                reconcile.reconcile(application, launcher=self.world, now=self.stage.now)
            self.world.meanwhile.clear()

    def _sweep(self) -> None:
        for _ in self._each_host():
            for application in reconcile.due_applications(now=self.stage.now):
                with suppress(Crash):
                    reconcile.reconcile(application, launcher=self.world, now=self.stage.now)
                self.world.meanwhile.clear()
            self._keep()

    def _keep(self) -> None:
        """Look at standbys; what befalls a worker there is left to the next look."""
        with suppress(Crash):
            standbys.keep_standbys(launcher=self.world, now=self.stage.now)
        self.world.meanwhile.clear()

    def _each_host(self) -> Iterator[str]:
        """Be the worker of each host at work, one after the other; each gives a sign of life."""
        if len(self.at_work) > 1 or self.at_work != [self.home]:
            Host.objects.filter(name__in=self.at_work).update(seen_at=Now())
        for host in self.at_work:
            self._patch.setattr(settings, "HEADGATE_HOST", host)
            yield host
        self._patch.setattr(settings, "HEADGATE_HOST", self.at_work[0])

    @rule(name=st.sampled_from((*APPLICATIONS, "")))
    def a_worker_looks(self, name: str) -> None:
        """By the sweep, or by a task that comes late, or twice."""
        Supervision.steps += 1
        if name:
            self._reconcile(self._application(name))
        else:
            self._sweep()

    def _application(self, name: str) -> int:
        return self.opening.keys[name]

    @rule(
        name=st.sampled_from(APPLICATIONS),
        point=st.sampled_from((*POINTS, "intent", "spawning")),
        after=st.booleans(),
    )
    def a_worker_dies(self, name: str, point: str, after: bool) -> None:
        """Between any two steps of what it does: reading, rows, files, shim, identity, signals."""
        Supervision.steps += 1
        if point in ("intent", "spawning"):
            self.world.half_launch = point
        elif after and point not in ("decide", "write"):
            self.world.crash_after.add(point)
        else:
            self.world.meanwhile[point] = _dies
        self._reconcile(self._application(name))
        self._keep()
        self.world.crash_after.clear()
        self.world.half_launch = ""

    @rule(
        name=st.sampled_from(APPLICATIONS),
        point=st.sampled_from(
            ("decide", "launch", "launch", "seal", "assign", "terminate", "kill")
        ),
        other=st.sampled_from(
            [*VERBS_MEANWHILE, "another worker", "it dies", "it ends", "time", "a deadline"]
        ),
        which=_any,
    )
    def somebody_acts_while_a_worker_sleeps(
        self, name: str, point: str, other: str, which: int
    ) -> None:
        """A worker pauses in the middle of its step; what it does next is late."""
        Supervision.steps += 1
        pk = self._application(name)

        def act() -> None:
            if other == "another worker":
                reconcile.reconcile(pk, launcher=self.world, now=self.stage.now)
            elif other == "it dies":
                self._kill(name)
            elif other == "it ends":
                for thread in self.threads():
                    if thread.application == name and thread.writes:
                        self.world.ends(thread)
            elif other == "time":
                self.stage.now += timedelta(seconds=61)
            elif other == "a deadline":  # of a start; everybody else goes on meanwhile
                for seconds in (185, 1, 1):
                    self.stage.now += timedelta(seconds=seconds)
                    reconcile.reconcile(pk, launcher=self.world, now=self.stage.now)
            else:
                queries = [query for query in self.queries() if query.application_id == pk]
                if queries:
                    with suppress(HeadgateError):
                        self._verb(other, pick(queries, which))()
                reconcile.reconcile(pk, launcher=self.world, now=self.stage.now)

        self.world.meanwhile[point] = act
        self._reconcile(pk)

    # --- time -----------------------------------------------------------------------------

    @rule(seconds=st.sampled_from(PAUSES))
    def time_passes(self, seconds: int) -> None:
        Supervision.steps += 1
        self.stage.now += timedelta(seconds=seconds)
        self._sweep()

    # --- what is around ---------------------------------------------------------------------

    @rule(news=st.sampled_from(SURROUNDINGS))
    def the_surroundings_change(self, news: str) -> None:
        """The clock is set; the host, its Java or its memory fail and return; all is to stop."""
        Supervision.steps += 1
        world = self.world
        match news:
            case "clock":
                self.turns += 1
                step = timedelta(seconds=pick(list(CLOCK_STEPS), self.turns))
                self.stage.now += step
                world.set_by += step
            case "host silent":
                world.elsewhere = True
            case "no API server":
                world.pods.api.away = True
            case "no Java" | "overloaded":
                world.refusal = news if news == "no Java" else ""
                world.passing_refusal = news == "overloaded"
            case "installation stops":
                self.quiet = None  # it is meant, too
                installation.request_shutdown(now=self.stage.now)
            case "another host looks":
                self._host_falls_silent()
            case _:
                self._all_is_there()
                self._host_is_back()
                self._resume()

    def _all_is_there(self) -> None:
        world = self.world
        world.refusal, world.passing_refusal, world.elsewhere = "", False, False
        world.pods.api.away = False

    def _resume(self) -> None:
        """Start the installation again on each host at work: one that stopped waits for that."""
        for _ in self._each_host():
            installation.resume(now=self.stage.now)

    def _host_falls_silent(self) -> None:
        """From now on another host's worker looks, which sees no process of the silent one."""
        self.at_work = [OTHER_HOST]
        self._patch.setattr(settings, "HEADGATE_HOST", OTHER_HOST)
        for name, ago in ((self.home, timedelta(minutes=5)), (OTHER_HOST, timedelta(0))):
            fields = {"seen_at": Now() - ago, "steady_since": Now() - timedelta(minutes=5)}
            Host.objects.update_or_create(name=name, defaults=fields)

    def _host_is_back(self) -> None:
        """Its worker ends what was given up before it adopts the others, as `ticks.adopt` does.

        The other host stays: drivers may have been started there meanwhile.
        """
        if self.home == settings.HEADGATE_HOST:
            return
        self.at_work = [self.home, OTHER_HOST]
        self._patch.setattr(settings, "HEADGATE_HOST", self.home)
        Host.objects.update(seen_at=Now())
        adoption.end_strays(launcher=self.world)
        self.given_up.clear()
        reconcile.wake_all(now=self.stage.now)

    @precondition(lambda self: settings.HEADGATE_HOST == OTHER_HOST)
    @rule(name=st.sampled_from(APPLICATIONS))
    def the_host_is_declared_gone(self, name: str) -> None:
        """Its drivers count as dead from then on; they may go on until it is back."""
        row = Application.objects.get(name=name)
        who: dict[str, Any] = {"host": self.home, "actor": "olga", "now": self.stage.now}
        self._try(lambda: installation.declare_host_gone(application=row, **who))
        given_up = row.drivers.filter(end_wanted=Reason.HOST_GONE)
        self.given_up |= {(name, epoch) for epoch in given_up.values_list("epoch", flat=True)}
        self._reconcile(row.pk)

    @rule(starts=st.booleans())
    def all_goes_well(self, starts: bool) -> None:
        """Drivers come up, queries start, batches commit; what is to stop is left as it is.

        `starts`: an operator starts whatever stands; else most histories end with nothing to do.
        """
        Supervision.steps += 1
        for query in self.queries() if starts else ():
            with suppress(HeadgateError):
                self._verb("start", query)()
        world = self.world
        self._all_is_there()
        self._host_is_back()
        self._resume()
        self.stage.now += timedelta(seconds=1)
        self._sweep()
        world.goes_well(unless=lambda name: name == QUIET)
        for name in APPLICATIONS:
            self._reconcile(self._application(name))

    # --- drivers --------------------------------------------------------------------------

    def _unready(self) -> list[tuple[str, int, _Driver]]:
        return [each for each in self.drivers() if not each[2].ready]

    @precondition(lambda self: self.drivers())
    @rule(which=_any, what=st.sampled_from(["comes up", "cannot", "leaves", "deaf", "hears"]))
    def a_driver_moves(self, which: int, what: str) -> None:
        """It comes up, or cannot; it leaves as it was told; it reads its assignment late."""
        Supervision.steps += 1
        found = {"comes up": self._unready, "cannot": self._unready, "leaves": self._leaving}
        drivers = found.get(what, self.drivers)() or self.drivers()
        name, epoch, driver = pick(drivers, which)
        if what == "comes up" or (what == "cannot" and driver.ready):
            self.world.spawning.discard((name, epoch))
            self.world.ready(name, epoch=epoch)
        elif what == "cannot":
            self.world.session_fails(name, BROKEN_PIPE, epoch=epoch)
        elif what == "leaves" and self._leaving():
            self.world.leave(name, epoch=epoch)
        else:
            driver.hanging = what == "deaf"
            self.world.apply_again(driver)

    def _leaving(self) -> list[tuple[str, int, _Driver]]:
        """Return the drivers that SIGTERM has reached, or that were told to and have no runs."""
        world = self.world
        return [
            (name, epoch, driver)
            for name, epoch, driver in self.drivers()
            if (name, epoch) in world.terminated or world.may_leave(driver)
        ]

    @precondition(lambda self: self.threads())
    @rule(which=_any)
    def a_run_goes_on(self, which: int) -> None:
        """It starts, commits, finds nothing to read; it ends as asked, or by itself."""
        Supervision.steps += 1
        world = self.world
        ways: list[tuple[Callable[[Thread], None], Thread]] = []
        for thread in self.threads():
            if thread.building:
                ways.append((world.build, thread))
            elif self._asked(thread) and thread.writes:
                ways += [(world.ends, thread), (world.write, thread)]
            elif thread.alive and not thread.error:
                ways += [(world.write, thread), (world.idles, thread), (world.ends, thread)]
        if ways:
            act, thread = pick(ways, which)
            act(thread)
            self._reconcile(self._application(thread.application))

    @precondition(lambda self: self.threads(told=False))
    @rule(which=_any)
    def a_run_hangs_or_writes_late(self, which: int) -> None:
        """A start, a stop or a callback does not end; or it does, and writes what it was in."""
        Supervision.steps += 1
        world = self.world
        ways: list[tuple[Callable[[Thread], None], Thread]] = []
        for thread in self.threads(told=False):
            told = world.has_python(thread)
            lingers = self._asked(thread) or not self._open(thread) or thread.error
            if told and thread.building and not thread.overdue:
                ways.append((self._start_times_out, thread))
            elif told and thread.writes and lingers:
                ways += [(world.times_out, thread), (world.leaves_a_call, thread)]
                ways += [(self._end_late, thread)]
            if thread.writes:
                ways.append((world.write_late, thread))
        if ways:
            act, thread = pick(ways, which)
            act(thread)
            self._reconcile(self._application(thread.application))

    def _start_times_out(self, thread: Thread) -> None:
        self.stage.now += timedelta(seconds=181)
        self.world.times_out(thread)

    def _end_late(self, thread: Thread) -> None:
        self.world.write_late(thread)
        self.world.ends(thread)

    @precondition(lambda self: self.writers())
    @rule(which=_any, call=st.booleans())
    def an_operator_stops_what_does_not_stop(self, which: int, call: bool) -> None:
        """A batch, or a call of foreachBatch alone, goes on longer than the limits of a stop."""
        Supervision.steps += 1
        thread = pick(self.writers(), which)
        query = Query.objects.get(pk=thread.query)
        with suppress(HeadgateError):
            self._verb("now", query)()
        self._reconcile(self._application(thread.application))
        if self._asked(thread):
            if call:
                self.world.leaves_a_call(thread)
            self.world.times_out(thread)
            self._reconcile(self._application(thread.application))

    @precondition(lambda self: self.writers())
    @rule(which=_any, kind=st.sampled_from(sorted(FAILURES)), lingers=st.booleans())
    def a_query_fails(self, which: int, kind: str, lingers: bool) -> None:
        """By an error of each policy; its thread is gone, or still there for a while."""
        Supervision.steps += 1
        error, batch = FAILURES[kind]
        thread = pick(self.writers(), which)
        thread.alive = lingers
        self.world.breaks(thread, error, batch)
        self._reconcile(self._application(thread.application))

    HOWS = st.sampled_from(
        [
            ("vanishes", "", False),
            ("orphans its JVM", "", False),
            ("SIGKILL", "SIGKILL", True),
            ("SIGKILL", "SIGKILL", False),
            ("71", "3", True),
            ("71", "SIGSEGV", False),
            ("1", "0", False),
        ]
    )

    @precondition(lambda self: self.drivers())
    @rule(which=_any, how=HOWS)
    def a_driver_ends(self, which: int, how: tuple[str, str, bool]) -> None:
        """It dies, and its shim says how; or nobody does; or its JVM goes on without its Python."""
        Supervision.steps += 1
        name, epoch, _ = pick(self.drivers(), which)
        python, jvm, oom = how
        if python == "vanishes":
            self.world.vanish(name, epoch=epoch)
        elif python == "orphans its JVM":
            self.world.orphan(name, epoch=epoch)
        else:
            self.world.die(name, epoch=epoch, python=python, jvm=jvm, oom=oom)

    def _kill(self, name: str) -> None:
        for found, epoch, _ in self.drivers():
            if found == name:
                self.world.die(name, epoch=epoch)

    # --- pods -----------------------------------------------------------------------------

    @precondition(lambda self: self.world.pods.names)
    @rule(which=_any, news=st.sampled_from(POD_NEWS), seen=st.booleans())
    def a_pod_or_its_node_changes(self, which: int, news: str, seen: bool) -> None:
        """It is deleted; its node is lost, with the driver alive, or returns; it hears late."""
        Supervision.steps += 1
        world = self.world
        pods = sorted(world.pods.names) if news == "it is removed" else world.pods_alive()
        if news == "its node returns":
            pods = sorted(world.lost)
        elif news == "it is superseded":
            pods = self._superseded()
        if not pods:
            return
        key = pick(pods, which)
        match news:
            case "a user deletes it":
                world.delete_pod(key)
            case "it is removed":
                world.pods.forget(key)
                world.end_deleted(key)
            case "its node returns":
                world.node_returns(key)
            case "it is superseded":
                world.die(key[0], epoch=key[1])
            case _:
                world.lose_node(key)
                if key in world.lost and news != "its node is silent":
                    world.pods.lose(key)
                    if news == "its node is lost and it is removed":
                        world.pods.forget(key)
        if seen:
            self._reconcile(self._application(key[0]))

    def _superseded(self) -> list[tuple[str, int]]:
        """Return the pods that the channel tells to end, because their rows have ended."""
        wanted = set(WANTED())
        reached = [key for key in self.world.pods_alive() if key not in self.world.lost]
        return [key for key in reached if key not in wanted]

    def _unseen(self) -> set[tuple[str, int]]:
        """Return the pods that are called ended although nobody has seen their end.

        They may go on until they see the next owner of their checkpoints.
        """
        pods = {(name, epoch) for name, epoch, _ in ENDED_DRIVERS()} & set(self.world.pods.names)
        return {key for key in pods if not self.world.pods.has_exit(key)}

    # --- what must hold -------------------------------------------------------------------

    @invariant()
    def i1_one_writer_per_checkpoint_and_it_holds_the_lock(self) -> None:
        writers: dict[str, Thread] = {}
        for thread in self.world.living_threads():
            other = writers.setdefault(thread.location, thread)
            assert other is thread, f"I1: {other} and {thread} write to one checkpoint"
            assert thread.holds, f"I1: {thread} writes without the lock"

    @invariant()
    def i2_no_batch_of_two_living_epochs(self) -> None:
        assert not self.world.doubled, f"I2: {self.world.doubled}"

    @invariant()
    def i3_an_end_is_told_of_the_dead_and_of_nobody_else(self) -> None:
        # The exceptions: until their host is back, or until they see the next owner.
        living = self.world.truly_living() - self.given_up - self._unseen()
        for name, epoch, python in ENDED_DRIVERS():
            assert (name, epoch) not in living, f"I3: driver {epoch} of {name} is called ended"
            assert python, f"I3: driver {epoch} of {name} has no exit"

    @invariant()
    def a_standby_executes_nothing(self) -> None:
        waiting = {epoch for (epoch,) in STANDBYS()}
        busy = [thread.run for thread in self.world.threads.values() if thread.driver in waiting]
        assert not busy, f"runs of standbys: {busy}"

    @invariant()
    def a_run_called_stopped_writes_no_more(self) -> None:
        living = [
            thread.run
            for thread in self.world.living_threads()
            if (thread.application, thread.driver) not in self.given_up | self._unseen()
        ]
        wrong = {run for (run,) in OVER()}.intersection(living)
        assert not wrong, f"runs that have ended still write: {wrong}"

    @invariant()
    def i6_the_bystander_sees_nothing(self) -> None:
        if self.quiet is None:
            return
        found = BYSTANDER()
        assert [row[:3] for row in found] == [(*self.quiet, "")], "I6: the bystander was restarted"
        phase = found[0][3]
        assert phase in (Phase.RUNNING, Phase.UNREACHABLE), f"I6: the bystander is {phase}"

    # --- once the faults are over ---------------------------------------------------------

    def settle(self) -> None:
        """End every fault; each desired state must be reached, or say what it waits for (I5)."""
        world = self.world
        self._all_is_there()
        world.crash_after.clear()
        for key in list(world.lost):
            world.node_returns(key)
        self._host_is_back()
        self._resume()
        self._settle("once the faults are over")
        for query in self.queries():
            if query.phase in BLOCKED_PHASES:
                self._verb("start", query)()
        self._settle("after an operator's start")
        held = [query.name for query in self.queries() if query.phase in BLOCKED_PHASES]
        assert not held, f"I5: {held} cannot be started again"
        left = Operation.objects.filter(outcome=OperationOutcome.OPEN, verb__in=PLAIN_VERBS)
        assert not left.exists(), f"I5: operations without an end: {list(left.values())}"
        living = set(world.living())
        rows = set(OPEN_ROWS())
        assert rows == living, f"I3: open rows {rows}, living drivers {living}"

    def _settle(self, when: str) -> None:
        for _ in range(SETTLES_WITHIN):
            self._oblige()
            self._sweep()
            self.i1_one_writer_per_checkpoint_and_it_holds_the_lock()
            self.i6_the_bystander_sees_nothing()
            if not (wrong := self._unreached()):
                return
            first = Application.objects.aggregate(first=Min("reconcile_after"))["first"]
            assert first is not None, f"I5: nobody looks at {wrong} any more, {when}"
            self.stage.now = max(self.stage.now + timedelta(seconds=1), first)
        raise AssertionError(f"I5: not reached {when}: {wrong}")

    def _unreached(self) -> list[str]:
        wrong = []
        running = {query for (query,) in OPEN_RUNS()}
        for query in self.queries():
            runs = query.pk in running
            if query.desired == Desired.STOPPED:
                reached = query.phase in STOPPED_PHASES and not runs
            else:
                reached = query.phase == Phase.RUNNING or query.phase in BLOCKED_PHASES
            done = reached and query.reached_generation >= query.generation
            if not done and query.phase not in BLOCKED_PHASES:
                wrong.append(
                    f"{query.name}: wants {query.desired}, is {query.phase} "
                    f"({query.phase_reason}: {query.phase_detail})"
                )
        open_rows = set(OPEN_ROWS())
        if open_rows != set(self.world.living()):
            wrong.append(f"open rows {open_rows}, living drivers {self.world.living()}")
        if OPERATIONS():
            wrong.append("an operation is open")
        return wrong

    def _oblige(self) -> None:
        """Let every driver do at once what it was told, and what hung come to its end."""
        world = self.world
        for key in self._superseded():
            world.die(key[0], epoch=key[1])
        for name, epoch, driver in world.alive_drivers():
            if (name, epoch) in world.pods.names and world.pods.found((name, epoch)) is None:
                world.vanish(name, epoch=epoch)
                continue
            world.spawning.discard((name, epoch))
            driver.hanging = False
            if not driver.ready:
                world.ready(name, epoch=epoch)
            world.apply_again(driver)
            for thread in [t for t in world.threads.values() if t.driver == epoch]:
                if thread.application != name:
                    continue
                if thread.building:
                    world.build(thread)
                elif thread.writes and (
                    self._asked(thread) or not self._open(thread) or thread.error is not None
                ):
                    world.ends(thread)
                elif thread.alive and not thread.error:
                    status = world.said(thread)
                    if status is not None and status.state is not RunState.RUNNING:
                        world.write(thread)
            if (name, epoch) in world.terminated or world.may_leave(driver):
                world.leave(name, epoch=epoch)


def _dies() -> None:
    raise Crash
