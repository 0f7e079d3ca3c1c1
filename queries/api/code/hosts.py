"""The git hosts from which definitions can take code: a list that admins maintain."""

from django.db.models import QuerySet
from django.urls import reverse
from rest_framework import serializers
from rest_framework.response import Response

from queries.api.base import ApiView
from queries.api.derived import Body, shows
from queries.api.methods import Sent, answers, creates, lists
from queries.models.grants import CodeHost
from queries.roles import ADMINISTER
from queries.selectors.first_or_missing import found
from queries.services.code.hosts import list_host, take_host


@shows(CodeHost, "id=pk host given_at given_by")
class CodeHostBody(Body):
    """A git host from which definitions can take code.

    host: host or host:port for https, or ssh://host.
    """


class CodeHostForm(Body):
    """A host to add."""

    host = serializers.CharField(
        max_length=255, help_text="git.example.org, git.example.org:8443 or ssh://git.example.org."
    )


class CodeHostsView(ApiView):
    """All git hosts from which code can be taken."""

    @lists("list_code_hosts", CodeHostBody, role=ADMINISTER)
    def get(self) -> QuerySet[CodeHost]:
        """List the git hosts from which definitions can take code, newest first; admins only."""
        return CodeHost.objects.filter(taken_at=None)

    @creates("list_code_host", CodeHostBody, CodeHostForm, role=ADMINISTER, again=CodeHostBody)
    def post(self, sent: Sent) -> Response:
        """Add a host; admins only. An existing host is returned unchanged, with 200."""
        row = list_host(sent, **self.by)
        location = reverse("api:code-host", args=[row.pk])
        status = 201 if row.given_at == self.now else 200
        return Response(CodeHostBody(row).data, status, headers={"Location": location})


class CodeHostView(ApiView):
    """One git host from which code can be taken."""

    @answers("get_code_host", CodeHostBody, role=ADMINISTER)
    def get(self, host_id: int) -> CodeHost:
        """Return a host; admins only."""
        return _host(host_id)

    @answers("take_code_host", None, role=ADMINISTER)
    def delete(self, host_id: int) -> None:
        """Remove a host: code that was already fetched remains, but no more is fetched."""
        take_host(_host(host_id), **self.by)


def _host(number: int) -> CodeHost:
    rows = CodeHost.objects.filter(pk=number, taken_at=None)
    return found(rows, f"Host {number} does not exist.")
