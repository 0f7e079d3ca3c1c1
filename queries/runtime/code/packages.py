"""Let users' code import its application's packages: after everything that is there already.

A path in PYTHONPATH would come before Spark's own packages, so the folder is put at the end of the
import path when Python is up: in the driver, and in the process that Spark forks its Python workers
from, which this module is then started as (`spark.python.daemon.module`).
"""

import os
import site

from queries.domain.code.shipping import ARCHIVE, DAEMON_MODULE, NAME, SHIPPED

#: Variable that leads Spark's Python workers to the folder.
VARIABLE = "HEADGATE_PACKAGES"
#: This module's name, as Spark is told it.
DAEMON = "queries.runtime.code.packages"


def add(folder: str) -> None:
    """Put a folder of packages at the end of the import path, of children too; "" for none."""
    if folder:
        os.environ[VARIABLE] = folder
        site.addsitedir(folder)


def worker_conf(folder: str, master: str, given: dict[str, str]) -> dict[str, str]:
    """Return the configuration by which Spark's Python workers see the folder; {} for none.

    `given` is the application's own. Executors of a cluster get the folder as an archive, which
    Spark unpacks where they work, with a module that their workers are started as.
    """
    if not folder:
        return {}
    if master.startswith("local"):
        return {"spark.python.daemon.module": DAEMON}
    shipped = f"{folder}/{SHIPPED}"
    archives = (given.get("spark.archives", ""), f"file://{shipped}/{ARCHIVE}#{NAME}")
    paths = (given.get("spark.executorEnv.PYTHONPATH", ""), NAME)
    return {
        "spark.archives": ",".join(filter(None, archives)),
        "spark.executorEnv.PYTHONPATH": ":".join(filter(None, paths)),
        "spark.python.daemon.module": DAEMON_MODULE,
    }


def lead_to_daemon(folder: str, master: str) -> None:
    """Let workers that the driver's own JVM starts find the module that executors are sent.

    To be called before the JVM is started, which inherits the path.
    """
    if folder and not master.startswith("local"):
        known = os.environ.get("PYTHONPATH", "")
        os.environ["PYTHONPATH"] = ":".join(filter(None, (known, f"{folder}/{SHIPPED}")))


if __name__ == "__main__":
    from pyspark.daemon import manager

    add(os.environ.get(VARIABLE, ""))
    manager()
