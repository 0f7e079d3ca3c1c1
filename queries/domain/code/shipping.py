"""How an application's packages reach the executors of a cluster: names in their folder.

Spark unpacks an archive where an executor works (`spark.archives`). It holds the packages, and a
module that Spark's Python workers are started as (`spark.python.daemon.module`): found by
PYTHONPATH, it puts the packages at the end of the import path, so that they replace nothing.
"""

#: Folder in the folder of packages.
SHIPPED = ".cluster"
ARCHIVE = "packages.tar"
#: What executors call the unpacked archive, below the folder that they work in.
NAME = "headgate_packages"
#: Folder of the packages in it.
INSIDE = "packages"
#: The module; in a driver, whose archive is elsewhere, `HEADGATE_PACKAGES` names the folder.
DAEMON_MODULE = "headgate_packages_daemon"
DAEMON_SOURCE = f'''"""Start Spark's Python workers with packages, which come last."""

import os
import site

if __name__ == "__main__":
    from pyspark.daemon import manager

    place = os.path.join(os.path.dirname(os.path.abspath(__file__)), "{INSIDE}")
    if not os.path.isdir(place):
        place = os.environ.get("HEADGATE_PACKAGES", "")
    if place:
        site.addsitedir(place)
    manager()
'''
