"""`manage.py createtoken USER` prints a token that works, and nothing else."""

from io import StringIO

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from knox.auth import TokenAuthentication

from queries.models.access.accounts import AccessToken


def _token(*arguments: str) -> str:
    out = StringIO()
    call_command("createtoken", *arguments, stdout=out)
    return out.getvalue()


def test_it_prints_one_line_that_is_a_token_of_the_user(operator: User) -> None:
    printed = _token("otto", "--name", "deploy job", "--days", "7")
    assert printed == printed.strip() + "\n"
    user, row = TokenAuthentication().authenticate_credentials(printed.strip().encode())
    assert user == operator
    assert row.name == "deploy job"


def test_only_a_digest_of_it_is_stored(operator: User) -> None:
    printed = _token("otto").strip()
    assert printed not in AccessToken.objects.get().digest


def test_a_stranger_gets_a_sentence_with_the_names_there_are(operator: User) -> None:
    with pytest.raises(CommandError, match=r"no active user 'nobody'.*otto"):
        _token("nobody")


def test_a_life_of_no_days_is_refused(operator: User) -> None:
    with pytest.raises(CommandError, match="days"):
        _token("otto", "--days", "0")
