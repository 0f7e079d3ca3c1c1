"""Settings → Git hosts: an admin lists hosts, and takes them off again."""

import pytest
from django.contrib.auth.models import User
from django.test import Client

from queries.models.access.audit_trail import AuditEntry
from queries.models.grants import CodeHost
from tests.web.browserless import Page

pytestmark = pytest.mark.django_db

URL = "/settings/code-hosts/"


def test_a_host_is_listed_and_taken_off(client: Client, admin: User) -> None:
    client.force_login(admin)
    assert "No host is listed" in Page(client, URL).text
    client.post(URL, {"host": "git.example.org"})
    shown = Page(client, URL).text
    assert "Definitions may take code from git.example.org." in shown
    row = CodeHost.objects.get()
    client.post(f"{URL}{row.pk}/take/")
    assert "No more code is fetched from git.example.org." in Page(client, URL).text
    assert [entry.said for entry in AuditEntry.objects.filter(kind="code-host").order_by("pk")] == [
        "listed",
        "removed",
    ]


def test_what_is_no_host_is_said_beside_the_field(client: Client, admin: User) -> None:
    client.force_login(admin)
    answer = client.post(URL, {"host": "git.example.org/team"})
    assert answer.status_code == 422
    assert "is not a host that git can be asked at." in answer.content.decode()
