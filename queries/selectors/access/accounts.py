"""Read browser sessions, roles by group, teams with what they own, and the audit log."""

import json
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any

from allauth.socialaccount.models import SocialAccount
from django.contrib.auth.models import User
from django.db.models import Count, Q, QuerySet
from django.utils.crypto import salted_hmac

from queries.domain.errors import Forbidden, Invalid, Problem
from queries.domain.validation.joining import team_problem
from queries.models.access.accounts import AccessToken, BrowserSession, GroupRole, Team, living
from queries.models.access.audit import AuditEntry
from queries.models.applications import Application
from queries.roles import ORDER, Reach, Role, reach_of
from queries.selectors.access.permissions import insist, who_can_help


def sessions_of(user: User, *, now: datetime) -> QuerySet[BrowserSession]:
    """Return a user's sessions that have not ended, most recently used first."""
    return BrowserSession.objects.filter(living(now), account=user).order_by("-seen_at", "pk")


def name_of(session_key: str) -> str:
    """Return a session's displayed name; its key cannot be shown, because it allows signing in."""
    return salted_hmac("headgate.session.name", session_key, algorithm="sha256").hexdigest()[:16]


def viewing_sessions(keys: Collection[str], *, now: datetime) -> set[str]:
    """Return which of these sessions have not ended and belong to an account that can view."""
    rows = BrowserSession.objects.filter(living(now), pk__in=keys, account__is_active=True)
    has_role = Q(account__is_superuser=True) | Q(account__groups__name__in=list(Role))
    return set(rows.filter(has_role).values_list("pk", flat=True))


def role_by_groups(groups: Iterable[str]) -> Role | None:
    """Return the highest role that these groups grant; None if no group is in the table."""
    # Compared here, because a database may treat "Admins" as "admins".
    given = dict(GroupRole.objects.values_list("group", "role"))
    held = {given[group] for group in groups if group in given}
    return max((Role(role) for role in held), key=ORDER.index, default=None)


def comes_by_single_sign_on(user: User) -> bool:
    """Return whether an account belongs to the identity provider, and so has no password."""
    return bool(SocialAccount.objects.filter(user=user).exists())


def those_of_single_sign_on() -> set[int]:
    """Return the primary keys of all such accounts."""
    return set(SocialAccount.objects.values_list("user_id", flat=True))


def teams() -> QuerySet[Team]:
    """Return the teams by name, each with the number of its existing applications."""
    living = Count("applications", filter=Q(applications__archived_at=None), distinct=True)
    return Team.objects.annotate(living=living).prefetch_related("members").order_by("name")


def tokens_of_team(team: Team) -> QuerySet[AccessToken]:
    """Return the tokens limited to a team, by name."""
    rows: QuerySet[AccessToken] = AccessToken.objects.filter(team=team)
    return rows.select_related("user").order_by("name")


def team_named(name: str, field: str = "team") -> Team:
    """Return the team named in a form; raise `Invalid` if there is none."""
    row = Team.objects.filter(name=name.replace("\x00", "")).first()
    if row is None:
        known = ", ".join(Team.objects.values_list("name", flat=True)) or "none yet"
        raise Invalid([Problem(field, name[:200], "is not an existing team.", f"Teams: {known}.")])
    return row


def own_teams(user: Any) -> list[Team]:
    """Return the teams for which a user can create applications, by name."""
    reach = reach_of(user)
    rows = Team.objects.order_by("name")
    if reach.token_team is not None:
        rows = rows.filter(pk=reach.token_team)
    return list(rows if reach.teams is None else rows.filter(pk__in=reach.teams))


def team_of_new_query(user: Any, application: str, team: str) -> Team | None:
    """Return the team for the application that a user's new query creates; None if none.

    `application` names the existing application that the query joins; "" means that the query gets
    its own. Raises `Forbidden` if the user is not allowed to act on the existing application.
    """
    if not application:
        return team_for_new(user, team)
    insist(user, _living(application))
    if problem := team_problem(application, team):
        raise Invalid([problem])
    return None


def insist_clone(user: Any, application: str) -> None:
    """Raise `Forbidden` if a user cannot put a clone in `application`; "" means its own."""
    if application:
        insist(user, _living(application))
    else:
        _insist_unlisted(reach_of(user))


def _living(name: str) -> list[Application]:
    """Return the named application; none if it does not exist: the catalog reports that."""
    rows = Application.objects.select_related("team").filter(archived_at=None)
    return list(rows.filter(name=name.replace("\x00", "")))


def team_for_new(user: Any, name: str) -> Team | None:
    """Return the team of an application that a user creates; None means open to everyone.

    Without a name, this is the user's only team, or None for users who can act for all teams or are
    not in a team. Raises `Invalid` if there are several to choose from, and `Forbidden` for a team
    that the user does not belong to.
    """
    reach = reach_of(user)
    _insist_unlisted(reach)
    own = own_teams(user)
    if name:
        chosen = team_named(name)
        if chosen not in own:
            names = ", ".join(one.name for one in own) or "none"
            raise Forbidden(
                f"You cannot act for team {chosen.name}.",
                way_out=f"Your teams: {names}. Or ask an admin ({who_can_help()}).",
            )
        return chosen
    return None if _may_leave_open(reach) or not own else _only(own)


def _insist_unlisted(reach: Reach) -> None:
    if reach.applications is not None:
        raise Forbidden(
            "This token is limited to the applications that it lists, which cannot include a "
            "new one.",
            way_out="Use a token that is not limited to applications.",
        )


def _may_leave_open(reach: Reach) -> bool:
    return reach.teams is None and reach.token_team is None


def _only(own: list[Team]) -> Team:
    if len(own) == 1:
        return own[0]
    names = ", ".join(one.name for one in own)
    raise Invalid(
        [Problem("team", "", "is missing; you are in several teams.", f"Choose {names}.")]
    )


#: Filters of entries: the name in addresses, and the column.
FILTERS = {
    "actor": "actor",
    "act": "kind",
    "subject": "subject",
    "token": "token",
    "address": "address",
}
#: Entries read per chunk of the export.
_CHUNK = 2000


def entries(asked: Mapping[str, str]) -> QuerySet[AuditEntry]:
    """Return the entries that match these filters, newest first."""
    chosen = {column: asked[name] for name, column in FILTERS.items() if asked.get(name)}
    return AuditEntry.objects.filter(**chosen).order_by("-at", "-pk")


def exported(after: int) -> tuple[str, int]:
    """Return the chained entries that follow number `after` as JSON lines, and the last number.

    The text is "" at the end of the log. Number, seal and MAC are included, so that a copy can be
    compared with the log.
    """
    rows = AuditEntry.objects.filter(number__gt=after).order_by("number")[:_CHUNK]
    lines = [json.dumps(_line(row), separators=(",", ":")) + "\n" for row in rows]
    return "".join(lines), max((row.number or 0 for row in rows), default=after)


def _line(row: AuditEntry) -> dict[str, Any]:
    return {"number": row.number, **row.content(), "seal": row.seal, "mac": row.mac}
