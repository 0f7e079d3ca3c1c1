"""Let users' code import its application's packages: after everything that is there already.

A path in PYTHONPATH would come before Spark's own packages, so the folder is put at the end of the
import path when Python is up: in the driver, and in the process that Spark forks its Python workers
from, which this module is then started as (`spark.python.daemon.module`).
"""

import os
import site

#: Variable that leads Spark's Python workers to the folder.
VARIABLE = "HEADGATE_PACKAGES"
#: This module's name, as Spark is told it.
DAEMON = "queries.runtime.code.packages"


def add(folder: str) -> None:
    """Put a folder of packages at the end of the import path, of children too; "" for none."""
    if folder:
        os.environ[VARIABLE] = folder
        site.addsitedir(folder)


def daemon_conf(folder: str) -> dict[str, str]:
    """Return the configuration by which Spark's Python workers see the folder."""
    return {"spark.python.daemon.module": DAEMON} if folder else {}


if __name__ == "__main__":
    from pyspark.daemon import manager

    add(os.environ.get(VARIABLE, ""))
    manager()
