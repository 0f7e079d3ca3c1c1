"""A driver and its neighbour: what the first listens on, and what its ports answer the second."""

import json
import shutil
from contextlib import suppress
from pathlib import Path

import psutil

from tests.spark.driver_under_test import DriverUnderTest, wait_for
from tests.spark.scripts.script_driver import ScriptUnderTest

HERE = Path(__file__).parent
CODE = ("strange_asker.py", "users_listening.py", "users_asking.py")
SPEC = {
    "kind": "python",
    "function": "users_listening:writer",
    "trigger": {"kind": "processing_time", "interval": "500 milliseconds"},
}


def code_of_users(home: Path) -> Path:
    """Lay out what both drivers run; return its folder."""
    root = home / "root"
    root.mkdir()
    for name in CODE:
        shutil.copy(HERE / name, root)
    (root / "heard").write_text(str(home / "heard"))
    return root


class Neighbours:
    """A driver, and a script of another application that asks its ports with its own keys."""

    def __init__(self, home: Path, victim: DriverUnderTest) -> None:
        self.home, self.victim = home, victim
        (home / "two").mkdir()
        self.other = ScriptUnderTest(home / "two", application="job")
        files = [str(home / name) for name in ("script", "ports", "found")]
        self.other.launch_script(home / "root", "users_asking.py", *files)
        self.ports: dict[int, str] = {}  # whose each is
        self.answers: dict[str, dict[str, str]] = {}

    def ask(self) -> None:
        """Have the script ask each port of the driver, once all that can listen does."""
        self.go_on()
        self.ports = listening(self.victim)
        draft = self.home / "ports.draft"
        draft.write_text(json.dumps(list(self.ports)))
        draft.rename(self.home / "ports")
        found = self.home / "found"
        wait_for(found.exists, "the answers")
        self.answers = json.loads(found.read_text())

    def heard(self, name: str) -> int:
        """Return how many lines code of users has written into a file."""
        path = self.home / name
        return len(path.read_text().splitlines()) if path.exists() else 0

    def spooled(self) -> int:
        """Return how many events our own listener has brought."""
        return len(list(self.victim.launcher.spooled(self.victim.epoch, 0)))

    def go_on(self) -> None:
        """Wait until the JVM has called every listener and each foreachBatch once more."""
        names = ("heard", "batches", "script", "script.batches")
        before, spooled = {name: self.heard(name) for name in names}, self.spooled()
        for name in names:
            wait_for(lambda name=name: self.heard(name) > before[name], name)  # type: ignore[misc]
        wait_for(lambda: self.spooled() > spooled, "events of ours")


def processes(driver: DriverUnderTest) -> list[psutil.Process]:
    """Return a driver's Python, its JVM, and what that has started."""
    python = psutil.Process(driver.ident().pid)
    return [python, *python.children(recursive=True)]


def kind(process: psutil.Process) -> str:
    """Return which part of a driver a process is."""
    command = " ".join(process.cmdline())
    if "pyspark.daemon" in command or "pyspark/daemon" in command:
        return "daemon"
    return "jvm" if "org.apache.spark" in command else "driver"


def listening(driver: DriverUnderTest) -> dict[int, str]:
    """Return each port that a driver's processes listen on, and whose it is."""
    found = {}
    for process in processes(driver):
        with suppress(psutil.NoSuchProcess):  # Hadoop starts a `chmod` for each file that it writes
            for one in process.net_connections("tcp"):
                if one.status == psutil.CONN_LISTEN:
                    found[one.laddr.port] = kind(process)
    return found


def other_sockets(driver: DriverUnderTest) -> list[str]:
    """Return what a driver's processes have open beyond TCP that takes calls from outside."""
    inodes, found = set(), []
    for process in processes(driver):
        with suppress(psutil.NoSuchProcess, FileNotFoundError):
            found += [str(one.laddr) for one in process.net_connections("udp")]
            for link in Path(f"/proc/{process.pid}/fd").iterdir():
                with suppress(OSError):
                    inodes.add(link.readlink().name.removeprefix("socket:[").removesuffix("]"))
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        _, _, _, flags, _, _, inode, *path = line.split()
        if int(flags, 16) & 0x10000 and inode in inodes:  # __SO_ACCEPTCON
            found += path or ["a socket without a name"]
    return found
