"""Drivers' host accounts are gone: a worker that finds them starts nothing, with the way out."""

import json
import os
import pwd
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from queries.models.grants import GivenRoot
from queries.services.system import installation

REPOSITORY = Path(__file__).resolve().parents[3]
LIMIT_S = 120
#: An account of every host that is neither root's nor that of the tests.
THEIRS = pwd.getpwnam("daemon")


@pytest.fixture
def home(settings: Any, tmp_path: Path) -> Path:
    settings.HEADGATE_HOME = tmp_path / "home"
    settings.HEADGATE_HOME.mkdir()
    settings.ALLOWED_PATHS = (f"{tmp_path}/home/data", f"{tmp_path}/of all", "s3a://bucket/of-all")
    settings.CHECKPOINTS_DIR = settings.HEADGATE_HOME / "checkpoints"
    settings.ISOLATION = "auto"
    return tmp_path / "home"


def _given(home: Path, **accounts: str) -> None:
    (home / installation.FILE).write_text(json.dumps(accounts))


def _commands() -> list[str]:
    return [line.strip() for line in installation.refusal().splitlines() if line[:5] == " " * 5]


@pytest.mark.guarantee("G-UPGRADE-2")
@pytest.mark.django_db
def test_the_commands_are_printed_for_each_account_and_folder(home: Path) -> None:
    given = home.parent / "given"
    GivenRoot.objects.create(application="flights", root=str(given), given_at=datetime.now(UTC))
    _given(home, flights=THEIRS.pw_name, delays=THEIRS.pw_name)

    ours, theirs = f"{os.geteuid()}:{os.getegid()}", THEIRS
    folders = f"{given} {home} '{home.parent}/of all'"
    assert _commands() == [
        f"pkill -KILL -u {theirs.pw_uid}  # drivers that still run as {theirs.pw_name}",
        f"chown -R -h --from={theirs.pw_uid} {ours} {folders}",
        f"chown -R -h --from=:{theirs.pw_gid} :{os.getegid()} {folders}",
        f"chmod 700 {home}",
        f"rm -f {home}/accounts.json",
    ]


@pytest.mark.django_db
def test_folders_that_are_links_are_named_by_what_they_lead_to(home: Path, settings: Any) -> None:
    """`chown -R -h` would change the link alone."""
    elsewhere = home.parent / "elsewhere"
    elsewhere.mkdir()
    (home / "checkpoints").symlink_to(elsewhere)
    (home.parent / "link").symlink_to(home)
    settings.HEADGATE_HOME = home.parent / "link"
    settings.CHECKPOINTS_DIR = home.parent / "link/checkpoints"
    settings.ALLOWED_PATHS = ()
    _given(home, flights=THEIRS.pw_name)
    assert _commands()[1].endswith(f" {elsewhere} {home}")


@pytest.mark.django_db
def test_neither_root_nor_the_worker_is_taken_for_an_account_of_drivers(home: Path) -> None:
    _given(home, flights="root", delays=pwd.getpwuid(os.geteuid()).pw_name)
    assert not [line for line in _commands() if line.startswith(("pkill", "chown"))]


@pytest.mark.guarantee("G-UPGRADE-2")
@pytest.mark.django_db
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"flights": "hg-of-nobody"}', "-nouser  # chown what hg-of-nobody had"),
        ("{", "accounts.json is unreadable"),
        ("[]", "accounts.json is unreadable"),
        ("", "accounts.json is unreadable"),
    ],
)
def test_files_of_unknown_accounts_are_to_be_looked_for(home: Path, text: str, said: str) -> None:
    (home / installation.FILE).write_text(text)
    assert said in installation.refusal()


@pytest.mark.django_db
def test_a_file_that_leads_nowhere_is_refused_too(home: Path) -> None:
    (home / installation.FILE).symlink_to(home / "nothing")
    assert "accounts.json is unreadable" in installation.refusal()


@pytest.mark.django_db
def test_the_setting_alone_is_refused_and_nothing_is_not(home: Path, settings: Any) -> None:
    assert installation.refusal() == ""
    settings.ISOLATION = "accounts"
    assert "HEADGATE_ISOLATION" in installation.refusal()
    assert not [line for line in _commands() if line.startswith("chown")]


def _environment(home: Path) -> dict[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if name != "DATABASE_URL"},
        "HEADGATE_HOME": str(home),
        "REDIS_URL": "redis://127.0.0.1:9/0",
        "SECRET_KEY": "of-these-tests",
    }


@pytest.mark.guarantee("G-UPGRADE-2")
@pytest.mark.timeout(400)
@pytest.mark.parametrize("why", ["the setting", "the file"])
def test_a_worker_that_finds_them_exits_before_it_starts_anything(tmp_path: Path, why: str) -> None:
    environment = _environment(tmp_path)
    if why == "the setting":
        environment["HEADGATE_ISOLATION"] = "accounts"
    else:
        _given(tmp_path, flights=THEIRS.pw_name)
    worker = subprocess.Popen(
        [*(sys.executable, "-m", "celery", "--app", "controlplane", "worker"), "--pool", "threads"],
        cwd=REPOSITORY,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        with suppress(subprocess.TimeoutExpired):
            worker.wait(LIMIT_S)
        assert worker.poll() == 1
    finally:
        worker.kill()
        _, said = worker.communicate()
    assert "This worker does not start: drivers no longer run under host accounts" in said
    assert ("chown -R -h --from=" in said) is (why == "the file")
    assert "Traceback" not in said
    assert not (tmp_path / "walls.json").exists()


@pytest.mark.timeout(400)
def test_a_whole_system_does_not_start_either(tmp_path: Path) -> None:
    _given(tmp_path, flights=THEIRS.pw_name)
    done = subprocess.run(
        [sys.executable, "manage.py", "up"],
        cwd=REPOSITORY,
        env=_environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, "Starting " in done.stdout) == (1, False), done.stdout
    assert "chown -R -h --from=" in done.stderr
