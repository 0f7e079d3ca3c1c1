"""What is tried before walls are used, by a process within them: what an author might do."""

import contextlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from queries.domain.protocol import TMP, DriverSpec
from queries.driver_folder import DriverFolder
from queries.launchers.process import identities

PASSED = "within walls"
GIVEN = "given"  # the data root, next to what is hidden


class Missing(Exception):
    """This host cannot give the walls that are wanted; the message says what it lacks."""


#: What the process within is to find: its own folder and a data root can be written, all else is
#: out of reach.
_ATTEMPT = f"""
import json, os, sys
import pyspark, queries.domain.protocol
own, given, control, closed, worker, started, rights = sys.argv[1:]
for folder in (own, given):
    open(f"{{folder}}/written", "w").close()
def stopped(act):
    try:
        act()
    except OSError:
        return
    sys.exit(f"it was not stopped from {{act.__doc__}}")
def is_another():
    "Whether the number belongs to a process in here: the worker's own may be as low as 1."
    try:
        stat = open(f"/proc/{{worker}}/stat").read()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[19] != started
def look(path):
    def read():
        os.listdir(path) if os.path.isdir(path) else open(path).close()
    read.__doc__ = f"reading a file of the control plane: {{path}}"
    return read
def write():
    "writing its control files"
    open(f"{{control}}/written", "w")
def signal():
    "signalling the worker"
    os.kill(int(worker), 0)
    if is_another():
        raise ProcessLookupError
def environ():
    "reading the worker's environment"
    open(f"/proc/{{worker}}/environ").read()
    if is_another():
        raise ProcessLookupError
for act in (*map(look, json.loads(closed)), write, signal, environ):
    stopped(act)
if rights:
    told = dict(line.split(":", 1) for line in open("/proc/self/status"))
    if any(int(told[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")):
        sys.exit("it has kept capabilities")
    if told["NoNewPrivs"].strip() != "1":
        sys.exit("it may gain new privileges")
print({PASSED!r})
"""


def attempt(folder: DriverFolder, closed: Iterable[Path], *, rights: bool = False) -> list[str]:
    """Return the command that tries everything; `closed` is what it must not get at.

    With `rights` it must have no capability and no way to one.
    """
    worker = os.getpid()
    paths = json.dumps([str(path) for path in closed])
    told = (
        folder.own,
        folder.root.with_name(GIVEN),
        folder.control,
        paths,
        worker,
        identities.start_time(worker),
    )
    return [sys.executable, "-P", "-c", _ATTEMPT, *map(str, told), "1" if rights else ""]


@contextlib.contextmanager
def ground(drivers: Path) -> Iterator[tuple[DriverFolder, DriverSpec, Path]]:
    """Yield the folder and spec of a driver to be tried, and a file that it must not read."""
    drivers.mkdir(mode=0o700, parents=True, exist_ok=True)
    trial = Path(tempfile.mkdtemp(prefix=".walls-", dir=drivers.resolve()))
    try:
        folder = DriverFolder.make(trial / "1")
        (folder.own / TMP).mkdir(mode=0o700)
        hidden = trial / "hidden"
        hidden.write_text("not for drivers")
        hidden.chmod(0o600)
        (trial / GIVEN).mkdir(mode=0o700)
        home, given = drivers.parent.resolve().as_uri(), (trial / GIVEN).as_uri()
        yield folder, replace(_SPEC, own_folders=(home,), data_roots=(given,)), hidden
    finally:
        shutil.rmtree(trial, ignore_errors=True)


_SPEC = DriverSpec(
    driver=0,
    epoch=0,
    application="",
    installation="",
    host="",
    master="",
    memory="",
    conf={},
    env={},
    code_roots=(),
    code_sha256="",
    scheduler_mode="",
    listeners=(),
    redis_url="",
    stream="",
)
