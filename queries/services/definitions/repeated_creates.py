"""Detect a create request for an object that already exists: a repeated request succeeds."""

from typing import Any

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser

from queries.domain.code.git_references import ref_of, with_commit
from queries.domain.definitions import parsing
from queries.domain.definitions.locations import NotALocation
from queries.domain.errors import Invalid
from queries.domain.validation.skipped import unchecked_sql
from queries.models.applications import Application
from queries.models.definitions import Checkpoint, Query
from queries.selectors.access.permissions import insist
from queries.services.local_roots import canonical_checkpoint

User = AbstractBaseUser | AnonymousUser


def same_query(user: User, sent: dict[str, Any]) -> Query | None:
    """Return the existing query that exactly matches a create request; None if there is none.

    Raises `Forbidden` if the user may not act on it.
    """
    row = Query.objects.filter(name=sent["name"], archived_at=None)
    query = row.select_related("application__team").first()
    if query is None or not _same(parsing.parse_query, sent["spec"], query):
        return None
    host, wanted = query.application, sent.get("application_spec")
    if sent["application"] != ("" if host.own and not sent["application"] else host.name):
        return None
    if wanted is not None and not _same(parsing.parse_application, wanted, host):
        return None
    if sent["checkpoint"]:
        try:
            location = canonical_checkpoint(sent["checkpoint"])
        except NotALocation:
            return None
        if not Checkpoint.objects.filter(query=query, location=location).exists():
            return None
    if sent["team"] and sent["team"] != (host.team.name if host.team else ""):
        return None
    insist(user, [host])
    return query


def refuse_unchecked(query: Query) -> None:
    """Raise `Invalid` if the SQL of a query's newest revision has not been checked."""
    if problems := unchecked_sql(query.revisions.order_by("-number")[0].skipped):
        raise Invalid(problems)


def same_application(user: User, sent: dict[str, Any]) -> Application | None:
    """Return the existing application that exactly matches a create request; see `same_query`."""
    rows = Application.objects.filter(name=sent["name"], archived_at=None, own=False)
    row = rows.select_related("team").first()
    if row is None or not _same(parsing.parse_application, sent["spec"], row):
        return None
    if sent["team"] and sent["team"] != (row.team.name if row.team else ""):
        return None
    insist(user, [row])
    return row


def _same(parse: Any, spec: Any, owner: Query | Application) -> bool:
    newest = owner.revisions.order_by("-number")[0].spec
    asked, code = ref_of(spec), newest.get("code") or {}
    if asked is not None and (code.get("git"), code.get("ref")) == (asked.git, asked.ref):
        spec = with_commit(spec, code["commit"])  # resolved at that time, not looked up again
    try:
        return bool(parsing.as_json(parse(spec)) == parsing.as_json(parse(newest)))
    except Invalid:
        return False
