"""Team pages: members and applications. Everyone can read them, admins can change them."""

from functools import partial

from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import path, reverse
from django.utils import timezone

from queries.domain.errors import HeadgateError, Invalid
from queries.roles import ADMINISTER, VIEW
from queries.selectors.access.teams import team as team_row
from queries.selectors.access.teams import team_named, teams, tokens_of_team
from queries.selectors.supervision.applications import application
from queries.services.access import teams as service
from queries.services.definitions import team as ownership
from queries.views.console.errors import answered, refused
from queries.views.console.guard import by, needs


@needs(VIEW)
def team_list(request: HttpRequest) -> HttpResponseBase:
    """List the teams; admins can create one with the form on the page."""
    return _list(request)


@needs(ADMINISTER, "POST")
def new_team(request: HttpRequest) -> HttpResponseBase:
    """Create a team, and go to its page to choose its members."""
    name = request.POST.get("name", "").strip()
    try:
        made = service.create_team(name=name, **by(request))
    except Invalid as error:
        return _list(request, name=name, problem=error.problems[0], status=422)
    messages.success(request, f"Team {made.name} was created. Choose its members.")
    return redirect("team", made.name)


def _list(request: HttpRequest, *, status: int = 200, **more: object) -> HttpResponse:
    context = {"teams": teams(), "now": timezone.now(), **more}
    return render(request, "access/teams.html", context, status=status)


@needs(VIEW)
def team_page(request: HttpRequest, name: str) -> HttpResponseBase:
    """Show a team's members and applications; admins can choose the members."""
    row = team_row(name)
    context = {
        "team": row,
        "members": {user.pk for user in row.members.all()},
        "people": User.objects.order_by("username"),
        "applications": row.applications.filter(archived_at=None).order_by("name"),
        "tokens": tokens_of_team(row),
    }
    return render(request, "access/team.html", context)


@needs(ADMINISTER, "POST")
def change_team(request: HttpRequest, name: str) -> HttpResponseBase:
    """Replace a team's members with the selected users."""
    row = team_row(name)
    try:
        service.set_members(team=row, members=request.POST.getlist("member"), **by(request))
        messages.success(request, f"The members of {name} were saved.")
    except HeadgateError as error:
        return refused(request, error, reverse("team", args=[name]))
    return redirect("team", name)


@needs(ADMINISTER, "POST")
def delete_team(request: HttpRequest, name: str) -> HttpResponseBase:
    """Delete a team that has no applications."""
    try:
        service.delete_team(team=team_row(name), **by(request))
    except HeadgateError as error:
        return refused(request, error, reverse("team", args=[name]))
    messages.success(request, f"Team {name} was deleted.")
    return redirect("teams")


@needs(ADMINISTER, "POST")
def give_application(request: HttpRequest, name: str) -> HttpResponseBase:
    """Assign an application to the chosen team; "" opens it to everyone."""
    row = application(name)
    chosen = request.POST.get("team", "").strip()
    team = team_named(chosen) if chosen else None
    give = partial(ownership.give_application, application=row, team=team, **by(request))
    said = (
        f"{name} belongs to team {team.name}." if team else (f"{name} no longer belongs to a team.")
    )
    return answered(request, give, said, reverse("application", args=[name]))


urlpatterns = [
    path("settings/teams/", team_list, name="teams"),
    path("settings/teams/new/", new_team, name="team-new"),
    path("settings/teams/<str:name>/", team_page, name="team"),
    path("settings/teams/<str:name>/members/", change_team, name="team-members"),
    path("settings/teams/<str:name>/delete/", delete_team, name="team-delete"),
    path("applications/<str:name>/team/", give_application, name="application-team"),
]
