"""The environment of shims and drivers: built from a list of what may pass, never inherited.

A driver runs users' code, so it must not see what only the control plane may know.
"""

import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

#: Mark a driver's processes, so that they are found where their files are not there any more.
DIRECTORY = "HEADGATE_DRIVER_DIRECTORY"
INSTALLATION = "HEADGATE_DRIVER_INSTALLATION"
HOST = "HEADGATE_DRIVER_HOST"

REPOSITORY = Path(__file__).resolve().parents[3]

_PASS = (
    "PATH HOME USER LOGNAME LANG LANGUAGE TZ JAVA_HOME JDK_JAVA_OPTIONS HADOOP_CONF_DIR"
    " KRB5_CONFIG SSL_CERT_FILE SSL_CERT_DIR"
)
_PASS_PREFIXES = ("LC_", "SPARK_")
#: Would turn the driver into something else, or point its files out of its directory.
_NEVER_SPARK = (
    "SPARK_CONNECT",
    "SPARK_REMOTE",
    "SPARK_API_MODE",
    "SPARK_LOCAL_",
    "SPARK_TESTING",
    "SPARK_CONF_DIR",
)
#: The control plane's own; no allowlist lets them through.
CONTROL_PLANE = frozenset({"SECRET_KEY", "DATABASE_URL", "REDIS_URL", "DJANGO_SETTINGS_MODULE"})


def passed(environ: Mapping[str, str], allowlist: Iterable[str]) -> dict[str, str]:
    """Return the part of `environ` that a driver may see; `allowlist` names further ones."""
    named = {*_PASS.split(), *allowlist} - CONTROL_PLANE
    return {
        name: value
        for name, value in environ.items()
        if name in named or (name.startswith(_PASS_PREFIXES) and not name.startswith(_NEVER_SPARK))
    }


def for_driver(
    environ: Mapping[str, str], *, allowlist: Iterable[str], code_roots: Iterable[str], tmp: Path
) -> dict[str, str]:
    """Return the whole environment of a driver: what may pass, import path, its own tmp."""
    return {
        "LANG": "C.UTF-8",
        **passed(environ, allowlist),
        "PYTHONPATH": ":".join((str(REPOSITORY), *code_roots)),
        "PYTHONUNBUFFERED": "1",  # what users print is in the log when the driver dies
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "TMPDIR": str(tmp),
    }


def java(environ: Mapping[str, str]) -> Path | None:
    """Return the Java that a driver would start; None where there is none that can be run."""
    if home := environ.get("JAVA_HOME"):
        found = Path(home) / "bin" / "java"
        return found if os.access(found, os.X_OK) else None
    which = shutil.which("java", path=environ.get("PATH"))
    return Path(which) if which else None
