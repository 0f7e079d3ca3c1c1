"""The page on which admins map the identity provider's groups to roles."""

from typing import Any

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import path, reverse
from django.views.decorators.cache import never_cache

from queries.domain.errors import Conflict, HeadgateError, Invalid
from queries.models.access.group_roles import GroupRole
from queries.roles import ADMINISTER, ORDER, ROLE_WORDS, Role
from queries.selectors.access.group_roles import group_role
from queries.services.access.group_roles import (
    add_group_role,
    change_group_role,
    remove_group_role,
)
from queries.views.console.errors import refused
from queries.views.console.guard import by, needs


@never_cache
@needs(ADMINISTER, "GET", "POST")
def group_roles(request: HttpRequest) -> HttpResponseBase:
    """Show the table; assign a role to a group with the form above it."""
    if request.method != "POST":
        return _page(request, {"given": Role.VIEWER})
    group, role = (request.POST.get(name, "").strip() for name in ("group", "role"))
    try:
        row = add_group_role(group=group, role=role, **by(request))
    except (Invalid, Conflict) as error:
        problem = error.problems[0].sentence() if isinstance(error, Invalid) else str(error)
        context = {"group": group, "given": role, "problem": problem}
        return _page(request, context, status=422)
    messages.success(
        request, f"Members of {row.group} get the {row.role} role at their next sign-in."
    )
    return redirect("user-groups")


@needs(ADMINISTER, "POST")
def change(request: HttpRequest, row_id: int) -> HttpResponseBase:
    """Change the role in a group's row, or remove the row."""
    row = group_role(row_id)
    try:
        if request.POST.get("do") == "remove":
            remove_group_role(row, **by(request))
            messages.success(
                request, f"Members of {row.group} lose this role at their next sign-in."
            )
        else:
            change_group_role(row, role=request.POST.get("role", ""), **by(request))
            messages.success(
                request, f"Members of {row.group} get the {row.role} role at their next sign-in."
            )
    except HeadgateError as error:
        return refused(request, error, reverse("user-groups"))
    return redirect("user-groups")


def _page(request: HttpRequest, more: dict[str, Any], status: int = 200) -> HttpResponse:
    context = {
        "rows": GroupRole.objects.all(),
        "roles": [(role.value, ROLE_WORDS[role]) for role in ORDER],
        "issuer": settings.OIDC_ISSUER,
        "claim": settings.OIDC_GROUPS_CLAIM,
        **more,
    }
    return render(request, "access/group_roles.html", context, status=status)


urlpatterns = [
    path("settings/groups/", group_roles, name="user-groups"),
    path("settings/groups/<int:row_id>/", change, name="user-group-change"),
]
