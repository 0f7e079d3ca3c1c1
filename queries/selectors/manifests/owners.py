"""Find an object's owner, and whether the object still matches its file."""

from dataclasses import dataclass

from queries.domain.manifests.forms import Kind
from queries.domain.manifests.plans import Drift, differences, settle
from queries.domain.states import Phase
from queries.models.alerts import AlertRule
from queries.models.applications import Application
from queries.models.definitions import Query
from queries.models.manifests.managed import Managed
from queries.selectors.manifests import states
from queries.selectors.newest import newest_revisions
from queries.selectors.supervision.drift import newest_application_revisions, pools_of


@dataclass(frozen=True, slots=True)
class Owned:
    """An object with its owner."""

    managed: Managed
    drift: Drift | None  # None: unchanged since its file was applied


def owned(row: Application | Query | AlertRule) -> Owned | None:
    """Return an object with its owner; None if it has none."""
    managed = managed_of(row)
    if managed is None:
        return None
    edited = differences(managed.applied, states.comparable(_state(row), managed.applied))
    way_out = settle(_kind(row), row.name, managed.source)
    return Owned(managed, Drift(edited, way_out) if edited else None)


def managed_of(row: Application | Query | AlertRule) -> Managed | None:
    """Return the row with an object's owner; None if it has none."""
    return Managed.objects.filter(**{_column(row): row}).first()


def _column(row: Application | Query | AlertRule) -> str:
    return "rule" if isinstance(row, AlertRule) else str(row._meta.model_name)


def _kind(row: Application | Query | AlertRule) -> Kind:
    if isinstance(row, AlertRule):
        return Kind.ALERT_RULE
    return Kind.QUERY if isinstance(row, Query) else Kind.APPLICATION


def _state(row: Application | Query | AlertRule) -> states.State:
    if isinstance(row, AlertRule):
        return states.of_rule(row)
    if isinstance(row, Query):
        spec = newest_revisions([row.pk])[row.pk].spec
        state = states.of_query(row.labels, states.normal_query(spec))
        state = states.with_desired(state, row.desired)
        return states.unedited(state, completed=row.phase == Phase.COMPLETED)
    spec = newest_application_revisions([row.pk])[row.pk].spec
    pools = states.pools_json(pools_of([row.pk]).get(row.pk, []))
    state = states.of_application(row.labels, states.normal_application(spec), pools)
    script = getattr(row, "script", None)
    if script is None:
        return state
    state = states.with_desired(state, script.desired)
    return states.unedited(state, completed=script.phase == Phase.COMPLETED)
