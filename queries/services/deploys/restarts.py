"""Restart the units of a deploy in the order of their lineage, and evaluate each.

Everything that belongs to the application (its script, the script's queries, unchanged queries)
restarts with its driver, through the application's own operation. A restart is requested separately
for a query whose definition changes, or that has failed and that nothing else would start.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from queries.domain.deploys.course import ChangeResult, judge
from queries.domain.deploys.request import ChangeKind, DeployStage, Good, RestartGroup, WaveOrder
from queries.domain.lineage.graph import order_of
from queries.domain.manifests.forms import Kind
from queries.domain.reasons import NOTHING, Because, Detail
from queries.domain.states import FAILED_PHASES, Desired, Phase, StopMode
from queries.models.applications import Application, Script
from queries.models.definitions import Query
from queries.models.deploys import DeployChange
from queries.models.drivers import Installation
from queries.models.history import Operation
from queries.selectors.deploys.evidence import (
    DeployEvidence,
    application_runs,
    of_application,
    of_query,
    query_of,
)
from queries.selectors.lineage import Planned, lineage
from queries.services.definitions.items import SetItem
from queries.services.deploys.rollback import run_newest
from queries.services.deploys.steps import DeployStep, note, operations_with
from queries.services.manifests.planning import Plan
from queries.services.supervision import operations
from queries.services.supervision.application_operations import (
    request_application_restart,
    request_script_stop,
)


def ran_before(change: DeployChange) -> bool:
    """Return whether a query, a script or a driver runs now, before its wave is written."""
    if change.kind == ChangeKind.APPLICATION:
        return change.application is not None and application_runs(change.application)
    query = change.query
    return query is not None and query.desired == Desired.RUNNING and query.phase == Phase.RUNNING


def judged(step: DeployStep, change: DeployChange) -> ChangeResult:
    """Return whether a change works well on the revision that the deploy has written."""
    assert change.to_revision is not None, "it was written"
    evidence = _evidence(step, change, change.to_revision)
    change.evidence = {**change.evidence, **evidence.stored}
    change.first_batch = evidence.first_batch
    return judge(step.good, evidence.observed, now=step.now)


def judged_back(step: DeployStep, change: DeployChange, good: Good) -> ChangeResult:
    """Return whether everything that ran before a change runs again, on the former definition."""
    revision = change.back_revision or change.from_revision
    assert revision is not None, "what ran before has a revision"
    evidence = _evidence(step, change, revision)
    change.evidence = {**change.evidence, "back": evidence.stored}
    return judge(good, replace(evidence.observed, unstarted_since=None), now=step.now)


def _evidence(step: DeployStep, change: DeployChange, revision: int) -> DeployEvidence:
    look = of_application if change.kind == ChangeKind.APPLICATION else of_query
    return look(change, revision, now=step.now)


#: Names in one reason.
_NAMED = 5


@dataclass(frozen=True, slots=True)
class WaveOrdering:
    """Which units wait for others, by `RestartGroup.key`."""

    before: Mapping[str, Collection[str]] = field(default_factory=dict)
    circles: tuple[tuple[str, ...], ...] = ()  # names that read each other's data
    circle_of: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unsure: tuple[str, ...] = ()  # queries because of which the order may be incomplete

    def reason(self, kind: ChangeKind, name: str) -> Because:
        """Return why a unit waits for its wave; `NOTHING` if lineage does not matter for it."""
        key = f"{kind}:{name}"
        if circle := self.circle_of.get(key):
            return Because(Detail.IN_A_CIRCLE, {"names": _names(circle)})
        if earlier := self.before.get(key):
            return Because(Detail.AFTER_OTHERS, {"names": _names(map(_name, earlier))})
        return NOTHING


def wave_order(set_plan: Plan, units: Iterable[RestartGroup], first: WaveOrder) -> WaveOrdering:
    """Return the order of a set's units, by the lineage that the set would leave."""
    units = list(units)
    if first == "name" or len(units) < 2:
        return WaveOrdering()
    graph = lineage(_planned(set_plan.items))
    queries = {
        unit.key: (unit.name,) if unit.kind is ChangeKind.QUERY else unit.queries for unit in units
    }
    names = {unit.key: unit.name for unit in units}
    order = order_of(queries, graph.after if first == "upstream" else graph.before)
    circles = {
        key: tuple(names[member] for member in part) for part in order.circles for key in part
    }
    unsure = graph.unsure_near(name for of_unit in queries.values() for name in of_unit)
    return WaveOrdering(
        order.before, tuple(dict.fromkeys(circles.values())), circles, tuple(unsure)
    )


