"""Plan an apply: look up and validate everything, without writing.

1. Each file is read separately: values are filled in, and the structure is checked.
2. The existing objects are read in bulk (`selectors.manifests.present`).
3. Each object is compared with the existing one; unchanged objects are not validated again.
4. New and changed objects are validated as if each were saved individually, in the context of the
   whole set.
5. If requested, the owner's objects that are no longer in the set are pruned.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from queries.domain.accepted_values import with_escapes
from queries.domain.errors import Forbidden, Invalid, Problem
from queries.domain.manifests.forms import Kind, parse_manifest
from queries.domain.manifests.sets import (
    MOST_FILES,
    ApplySet,
    Change,
    ObjectPlan,
    Outcome,
    SetFile,
    read_text,
    with_values,
)
from queries.models.alerts import AlertRule, Channel
from queries.roles import ADMINISTER, DEFINE, WRITE_PYTHON, author_rights, may
from queries.selectors import manifests
from queries.selectors.access import insist, who_can_help
from queries.selectors.manifests import ExistingRows, look_up
from queries.services.code.git import resolved
from queries.services.definitions.application_plans import plan_applications
from queries.services.definitions.items import SetItem, below_spec
from queries.services.definitions.query_plans import (
    look_for_orphans,
    plan_queries,
    refuse_unchecked,
)
from queries.services.manifests.ownership import Leaving, leaving


@dataclass(slots=True)
class Plan:
    """What an apply would do, and everything needed to do it."""

    asked: ApplySet  # with its branches and tags resolved to commits
    existing_rows: ExistingRows
    items: list[SetItem]
    leaving: list[Leaving] = field(default_factory=list)

    @property
    def objects(self) -> list[ObjectPlan]:
        """Return each object's outcome, in the order of the files, then the pruned objects."""
        return [item.plan() for item in self.items] + [one.plan() for one in self.leaving]

    @property
    def refused(self) -> bool:
        """Return whether anything prevents the set from being applied."""
        return any(one.outcome is Outcome.REFUSED for one in self.objects)


def plan(asked: ApplySet, *, user: Any, now: datetime) -> Plan:
    """Plan a user's apply of a set, without writing.

    Raises `Forbidden` if the user does not have permission for all of it.
    """
    if not may(user, DEFINE):
        raise Forbidden(
            "Only authors can change definitions.", way_out=f"Ask an admin ({who_can_help()})."
        )
    items = _read(asked)
    if may(user, WRITE_PYTHON):
        asked = _resolved(asked, items)
    sound = [item for item in items if item.manifest is not None and not item.problems]
    existing_rows = look_up((item.manifest for item in sound if item.manifest), owner=asked.owner)
    for item in sound:
        _match(item, existing_rows, asked.owner)
    of_kind: dict[Kind, list[SetItem]] = {kind: [] for kind in Kind}
    for item in sound:
        of_kind[Kind(item.kind)].append(item)
    found = Plan(asked, existing_rows, items)
    if asked.prune:
        found.leaving = leaving(asked, existing_rows, {(one.kind, one.name) for one in items})
    _insist(user, of_kind, found.leaving)
    author: dict[str, Any] = {"rights": author_rights(user), "user": user}
    hosts = plan_applications(of_kind[Kind.APPLICATION], existing_rows, **author)
    for one in found.leaving:
        if one.kind is Kind.APPLICATION:
            hosts.pop(one.name, None)  # no query of the set can belong to it
    plan_queries(of_kind[Kind.QUERY], existing_rows, hosts, **author)
    if asked.require_checked:
        refuse_unchecked(of_kind[Kind.QUERY], existing_rows)
    look_for_orphans(
        of_kind[Kind.APPLICATION],
        of_kind[Kind.QUERY],
        existing_rows,
        hosts,
        leaving={one.query.pk for one in found.leaving if one.query is not None},
    )
    _plan_rules(of_kind[Kind.ALERT_RULE])
    return found


def _read(asked: ApplySet) -> list[SetItem]:
    """Return a set's manifests, valid or with their problems."""
    items = [item for index, file in enumerate(asked.manifests) for item in _of(index, file, asked)]
    if len(items) > MOST_FILES:
        items[-1].refuse(
            "manifests", str(len(items)), "are too many.", f"Send at most {MOST_FILES}."
        )
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
        empty.refuse("text", "", "contains no manifest.", "Write one, or omit the file.")
        yield empty
    for raw in raws:
        try:
            manifest = parse_manifest(with_values(raw, asked.values))
        except Invalid as error:
            yield SetItem(path, *_guessed(raw), problems=list(error.problems))
        else:
            yield SetItem(path, manifest.kind, manifest.name, manifest)


def _resolved(asked: ApplySet, items: Iterable[SetItem]) -> ApplySet:
    """Resolve each application's branch or tag to a commit, once for the set."""
    found = list(asked.resolved)
    for item in items:
        if item.manifest is None or item.kind != Kind.APPLICATION or item.problems:
            continue
        try:
            spec, ref = resolved(item.manifest.spec, found)
        except Invalid as error:
            item.problems += below_spec(error.problems)
            continue
        item.manifest = replace(item.manifest, spec=spec)
        if ref is not None and ref not in found:
            found.append(ref)
    return asked.model_copy(update={"resolved": tuple(found)})


def _guessed(raw: Any) -> tuple[str, str]:
    """Return the likely kind and name of an invalid manifest."""
    held = raw if isinstance(raw, dict) else {}
    metadata = held.get("metadata")
    name = metadata.get("name", "") if isinstance(metadata, dict) else ""
    kind = held.get("kind", "")
    return with_escapes(str(kind))[:80], with_escapes(str(name))[:80]


def _match(item: SetItem, existing_rows: ExistingRows, owner: str) -> None:
    """Find the existing object; record a problem if it has another owner."""
    assert item.manifest is not None
    kind, name = item.manifest.key
    rows: dict[Kind, dict[str, Any]] = {
        Kind.APPLICATION: existing_rows.applications,
        Kind.QUERY: existing_rows.queries,
        Kind.ALERT_RULE: existing_rows.rules,
    }
    item.row = rows[kind].get(name)
    item.is_new = item.row is None
    item.managed = None if item.is_new else existing_rows.managed.get((kind, name))
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
    """Raise `Forbidden` if the user is not allowed to define one of the objects."""
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
            "Only admins can configure alerts, and the set contains alert rules.",
            way_out=f"Remove them, or ask an admin ({who_can_help()}) to apply them.",
        )


def _plan_rules(items: list[SetItem]) -> None:
    """Compare rules with the existing ones, and record missing channels."""
    known = set(Channel.objects.values_list("name", flat=True)) if items else set()
    for item in items:
        assert item.manifest is not None
        if isinstance(item.row, AlertRule):
            item.before = manifests.of_rule(item.row)
        item.after = manifests.of_manifest(item.manifest, item.manifest.spec)
        item.compare()
        for named in ("channels", "escalate_to"):
            item.problems += [
                Problem(
                    f"spec.{named}.{index}",
                    name[:200],
                    "is not an existing channel.",
                    f"Channels: {', '.join(sorted(known)) or 'none yet'}.",
                )
                for index, name in enumerate(item.after["spec"][named])
                if name not in known
            ]
