"""Let users' code import its application's packages, after everything already on the import path.

A folder in PYTHONPATH would come before Spark's own packages. So the package folder is appended to
the import path once Python is running: in the driver, and in the process from which Spark forks its
Python workers. That process runs this module (`spark.python.daemon.module`).
"""

import os
import site

from queries.domain.code.shipping import ARCHIVE, DAEMON_MODULE, NAME, SHIPPED

#: Variable that passes the folder to Spark's Python workers.
VARIABLE = "HEADGATE_PACKAGES"
#: This module's name, as passed to Spark.
DAEMON = "queries.runtime.code.packages"


def add(folder: str) -> None:
    """Append a package folder to the import path, for child processes too; "" for none."""
    if folder:
        os.environ[VARIABLE] = folder
        site.addsitedir(folder)


def worker_conf(folder: str, master: str, conf: dict[str, str]) -> dict[str, str]:
    """Return the configuration that gives Spark's Python workers the folder; {} without a folder.

    `conf` is the application's own configuration. The executors of a cluster get the folder as an
    archive, which Spark unpacks in their working directory, together with the module that starts
    their workers.
    """
    if not folder:
        return {}
    if master.startswith("local"):
        return {"spark.python.daemon.module": DAEMON}
    shipped = f"{folder}/{SHIPPED}"
    archives = (conf.get("spark.archives", ""), f"file://{shipped}/{ARCHIVE}#{NAME}")
    paths = (conf.get("spark.executorEnv.PYTHONPATH", ""), NAME)
    return {
        "spark.archives": ",".join(filter(None, archives)),
        "spark.executorEnv.PYTHONPATH": ":".join(filter(None, paths)),
        "spark.python.daemon.module": DAEMON_MODULE,
    }


def lead_to_daemon(folder: str, master: str) -> None:
    """Let workers that the driver's own JVM starts find the module that is sent to executors.

    Call this before the JVM is started, because it inherits the path.
    """
    if folder and not master.startswith("local"):
        inherited_path = os.environ.get("PYTHONPATH", "")
        os.environ["PYTHONPATH"] = ":".join(filter(None, (inherited_path, f"{folder}/{SHIPPED}")))


if __name__ == "__main__":
    from pyspark.daemon import manager

    add(os.environ.get(VARIABLE, ""))
    manager()
