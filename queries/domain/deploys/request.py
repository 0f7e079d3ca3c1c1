"""The request for a deploy, its states, and its division into waves, in their order.

A change to an application's code, packages, configuration or pools restarts its driver with all of
its queries: they are one unit, in waves of applications. Other queries restart individually. A wave
contains units of one kind, except for the canary wave. Units that write others' inputs go in
earlier waves (`queries.domain.lineage.graph`).

A change to code or packages also affects queries whose own definition is unchanged. Some of them
are tested before the first wave.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from heapq import heappop, heappush
from typing import Any, Literal

from pydantic import Field, ValidationError

from queries.domain.definitions.code import IMPORTED
from queries.domain.definitions.parsing import shape_problems
from queries.domain.definitions.spec import StrictForm
from queries.domain.errors import Invalid, Problem
from queries.domain.states import Described


class DeployState(StrEnum):
    """The state of a deploy."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    ROLLED_BACK = "ROLLED_BACK"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


#: States of a finished deploy, whose report no longer changes.
ENDED = frozenset(
    {
        DeployState.SUCCEEDED,
        DeployState.ROLLED_BACK,
        DeployState.FAILED,
        DeployState.CANCELLED,
    }
)

#: Final states after which a deploy's snapshots are no longer needed and are pruned like any
#: others.
FREEING = frozenset({DeployState.SUCCEEDED, DeployState.ROLLED_BACK})


class DeployStage(Described):
    """What a deploy is doing; the values are part of the names of its fail-points."""

    PREFLIGHT = "preflight", "Preflight of the new definitions"
    SNAPSHOT = "snapshot", "Snapshots"
    WRITE = "write", "Write the definitions"
    RESTART = "restart", "Restart"
    JUDGE = "judge", "Wait until it succeeds"
    SETTLE = "settle", "Write the rest of the set"
    TRY_BACK = "try-back", "Preflight of the previous definitions"
    WRITE_BACK = "write-back", "Write the previous definitions"
    RESTART_BACK = "restart-back", "Restart on the previous definitions"
    JUDGE_BACK = "judge-back", "Wait until the previous definitions run"
    OVER = "over", "Ended"


#: Stages of one wave, in order.
OF_A_WAVE = (DeployStage.SNAPSHOT, DeployStage.WRITE, DeployStage.RESTART, DeployStage.JUDGE)
#: Stages of the rollback, in order.
ROLLBACK_STAGES = (
    DeployStage.TRY_BACK,
    DeployStage.WRITE_BACK,
    DeployStage.RESTART_BACK,
    DeployStage.JUDGE_BACK,
)


class ChangeState(StrEnum):
    """The state of one query or application in a deploy."""

    PENDING = "PENDING"  # its wave has not begun
    TRIED = "TRIED"  # its preflight is running, or has passed
    SAVED = "SAVED"  # a snapshot is being taken, or exists
    WRITTEN = "WRITTEN"  # its definition is saved as the newest; nothing runs on it yet
    RESTARTED = "RESTARTED"  # its restart has been requested, and it is being judged
    GOOD = "GOOD"
    BAD = "BAD"
    KEPT = "KEPT"  # the former definition cannot continue from its state
    GOING_BACK = "GOING_BACK"
    ROLLED_BACK = "ROLLED_BACK"
    LEFT = "LEFT"  # nothing was changed


#: States of changes that need nothing more on the way forward.
SETTLED = frozenset({ChangeState.GOOD, ChangeState.ROLLED_BACK, ChangeState.LEFT})
#: States of changes that dropped out of their deploy; if a wave has several, the first here is
#: shown.
OUT = (ChangeState.KEPT, ChangeState.BAD)
#: States in which its deploy decides what becomes of a query: it is judged or rolled back.
IN_DEPLOYS_HANDS = frozenset(
    {
        *(ChangeState.WRITTEN, ChangeState.RESTARTED),
        *(ChangeState.BAD, ChangeState.GOING_BACK),
    }
)


class ChangeKind(StrEnum):
    """The kind of object that changes."""

    QUERY = "Query"
    APPLICATION = "Application"


class OnFailure(StrEnum):
    """What a deploy does after a bad result."""

    ROLLBACK = "rollback"
    STOP = "stop"


#: The longest time that a deploy waits for one wave, in minutes.
LONGEST = 1440
MOST_CANARIES = 100


#: What goes first: the writers of data, its readers, or neither (then only names decide).
WaveOrder = Literal["upstream", "downstream", "name"]


class Waves(StrictForm):
    """The order of restarts: the canary first, then `size` at a time."""

    canary: tuple[str, ...] = Field(default=(), max_length=MOST_CANARIES)  # queries or applications
    size: int = Field(default=5, ge=1, le=1000)
    first: WaveOrder = "upstream"


class Good(StrictForm):
    """Conditions that each query must meet before the next wave begins."""

    first_commit: bool = True  # an idle trigger satisfies it too
    batches: int = Field(default=0, ge=0, le=1000)  # committed since the restart
    minutes: int = Field(default=0, ge=0, le=LONGEST)  # running without a restart
    lag_not_worse: bool = False  # than before the deploy
    no_new_failures: bool = True
    deadline_minutes: int = Field(default=10, ge=1, le=LONGEST)  # per wave, from its restart


class DeployForm(StrictForm):
    """The request for a deploy; `apply` has the same form as the body of an apply."""

    apply: dict[str, Any]
    waves: Waves = Field(default_factory=Waves)
    good: Good = Field(default_factory=Good)
    on_failure: OnFailure = OnFailure.ROLLBACK
    preflight: bool = False


