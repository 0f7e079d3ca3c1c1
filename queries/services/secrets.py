"""Grants by admins, secrets and allowed paths, audited, and starts blocked by a missing one."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet

from controlplane.nudge import changed
from queries.domain.access import Act
from queries.domain.catalogs import PREFIX, key_problems
from queries.domain.definitions.allowed_paths import RootForm, option_places, parse_given_root
from queries.domain.definitions.configuration import reach_problems
from queries.domain.definitions.declarations import untyped
from queries.domain.definitions.parsing import as_json
from queries.domain.definitions.spec import ApplicationSpec
from queries.domain.errors import Invalid, Problem, in_words
from queries.domain.reasons import Because, Detail
from queries.domain.secrets import (
    ANYWHERE,
    BindingForm,
    Bound,
    HolderKind,
    SecretHolder,
    allows,
    parse_binding,
    s3_endpoints,
    servers,
    unbound,
    uses_in,
    uses_of_brokers,
)
from queries.domain.secrets import application as secrets_application
from queries.domain.validation.query_rules import name_problems, option_reach
from queries.models.applications import Application
from queries.models.grants import GivenRoot, SecretBinding
from queries.selectors.catalogs import access_problems
from queries.selectors.secrets import all_bound, bound_to
from queries.selectors.triggers.cores import newest_application_spec, parsed_or_none
from queries.services.access.admin_objects import AdminObject, Verb
from queries.services.access.audit import record_act
from queries.services.changes import record_grant
from queries.services.local_roots import (
    conf_problems,
    data_problems,
    is_own,
    length_problem,
    outside_of,
)


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
    create=Verb("bind_secret", bind, BindingForm),
    remove=Verb("unbind_secret", unbind),
    created_at="given_at",
)


def give_root(raw: Mapping[str, Any], *, actor: str, now: datetime) -> GivenRoot:
    """Assign a folder or URL prefix to an application; an existing assignment returns 200.

    Raises `Invalid` with every problem: the control plane's own folders are never assigned.
    """
    form = parse_given_root(raw)
    require_name("application", form.application)
    if is_own(form.path):
        way_out = (
            "Choose a folder outside of it, or one in HEADGATE_HOME/data, which all "
            "applications can use."
        )
        raise Invalid([Problem("path", form.path[:200], "belongs to Headgate itself.", way_out)])
    with transaction.atomic():
        row, made = GivenRoot.objects.get_or_create(
            application=form.application,
            root=form.path,
            taken_at=None,
            defaults={"given_at": now, "given_by": actor},
        )
        if made:
            _record_root(row, "", "GIVEN", actor, now)
    return row


def take_root(row: GivenRoot, *, actor: str, now: datetime) -> None:
    """Disallow a path: running queries continue, but their next start is rejected."""
    with transaction.atomic():
        taken = GivenRoot.objects.filter(pk=row.pk, taken_at=None)
        if taken.update(taken_at=now, taken_by=actor):
            _record_root(row, "GIVEN", "TAKEN", actor, now)


def take_everything(application: str, *, actor: str, now: datetime) -> None:
    """Revoke all roots and secrets of a deleted application.

    A new application with the same name must not inherit them.
    """
    for row in GivenRoot.objects.filter(application=application, taken_at=None):
        take_root(row, actor=actor, now=now)
    unbind_all(secrets_application(application), actor=actor, now=now)


def _record_root(row: GivenRoot, before: str, after: str, actor: str, now: datetime) -> None:
    detail = Because(Detail.DATA_ROOT, {"root": row.root})
    record_grant(row.application, before, after, detail, actor=actor, now=now)
    about = {"root": row.root, "did": after.lower()}
    record_act(Act.ALLOWED_PATH, actor=actor, now=now, subject=row.application, **about)
    changed("allowed-paths")


def living_roots(user: Any) -> QuerySet[GivenRoot]:
    """List the paths allowed for applications, newest first; admins only."""
    return GivenRoot.objects.filter(taken_at=None)


ALLOWED_PATHS = AdminObject(
    "allowed-paths/<int:path_id>/",
    "Path",
    living_roots,
    "Return an allowed path; admins only.",
    create=Verb("allow_path", give_root, RootForm),
    remove=Verb("disallow_path", take_root),
    created_at="given_at",
)


#: A source's `kafka.*` options, with references unresolved.
Brokers = tuple[tuple[str, str], ...]


def unbound_secrets(
    spec: Mapping[str, Any], holder: SecretHolder, around: Mapping[str, Any] | None = None
) -> list[Problem]:
    """Return a problem for each secret in a definition's JSON form that cannot be used.

    A secret must be bound to its application, and to the host that it is sent to. It may also be
    too short, if it has changed since it was bound. `around` is the definition of a query's
    application, if the query has one.
    """
    uses = uses_in(spec, around)
    if not uses:
        return []
    short = (length_problem(use.field, use.secret) for use in uses)
    return [*unbound(uses, bound_to(holder), holder), *(one for one in short if one)]


def unbound_sentence(
    spec: Mapping[str, Any], name: str, around: Mapping[str, Any] | None = None
) -> str:
    """Return a sentence naming the secrets that are not bound to the application; "" if all are."""
    return in_words(unbound_secrets(spec, secrets_application(name), around))


def query_refusal(
    spec: Mapping[str, Any], name: str, around: Mapping[str, Any] | None = None
) -> str:
    """Return why a revision of a query cannot start now; "" if it can.

    Permissions that existed when it was saved may have been revoked since. `around` is the
    definition of the application that its driver was launched with; by default, the newest one.
    """
    if around is None and s3_endpoints(spec.get("conf")):
        around = _newest(name)
    if refused := unbound_sentence(spec, name, around):
        return refused
    form = parsed_or_none(spec)
    if form is None:
        return ""
    reach = [*option_reach(form), *reach_problems(form.conf)]
    if any(key.startswith(PREFIX) for key in form.conf):
        around = _newest(name) if around is None else around
        reach += untyped(form.conf, {**(around.get("conf") or {}), **form.conf})
        reach += key_problems(form.conf, around.get("catalogs") or ())
    return _by_field(reach) or in_words(data_problems(form, name))


def _newest(name: str) -> Mapping[str, Any]:
    row = Application.objects.filter(name=name, archived_at=None).first()
    return as_json(newest_application_spec(row)) if row is not None else {}


def application_refusal(spec: ApplicationSpec, application: Application) -> str:
    """Return why a driver of an application cannot be launched now; "" if it can."""
    name = application.name
    refused = unbound_sentence(as_json(spec), name)
    if refused := refused or _by_field(reach_problems(spec.conf)):
        return refused
    reach = [*untyped(spec.conf, spec.conf), *key_problems(spec.conf, spec.catalogs)]
    reach += access_problems(spec.catalogs, application.team)
    return in_words(reach) or in_words(conf_problems(spec, name))


def files_outside(options: Mapping[str, str], name: str) -> str:
    """Return a sentence naming a client's files outside the application's roots; "" if none are."""
    return in_words(outside_of(option_places("options", options), name))


def _by_field(problems: list[Problem]) -> str:
    return " ".join(problem.sentence() for problem in problems)


def may_ask(brokers: Brokers, bound: Bound) -> bool:
    """Return whether an admin has allowed every server of a broker set.

    A server is allowed by HEADGATE_BROKER_HOSTS or by a binding of the application: if a secret may
    be sent to a server, so may a request. A binding for any host applies to the author's code, not
    to Headgate.
    """
    patterns = [*settings.BROKER_HOSTS]
    patterns += [one for hosts in bound.values() for one in hosts if one != ANYWHERE]
    places = servers(dict(brokers).get("bootstrap.servers", ""))
    return all(any(allows(pattern, place) for pattern in patterns) for place in places)


class BrokerSecrets:
    """Decide whether Headgate may query an application's brokers, given its current bindings.

    Headgate's own client opens the certificate files named in the options, so they must be in the
    application's roots.
    """

    def __init__(self) -> None:
        self._bound = all_bound()

    def refusal(self, brokers: Brokers, name: str, *, started: bool = True) -> str:
        """Return why Headgate cannot query a broker set of an application; "" if it can.

        `started` says whether a run has used the broker set, so that a driver has already queried
        it.
        """
        options = {f"kafka.{key}": value for key, value in brokers}
        holder = secrets_application(name)
        found = unbound(uses_of_brokers(options), self._bound.get(holder, {}), holder)
        refused = in_words(found) or files_outside(options, name)
        if refused or started or may_ask(brokers, self._bound.get(holder, {})):
            return refused
        return (
            f"{dict(brokers).get('bootstrap.servers', '')} is not contacted until the query "
            "has been started. Start it, or ask an admin to add the host to "
            "HEADGATE_BROKER_HOSTS."
        )
