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
from queries.services.manifests.pruning import Leaving, leaving
from queries.services.manifests.works import Work


@dataclass(slots=True)
class Plan:
    """What an apply would do, and all that doing it takes."""

    asked: ApplySet
    present: Present
    works: list[Work]
    leaving: list[Leaving] = field(default_factory=list)

    @property
    def objects(self) -> list[ObjectPlan]:
        """Return what becomes of each object, in the order of the files; then what is pruned."""
        return [work.plan() for work in self.works] + [one.plan() for one in self.leaving]

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
    works = _read(asked)
    sound = [work for work in works if work.manifest is not None and not work.problems]
    present = look_up((work.manifest for work in sound if work.manifest), owner=asked.owner)
    for work in sound:
        _match(work, present, asked.owner)
    of_kind: dict[Kind, list[Work]] = {kind: [] for kind in Kind}
    for work in sound:
        of_kind[Kind(work.kind)].append(work)
    found = Plan(asked, present, works)
    if asked.prune:
        found.leaving = leaving(asked, present, {(one.kind, one.name) for one in works})
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


def _read(asked: ApplySet) -> list[Work]:
    """Return each manifest of a set, well formed or with what is wrong with it."""
    works = [work for index, file in enumerate(asked.manifests) for work in _of(index, file, asked)]
    if len(works) > MOST_FILES:
        works[-1].refuse("manifests", str(len(works)), "are too many.", f"Send {MOST_FILES}.")
    counts = Counter((work.kind, work.name) for work in works if work.name)
    first: dict[tuple[str, str], str] = {}
    for work in works:
        key = (work.kind, work.name)
        if counts[key] > 1 and key in first:
            at = f" in {first[key]}" if first[key] else ""
            way_out = "Keep one of the two."
            work.refuse("metadata.name", work.name, f"is also defined{at}.", way_out)
        first.setdefault(key, work.path)
    return works


def _of(index: int, file: SetFile, asked: ApplySet) -> Iterator[Work]:
    path = file.path or f"manifests.{index}"
    try:
        raws = [file.manifest] if file.text is None else read_text(file.text)
    except Invalid as error:
        yield Work(path, "", "", problems=list(error.problems))
        return
    if not raws:
        empty = Work(path, "", "")
        empty.refuse("text", "", "holds no manifest.", "Write one, or leave the file out.")
        yield empty
    for raw in raws:
        try:
            manifest = parse_manifest(with_values(raw, asked.values))
        except Invalid as error:
            yield Work(path, *_guessed(raw), problems=list(error.problems))
        else:
            yield Work(path, manifest.kind, manifest.name, manifest)


def _guessed(raw: Any) -> tuple[str, str]:
    """Return the kind and the name that a manifest with faults seems to have."""
    held = raw if isinstance(raw, dict) else {}
    metadata = held.get("metadata")
    name = metadata.get("name", "") if isinstance(metadata, dict) else ""
    kind = held.get("kind", "")
    return with_escapes(str(kind))[:80], with_escapes(str(name))[:80]


def _match(work: Work, present: Present, owner: str) -> None:
    """Find what is there of an object; note where that is another owner's."""
    assert work.manifest is not None
    kind, name = work.manifest.key
    rows: dict[Kind, dict[str, Any]] = {
        Kind.APPLICATION: present.applications,
        Kind.QUERY: present.queries,
        Kind.ALERT_RULE: present.rules,
    }
    work.row = rows[kind].get(name)
    work.is_new = work.row is None
    work.managed = None if work.is_new else present.managed.get((kind, name))
    if work.row is not None and work.managed is None:
        work.changes.append(Change("owner", None, owner))
    elif work.managed is not None and work.managed.owner != owner:
        source = f" ({work.managed.source})" if work.managed.source else ""
        work.refuse(
            "metadata.name",
            name,
            f"belongs to owner {work.managed.owner}{source}.",
            "Remove it from one of the two, and have that owner apply or release it.",
        )


def _insist(user: Any, of_kind: dict[Kind, list[Work]], going: Iterable[Leaving]) -> None:
    """Raise `Forbidden` where the user may not define one of the objects."""
    concerned = {
        row.pk: row
        for row in (
            *(work.application for works in of_kind.values() for work in works),
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
