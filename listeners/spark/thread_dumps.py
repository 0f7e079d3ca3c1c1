"""Take a thread dump and a heap histogram of the driver's JVM: on request, or if a query hangs.

A query hangs if its trigger is active, but no event was sent and no task has ended for `QUIET_S`. A
little later, the control plane calls it STALLED; a stop that is stuck looks the same. Both are
taken by the JVM's own diagnostic commands, without another process.
"""

import logging
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

from py4j.protocol import Py4JError

from headgate_ground.wire import EventKind, QueryPulse, WireEvent
from listeners.spark.sorter import RunKnown

logger = logging.getLogger(__name__)

QUIET_S = 60.0  # the least after which a query counts as STALLED
AGAIN_S = 600.0  # at most one dump of a driver in this time
MOST_OF_A_RUN = 3  # a query may have tasks this long in each batch
MOST_CHARS = 200_000  # of a dump: about 300 threads
_CLASSES = 60  # lines of the histogram
_MOST_RUNS = 200
#: Java's names of arrays of objects and of strings.
_OBJECTS, _TEXTS = "[Ljava.lang.Object;", "[Ljava.lang.String;"
_DIAGNOSTICS = "com.sun.management:type=DiagnosticCommand"
#: Events that say nothing about a query's progress.
_OURS = frozenset(
    {EventKind.HEARTBEAT, EventKind.SLOW_BATCH, EventKind.THREAD_DUMP, EventKind.STATUS}
)


@dataclass(slots=True)
class _Signs:
    at: float  # monotonic: the last sign of life
    task_at: str | None = None
    dumps: int = 0
    requested_at: str = ""  # when a dump was last requested, and when for the last one taken
    answered: str = ""


@dataclass(frozen=True, slots=True)
class ThreadDump:
    """A dump taken because of one run, as the body of an event."""

    query: int
    run: int
    body: dict[str, Any]


class ThreadDumps:
    """Watches for queries that hang."""

    def __init__(self, spark: Any) -> None:
        self._context = spark.sparkContext
        self._signs: OrderedDict[int, _Signs] = OrderedDict()
        self._dumped = -AGAIN_S

    def note(self, event: WireEvent) -> None:
        """Note an event of a run; cheap, because the sorter calls this."""
        if event.run is not None and event.kind not in _OURS:
            self._of(event.run).at = monotonic()

    def request(self, run: int, asked: str) -> None:
        """Request a dump for a run; `asked` is the time, and each time counts once."""
        self._of(run).requested_at = asked

    def look(self, runs: Iterable[RunKnown], pulses: Sequence[QueryPulse]) -> ThreadDump | None:
        """Return a dump if one was requested, or if a run hangs and none was taken lately."""
        runs = list(runs)
        return self._requested(runs) or self._hanging(runs, pulses)

    def _requested(self, runs: list[RunKnown]) -> ThreadDump | None:
        for run in runs:
            signs = self._of(run.run)
            if signs.requested_at == signs.answered:
                continue
            signs.answered = signs.requested_at  # a dump that fails is not tried again
            quiet = {"quiet_s": round(monotonic() - signs.at), "asked": signs.requested_at}
            if body := self._dump():
                return ThreadDump(run.query, run.run, quiet | body)
        return None

    def _hanging(self, runs: list[RunKnown], pulses: Sequence[QueryPulse]) -> ThreadDump | None:
        tasks = {pulse.run: pulse.task_at for pulse in pulses}
        now = monotonic()
        quiet: list[RunKnown] = []
        for run in runs:
            signs = self._of(run.run)
            if signs.task_at != tasks.get(run.run, signs.task_at):
                signs.at, signs.task_at = now, tasks[run.run]
            if now - signs.at >= QUIET_S and signs.dumps < MOST_OF_A_RUN:
                quiet.append(run)
        if now - self._dumped < AGAIN_S:
            return None
        hanging = next(filter(_is_active, quiet), None)
        if hanging is None:
            return None
        signs = self._of(hanging.run)
        self._dumped, signs.dumps = now, signs.dumps + 1
        body = self._dump()
        about = {"quiet_s": round(now - signs.at)}
        return ThreadDump(hanging.query, hanging.run, about | body) if body else None

    def _dump(self) -> dict[str, Any] | None:
        try:
            return dict(self.dump())
        except (Py4JError, OSError, AttributeError) as error:
            logger.warning("could not take a thread dump: %s", error)
            return None

    def dump(self) -> dict[str, str]:
        """Return the JVM's threads, and its largest classes without a garbage collection."""
        heap = self._command("gcClassHistogram", "-all").splitlines()
        threads = self._command("threadPrint")
        return {"threads": threads[:MOST_CHARS], "heap": "\n".join(heap[:_CLASSES])}

    def _command(self, name: str, *options: str) -> str:
        """Return the output of a diagnostic command of the JVM, such as `jcmd` runs it.

        The bean server's own class is hidden in its module, so its interface's method is called.
        """
        jvm, lang = self._context._jvm, self._context._jvm.java.lang
        server = lang.management.ManagementFactory.getPlatformMBeanServer()
        about = jvm.javax.management.ObjectName(_DIAGNOSTICS)
        names = ("javax.management.ObjectName", "java.lang.String")
        types = [lang.Class.forName(class_name) for class_name in (*names, _OBJECTS, _TEXTS)]
        interface = lang.Class.forName("javax.management.MBeanServer")
        method = interface.getMethod("invoke", self._array(lang.Class, types))
        arguments = self._array(lang.Object, [self._array(lang.String, options)])
        signature = self._array(lang.String, [_TEXTS])
        values = self._array(lang.Object, [about, name, arguments, signature])
        return str(method.invoke(server, values))

    def _array(self, kind: Any, values: Sequence[Any]) -> Any:
        made = self._context._gateway.new_array(kind, len(values))
        for index, value in enumerate(values):
            made[index] = value
        return made

    def _of(self, run: int) -> _Signs:
        signs = self._signs.setdefault(run, _Signs(monotonic()))
        while len(self._signs) > _MOST_RUNS:
            self._signs.popitem(last=False)
        return signs


def _is_active(run: RunKnown) -> bool:
    """Return whether a run's trigger is active; False if that is unknown."""
    try:
        return bool(run.jquery.status().isTriggerActive())
    except (Py4JError, OSError, AttributeError) as error:
        logger.warning("could not ask whether a trigger is active: %s", error)
        return False
