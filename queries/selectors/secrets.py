"""Read secrets by name, with their uses and bindings, and the roots of applications."""

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.db.models import Q, QuerySet, TextField
from django.db.models.functions import Cast

from headgate_ground.masking import is_reference, references
from listeners.loops.backlogs import loop_errors
from queries.channels.kinds import destination_of
from queries.domain.secrets import (
    ANYWHERE,
    Bound,
    HolderKind,
    SecretHolder,
    SecretUse,
    application,
    catalog,
    channel,
    unbound,
    uses_in,
    uses_of_catalog,
)
from queries.models.alerts import Channel
from queries.models.applications import Application
from queries.models.catalogs import Catalog
from queries.models.definitions import Query, QueryRevision
from queries.models.grants import GivenRoot, SecretBinding
from queries.selectors.rows import newest_revisions
from queries.selectors.supervision.applications import newest_application_revisions

_each = loop_errors("secrets", logging.getLogger(__name__))


def bound_to(holder: SecretHolder) -> Bound:
    """Return the secrets of a holder, and the hosts allowed for each."""
    rows = SecretBinding.objects.filter(holder_kind=holder.kind, holder=holder.name, taken_at=None)
    return {secret: tuple(hosts) for secret, hosts in rows.values_list("secret", "hosts")}


def all_bound() -> dict[SecretHolder, Bound]:
    """Return every binding by its holder, in one database query."""
    found: dict[SecretHolder, dict[str, tuple[str, ...]]] = defaultdict(dict)
    for row in SecretBinding.objects.filter(taken_at=None):
        with _each.isolate_errors(f"binding number {row.pk}"):  # an unreadable row binds nothing
            found[_holder(row)][row.secret] = tuple(row.hosts)
    return dict(found)


def given_roots(name: str) -> list[str]:
    """Return the allowed paths assigned to the application with this name."""
    rows = GivenRoot.objects.filter(application=name, taken_at=None)
    return list(rows.values_list("root", flat=True))


def all_given_roots() -> dict[str, list[str]]:
    """Return the assigned allowed paths by application, in one database query."""
    found: dict[str, list[str]] = defaultdict(list)
    for row in GivenRoot.objects.filter(taken_at=None):
        found[row.application].append(row.root)
    return dict(found)


