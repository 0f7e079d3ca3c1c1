"""Read accounts and the permissions that they have.

Pages and REST share one table: every URL below `queries/<query:name>/` is about that query's
application. The permission is checked before the view runs, so a new view does not need its own
check. A view that changes something but is not in this table is refused.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from allauth.socialaccount.models import SocialAccount
from django.contrib.auth.models import User
from django.db.models import Count, Q, QuerySet
from django.urls import ResolverMatch
from django.utils.crypto import salted_hmac

from queries.domain.errors import Forbidden, Invalid, Problem
from queries.domain.validation.joining import team_problem
from queries.models.access.accounts import AccessToken, BrowserSession, GroupRole, Team, living
from queries.models.access.audit import AuditEntry
from queries.models.alerts import Incident, Maintenance
from queries.models.applications import Application
from queries.models.definitions import Query
from queries.models.deploys import Deploy
from queries.models.history import FailureGroup, Operation
from queries.roles import OF_TEAMS, ORDER, Reach, Role, highest_role, reach_of, role_holds, token_of

#: What an address is about: some applications (empty: nobody's in particular); None means all.
Concerned = list[Application] | None

_API = "api/v1/"


def _of(rows: Iterable[Any]) -> Concerned:
    """Return the applications of these rows; rows without an application are skipped."""
    return [row.application for row in rows if row.application is not None]


def _named(name: str) -> Concerned:
    return list(Application.objects.select_related("team").filter(name=name, archived_at=None))


def _of_query(name: str) -> Concerned:
    rows = Query.objects.select_related("application__team")
    return _of(rows.filter(name=name, archived_at=None))


def _of_incident(uuid: Any) -> Concerned:
    """Return an incident's application; none if it is about a host or several applications."""
    return _of(Incident.objects.select_related("application__team").filter(uuid=uuid))


def _of_operation(uuid: Any) -> Concerned:
    row = Operation.objects.select_related("application__team").filter(uuid=uuid).first()
    if row is None:
        return []
    return [row.application] if row.application else _many(row)


def _many(operation: Operation) -> Concerned:
    """Return the applications of a bulk operation, including those of its queries.

    Rejected lines, such as a query of another team, are left out, because nothing happens to them.
    """
    lines = [
        line for line in operation.result.get("queries", ()) if line.get("outcome") != "REFUSED"
    ]
    queries = [line["id"] for line in lines if not line.get("of")]
    applications = [line["id"] for line in lines if line.get("of")]
    rows = Application.objects.select_related("team")
    return list(rows.filter(Q(queries__in=queries) | Q(pk__in=applications)).distinct()) or None


def _of_group(group_id: int) -> Concerned:
    return _of(FailureGroup.objects.select_related("application__team").filter(pk=group_id))


def _of_failure(failure_id: int) -> Concerned:
    rows = FailureGroup.objects.select_related("application__team")
    return _of(rows.filter(failures=failure_id))


def _of_window(window_id: int) -> Concerned:
    window = Maintenance.objects.filter(pk=window_id).first()
    return [] if window is None else of_selector(window.selector)


def of_selector(selector: Any) -> Concerned:
    """Return the applications that a maintenance window silences; None if that may be any."""
    return of_selectors([selector])[0]


def of_selectors(selectors: Sequence[Any]) -> list[Concerned]:
    """Return the applications that each window silences, in one database query."""
    named = [_applications_in(selector) for selector in selectors]
    rows = Application.objects.select_related("team").filter(archived_at=None)
    living = {row.name: row for row in rows.filter(name__in=set().union(*named))}
    return [
        [living[name] for name in sorted(names)] if names and names <= living.keys() else None
        for names in named
    ]


def _applications_in(selector: Any) -> set[str]:
    """Return the names in a window's selector; none if it is unreadable, as it could match any."""
    names = selector.get("applications") if isinstance(selector, Mapping) else None
    return {str(one) for one in names} if isinstance(names, list) else set()


def _of_deploy(uuid: Any) -> Concerned:
    """Return every application that a deploy affects, including those that it will create.

    Returns None if the deploy does not affect any, for example if it has only alert rules; users
    who can act on all applications may cancel such a deploy.
    """
    deploy = Deploy.objects.filter(uuid=uuid).first()
    if deploy is None:
        return []
    ids = {one["application"] for one in deploy.touches} - {None}
    ids |= set(deploy.changes.exclude(application=None).values_list("application", flat=True))
    rows = Application.objects.select_related("team")
    found = {row.name: row for row in rows.filter(pk__in=ids)}
    new = {one["name"]: one["team"] for one in deploy.touches if one["application"] is None}
    teams = Team.objects.in_bulk(new.values())
    for name, team in new.items():
        found.setdefault(name, Application(name=name, team=teams.get(team)))
    return list(found.values()) or None


#: Prefix of an address, without the API's own -> the applications that its key leads to.
_TABLE: dict[str, Callable[..., Concerned]] = {
    "queries/<query:name>/": _of_query,
    "applications/<str:name>/": _named,
    "operations/<uuid:uuid>/": _of_operation,
    "deploys/<uuid:uuid>/": _of_deploy,
    "alerts/<uuid:uuid>/": _of_incident,
    "incidents/<uuid:uuid>/": _of_incident,
    "failures/groups/<int:group_id>/": _of_group,
    "failures/<int:failure_id>/": _of_failure,
    "failure-groups/<int:group_id>/": _of_group,
    "alerts/maintenance/<int:window_id>/": _of_window,
    "maintenance/<int:window_id>/": _of_window,
}
#: Addresses whose form names their subject: their views check it with `insist`.
_SAID_BY_THE_FORM = {
    *("new/query/", "new/application/", "bulk/queries/", "alerts/maintenance/new/"),
    *("queries/", "applications/", "maintenance/", "apply/", "deploys/"),
    *("queries:start/", "queries:stop/", "queries:restart/"),
    "code/",  # an upload belongs to nobody until a definition names it
}


