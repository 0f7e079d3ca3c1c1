"""Test drivers' isolation with an isolated process that attempts what an author might do."""

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from headgate_ground import identities
from headgate_ground.untrusted import make_folder, remove_tree
from queries.domain.protocol import TMP, DriverSpec
from queries.driver_folder import DriverFolder

PASSED = "isolated"
ALLOWED_PATH = "given"  # the allowed path, next to what is hidden


class IsolationMissing(Exception):
    """This host cannot provide the requested isolation; the message says what is missing."""


class TrialInconclusive(IsolationMissing):
    """The test did not finish, so it is not known whether this host can provide the isolation."""


#: What Linux lets every account open for writing, but checks at the write or makes private to the
#: account.
EVERYBODYS = (
    r"/proc/(pressure/|sys/kernel/ns_last_pid$|[0-9]+/(timerslack_ns$|attr/))"
    r"|/sys/(kernel/security|fs/selinux)/"
)

#: What the process inside must find: its own folder and an allowed path are writable, everything
#: else is out of reach, and no kernel file can be opened for writing.
_ATTEMPT = f"""
import json, os, re, resource, sys
import pyspark, queries.domain.protocol
own, given, control, closed, worker, started, wanted = sys.argv[1:]
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
def may_open():
    "Return a file of the kernel that can be opened to be written to; it is not written to."
    for top in ("/proc", "/proc/self/net", "/sys"):
        for folder, names, files in os.walk(top):
            if folder == "/proc":
                names[:] = [name for name in names if not is_own(name)]
            if folder.startswith("/proc/") and "task" in names:
                names.remove("task")  # the same again for each thread
            for path in (f"{{folder}}/{{name}}" for name in files):
                if re.match({EVERYBODYS!r}, path):
                    continue
                try:
                    os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW))
                except OSError:
                    continue
                return path
def is_own(name):
    "Whether a folder of /proc is that of a process of this account."
    try:
        return name.isdigit() and os.stat(f"/proc/{{name}}").st_uid == os.geteuid()
    except OSError:
        return True
for act in (*map(look, json.loads(closed)), write, signal, environ):
    stopped(act)
if (path := may_open()) is not None:
    sys.exit(f"it was not stopped from opening a kernel file for writing: {{path}}")
told = dict(line.split(":", 1) for line in open("/proc/self/status"))
wanted = json.loads(wanted)
if wanted["filtered"] and told["Seccomp"].strip() != "2":
    sys.exit("its system calls are not filtered")
for name, most in wanted["limits"].items():
    if not 0 <= resource.getrlimit(getattr(resource, name))[1] <= most:
        sys.exit(f"its limit {{name}} is not {{most}}")
print({PASSED!r})
"""


def attempt(
    folder: DriverFolder,
    closed: Iterable[Path],
    *,
    filtered: bool = False,
    limits: Mapping[str, int] | None = None,
) -> list[str]:
    """Return the command that tests the isolation; it must not reach the paths in `closed`.

    With `filtered`, the process must have a system call filter; `limits` are its limits by name.
    """
    worker = os.getpid()
    paths = json.dumps([str(path) for path in closed])
    arguments = (
        folder.own,
        folder.root.with_name(ALLOWED_PATH),
        folder.control,
        paths,
        worker,
        identities.start_time(worker),
    )
    wanted = json.dumps({"filtered": filtered, "limits": dict(limits or {})})
    return [sys.executable, "-P", "-c", _ATTEMPT, *map(str, arguments), wanted]


@contextlib.contextmanager
def ground(drivers: Path) -> Iterator[tuple[DriverFolder, DriverSpec, Path]]:
    """Yield the folder and spec of a trial driver, and a file that it must not read."""
    drivers.mkdir(mode=0o700, parents=True, exist_ok=True)
    trial = Path(tempfile.mkdtemp(prefix=".isolation-", dir=drivers.resolve()))
    try:
        folder = DriverFolder.make(trial / "1")
        os.close(make_folder(folder.own / TMP))
        hidden = trial / "hidden"
        hidden.write_text("not for drivers")
        hidden.chmod(0o600)
        (trial / ALLOWED_PATH).mkdir(mode=0o700)
        home, allowed_path = drivers.parent.resolve().as_uri(), (trial / ALLOWED_PATH).as_uri()
        yield folder, replace(_SPEC, own_folders=(home,), data_roots=(allowed_path,)), hidden
    finally:
        remove_tree(trial)


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
