"""How an application's packages reach a cluster's executors: names in the package folder.

Spark unpacks an archive into each executor's working directory (`spark.archives`). It contains the
packages and the module that Spark starts as its Python worker daemon
(`spark.python.daemon.module`). The module is found through PYTHONPATH and appends the packages to
the import path, so that they cannot shadow other modules.
"""

#: Folder inside the package folder.
SHIPPED = ".cluster"
ARCHIVE = "packages.tar"
#: Name of the unpacked archive in an executor's working directory.
NAME = "headgate_packages"
#: Folder of the packages in the archive.
INSIDE = "packages"
#: The daemon module. In a driver, whose archive is elsewhere, `HEADGATE_PACKAGES` is the folder's
#: path.
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