def _planned(items: Iterable[SetItem]) -> Planned:
    items = list(items)
    queries = {
        item.name: (item.after["spec"], item.host, item.checked.reads)
        for item in items
        if item.kind == Kind.QUERY and item.after
    }
    confs = {
        item.name: item.after["spec"].get("conf") or {}
        for item in items
        if item.kind == Kind.APPLICATION and item.after
    }
    return Planned(queries, confs)


def _name(key: str) -> str:
    return key.partition(":")[2]


def _names(names: Iterable[str]) -> str:
    sorted_names = sorted(names)
    more = f" and {len(sorted_names) - _NAMED} more" if len(sorted_names) > _NAMED else ""
    return ", ".join(sorted_names[:_NAMED]) + more


RestartRequest = Callable[[DeployStep, DeployChange], Operation | None]


def unit_of(changes: Sequence[DeployChange], first: DeployChange) -> list[DeployChange]:
    """Return the changes that restart together with a change, the application's own one last."""
    if not first.with_driver:
        return [first]
    unit = [
        change
        for change in changes
        if change.with_driver and change.application_id == first.application_id
    ]
    return sorted(unit, key=lambda change: change.kind == ChangeKind.APPLICATION)


def restart_unit(
    step: DeployStep, unit: Sequence[DeployChange], stage: DeployStage, request: RestartRequest
) -> list[DeployChange]:
    """Request a unit's restart and record it on each change; return changes that are not restarted.

    A change without its own operation restarts with its application's driver.
    """
    operations = {change.pk: request(step, change) for change in unit}
    epoch = Installation.get().last_epoch  # all locks are held: later epochs are higher
    own = next((change for change in unit if change.kind == ChangeKind.APPLICATION), None)
    driver = operations[own.pk] if own is not None else None
    left = []
    for change in unit:
        operation = operations[change.pk] or (driver if _goes_along(change) else None)
        if operation is None:
            left.append(change)
            continue
        stage_operations = operations_with(change, stage, operation)
        note(change, operations=stage_operations, restarted_at=step.now, restart_epoch=epoch)
    return left


def _goes_along(change: DeployChange) -> bool:
    if change.kind != ChangeKind.QUERY or not change.with_driver or change.is_written:
        return False
    query = query_of(change)
    return query.archived_at is None and (query.desired == Desired.RUNNING or query.discovered)


def restart_on_new_definition(step: DeployStep, change: DeployChange) -> Operation | None:
    """Request that a change run on the definition that the deploy has written."""
    if not change.runs:
        return None
    if change.kind == ChangeKind.APPLICATION:
        assert change.application is not None, "it was written"
        return request_application_restart(
            application=change.application, **step.by, of_deploy=True
        )
    query = query_of(change)
    return _run_written(step, query) if change.is_written else _again(step, query)


def restart_on_former_definition(step: DeployStep, change: DeployChange) -> Operation | None:
    """Request that a change run as before the deploy; queries that a user stopped stay stopped."""
    if change.restarted_at is None:  # it never ran on the new definition
        return None
    if change.kind == ChangeKind.APPLICATION:
        assert change.application is not None, "it was restarted"
        return _application_back(step, change, change.application)
    query = query_of(change)
    if query.desired != Desired.RUNNING or query.archived_at is not None:
        return None
    if not change.was_to_run:
        return operations.request_stop(query=query, mode=StopMode.GRACEFUL, **step.by)
    return _run_written(step, query) if change.is_written else _again(step, query)


def _application_back(
    step: DeployStep, change: DeployChange, application: Application
) -> Operation | None:
    script = Script.objects.filter(application=application).first()
    if script is not None and not change.was_to_run:
        mode = StopMode.GRACEFUL
        return request_script_stop(application=application, mode=mode, **step.by)
    completed = script is not None and script.phase == Phase.COMPLETED
    if script is not None and script.desired != Desired.RUNNING and not completed:
        return None
    return request_application_restart(application=application, **step.by, of_deploy=True)


def _run_written(step: DeployStep, query: Query) -> Operation:
    """Run the written revision; the request was rejected if a state change was not accepted."""
    return run_newest(query, **step.by, accept_state_change=True)


def _again(step: DeployStep, query: Query) -> Operation | None:
    """Retry a query that is failed, on hold or in backoff, without changing its definition."""
    if query.discovered or query.phase not in FAILED_PHASES:
        return None
    return operations.request_again(query=query, **step.by)