def parse_deploy(raw: Mapping[str, Any]) -> DeployForm:
    """Return the request; raise `Invalid` with every error by field."""
    try:
        form = DeployForm.model_validate(raw)
    except ValidationError as error:
        raise Invalid(shape_problems(error)) from error
    problems = list(_problems(form))
    if problems:
        raise Invalid(problems)
    return form


def _problems(form: DeployForm) -> list[Problem]:
    good, problems = form.good, []
    if good.minutes >= good.deadline_minutes:
        message = f"would not be reached before the deadline of {good.deadline_minutes} min."
        way_out = "Increase good.deadline_minutes."
        problems.append(Problem("good.minutes", str(good.minutes), message, way_out))
    if not (good.first_commit or good.batches or good.minutes):
        way_out = "Set first_commit, batches or minutes."
        problems.append(Problem("good", "", "contains no condition to wait for.", way_out))
    if form.apply.get("dry_run"):
        way_out = "Send it to /api/v1/apply/ instead."
        problems.append(Problem("apply.dry_run", "true", "has no effect on a deploy.", way_out))
    return problems


#: Units without an order: their names decide.
NO_ORDER: Mapping[str, Collection[str]] = {}


@dataclass(frozen=True, slots=True)
class RestartGroup:
    """A group that can only restart together."""

    kind: ChangeKind
    name: str
    queries: tuple[str, ...] = ()  # for an application: the queries that restart with it

    @property
    def key(self) -> str:
        """Return a string that identifies it among units of both kinds."""
        return f"{self.kind}:{self.name}"

    @property
    def names(self) -> frozenset[str]:
        """Return the names that a canary may use for it."""
        return frozenset({self.name, *self.queries})


@dataclass(frozen=True, slots=True)
class UnchangedQuery:
    """An unchanged query that restarts with its application's driver."""

    name: str
    application: str
    is_python: bool


def divide(
    units: Iterable[RestartGroup], waves: Waves, before: Mapping[str, Collection[str]] = NO_ORDER
) -> list[tuple[RestartGroup, ...]]:
    """Return the waves in order: the canary, then each unit after those that precede it.

    `before` maps a unit's `key` to the keys of the units that must be in earlier waves. Of the
    units that can go, applications go first, and then queries, both by name. Raises `Invalid` if a
    canary's name does not match any change.
    """
    left = sorted(units, key=lambda unit: (unit.kind != ChangeKind.APPLICATION, unit.name))
    canary = [unit for unit in left if unit.names & set(waves.canary)]
    _require_restarted(waves.canary, left)
    rest = [unit for unit in left if unit not in canary]
    ordered_waves = [tuple(canary)] if canary else []
    positions = {unit.key: at for at, unit in enumerate(rest)}
    waits = {
        key: {key_before for key_before in before.get(key, ()) if key_before in positions}
        for key in positions
    }
    later: dict[str, list[str]] = defaultdict(list)
    for key, earlier in waits.items():
        for key_before in earlier:
            later[key_before].append(key)
    ready = [
        at for key, at in positions.items() if not waits[key]
    ]  # a heap of places: it is sorted
    queued, done = set(ready), 0
    while done < len(rest):
        if not ready:  # a circle, which `before` should not contain
            ready = [at for at in range(len(rest)) if at not in queued]
            queued.update(ready)
        wave = [rest[heappop(ready)]]
        while ready and len(wave) < waves.size and rest[ready[0]].kind is wave[0].kind:
            wave.append(rest[heappop(ready)])
        ordered_waves.append(tuple(wave))
        done += len(wave)
        for key in (key for unit in wave for key in later[unit.key]):
            waits[key] -= {unit.key for unit in wave}
            if not waits[key] and positions[key] not in queued:
                queued.add(positions[key])
                heappush(ready, positions[key])
    return ordered_waves


def _require_restarted(names: Iterable[str], units: Sequence[RestartGroup]) -> None:
    restarted = frozenset[str]().union(*(unit.names for unit in units))
    problems = [
        Problem(
            "waves.canary",
            name[:200],
            "is not restarted by this deploy.",
            f"Restarted by this deploy: {', '.join(sorted(restarted)[:20]) or 'none'}.",
        )
        for name in names
        if name not in restarted
    ]
    if problems:
        raise Invalid(problems)


def imports_differ(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Return whether two definitions of an application differ in code or packages."""
    return any(before.get(name) != after.get(name) for name in IMPORTED)


def tried_beside(
    beside: Iterable[UnchangedQuery],
    *,
    new_imports: Collection[str],
    tried: Collection[str],
    new_sparks: Collection[str] = (),
) -> frozenset[str]:
    """Return the unchanged queries to test with new code and packages, or a new Spark.

    new_sparks: applications whose Spark changes; all their queries are tested, because each has its
    own checkpoint. new_imports: applications whose code or packages change. tried: applications
    with a changed query that is already being tested. All Python queries are tested. SQL queries do
    not import anything, so if there are only SQL queries, one is enough to show that the packages
    can be installed.
    """
    beside = list(beside)
    queries = {query.name for query in beside if query.application in new_sparks}
    ordered = sorted(
        (query for query in beside if query.application in new_imports),
        key=lambda query: query.name,
    )
    queries |= {query.name for query in ordered if query.is_python}
    shown = {*tried, *(query.application for query in ordered if query.is_python)}
    for query in ordered:
        if query.application not in shown:
            queries.add(query.name)
            shown.add(query.application)
    return frozenset(queries)
