"""The entry to a driver: `python -m queries.runtime.entry PROGRAM DIRECTORY`.

It starts the JVM, and only then imports the driver's program (such as `queries.runtime.main`), so
that both take place at the same time. So this module imports little itself.
"""

import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from queries.domain.protocol import SPEC, DriverSpec
from queries.driver_folder import DriverFolder
from queries.runtime.jvms.driver import Jvm
from queries.runtime.process import SECOND, ShimPipe, Steps, begin


def main(arguments: list[str]) -> int:
    """Run the program in the driver's directory; return its exit code."""
    program, directory = arguments
    folder = DriverFolder.of(Path(directory))
    spec = DriverSpec.loads((folder.control / SPEC).read_text())
    lock = begin(folder.own)
    if lock is None:
        return SECOND
    steps = Steps("interpreter")
    jvm = Jvm(spec, folder.own, lock=lock, shim=ShimPipe(), steps=steps)
    with suppress(Exception):  # tried again by the program, which reports what is wrong
        jvm.begin()
    run = import_module(program).run
    steps.done("imports")
    code: int = run(folder, spec, jvm)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
