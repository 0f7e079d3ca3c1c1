"""Look up teams: the owner of an application, and the team for a new one."""

from typing import Any

from django.db.models import Count, Q, QuerySet

from queries.domain.errors import Forbidden, Invalid, Problem
from queries.domain.validation.joining import team_problem
from queries.models.access.teams import Team
from queries.models.applications import Application
from queries.models.tokens import AccessToken
from queries.roles import Reach, reach_of
from queries.selectors.access.insisting import insist, who_can_help


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
