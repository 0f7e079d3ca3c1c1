"""Assign data roots to applications, and revoke them; for admins only, audited."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from controlplane.nudge import changed
from queries.domain.access.acts import Act
from queries.domain.definitions.data_roots import RootForm, parse_given_root
from queries.domain.errors import Invalid, Problem
from queries.domain.reasons import Because, Detail
from queries.domain.secrets.bindings import application as holder
from queries.models.grants import GivenRoot
from queries.services.access.admin_objects import AdminObject, Verb
from queries.services.access.audit_trail import record_act
from queries.services.changes import record_grant
from queries.services.local_roots import is_own
from queries.services.secrets.bindings import require_name, unbind_all


def give_root(raw: Mapping[str, Any], *, actor: str, now: datetime) -> GivenRoot:
    """Assign a folder or URL prefix to an application; an existing assignment returns 200.

    Raises `Invalid` with every problem: the control plane's own folders are never assigned.
    """
    form = parse_given_root(raw)
    require_name("application", form.application)
    if is_own(form.root):
        way_out = (
            "Choose a folder outside of it, or one in HEADGATE_HOME/data, which all "
            "applications can use."
        )
        raise Invalid([Problem("root", form.root[:200], "belongs to Headgate itself.", way_out)])
    with transaction.atomic():
        row, made = GivenRoot.objects.get_or_create(
            application=form.application,
            root=form.root,
            taken_at=None,
            defaults={"given_at": now, "given_by": actor},
        )
        if made:
            _record(row, "", "GIVEN", actor, now)
    return row


def take_root(row: GivenRoot, *, actor: str, now: datetime) -> None:
    """Remove a root: running queries continue, but their next start is rejected."""
    with transaction.atomic():
        taken = GivenRoot.objects.filter(pk=row.pk, taken_at=None)
        if taken.update(taken_at=now, taken_by=actor):
            _record(row, "GIVEN", "TAKEN", actor, now)


def take_everything(application: str, *, actor: str, now: datetime) -> None:
    """Revoke all roots and secrets of a deleted application.

    A new application with the same name must not inherit them.
    """
    for row in GivenRoot.objects.filter(application=application, taken_at=None):
        take_root(row, actor=actor, now=now)
    unbind_all(holder(application), actor=actor, now=now)


def _record(row: GivenRoot, before: str, after: str, actor: str, now: datetime) -> None:
    detail = Because(Detail.DATA_ROOT, {"root": row.root})
    record_grant(row.application, before, after, detail, actor=actor, now=now)
    about = {"root": row.root, "did": after.lower()}
    record_act(Act.DATA_ROOT, actor=actor, now=now, subject=row.application, **about)
    changed("data-roots")


def living_roots(user: Any) -> QuerySet[GivenRoot]:
    """List the roots assigned to applications, newest first; admins only."""
    return GivenRoot.objects.filter(taken_at=None)


DATA_ROOTS = AdminObject(
    "data-roots/<int:root_id>/",
    "Root",
    living_roots,
    "Return a root; admins only.",
    create=Verb("give_data_root", give_root, RootForm),
    remove=Verb("take_data_root", take_root),
    created_at="given_at",
)
