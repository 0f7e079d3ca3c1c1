"""What Headgate writes is its account's alone, whatever umask it is started with."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


def _run(home: Path, *command: str) -> str:
    """Run a program as a careless shell would, for an installation in a folder; return its text."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=REPOSITORY,
        env={**kept, "HEADGATE_HOME": str(home), "SECRET_KEY": "a long text for this test alone"},
        umask=0o022,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


@pytest.mark.guarantee("G-FILE-1")
def test_every_file_below_its_home_is_private(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    _run(home, "manage.py", "migrate", "--no-input", "-v", "0")
    _run(home, "manage.py", "install_demo")  # copies the flights
    modes = {
        str(one.relative_to(home)): stat.S_IMODE(one.lstat().st_mode) for one in home.rglob("*")
    }
    assert "headgate.sqlite3" in modes
    assert "demo/flights" in modes
    assert {name: oct(mode) for name, mode in modes.items() if mode & 0o077} == {}


@pytest.mark.parametrize("module", ["installation.asgi", "controlplane.celery"])
def test_web_process_worker_and_beat_make_private_files(tmp_path: Path, module: str) -> None:
    told = _run(tmp_path, "-c", f"import os, {module}; print(oct(os.umask(0)))")
    assert told == "0o77"


@pytest.mark.parametrize("text", ["22", "0o22", "999", "rwx"])
def test_a_umask_for_data_that_is_none_stops_the_start(tmp_path: Path, text: str) -> None:
    done = subprocess.run(
        [sys.executable, "manage.py", "check"],
        cwd=REPOSITORY,
        env={**os.environ, "HEADGATE_HOME": str(tmp_path), "HEADGATE_DATA_UMASK": text},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode != 0
    assert "three octal digits" in done.stderr
