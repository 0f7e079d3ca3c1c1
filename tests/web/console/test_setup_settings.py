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
from controlplane.masking import Masked
from headgate_ground.masking import MASK

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


@pytest.mark.guarantee("G-UPGRADE-2")
@pytest.mark.parametrize(
    ("former", "name"),
    [
        ("HEADGATE_WALLS", "HEADGATE_ISOLATION"),
        ("HEADGATE_DATA_ROOTS", "HEADGATE_ALLOWED_PATHS"),
    ],
)
def test_a_former_name_stops_the_start_and_names_the_new(former: str, name: str) -> None:
    result = _load_settings(**{former: "neither", name: ""})
    assert result.returncode != 0
    last = result.stderr.strip().splitlines()[-1]
    assert f"{former}='neither' cannot be used. It has been renamed: set {name}" in last
    assert _load_settings(**{former: ""}).returncode == 0  # as a compose file passes it on


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
    with pytest.raises(ImproperlyConfigured, match=r"A_SWITCH.*Use 1 or 0"):
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


@pytest.mark.usefixtures("_nothing_declared")
@pytest.mark.parametrize(
    ("value", "address", "host"),
    [
        (
            "https://headgate.example.org:8443/",
            "https://headgate.example.org:8443",
            "headgate.example.org",
        ),
        ("http://10.0.0.7:8000", "http://10.0.0.7:8000", "10.0.0.7"),
        ("http://[fd00::7]:8000", "http://[fd00::7]:8000", "[fd00::7]"),
        ("", "", ""),
    ],
)
def test_the_address_of_the_web_is_also_a_host_that_is_accepted(
    monkeypatch: pytest.MonkeyPatch, value: str, address: str, host: str
) -> None:
    monkeypatch.setenv("A_SERVER", value)
    assert environment.web_address("A_SERVER") == address
    assert environment.host_in(address) == host


def test_pods_reach_the_web_and_redis_where_the_settings_say() -> None:
    shown = "from controlplane.settings import *; print(ALLOWED_HOSTS[-1], POD_REDIS_URL)"
    variables = {"HEADGATE_POD_URL": "http://10.0.0.7:8000", "REDIS_URL": "redis://127.0.0.1:1/0"}
    for more, address in (
        ({}, "redis://127.0.0.1:1/0"),
        ({"HEADGATE_POD_REDIS_URL": "redis://10.0.0.7:1/0"}, "redis://10.0.0.7:1/0"),
    ):
        printed = subprocess.run(
            [sys.executable, "-c", shown],
            env=os.environ | variables | more,
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert printed.stdout.split() == ["10.0.0.7", address]


@pytest.mark.usefixtures("_nothing_declared")
@pytest.mark.parametrize(
    "value",
    ["10.0.0.7:8000", "redis://h", "https://", "https://h/path", "https://a:b@h", "https://h:x"],
)
def test_another_address_is_no_server(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("A_SERVER", value)
    with pytest.raises(ImproperlyConfigured, match="A_SERVER"):
        environment.web_address("A_SERVER")


@pytest.mark.usefixtures("_nothing_declared")
@pytest.mark.parametrize("value", ["s3a://bucket", "s3://b/c/", "hdfs://name:8020/c", ""])
def test_a_store_is_a_folder_that_all_hosts_reach(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("A_STORE", value)
    assert environment.store("A_STORE") == value.rstrip("/")


@pytest.mark.usefixtures("_nothing_declared")
@pytest.mark.parametrize(
    "value",
    ["/data", "file:///data", "file://localhost/x", "s3a:///c", "s3a://b/../c", "s3a://b/*"],
)
def test_a_local_folder_is_no_store(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("A_STORE", value)
    with pytest.raises(ImproperlyConfigured, match=r"A_STORE.*S3 or HDFS"):
        environment.store("A_STORE")


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


@pytest.mark.usefixtures("_nothing_declared")
def test_a_secret_may_lie_in_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("of the file\n")
    monkeypatch.setenv("A_SECRET_FILE", str(file))
    assert environment.secret("A_SECRET", "none") == "of the file"
    monkeypatch.delenv("A_SECRET_FILE")
    assert environment.secret("A_SECRET", "none") == "none"
    assert set(environment.DECLARED) == {"A_SECRET", "A_SECRET_FILE"}


@pytest.mark.usefixtures("_nothing_declared")
@pytest.mark.parametrize(
    ("held", "plain", "says"),
    [
        (None, "", "It cannot be read"),
        ("", "", "The file is empty"),
        ("one", "another", "A_SECRET is also set. Set only one of them"),
    ],
)
def test_a_file_that_holds_no_secret_stops_the_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, held: str | None, plain: str, says: str
) -> None:
    file = tmp_path / "key"
    if held is not None:
        file.write_text(held)
    monkeypatch.setenv("A_SECRET_FILE", str(file))
    monkeypatch.setenv("A_SECRET", plain)
    with pytest.raises(ImproperlyConfigured, match=says):
        environment.secret("A_SECRET", "")


@pytest.mark.guarantee("G-TLS-3")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SECRET_KEY", "x" * 50),
        ("DATABASE_URL", "postgres://someone:hunter2@db/headgate"),
        ("REDIS_URL", "redis://:hunter2@redis:6379/0"),
        ("HEADGATE_DEAD_MANS_SWITCH_URL", "https://dead.example.org/hunter2"),
    ],
)
def test_each_secret_of_the_installation_may_lie_in_a_file(
    name: str, value: str, tmp_path: Path
) -> None:
    file = tmp_path / "secret"
    file.write_text(value + "\n")
    said = subprocess.run(
        [
            sys.executable,
            "-c",
            "from controlplane import settings as s, environment as e; "
            f"print(e.value_of({name!r}), s.SECRET_KEY, s.DATABASES, s.REDIS_URL, "
            "s.DEAD_MANS_SWITCH_URL)",
        ],
        env={n: v for n, v in os.environ.items() if n != name} | {f"{name}_FILE": str(file)},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    assert said.startswith(value)
    assert said.replace(value, "", 1).count("hunter2" if "hunter2" in value else value) == 1
