"""Build the environment of shims and drivers from an allowlist; they never inherit one.

A driver runs users' code, so it must not see values that are only for the control plane.
"""

import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from headgate_server import places
from queries.domain.definitions.kubernetes import MASTER

#: Marks a driver's processes, so that they can be found after their files are gone.
DIRECTORY = "HEADGATE_DRIVER_DIRECTORY"
INSTALLATION = "HEADGATE_DRIVER_INSTALLATION"
HOST = "HEADGATE_DRIVER_HOST"
#: Names the archive of Spark's classes that the JVM maps, if there is one.
CLASS_ARCHIVE = "HEADGATE_CLASS_ARCHIVE"

#: Names the kubeconfig with which drivers create executors as pods.
ACCOUNT = "HEADGATE_KUBECONFIG"

_PASS = (
    "PATH HOME USER LOGNAME LANG LANGUAGE TZ JAVA_HOME JDK_JAVA_OPTIONS HADOOP_CONF_DIR"
    " KRB5_CONFIG SSL_CERT_FILE SSL_CERT_DIR HEADGATE_KUBECONFIG HEADGATE_DRIVER_ADDRESS"
)
_PASS_PREFIXES = ("LC_", "SPARK_")
#: Variables that would turn the driver into something else, or move its files elsewhere.
_NEVER_SPARK = (
    "SPARK_CONNECT",
    "SPARK_REMOTE",
    "SPARK_API_MODE",
    "SPARK_LOCAL_",
    "SPARK_TESTING",
    "SPARK_CONF_DIR",
)
#: The control plane's own variables; no allowlist lets them through.
CONTROL_PLANE = frozenset({"SECRET_KEY", "DATABASE_URL", "REDIS_URL", "DJANGO_SETTINGS_MODULE"})


def passed(environ: Mapping[str, str], allowlist: Iterable[str]) -> dict[str, str]:
    """Return the part of `environ` that a driver may see; `allowlist` adds variables."""
    named = {*_PASS.split(), *allowlist} - CONTROL_PLANE
    return {
        name: value
        for name, value in environ.items()
        if name in named or (name.startswith(_PASS_PREFIXES) and not name.startswith(_NEVER_SPARK))
    }


def for_driver(
    environ: Mapping[str, str],
    *,
    allowlist: Iterable[str],
    code_roots: Iterable[str],
    tmp: Path,
    spark: str = "",
    master: str = "",
) -> dict[str, str]:
    """Return a driver's complete environment: allowed variables, import path, its own tmp.

    `spark` is the folder of another version of PySpark; SPARK_HOME must not name ours then. Only
    drivers whose master is a Kubernetes cluster get its account.
    """
    first = (spark,) if spark else ()
    account = environ.get(ACCOUNT, "") if master.startswith(MASTER) else ""
    return {
        "LANG": "C.UTF-8",
        **passed(environ, allowlist),
        **({"SPARK_HOME": f"{spark}/pyspark"} if spark else {}),
        **({"KUBECONFIG": account} if account else {}),
        "PYTHONPATH": ":".join((*first, *places.import_path(), *code_roots)),
        "PYTHONUNBUFFERED": "1",  # what users print is in the log when the driver dies
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "TMPDIR": str(tmp),
    }


def java(environ: Mapping[str, str]) -> Path | None:
    """Return the Java that a driver would start; None if there is no executable one."""
    if home := environ.get("JAVA_HOME"):
        executable = Path(home) / "bin" / "java"
        return executable if os.access(executable, os.X_OK) else None
    which = shutil.which("java", path=environ.get("PATH"))
    return Path(which) if which else None
