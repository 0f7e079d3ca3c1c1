"""At the upgrade everybody keeps what they had."""

from importlib import import_module

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.utils import timezone

from queries.models.access.teams import Grant
from queries.models.tokens import AccessToken
from queries.services.console.tokens import create_token


@pytest.mark.django_db
def test_accounts_act_for_all_teams_authors_write_python_and_tokens_do_what_they_did(
    viewer: User, operator: User, author: User, admin: User, outsider: User
) -> None:
    root = User.objects.create_superuser("root")
    for user in (author, admin, root):
        create_token(user=user, name=user.username, actor="ada", scope="read", now=timezone.now())
    Grant.objects.all().delete()
    import_module("queries.migrations.0019_teams").keep_what_people_have(apps, None)
    python = {row.user.username: row.write_python for row in Grant.objects.select_related("user")}
    assert all(Grant.objects.values_list("all_teams", flat=True))
    assert python == {
        "vera": False,
        "otto": False,
        "aude": True,
        "ada": True,
        "olaf": False,
        "root": True,
    }
    scopes = dict(AccessToken.objects.values_list("name", "scope"))
    assert scopes == {"aude": "author", "ada": "admin", "root": "admin"}
