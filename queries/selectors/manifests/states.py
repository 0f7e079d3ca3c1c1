"""Convert objects to states in the form of manifests, to compare rows with manifests.

Pools are keyed by name, so that adding one is a single change.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from queries.domain.alerts.forms import parse_rule
from queries.domain.definitions import parsing
from queries.domain.definitions.spec import PoolSpec
from queries.domain.errors import Invalid
from queries.domain.manifests.forms import Kind, Manifest
from queries.domain.states import Desired
from queries.models.alerts import AlertRule
from queries.models.applications import SchedulerPool
from queries.selectors.supervision.drift import pool_form

State = dict[str, Any]


def of_manifest(manifest: Manifest, spec: Mapping[str, Any]) -> State:
    """Return the state that a manifest requests; `spec` is the manifest's own, unmasked."""
    if manifest.kind is Kind.ALERT_RULE:
        return _rule_state(spec)
    if manifest.kind is Kind.QUERY:
        return _state(manifest.labels, spec)
    return of_application(manifest.labels, spec, map(parsing.as_json, manifest.pools))


def of_application(
    labels: Mapping[str, str], spec: Mapping[str, Any], pools: Iterable[Mapping[str, Any]]
) -> State:
    """Return the state of an application."""
    named = {pool["name"]: {k: v for k, v in pool.items() if k != "name"} for pool in pools}
    return _state(labels, {**spec, "pools": named})


def with_desired(state: State, desired: str | None) -> State:
    """Add the desired state to a state, unless it is None because the file leaves it to pages."""
    return state if desired is None else {**state, "desired": str(desired)}


def unedited(state: State, *, completed: bool) -> State:
    """Return a state for the drift comparison: completing an object is not a user's edit."""
    if not completed or "desired" not in state:
        return state
    return with_desired(state, Desired.RUNNING)


def comparable(state: State, said: State) -> State:
    """Return a state; omit the desired state if `said`, the file's state, leaves it to pages."""
    return state if "desired" in said else {k: v for k, v in state.items() if k != "desired"}


def of_query(labels: Mapping[str, str], spec: Mapping[str, Any]) -> State:
    """Return the state of a query."""
    return _state(labels, spec)


def of_rule(rule: AlertRule) -> State:
    """Return an alert rule's state; prefetch the channels if there are many rules."""
    raw = {
        "name": rule.name,
        "enabled": rule.enabled,
        "position": rule.position,
        "selector": rule.selector,
        "channels": [one.name for one in rule.channels.all()],
        "quiet_hours": rule.quiet_hours or None,
        "escalate_after_minutes": rule.escalate_after_minutes,
        "escalate_to": [one.name for one in rule.escalate_to.all()],
        "remind_every_hours": rule.remind_every_hours,
        "thresholds": rule.thresholds,
    }
    return as_rule(raw)


def as_rule(raw: Mapping[str, Any]) -> State:
    """Return a rule's state in the REST form."""
    try:
        form = parse_rule(raw).model_dump(mode="json", by_alias=True)
    except Invalid:  # today's form can no longer read it
        form = dict(raw)
    return _rule_state({name: value for name, value in form.items() if name != "name"})


def _rule_state(spec: Mapping[str, Any]) -> State:
    """Return a rule's state, with sorted channels, because their order does not matter."""
    named = {name: sorted(spec[name]) for name in ("channels", "escalate_to")}
    return {"spec": {**spec, **named}}


def pools_json(pools: Iterable[SchedulerPool]) -> list[dict[str, Any]]:
    """Return pools in the JSON form of `PoolSpec`."""
    return [pool_form(pool) for pool in pools]


def pools_of_state(state: State) -> dict[str, PoolSpec]:
    """Return the pools in an application's state, by name."""
    named = state["spec"]["pools"]
    return {name: PoolSpec(name=name, **held) for name, held in named.items()}


def normal_query(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored definition with today's fields and defaults."""
    try:
        return parsing.as_json(parsing.parse_query(spec))
    except Invalid:  # unreadable today; any manifest differs from it
        return dict(spec)


def normal_application(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return an application's stored definition with today's fields and defaults."""
    try:
        return parsing.as_json(parsing.parse_application(spec))
    except Invalid:
        return dict(spec)


def _state(labels: Mapping[str, str], spec: Mapping[str, Any]) -> State:
    return {"metadata": {"labels": dict(labels)}, "spec": dict(spec)}
