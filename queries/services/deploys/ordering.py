"""Order the units of a deploy by lineage: what writes data before what reads it, or the reverse."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from queries.domain.deploys.forms import WaveOrder
from queries.domain.deploys.states import ChangeKind
from queries.domain.deploys.waves import RestartGroup
from queries.domain.lineage.order import order_of
from queries.domain.manifests.forms import Kind
from queries.domain.reasons import NOTHING, Because, Detail
from queries.selectors.lineage.graph import Planned, lineage
from queries.services.definitions.items import SetItem
from queries.services.manifests.planning import Plan

#: Names in one reason.
_NAMED = 5


@dataclass(frozen=True, slots=True)
class WaveOrdering:
    """Which units wait for others, by `Unit.key`."""

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
