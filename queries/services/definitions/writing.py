"""Write planned definitions in one short transaction: those of a set, or a single one.

All slow work is done beforehand: a plan contains the results of all validation and look-ups. If one
of its objects has changed since, nothing is written. Running queries keep their revision.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction

from controlplane.nudge import changed
from queries.domain.definitions import parsing
from queries.domain.definitions.labels import labels_text
from queries.domain.errors import Conflict
from queries.domain.manifests.forms import Kind
from queries.domain.reasons import NOTHING, Because, Detail
from queries.models.applications import Application, SchedulerPool
from queries.models.definitions import Checkpoint, Query
from queries.models.drivers import Installation
from queries.selectors import manifests
from queries.selectors.manifests import ExistingRows, changed_since
from queries.services.definitions.definition_rows import DefinitionRows, checked_columns, pool_text
from queries.services.definitions.items import SetItem


class StalePlan(Conflict):
    """A definition has changed since the plan was made."""

    code = "stale-plan"


def one_at_a_time() -> None:
    """Serialize definition writes, so that no two writes take overlapping checkpoints."""
    Installation.lock()


@contextmanager
def writing(existing_rows: ExistingRows, items: Iterable[SetItem]) -> Iterator[None]:
    """Run a block in the transaction that writes a plan's definitions.

    Raises `StalePlan` if one of them has changed since the plan was made.
    """
    try:
        with transaction.atomic():
            one_at_a_time()
            if changed_since(existing_rows, creates=any(item.is_new for item in items)):
                raise StalePlan(way_out="Send it again.")
            yield
    except IntegrityError as error:  # a location or a name has been taken in another way
        raise StalePlan(way_out="Send it again.") from error


class DefinitionWriter:
    """The rows of planned applications and queries, built before the transaction that writes them.

    `via` names the writer of a set; `accepted` says that changes in the meaning of state are
    accepted.
    """

    def __init__(
        self,
        items: Sequence[SetItem],
        existing_rows: ExistingRows,
        *,
        actor: str,
        now: datetime,
        via: str = "",
        accepted: bool = False,
    ) -> None:
        self._actor, self._accepts = actor, accepted
        self._is_single = len(items) == 1
        self._applications = [item for item in items if item.kind == Kind.APPLICATION]
        self._queries = [item for item in items if item.kind == Kind.QUERY]
        self.rows = DefinitionRows(actor=actor, now=now, via=via)
        self._places = dict(existing_rows.applications)
        self._moved = [
            *(item for item in self._applications if self._define_application(item)),
            *(item for item in self._queries if self._define_query(item)),
        ]

    def _define_application(self, item: SetItem) -> bool:
        """Build the rows for an application; return whether it changes."""
        form = item.application_form
        if item.is_new and form is not None:
            labels = item.manifest.labels if item.manifest else {}
            made = self.rows.application(item.name, form, own=False, team=item.team, labels=labels)
            for name, pool in manifests.pools_of_state(item.after).items():
                self.rows.pool(made, name, pool.model_dump(exclude={"name"}))
            item.row = self._places[item.name] = made
            item.revision = 1
            return True
        place, number = self._places[item.name], (item.revision or 0) + 1
        if form is not None:
            spec = parsing.as_json(form)
            pins = self._may_pin(item)
            item.newest = self.rows.application_revision(place, number, spec, pins=pins)
            item.revision = number
        return self._add_moves(item, place, number)

    def _define_query(self, item: SetItem) -> bool:
        """Build the rows for a query; return whether it changes."""
        form, number = item.query_form, (item.revision or 0) + 1
        checked = {**checked_columns(item.checked), **self._accepted(item)} if form else {}
        if item.is_new and form is not None:
            if item.own is not None:
                self._places[item.host] = self.rows.application(
                    item.host, item.own, own=True, team=item.team
                )
            manifest = item.manifest
            item.row = self.rows.query(
                item.name,
                self._places[item.host],
                form,
                checked,
                location=item.location,
                by_default=manifest is None or not manifest.checkpoint,
                labels=manifest.labels if manifest else {},
            )
            item.revision = 1
            return True
        if form is not None and item.query is not None:
            spec, pins = parsing.as_json(form), self._may_pin(item)
            item.newest = self.rows.query_revision(
                item.query, number, form.kind, spec, checked, pins=pins
            )
            item.revision = number
        return self._add_moves(item, self._places[item.host], number)

    def _may_pin(self, item: SetItem) -> bool:
        """Return whether to compare a new revision with the pinned one.

        In a set, that is left out for changes that need a restart anyway: it costs queries.
        """
        return self._is_single or not item.effect

    def _add_moves(self, item: SetItem, place: Application, number: int) -> bool:
        """Add the history of an existing object; `number` is its next revision."""
        moves = _moves(item, number)
        for before, after, about in moves:
            self.rows.moved(place, item.query, before, after, about)
        return bool(moves)

    def _accepted(self, item: SetItem) -> dict[str, Any]:
        """Return the columns that record the acceptance of a state change, for the next start."""
        change = item.state_change
        if not (self._accepts and change and change.silent):
            return {}
        held = Checkpoint.objects.filter(query=item.query, retired_at=None).first()
        return {"accepted_on": held, "accepted_by": self._actor}

    def write(self) -> None:
        """Write everything, in the caller's transaction."""
        self.write_definitions()
        self.write_history()

    def write_definitions(self) -> None:
        """Write definitions, pools and labels, in the caller's transaction."""
        self.rows.insert_definitions()
        for item in self._applications:
            if item.changes and not item.is_new:
                self._set_pools(item)
        self._relabel()

    def _set_pools(self, item: SetItem) -> None:
        row, pools = self._places[item.name], manifests.pools_of_state(item.after)
        before = manifests.pools_of_state(item.before)
        if gone := before.keys() - pools:
            SchedulerPool.objects.filter(application=row, name__in=gone).delete()
        for name, pool in pools.items():
            if before.get(name) != pool:
                SchedulerPool.objects.update_or_create(
                    application=row, name=name, defaults=pool.model_dump(exclude={"name"})
                )

    def _relabel(self) -> None:
        """Write changed labels, with one statement per distinct set of labels."""
        for items, rows in ((self._applications, Application), (self._queries, Query)):
            alike: dict[str, list[SetItem]] = {}
            for item in items:
                if not item.is_new and item.labels_differ:
                    alike.setdefault(labels_text(item.after["metadata"]["labels"]), []).append(item)
            for group in alike.values():
                found = rows.objects.filter(pk__in=[item.row.pk for item in group if item.row])
                found.update(labels=group[0].after["metadata"]["labels"])

    def write_history(self) -> None:
        """Write the history, and notify open pages of the changes."""
        self.rows.insert_history()
        topics: dict[str, None] = {}
        for item in self._moved:
            topics[f"application:{self._places[item.host or item.name].pk}"] = None
            if item.query is not None:
                topics[f"query:{item.query.pk}"] = None
        if topics:
            changed(*topics)


def _moves(item: SetItem, number: int) -> list[tuple[str, str, Because]]:
    """Return the changes of an existing definition: before, after, and a description."""
    found = []
    if item.spec_differs:
        found.append((f"revision {number - 1}", f"revision {number}", NOTHING))
    if item.labels_differ:
        texts = [labels_text(one["metadata"]["labels"]) for one in (item.before, item.after)]
        found.append((*texts, Because(Detail.LABELS)))  # type: ignore[arg-type]
    if item.kind == Kind.APPLICATION:
        before, after = manifests.pools_of_state(item.before), manifests.pools_of_state(item.after)
        for name in sorted(before.keys() | after.keys()):
            if before.get(name) != after.get(name):
                pools = [pool_text(one.get(name)) for one in (before, after)]
                found.append((*pools, Because(Detail.POOL, {"pool": name})))  # type: ignore[arg-type]
    return found