@dataclass(frozen=True, slots=True)
class Naming:
    """A use of a secret: the object and field that name it, and whether that is refused."""

    holder: SecretHolder
    about: str  # "query delays", "application flights", "channel ops" or "catalog lake"
    query: str  # its name, "" if it is not a query
    use: SecretUse
    refused: str  # why it is refused; "" if the binding allows it
    hosts: tuple[str, ...] = ()  # hosts that its binding would need

    @property
    def form(self) -> str:
        """Return the query string that fills the page's form with the missing binding."""
        return urlencode(
            {
                "secret": self.use.secret,
                "holder_kind": self.holder.kind,
                "holder": self.holder.name,
                "hosts": "\n".join(self.hosts),
            }
        )


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret by its name, never its value."""

    name: str  # "env:NAME" or "file:NAME"
    there: bool  # exists on the drivers' host, as far as this one knows
    bindings: tuple[SecretBinding, ...]
    namings: tuple[Naming, ...]
    last: SecretBinding | None  # last binding granted or revoked

    @property
    def refused(self) -> list[Naming]:
        """Return the uses that are refused."""
        return [one for one in self.namings if one.refused]


def secrets() -> list[Secret]:
    """Return every secret that exists, is used or is bound, by name."""
    bound = all_bound()
    namings = defaultdict(list)
    for one in _namings(bound):
        namings[one.use.secret].append(one)
    rows = defaultdict(list)
    for row in SecretBinding.objects.order_by("holder_kind", "holder", "given_at"):
        rows[row.secret].append(row)
    living = {name for name, held in rows.items() if any(row.taken_at is None for row in held)}
    there = set(known_names())
    return [
        Secret(
            name=name,
            there=name in there,
            bindings=tuple(row for row in rows[name] if row.taken_at is None),
            namings=tuple(namings[name]),
            last=max(rows[name], key=lambda row: row.taken_at or row.given_at, default=None),
        )
        for name in sorted(there | living | set(namings))
    ]


def known_names() -> Iterator[str]:
    """Yield the names of references that this host can resolve."""
    yield from (f"env:{name}" for name in settings.SECRET_ENV_ALLOWLIST)
    folder = Path(settings.SECRETS_DIR)
    try:
        files = [one.name for one in folder.iterdir() if one.is_file()]
    except OSError:
        return
    yield from (f"file:{name}" for name in files if is_reference(f"file:{name}"))


def _namings(bound: dict[SecretHolder, Bound]) -> Iterator[Naming]:
    """Yield the uses of secrets in the newest existing definitions and in channels."""
    names = dict(Application.objects.filter(archived_at=None).values_list("pk", "name"))
    applications = newest_application_revisions(list(names))
    for pk, revision in applications.items():
        about = f"application {names[pk]}"
        with _each.isolate_errors(f"the secrets of {about}"):
            yield from _of(application(names[pk]), about, "", uses_in(revision.spec), bound)
    living = Query.objects.filter(archived_at=None, pk__in=_naming_secrets())
    rows = {query.pk: query for query in living.select_related("application")}
    for pk, newest in newest_revisions(list(rows)).items():
        holder = application(rows[pk].application.name)
        about = f"query {rows[pk].name}"
        with _each.isolate_errors(f"the secrets of {about}"):
            around = applications.get(rows[pk].application_id)
            uses = uses_in(newest.spec, around.spec if around is not None else None)
            yield from _of(holder, about, rows[pk].name, uses, bound)
    for row in Channel.objects.all():
        about = f"channel {row.name}"
        with _each.isolate_errors(f"the secrets of {about}"):
            yield from _of(channel(row.name), about, "", uses_of_channel(row), bound)
    for declared in Catalog.objects.all():
        about = f"catalog {declared.name}"
        with _each.isolate_errors(f"the secrets of {about}"):
            yield from _of(catalog(declared.name), about, "", uses_of_catalog(declared.spec), bound)


def _naming_secrets() -> QuerySet[QueryRevision, Any]:
    """Return the ids of queries with a revision that may use a secret: few of many.

    This means a reference, or an endpoint at which the application's S3 keys are used. The database
    finds them, as in `selectors/kafka/sources`.
    """
    texts = QueryRevision.objects.annotate(text=Cast("spec", TextField()))
    named = texts.filter(
        Q(text__contains='"env:')
        | Q(text__contains='"file:')
        | Q(text__icontains=".hadoop.fs.s3a.")
    )
    return named.order_by().values("query")


def uses_of_channel(row: Channel) -> list[SecretUse]:
    """Return the uses of secrets in a channel's settings.

    If the channel's URL is itself a secret, its host is known only when a message is sent, and is
    omitted here.
    """
    place = destination_of(row.kind, row.settings)
    places = () if place == ANYWHERE else (place,)
    return [
        SecretUse(secret, f"settings.{name}", places)
        for name, value in row.settings.items()
        for secret in sorted(references(value))
    ]


def _of(
    holder: SecretHolder,
    about: str,
    query: str,
    uses: Iterable[SecretUse],
    bound: dict[SecretHolder, Bound],
) -> Iterator[Naming]:
    for use in uses:
        mine = bound.get(holder, {})
        problems = unbound([use], mine, holder)
        refused = problems[0].message if problems else ""
        hosts = tuple(dict.fromkeys((*mine.get(use.secret, ()), *use.places)))
        yield Naming(holder, about, query, use, refused, hosts)


def _holder(row: SecretBinding) -> SecretHolder:
    return SecretHolder(HolderKind(row.holder_kind), row.holder)


def holder_names() -> dict[str, list[str]]:
    """Return the names of possible holders, by kind."""
    applications = Application.objects.filter(archived_at=None).order_by("name")
    return {
        "application": list(applications.values_list("name", flat=True)),
        "channel": list(Channel.objects.values_list("name", flat=True)),
        "catalog": list(Catalog.objects.values_list("name", flat=True)),
    }
