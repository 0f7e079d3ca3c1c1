"""Archive Spark's classes once: a JVM that maps them is up in half the time.

`python -m tests.class_archive FOLDER` makes the archive as the worker does, with the options of
the tests' JVMs. `bootstrap/test.py` has each JVM use it; a JVM of another Java, or with other jars,
goes without.
"""

import os
import sys
import threading
import time
from pathlib import Path

from controlplane.home import StartProblem
from queries.launchers.base import NotMade
from queries.launchers.process import class_archives, environment
from tests import pieces


def main(folder: Path) -> int:
    """Make the archive where it is not there yet; return 0, without a Java too."""
    try:
        os.environ["JAVA_HOME"] = str(pieces.java().home)
        environ = environment.passed(os.environ, ())
        target = class_archives.archive(folder, environ)
        if not class_archives.is_whole(target):
            class_archives.make(target, environ, "", threading.Event().wait)
        class_archives.prune(folder, [target], before=time.time())
    except (StartProblem, NotMade) as trouble:
        sys.stdout.write(f"{trouble}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
