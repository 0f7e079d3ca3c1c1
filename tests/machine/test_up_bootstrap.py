"""The first step of every target: .venv from the locked packages, or a clear word."""

import hashlib
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
SCRIPT = REPOSITORY / "bootstrap" / "run.py"


def _clone(tmp_path: Path, requirements: str = "") -> Path:
    """Return a folder that holds the script and a list of packages, as a checkout does."""
    script = tmp_path / "bootstrap" / "run.py"
    script.parent.mkdir()
    script.write_bytes(SCRIPT.read_bytes())
    (tmp_path / "requirements.txt").write_text(requirements)
    return script


def _run(*command: str | Path, limit_s: int = 120) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
    )


def test_a_python_without_venv_is_told_with_the_command_that_mends_it(tmp_path: Path) -> None:
    script = _clone(tmp_path)
    python = tmp_path / "python"
    # Debian's own Python without python3-venv: the module ensurepip is not there.
    python.write_text(
        f'#!/bin/sh\n[ "$2" = "import ensurepip, venv" ] && exit 1\nexec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    hide = f"import sys; sys.executable = {str(python)!r}; sys.argv = ['run.py', '-V']"
    start = f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')"
    result = _run(sys.executable, "-c", f"{hide}; {start}")
    assert result.returncode == 1
    assert "venv module is missing" in result.stderr
    assert "sudo apt-get install python3." in result.stderr


def test_a_python_that_is_too_old_is_told_what_to_install(tmp_path: Path) -> None:
    script = _clone(tmp_path)
    hide = (
        "import shutil, sys; shutil.which = lambda name: None; "
        "sys.version_info = (3, 9, 2); sys.argv = ['run.py', '-V']"
    )
    start = f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')"
    result = _run(sys.executable, "-c", f"{hide}; {start}")
    assert result.returncode == 1
    assert "needs Python 3.11 or newer" in result.stderr


def test_calls_install_what_is_not_there_yet_and_nothing_else(tmp_path: Path) -> None:
    script = _clone(tmp_path, requirements="# nothing\n")
    first = _run(sys.executable, script, "-c", "print('ran')")
    assert first.stdout.splitlines()[-1] == "ran"
    assert "Creating .venv" in first.stdout
    stamp = tmp_path / ".venv" / ".requirements.txt.installed"
    assert stamp.read_text().strip() == hashlib.sha256(b"# nothing\n").hexdigest()
    # A second call installs nothing and needs no network.
    second = _run(sys.executable, script, "-c", "print('ran')")
    assert second.stdout == "ran\n"
    # An install that fails says so and leaves no stamp.
    stamp.unlink()
    (tmp_path / "requirements.txt").write_text("/no/such/package.whl\n")
    third = _run(sys.executable, script, "-c", "print('ran')")
    assert third.returncode == 1
    assert "pip could not install requirements.txt" in third.stderr
    assert "ran" not in third.stdout
    assert not stamp.exists()


def test_stopping_what_was_never_set_up_says_so(tmp_path: Path) -> None:
    result = _run(sys.executable, _clone(tmp_path), "--as-it-is", "manage.py", "stop")
    assert (result.returncode, result.stdout) == (
        0,
        "Headgate is not set up here yet: there is no .venv.\n",
    )


@pytest.mark.parametrize(
    "target",
    [
        *("help", "run", "stop", "kafka", "s3", "hadoop", "check", "test", "lint", "fix"),
        *("bench", "lock"),
    ],
)
def test_make_help_names_every_target(target: str) -> None:
    result = _run("make", "-C", REPOSITORY, "help")
    assert f"make {target}" in result.stdout


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {}),
        (
            {"PIP_INDEX_URL": "https://packages.example.org/simple", "PIP_NO_INPUT": "1"},
            {"UV_DEFAULT_INDEX": "https://packages.example.org/simple"},
        ),
        (
            {"PIP_FIND_LINKS": "/srv/wheels /srv/more", "PIP_CERT": "/etc/ca.pem"},
            {"UV_FIND_LINKS": "/srv/wheels,/srv/more", "SSL_CERT_FILE": "/etc/ca.pem"},
        ),
        ({"PIP_CONSTRAINT": "/srv/constraints.txt"}, None),  # uv would not get it
    ],
)
def test_uv_gets_the_settings_of_pip_or_leaves_all_to_pip(
    settings: dict[str, str], expected: dict[str, str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    read = runpy.run_path(str(SCRIPT))["_settings_of_pip"]
    monkeypatch.setitem(read.__globals__, "PYTHON", Path(sys.executable))
    assert read() == expected
