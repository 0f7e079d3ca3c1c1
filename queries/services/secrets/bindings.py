"""Bind secrets to applications and channels, and remove bindings; for admins only, audited."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from controlplane.nudge import changed
from queries.domain.access.acts import Act
from queries.domain.errors import Invalid
from queries.domain.reasons import Because, Detail
from queries.domain.secrets.bindings import BindingInput, HolderKind, SecretHolder, parse_binding
from queries.domain.validation.query_rules import name_problems
from queries.models.grants import SecretBinding
from queries.services.access.admin_objects import AdminObject, Verb
from queries.services.access.audit_trail import record_act
from queries.services.changes import record_grant
from queries.services.local_references import length_problem


def bind(raw: Mapping[str, Any], *, actor: str, now: datetime) -> SecretBinding:
    """Bind a secret, replacing its previous binding to the same holder.

    An identical binding is returned unchanged, with 200.

    Raises `Invalid` with every problem, or if the secret is visible here and too short.
    """
    form = parse_binding(raw)
    holder = SecretHolder(form.holder_kind, form.holder)
    if holder.kind is HolderKind.APPLICATION:
        require_name("holder", holder.name)
    if short := length_problem("secret", form.secret):
        raise Invalid([short])
    with transaction.atomic():
        before = _living(holder).filter(secret=form.secret).first()
        if before is not None and before.hosts == form.hosts:
            return before
        if before is not None:
            _take(before, actor, now)
        row = SecretBinding.objects.create(
            secret=form.secret,
            holder_kind=holder.kind,
            holder=holder.name,
            hosts=form.hosts,
            given_at=now,
            given_by=actor,
        )
        _record(row, "BOUND" if before is not None else "", "BOUND", actor, now)
    return row


def require_name(field: str, name: str) -> None:
    """Raise `Invalid` if the value is not a valid application name."""
    if problems := name_problems(name, what="application"):
        raise Invalid([replace(one, field=field) for one in problems])


def unbind(binding: SecretBinding, *, actor: str, now: datetime) -> None:
    """Remove a binding: running queries continue, but their next start is rejected."""
    with transaction.atomic():
        if _take(binding, actor, now):
            _record(binding, "BOUND", "UNBOUND", actor, now)


def unbind_all(holder: SecretHolder, *, actor: str, now: datetime) -> None:
    """Remove all bindings of a deleted holder: a new one of the same name must not inherit them."""
    for row in _living(holder):
        unbind(row, actor=actor, now=now)


def rename(before: SecretHolder, after: SecretHolder) -> None:
    """Transfer the secrets of a renamed channel to its new name."""
    _living(before).update(holder=after.name)


def _living(holder: SecretHolder) -> QuerySet[SecretBinding]:
    return SecretBinding.objects.filter(
        holder_kind=holder.kind, holder=holder.name, taken_at=None
    ).order_by("secret")


def _take(row: SecretBinding, actor: str, now: datetime) -> bool:
    taken = SecretBinding.objects.filter(pk=row.pk, taken_at=None)
    return bool(taken.update(taken_at=now, taken_by=actor))


def _record(row: SecretBinding, before: str, after: str, actor: str, now: datetime) -> None:
    record_grant(
        row.holder if row.holder_kind == HolderKind.APPLICATION else "",
        before,
        after,
        Because(Detail.SECRET, {"secret": row.secret, "hosts": ", ".join(row.hosts)}),
        actor=actor,
        now=now,
    )
    about = {"holder": f"{row.holder_kind} {row.holder}", "hosts": list(row.hosts)}
    act = Act.SECRET_BOUND if after == "BOUND" else Act.SECRET_UNBOUND
    record_act(act, actor=actor, now=now, subject=row.secret, **about)
    changed("secrets")


def living_bindings(user: Any) -> QuerySet[SecretBinding]:
    """List secret bindings, newest first; admins only."""
    return SecretBinding.objects.filter(taken_at=None)


BINDINGS = AdminObject(
    "secret-bindings/<int:binding_id>/",
    "Binding",
    living_bindings,
    "Return a binding; admins only.",
    create=Verb("bind_secret", bind, BindingInput),
    remove=Verb("unbind_secret", unbind),
    created_at="given_at",
)
