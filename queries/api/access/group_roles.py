"""The roles assigned to the identity provider's groups; admins only."""

from typing import Any

from django.db.models import QuerySet
from django.urls import reverse
from rest_framework import serializers
from rest_framework.response import Response

from queries.api.base import ApiView
from queries.api.derived import Body, described, shows
from queries.api.methods import Sent, answers, creates, lists
from queries.models.access.group_roles import GroupRole
from queries.roles import ADMINISTER, Role
from queries.selectors.access.group_roles import group_role
from queries.services.access import group_roles

_ROLES = [str(role) for role in Role]


@shows(GroupRole, "id group role created_at created_by")
class GroupRoleBody(Body):
    """A group in the identity provider, and the role of its members."""

    role = serializers.ChoiceField(_ROLES)


@described
class GroupRoleForm(serializers.Serializer[Any]):
    """A group and its role.

    group: Spelled exactly as the identity provider sends it.
    """

    group = serializers.CharField(max_length=255)
    role = serializers.ChoiceField(_ROLES)


class RoleForm(serializers.Serializer[Any]):
    """A new role for a group."""

    role = serializers.ChoiceField(_ROLES)


class GroupRolesView(ApiView):
    """The roles of groups."""

    @lists("list_group_roles", GroupRoleBody, role=ADMINISTER)
    def get(self) -> QuerySet[GroupRole]:
        """List the groups that have a role."""
        return GroupRole.objects.all()

    @creates(
        "create_group_role", GroupRoleBody, GroupRoleForm, role=ADMINISTER, again=GroupRoleBody
    )
    def post(self, sent: Sent) -> Response:
        """Assign a role to a group, effective from each member's next sign-in.

        If the group already has this role, the response is 200.
        """
        if there := GroupRole.objects.filter(group=sent["group"], role=sent["role"]).first():
            return Response(GroupRoleBody(there).data)
        row = group_roles.add_group_role(**sent, **self.by)
        location = reverse("api:group-role", args=[row.pk])
        return Response(GroupRoleBody(row).data, 201, headers={"Location": location})


class GroupRoleView(ApiView):
    """One group's role."""

    @answers("get_group_role", GroupRoleBody, role=ADMINISTER)
    def get(self, row_id: int) -> GroupRole:
        """Return a group and its role."""
        return group_role(row_id)

    @answers("change_group_role", GroupRoleBody, role=ADMINISTER, form=RoleForm)
    def put(self, row_id: int, sent: Sent) -> GroupRole:
        """Change the group's role."""
        row = group_role(row_id)
        group_roles.change_group_role(row, role=sent["role"], **self.by)
        return row

    @answers("delete_group_role", None, role=ADMINISTER)
    def delete(self, row_id: int) -> None:
        """Remove the group's role."""
        group_roles.remove_group_role(group_role(row_id), **self.by)
