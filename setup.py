"""The parts of the server's wheel that are read from the checkout: packages, data, versions.

`make dist` builds the wheel; everything else about it is in pyproject.toml.
"""

import re
import runpy
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent
PACKAGES = runpy.run_path(str(HERE / "headgate_ground" / "packages.py"))["OURS"]
VERSION = runpy.run_path(str(HERE / "headgate_server" / "__init__.py"))["__version__"]
#: Folders and files that become the data of `headgate_server` (`places.DATA`).
DATA = (
    *("templates", "static", "docs", "examples", "connectors"),
    *("bootstrap/fetch.py", "bootstrap/run.py"),
)
_REQUIREMENT = re.compile(r"^([\w.-]+)(\[[\w,-]+\])?([^\s;#\\]*)", re.MULTILINE)


class Build(build_py):  # type: ignore[misc]  # setuptools has no types
    """Build our packages, and copy the data into the package that reads it."""

    def run(self) -> None:
        """Copy packages and data into the build tree."""
        super().run()
        target = Path(self.build_lib) / "headgate_server" / "data"
        left_out = shutil.ignore_patterns("__pycache__", "*.pyc")
        for name in DATA:
            source, destination = HERE / name, target / name
            destination.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, destination, ignore=left_out, dirs_exist_ok=True)
            else:
                shutil.copy(source, destination)
        (target / "constraints.txt").write_text(constraints())
        compile_java(Path(self.build_lib) / "queries" / "jvm")


def compile_java(target: Path) -> None:
    """Compile our Java classes into the package that looks for them, if Spark is installed here.

    A wheel without them works: the hosts compile them. `make dist` refuses to make one.
    """
    if find_spec("pyspark") is None:
        return
    command = [sys.executable, "-m", "queries.jvm.compiled", str(target)]
    subprocess.run(command, cwd=HERE, timeout=300, check=False)
    for lock in target.glob(".*.lock"):
        lock.unlink()


def locked() -> dict[str, str]:
    """Return the locked version of each package, by its normalized name."""
    requirements = _REQUIREMENT.findall((HERE / "requirements.txt").read_text())
    return {name: version[2:] for name, _, version in requirements if version.startswith("==")}


def constraints() -> str:
    """Return requirements.txt as constraints: without extras and digests."""
    lines = re.findall(
        r"^([\w.-]+)(?:\[[\w,-]+\])?(==[^\\\n]+)", (HERE / "requirements.txt").read_text(), re.M
    )
    return "".join(f"{name}{rest.strip()}\n" for name, rest in lines)


def ranges() -> list[str]:
    """Return the wheel's requirements.

    Each allows the locked version and later ones, below the bound in requirements.in or the next
    release that can break its users. Packages pinned in requirements.in are pinned.
    """
    versions = locked()
    wanted = []
    for name, extras, bounds in _REQUIREMENT.findall((HERE / "requirements.in").read_text()):
        normal = re.sub(r"[-_.]+", "-", name).lower()
        if not bounds.startswith("=="):
            bounds = f">={versions[normal]},{bounds or _next_release(versions[normal])}"
        wanted.append(f"{name}{extras}{bounds}")
    return wanted


def _next_release(version: str) -> str:
    first, second = (*map(int, re.findall(r"\d+", version)), 0)[:2]
    return f"<{first + 1}" if first else f"<0.{second + 1}"


def arguments() -> dict[str, Any]:
    """Return the arguments for `setup`."""
    within = [pattern for package in PACKAGES for pattern in (package, f"{package}.*")]
    return {
        "version": VERSION,
        "install_requires": ranges(),
        "packages": find_packages(str(HERE), include=within),
        "package_data": {"queries.jvm": ["*.java", "iceberg/*.java"]},
        "cmdclass": {"build_py": Build},
    }


if __name__ == "__main__":
    setup(**arguments())
