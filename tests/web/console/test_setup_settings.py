"""Settings come from the environment, are documented, and say what is wrong with them."""

import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from controlplane import environment
from controlplane.logs import Masked
from queries.domain.masking import MASK

REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.fixture
def _nothing_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "DECLARED", {})


def _load_settings(**variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "import controlplane.settings"],
        env=os.environ | variables,
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_table_of_settings_names_every_variable_with_its_default() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| (.*?) \| ", (REPOSITORY / "docs/settings.md").read_text(), re.MULTILINE
    )
    documented = {name: default.replace("`", "").strip("–") for name, default in rows}
    declared = dict(environment.DECLARED)
    assert documented == declared


def test_a_wrong_value_stops_the_start_with_name_value_and_way_out() -> None:
    result = _load_settings(HEADGATE_PORT="eighty")
    assert result.returncode != 0
    last = result.stderr.strip().splitlines()[-1]
    assert "HEADGATE_PORT='eighty' cannot be used." in last
    assert "whole number from 1 to 65535" in last


def test_a_wrong_database_address_is_told_without_its_password() -> None:
    result = _load_settings(DATABASE_URL="mysql://someone:hunter2@db/headgate")
    assert result.returncode != 0
    assert "DATABASE_URL" in result.stderr
    assert "hunter2" not in result.stderr


@pytest.mark.usefixtures("_nothing_declared")
@pytest.mark.parametrize(
    ("value", "expected"), [("1", True), ("true", True), ("ON", True), ("0", False), ("no", False)]
)
def test_a_switch_reads_the_words_people_write(
    monkeypatch: pytest.MonkeyPatch, value: str, expected: bool
) -> None:
    monkeypatch.setenv("A_SWITCH", value)
    assert environment.flag("A_SWITCH", not expected) is expected


@pytest.mark.usefixtures("_nothing_declared")
@pytest.mark.parametrize("value", ["maybe", "2"])
def test_a_switch_refuses_anything_else(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("A_SWITCH", value)
    with pytest.raises(ImproperlyConfigured, match=r"A_SWITCH.*Give 1 or 0"):
        environment.flag("A_SWITCH", True)


@pytest.mark.usefixtures("_nothing_declared")
@pytest.mark.parametrize("value", ["0", "11", "1.5", "many"])
def test_a_number_outside_its_limits_is_refused(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("A_NUMBER", value)
    with pytest.raises(ImproperlyConfigured, match=r"A_NUMBER.*from 1 to 10"):
        environment.whole("A_NUMBER", 5, low=1, high=10)


@pytest.mark.usefixtures("_nothing_declared")
def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_NUMBER", "")
    assert environment.whole("A_NUMBER", 5, low=1, high=10) == 5


@pytest.mark.usefixtures("_nothing_declared")
@pytest.mark.parametrize("value", ["http://localhost", "localhost:6379", "redis://", "redis:///"])
def test_an_address_that_is_no_redis_is_refused(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("A_REDIS", value)
    with pytest.raises(ImproperlyConfigured, match="A_REDIS"):
        environment.redis_url("A_REDIS", "redis://127.0.0.1:6379/0", shown="")


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("redis://:pw@127.0.0.1:6379/0", f"redis://:{MASK}@127.0.0.1:6379/0"),
        ("postgres://me:p@db/x and more", f"postgres://me:{MASK}@db/x and more"),
        ("https://example.org/a:b", "https://example.org/a:b"),
    ],
)
def test_passwords_in_addresses_never_reach_a_log(text: str, masked: str) -> None:
    record = logging.LogRecord("x", logging.INFO, "", 0, "%s", (text,), None)
    assert Masked().format(record) == masked
