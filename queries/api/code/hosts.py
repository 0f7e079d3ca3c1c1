"""The hosts that definitions may take code from, by git: an admin's list."""

from django.db.models import QuerySet
from django.urls import reverse
from rest_framework import serializers
from rest_framework.response import Response

from queries.api.base import ApiView
from queries.api.derived import Body, shows
from queries.api.methods import Sent, answers, creates, lists
from queries.models.grants import CodeHost
from queries.roles import ADMINISTER
from queries.selectors.found import found
from queries.services.code.hosts import list_host, take_host


@shows(CodeHost, "id=pk host given_at given_by")
class CodeHostBody(Body):
    """A host whose git repositories definitions may take code from.

    host: host or host:port by https, or ssh://host.
    """


class CodeHostForm(Body):
    """A host to list."""

    host = serializers.CharField(
        max_length=255, help_text="git.example.org, git.example.org:8443 or ssh://git.example.org."
    )


class CodeHostsView(ApiView):
    """All hosts that code may come from."""

    @lists("list_code_hosts", CodeHostBody, role=ADMINISTER)
    def get(self) -> QuerySet[CodeHost]:
        """List the hosts that definitions may take code from, newest first; admins only."""
        return CodeHost.objects.filter(taken_at=None)

    @creates("list_code_host", CodeHostBody, CodeHostForm, role=ADMINISTER, again=CodeHostBody)
    def post(self, sent: Sent) -> Response:
        """List a host; admins only. One that is listed is returned as it is, with 200."""
        row = list_host(sent, **self.by)
        location = reverse("api:code-host", args=[row.pk])
        status = 201 if row.given_at == self.now else 200
        return Response(CodeHostBody(row).data, status, headers={"Location": location})


class CodeHostView(ApiView):
    """One host that code may come from."""

    @answers("get_code_host", CodeHostBody, role=ADMINISTER)
    def get(self, host_id: int) -> CodeHost:
        """Return a host; admins only."""
        return _host(host_id)

    @answers("take_code_host", None, role=ADMINISTER)
    def delete(self, host_id: int) -> None:
        """Take a host off the list: what has been fetched stays, nothing more is."""
        take_host(_host(host_id), **self.by)


def _host(number: int) -> CodeHost:
    rows = CodeHost.objects.filter(pk=number, taken_at=None)
    return found(rows, f"Host {number} does not exist.")