def concerned(match: ResolverMatch) -> Concerned:
    """Return the applications that a URL is about; empty if its row does not exist.

    Raises `LookupError` for a URL that is not in the table.
    """
    route = match.route.removeprefix(_API)
    if route in _SAID_BY_THE_FORM:
        return []
    for beginning, look in _TABLE.items():
        if route.startswith(beginning):
            key = beginning.split(":")[1].split(">")[0]
            return look(match.kwargs[key])
    raise LookupError(f"{match.route} acts, and `selectors.access.targets` does not know on what")


#: Most names listed as people who can help.
_NAMED_AT_MOST = 3


def insist_at(user: Any, permission: str, match: ResolverMatch | None) -> None:
    """Raise `Forbidden` if a user lacks a permission for the subject of a URL."""
    if permission in OF_TEAMS and match is not None:
        insist(user, concerned(match))


def insist_scope(user: Any, permission: str) -> None:
    """Raise `Forbidden` if a token's scope denies its user a permission."""
    token = token_of(user)
    if token is not None and role_holds(highest_role(user), permission):
        raise Forbidden(
            f"The token {token.name} has the {token.scope} scope, which does not allow this.",
            way_out=f"Ask an admin ({_admins()}) for a token with a higher scope.",
        )


def reaches(user: Any, match: ResolverMatch | None) -> bool:
    """Return whether a user may act on the subject of a URL, within the user's role."""
    reach = reach_of(user)
    if reach.is_all or match is None:
        return True
    try:
        found = concerned(match)
    except LookupError:  # a read-only page
        return True
    return found is not None and all(map(reach.holds, found))


def reached(user: Any, several: Sequence[Concerned]) -> list[bool]:
    """Return, for each row of a list, whether a user may act on its subject."""
    reach = reach_of(user)
    all_of_them = reach.is_all or (None in several and _are_everybodys(reach))
    return [
        all_of_them if applications is None else all(map(reach.holds, applications))
        for applications in several
    ]


def _are_everybodys(reach: Reach) -> bool:
    """Return whether there are no teams, that is, every application is open to everyone."""
    return reach == Reach(frozenset()) and not Team.objects.exists()


def insist(user: Any, applications: Concerned) -> None:
    """Raise `Forbidden` if a user may not act on these applications; None means all."""
    reach = reach_of(user)
    if reach.is_all:
        return
    if applications is None:
        if _are_everybodys(reach):
            return
        raise Forbidden(
            "This affects applications of all teams, and you cannot act for all teams.",
            way_out=f"Select applications of your teams, or ask an admin ({_admins()}).",
        )
    for application in applications:
        if not reach.holds(application):
            raise _refusal(user, reach, application)


def insist_on(user: Any, application: Application) -> None:
    """Raise `Forbidden` if a user may not act on an application."""
    insist(user, [application])


def _refusal(user: Any, reach: Reach, application: Application) -> Forbidden:
    """Return the error, naming the team and the users who can help."""
    if Reach(reach.teams).holds(application):  # refused by the token's own limits
        token = token_of(user)
        assert token is not None, "who has no token has no limits of one"
        return Forbidden(
            f"The token {token.name} cannot act on application "
            f"{application.name}{f' of team {application.team.name}' if application.team else ''}"
            ".",
            way_out=(
                f"It can act on {limits_text(token)}. Ask an admin ({_admins()}) for another token."
            ),
        )
    team = application.team
    assert team is not None, "what has no team is everybody's"
    members = _names(team.members.filter(is_active=True))
    ask = f"Ask a member of {team.name} ({members}) to do it, or" if members else "Ask"
    return Forbidden(
        f"Application {application.name} belongs to team {team.name}, and you are not a member.",
        way_out=f"{ask} an admin ({_admins()}) to add you to the team.",
    )


def limits_text(token: Any) -> str:
    """Return a token's applications: "team data", "a, b of team data", "" for all."""
    names = sorted(row.name for row in token.applications.all()) if token.is_listed else []
    listed = (", ".join(names) or "no application") if token.is_listed else ""
    team = f"team {token.team.name}" if token.team else ""
    return " of ".join(part for part in (listed, team) if part)


def who_can_help() -> str:
    """Return the names of admins, for a message."""
    return _admins()


def _admins() -> str:
    admins = User.objects.filter(Q(is_superuser=True) | Q(groups__name=Role.ADMIN), is_active=True)
    return _names(admins.distinct()) or "there is none yet"


def _names(users: Any) -> str:
    names: Iterable[str] = users.order_by("username").values_list("username", flat=True)
    return ", ".join(names[:_NAMED_AT_MOST])  # type: ignore[index]


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

    The lines are "" at the end of the log. Number, seal and MAC are included, so that a copy can be
    compared with the log.
    """
    rows = AuditEntry.objects.filter(number__gt=after).order_by("number")[:_CHUNK]
    lines = [json.dumps(_line(row), separators=(",", ":")) + "\n" for row in rows]
    return "".join(lines), max((row.number or 0 for row in rows), default=after)


def _line(row: AuditEntry) -> dict[str, Any]:
    return {"number": row.number, **row.content(), "seal": row.seal, "mac": row.mac}
