"""Say what an apply of a set would do: everything is looked up and validated, nothing is written.

1. Each file is read by itself: values are put in, the shape is checked.
2. What is there is read in bulk (`selectors.manifests.present`).
3. Each object is compared with what is there; what is unchanged is not validated again.
4. What is new or changed is validated as if it had been saved by itself, in the surroundings that
   the whole set makes.
5. What the owner no longer has in the set is pruned, where that is asked for.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from queries.domain.characters import with_escapes
from queries.domain.errors import Forbidden, Invalid
from queries.domain.manifests.forms import Kind, parse_manifest
from queries.domain.manifests.plans import Change, ObjectPlan, Outcome
from queries.domain.manifests.reading import read_text, with_values
from queries.domain.manifests.sets import MOST_FILES, ApplySet, SetFile
from queries.roles import ADMINISTER, DEFINE, may
from queries.selectors.access.insisting import insist, who_can_help
from queries.selectors.manifests.present import Present, look_up
from queries.services.manifests import applications, queries, rules
from queries.services.manifests.items import SetItem
from queries.services.manifests.pruning import Leaving, leaving


@dataclass(slots=True)
class Plan:
    """What an apply would do, and all that doing it takes."""

    asked: ApplySet
    present: Present
    items: list[SetItem]
    leaving: list[Leaving] = field(default_factory=list)

    @property
    def objects(self) -> list[ObjectPlan]:
        """Return what becomes of each object, in the order of the files; then what is pruned."""
        return [item.plan() for item in self.items] + [one.plan() for one in self.leaving]

    @property
    def refused(self) -> bool:
        """Return whether anything keeps the set from being applied."""
        return any(one.outcome is Outcome.REFUSED for one in self.objects)


def plan(asked: ApplySet, *, user: Any, now: datetime) -> Plan:
    """Return what an apply of a set by a user would do; nothing is written.

    Raises `Forbidden` where the user may not do all of it.
    """
    if not may(user, DEFINE):
        raise Forbidden("Only authors define.", way_out=f"Ask an admin ({who_can_help()}).")
    items = _read(asked)
    sound = [item for item in items if item.manifest is not None and not item.problems]
    present = look_up((item.manifest for item in sound if item.manifest), owner=asked.owner)
    for item in sound:
        _match(item, present, asked.owner)
    of_kind: dict[Kind, list[SetItem]] = {kind: [] for kind in Kind}
    for item in sound:
        of_kind[Kind(item.kind)].append(item)
    found = Plan(asked, present, items)
    if asked.prune:
        found.leaving = leaving(asked, present, {(one.kind, one.name) for one in items})
    _insist(user, of_kind, found.leaving)
    hosts = applications.plan_applications(of_kind[Kind.APPLICATION], present, user=user)
    for one in found.leaving:
        if one.kind is Kind.APPLICATION:
            hosts.pop(one.name, None)  # no query of the set can be in it
    queries.plan_queries(of_kind[Kind.QUERY], present, hosts, user=user)
    applications.look_for_orphans(
        of_kind[Kind.APPLICATION], of_kind[Kind.QUERY], present, found.leaving
    )
    rules.plan_rules(of_kind[Kind.ALERT_RULE])
    return found


def _read(asked: ApplySet) -> list[SetItem]:
    """Return each manifest of a set, well formed or with what is wrong with it."""
    items = [item for index, file in enumerate(asked.manifests) for item in _of(index, file, asked)]
    if len(items) > MOST_FILES:
        items[-1].refuse("manifests", str(len(items)), "are too many.", f"Send {MOST_FILES}.")
    counts = Counter((item.kind, item.name) for item in items if item.name)
    first: dict[tuple[str, str], str] = {}
    for item in items:
        key = (item.kind, item.name)
        if counts[key] > 1 and key in first:
            at = f" in {first[key]}" if first[key] else ""
            way_out = "Keep one of the two."
            item.refuse("metadata.name", item.name, f"is also defined{at}.", way_out)
        first.setdefault(key, item.path)
    return items


def _of(index: int, file: SetFile, asked: ApplySet) -> Iterator[SetItem]:
    path = file.path or f"manifests.{index}"
    try:
        raws = [file.manifest] if file.text is None else read_text(file.text)
    except Invalid as error:
        yield SetItem(path, "", "", problems=list(error.problems))
        return
    if not raws:
        empty = SetItem(path, "", "")
        empty.refuse("text", "", "holds no manifest.", "Write one, or leave the file out.")
        yield empty
    for raw in raws:
        try:
            manifest = parse_manifest(with_values(raw, asked.values))
        except Invalid as error:
            yield SetItem(path, *_guessed(raw), problems=list(error.problems))
        else:
            yield SetItem(path, manifest.kind, manifest.name, manifest)


def _guessed(raw: Any) -> tuple[str, str]:
    """Return the kind and the name that a manifest with faults seems to have."""
    held = raw if isinstance(raw, dict) else {}
    metadata = held.get("metadata")
    name = metadata.get("name", "") if isinstance(metadata, dict) else ""
    kind = held.get("kind", "")
    return with_escapes(str(kind))[:80], with_escapes(str(name))[:80]


def _match(item: SetItem, present: Present, owner: str) -> None:
    """Find what is there of an object; note where that is another owner's."""
    assert item.manifest is not None
    kind, name = item.manifest.key
    rows: dict[Kind, dict[str, Any]] = {
        Kind.APPLICATION: present.applications,
        Kind.QUERY: present.queries,
        Kind.ALERT_RULE: present.rules,
    }
    item.row = rows[kind].get(name)
    item.is_new = item.row is None
    item.managed = None if item.is_new else present.managed.get((kind, name))
    if item.row is not None and item.managed is None:
        item.changes.append(Change("owner", None, owner))
    elif item.managed is not None and item.managed.owner != owner:
        source = f" ({item.managed.source})" if item.managed.source else ""
        item.refuse(
            "metadata.name",
            name,
            f"belongs to owner {item.managed.owner}{source}.",
            "Remove it from one of the two, and have that owner apply or release it.",
        )


def _insist(user: Any, of_kind: dict[Kind, list[SetItem]], going: Iterable[Leaving]) -> None:
    """Raise `Forbidden` where the user may not define one of the objects."""
    concerned = {
        row.pk: row
        for row in (
            *(item.application for items in of_kind.values() for item in items),
            *(one.application for one in going),
        )
        if row is not None
    }
    insist(user, list(concerned.values()))
    has_rules = of_kind[Kind.ALERT_RULE] or any(one.kind is Kind.ALERT_RULE for one in going)
    if has_rules and not may(user, ADMINISTER):
        raise Forbidden(
            "Only admins set alerts up, and the set holds alert rules.",
            way_out=f"Leave them out, or ask an admin ({who_can_help()}) to apply them.",
        )
