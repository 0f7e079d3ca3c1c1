"""Record an object's owner and the content of its file, or release it from its owner."""

from datetime import datetime

from django.db import transaction

from controlplane.nudge import changed
from queries.domain.access.acts import Act
from queries.domain.errors import Missing
from queries.domain.manifests.forms import Kind
from queries.domain.manifests.sets import ApplySet
from queries.models.manifests.managed import Managed
from queries.selectors.manifests.present import key_of
from queries.services.access.audit_trail import record_act
from queries.services.definitions.items import SetItem
from queries.services.prepared_rows import Prepared

#: The column for each kind of object.
_COLUMNS: dict[str, str] = {
    Kind.APPLICATION: "application",
    Kind.QUERY: "query",
    Kind.ALERT_RULE: "rule",
}


class Taking:
    """The rows that record that objects match their owner's files: built first, then written.

    For unchanged objects, only the source is written. A row may belong to an object that does not
    have an id until the object itself is written.
    """

    def __init__(self, items: list[SetItem], asked: ApplySet, *, actor: str, now: datetime) -> None:
        self._source = {"repository": asked.source.repository, "commit": asked.source.commit}
        self._same, self._old, fresh = [], [], []
        self._later: list[tuple[SetItem, Managed]] = []  # built only when they are written
        for item in items:
            known = item.managed
            if known is not None and (known.applied, known.path) == (item.after, item.path):
                self._same.append(known.pk)
                continue
            if known is not None:
                self._old.append(known.pk)
            row = Managed(
                owner=asked.owner,
                path=item.path,
                applied=item.after,
                applied_at=now,
                applied_by=actor,
                **self._source,
            )
            if item.row is None:
                self._later.append((item, row))
                continue
            setattr(row, _COLUMNS[item.kind], item.row)
            fresh.append(row)
        self._fresh = Prepared(fresh)

    def write(self) -> None:
        """Write the rows, in the caller's transaction and after those of their objects."""
        if self._old:
            Managed.objects.filter(pk__in=self._old).delete()
        self._fresh.insert()
        for item, row in self._later:
            setattr(row, _COLUMNS[item.kind], item.row)
            row.save()
        if self._same:
            rows = Managed.objects.filter(pk__in=self._same)
            rows.exclude(**self._source).update(**self._source)


def release(row: Managed | None, *, actor: str, now: datetime) -> None:
    """Remove an object's owner: the owner's files no longer control it, and no apply prunes it.

    Raises `Missing` if the object has no owner.
    """
    if row is None:
        raise Missing("It has no owner.", way_out="There is nothing to release.")
    kind, name = key_of(row)
    with transaction.atomic():
        if not Managed.objects.filter(pk=row.pk).delete()[0]:
            raise Missing("It has no owner.", way_out="There is nothing to release.")
        about = {"of": kind.lower(), "owner": row.owner, "path": row.path}
        record_act(Act.RELEASED, actor=actor, now=now, subject=name, **about)
        if row.query_id is not None:
            changed(f"query:{row.query_id}")
        elif row.application_id is not None:
            changed(f"application:{row.application_id}")
