"""Settings → Git hosts: an admin lists hosts, and takes them off again."""

import pytest
from django.contrib.auth.models import User
from django.test import Client

from queries.models.access.audit import AuditEntry
from queries.models.grants import CodeHost
from tests.web.browserless import Page

pytestmark = pytest.mark.django_db

URL = "/settings/code-hosts/"


def test_a_host_is_listed_and_taken_off(client: Client, admin: User) -> None:
    client.force_login(admin)
    assert "No hosts. Applications" in Page(client, URL).text
    client.post(URL, {"host": "git.example.org"})
    shown = Page(client, URL).text
    assert "Definitions can use code from git.example.org." in shown
    row = CodeHost.objects.get()
    client.post(f"{URL}{row.pk}/take/")
    assert "Code is no longer fetched from git.example.org." in Page(client, URL).text
    assert [
        entry.details_line for entry in AuditEntry.objects.filter(kind="code-host").order_by("pk")
    ] == [
        "listed",
        "removed",
    ]


def test_what_is_no_host_is_said_beside_the_field(client: Client, admin: User) -> None:
    client.force_login(admin)
    answer = client.post(URL, {"host": "git.example.org/team"})
    assert answer.status_code == 422
    assert "is not a valid git host." in answer.content.decode()
