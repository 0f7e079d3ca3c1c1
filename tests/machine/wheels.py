"""Both wheels, built from this checkout, and an environment that holds them beside our packages.

The environment sees the packages of this one, and nothing of the checkout: what a wheel lacks is
missing there.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
LIMIT_S = 300


def run(*command: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a command with these variables on top of our own; return how it ended."""
    return subprocess.run(
        [str(part) for part in command],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def built(folder: Path) -> dict[str, Path]:
    """Build what `make dist` builds; return the files, the wheels by name of their distribution."""
    done = run(sys.executable, REPOSITORY / "bootstrap" / "dist.py", folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return {
        wheel.name.partition("-")[0]: wheel for wheel in folder.iterdir() if wheel.suffix == ".whl"
    }


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment with wheels of ours."""

    folder: Path

    @property
    def bin(self) -> Path:
        """The folder of its commands."""
        return self.folder / "bin"

    @property
    def packages(self) -> Path:
        """The folder that our packages were installed into."""
        [found] = self.folder.glob("lib/python*/site-packages")
        return found

    @classmethod
    def made(cls, folder: Path, *wheels: Path) -> "Environment":
        """Make one, and install the wheels into it without what they ask for."""
        done = run(sys.executable, "-m", "venv", "--without-pip", folder)
        assert done.returncode == 0, done.stderr
        made = cls(folder)
        (made.packages / "locked.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
        options = ("-q", "--no-deps", "--no-index", "--disable-pip-version-check")
        pip = (sys.executable, "-m", "pip", "--python", made.bin / "python")
        done = run(*pip, "install", *options, *wheels)
        assert done.returncode == 0, done.stderr
        return made

    def variables(self, home: Path) -> dict[str, str]:
        """Return the variables of a shell of somebody who has installed us, with a home."""
        left = ("HEADGATE_", "DJANGO_", "DATABASE_", "REDIS_", "PYTHONPATH", "VIRTUAL_ENV", "XDG_")
        ours = {name: value for name, value in os.environ.items() if not name.startswith(left)}
        ours["PATH"] = os.pathsep.join((str(self.bin), ours.get("PATH", os.defpath)))
        return {**ours, "HOME": str(home)}


def git_files(*names: str) -> list[str]:
    """Return the files below folders of the checkout that git knows or would add."""
    git = shutil.which("git")
    assert git, "git is what knows the files"
    command: tuple[str | Path, ...] = (
        git,
        "-C",
        REPOSITORY,
        "ls-files",
        "-co",
        "--exclude-standard",
        "--",
        *names,
    )
    found = run(*command).stdout.splitlines()
    return [name for name in found if (REPOSITORY / name).exists()]
