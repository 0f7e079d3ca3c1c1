"""Logging in keeps the token for oneself; the environment names an installation in CI."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

from tests.cli.conftest import Shell, token_of


@pytest.fixture
def desk(live_server: Any, author: User, tmp_path: Path) -> Shell:
    """Return a shell that knows no installation."""
    return Shell(tmp_path, live_server.url)


def kept(desk: Shell) -> Path:
    return Path(desk.environment()["HEADGATE_CONFIG"])


def test_a_login_is_kept_for_its_owner_alone_and_serves_later_commands(
    desk: Shell, author: User, viewer: User
) -> None:
    token, other = token_of(author), token_of(viewer)
    first = desk("login", desk.url, stdin=f"{token}\n")
    assert "as aude (author); context default" in first.out
    assert stat.S_IMODE(kept(desk).stat().st_mode) == 0o600
    assert desk("get", "queries").err == "There are no queries.\n"
    desk("login", desk.url, "--name", "reading", stdin=other)
    listed = desk("contexts", "-o", "json")
    rows = {row["name"]: row["current"] for row in json.loads(listed.out)}
    assert rows == {"default": False, "reading": True}
    refused = desk("start", "delays", code=1)
    assert "Your role does not allow this" in refused.err
    missing = desk("--context", "default", "start", "delays", code=1)
    assert "Not found" in missing.err
    desk("contexts", "--use", "default")
    left = desk("logout", "reading")
    assert "reading" not in kept(desk).read_text()
    for done in (first, listed, refused, missing, left):
        assert token not in done.out + done.err
        assert other not in done.out + done.err


def test_a_token_that_is_wrong_is_not_kept(desk: Shell) -> None:
    done = desk("login", desk.url, stdin="not-a-token\n", code=1)
    assert "Authentication required" in done.err
    assert "not-a-token" not in done.err
    assert not kept(desk).exists()


def test_a_token_that_is_none_is_never_quoted(desk: Shell) -> None:
    done = desk("login", desk.url, stdin="hunter2 hunter2\n", code=1)
    assert "hunter2" not in done.out + done.err
    assert "invalid characters" in done.err


def test_a_file_that_others_can_read_is_refused(desk: Shell) -> None:
    kept(desk).parent.mkdir()
    kept(desk).write_text('{"current": "", "contexts": {}}')
    kept(desk).chmod(0o644)
    done = desk("get", "queries", code=1)
    assert "other users can read it" in done.err
    assert "chmod 600" in done.err


def test_a_file_that_is_broken_is_told_with_the_way_out(desk: Shell) -> None:
    kept(desk).parent.mkdir()
    kept(desk).touch(mode=0o600)
    kept(desk).write_text("{")
    assert "headgate login URL" in desk("get", "queries", code=1).err


@pytest.mark.parametrize(
    ("env", "code", "said"),
    [
        ({}, 1, "No installation is selected"),
        ({"HEADGATE_URL": "http://127.0.0.1:1"}, 1, "HEADGATE_TOKEN is not set"),
        ({"HEADGATE_TOKEN": "abc"}, 1, "HEADGATE_URL is not set"),
        ({"HEADGATE_URL": "http://10.0.0.1", "HEADGATE_TOKEN": "abc"}, 1, "does not use TLS"),
        (
            {"HEADGATE_URL": "https://a:b@c", "HEADGATE_TOKEN": "abc"},
            64,
            "not a valid Headgate URL",
        ),
        ({"HEADGATE_CONTEXT": "prod"}, 1, "Context prod does not exist"),
    ],
)
def test_a_token_goes_nowhere_unless_it_is_clear_where_it_belongs(
    tmp_path: Path, env: dict[str, str], code: int, said: str
) -> None:
    assert said in Shell(tmp_path, "", env)("get", "queries", code=code).err
