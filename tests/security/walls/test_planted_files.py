"""A driver's code puts something else where we read: it is neither followed nor waited for.

These hold in every mode, so they need no driver: the files of one are laid out as it could.
"""

import os
import shutil
import socket
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from headgate_ground import spool
from headgate_ground.files import (
    NotPlain,
    is_locked,
    lock_holder,
    open_plain,
    read_file,
)
from headgate_ground.untrusted import remove_tree
from queries.checkpoints.logs import CheckpointLogs
from queries.checkpoints.snapshot import CannotCopy, snapshot
from queries.domain.checkpoints.logs import UnreadableLog
from queries.domain.probes.questions import RESULT
from queries.domain.protocol import DRIVER_LOG, LAST_SEQ, STATUS, TMP, Assignment, DriverStatus
from queries.driver_folder import DriverFolder
from queries.launchers.process.launcher import LOG_TAIL_BYTES, LocalProcessLauncher
from queries.launchers.process.pipes import LONGEST, PipeLines
from queries.launchers.process.shim import Shim
from queries.launchers.process.sighting import MOST_OF_STATUS
from tests.checkpoints.forms import write_checkpoint
from tests.launchers.test_contract import _spec

NAME = "flights"
SECRET = "a-key-that-only-the-control-plane-has"


@pytest.fixture
def launcher(tmp_path: Path) -> LocalProcessLauncher:
    return LocalProcessLauncher(tmp_path / "drivers", tmp_path / "code")


@pytest.fixture
def own(launcher: LocalProcessLauncher) -> Path:
    """Return the folder in which the driver 3 may do what it likes."""
    folder = DriverFolder.make(launcher.directory(NAME, 3))
    launcher.assign(NAME, Assignment(1, 3))
    return folder.own


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret_key"
    path.write_text(f"{SECRET}\n")
    return path


@pytest.mark.guarantee("G-DRIVER-6")
def test_a_log_that_is_a_link_shows_nothing(
    launcher: LocalProcessLauncher, own: Path, secret: Path
) -> None:
    (own / DRIVER_LOG).symlink_to(secret)
    assert (own / DRIVER_LOG).read_text().strip() == SECRET  # so a plain read would follow it
    assert launcher.log_tail(NAME, 3) == ""
    assert launcher.log_part(NAME, 3, start=0, size=100) == b""


def test_a_fifo_in_the_place_of_the_status_keeps_nobody_waiting(
    launcher: LocalProcessLauncher, own: Path
) -> None:
    os.mkfifo(own / STATUS)
    os.mkfifo(own / DRIVER_LOG)
    assert launcher.sight(NAME, 3).status is None
    assert launcher.log_tail(NAME, 3) == ""


@pytest.mark.parametrize("text", ["[]", "{", "{" * 100_000, '{"runs": [1]}', '{"runs": 7}', "\0"])
def test_a_status_of_any_other_form_says_nothing(
    launcher: LocalProcessLauncher, own: Path, text: str
) -> None:
    (own / STATUS).write_text(text)
    assert launcher.sight(NAME, 3).status is None


@pytest.mark.guarantee("G-DRIVER-6")
def test_a_file_without_end_is_not_read_whole(launcher: LocalProcessLauncher, own: Path) -> None:
    (own / STATUS).write_text(DriverStatus(3, 1, "now").dumps())
    assert launcher.sight(NAME, 3).status is not None
    with (own / STATUS).open("a") as file:
        file.write(" " * MOST_OF_STATUS)  # still a status, and too long
    assert launcher.sight(NAME, 3).status is None


@pytest.mark.guarantee("G-DRIVER-6")
def test_a_spool_that_is_a_link_gives_no_line(
    launcher: LocalProcessLauncher, own: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / spool.segment_name(1)).write_bytes(spool.line(1, b'{"of": "others"}'))
    (own / spool.FOLDER).symlink_to(elsewhere)
    assert list(spool.read_from(own / spool.FOLDER, 0))  # so a plain read would follow it
    assert list(launcher.spooled(3, 0)) == []


def test_a_look_at_a_planted_lock_costs_our_database_no_lock(tmp_path: Path, own: Path) -> None:
    """Closing a file drops every record lock that the process has on it: SQLite's are such."""
    database = tmp_path / "headgate.sqlite3"
    held = sqlite3.connect(database)
    held.execute("CREATE TABLE one (x)")
    held.execute("BEGIN EXCLUSIVE")
    (own / "lock").symlink_to(database)
    assert not is_locked(own / "lock")
    assert lock_holder(own / "lock") is None
    ask = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('DELETE FROM one')"
    asked = [sys.executable, "-c", ask, str(database)]
    said = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=60)
    assert "database is locked" in said.stderr
    held.close()


def test_a_file_must_lie_within_its_folder_whatever_links_lead_there(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for folder in (inside, outside):
        folder.mkdir()
        (folder / LAST_SEQ).write_text("7")
    (inside / "sub").symlink_to(outside)
    assert read_file(inside / LAST_SEQ, within=inside) == "7"
    assert read_file(inside / "sub" / LAST_SEQ) == "7"
    with pytest.raises(NotPlain):
        read_file(inside / "sub" / LAST_SEQ, within=inside)
    with pytest.raises(NotPlain):
        open_plain(inside)


@pytest.mark.guarantee("G-DRIVER-7")
def test_a_checkpoint_with_planted_links_gives_nothing_of_where_they_lead(
    tmp_path: Path, secret: Path
) -> None:
    root = tmp_path / "checkpoints/delays"
    write_checkpoint(root, batches=range(3))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "2").write_text((root / "commits/2").read_text())
    logs = CheckpointLogs(root)
    assert logs.commit(2) is not None
    shutil.rmtree(root / "commits")
    (root / "commits").symlink_to(elsewhere)
    with pytest.raises(UnreadableLog, match="is a link"):
        logs.commit(2)
    (root / "commits").unlink()
    write_checkpoint(root, batches=range(3))
    (root / "metadata").unlink()
    (root / "metadata").symlink_to(secret)
    with pytest.raises(CannotCopy):
        snapshot(f"file://{root}", tmp_path / "copy")
    copied = [path.read_text() for path in tmp_path.rglob("copy/**/metadata") if path.is_file()]
    assert SECRET not in "".join(copied)


@pytest.mark.guarantee("G-ISOLATION-14")
def test_a_pid_that_a_driver_names_is_its_own_or_nobody(own: Path) -> None:
    folder = DriverFolder.of(own.parent)
    child = subprocess.Popen(["sleep", "60"])
    read, write = os.pipe()
    os.set_blocking(read, False)
    try:
        with socket.socket(socket.AF_UNIX) as claim:
            shim = Shim(folder, _spec(3), claim)
        for line in ("jvm 1", f"jvm {os.getppid()}", "jvm x", "jvm", f"jvm {2**70}", "\udcff 7"):
            os.write(write, f"{line}\n".encode("utf-8", "surrogateescape"))
            shim._read(read)
            assert shim.jvm_pid is None
        os.write(write, f"jvm {child.pid}\n".encode())  # below this process, which is its shim here
        shim._read(read)
        assert shim.jvm_pid == child.pid
    finally:
        child.kill()
        child.wait()
        os.close(read)
        os.close(write)


@pytest.mark.parametrize("text", ["7", "7\n", "seven", "-1", "9" * 5000, "\0"])
def test_the_last_number_is_taken_as_a_number_only(own: Path, text: str) -> None:
    (own / LAST_SEQ).write_text(text)
    with socket.socket(socket.AF_UNIX) as claim:
        report = Shim(DriverFolder.of(own.parent), _spec(3), claim).report()
    assert report.last_seq == (7 if text.strip() == "7" else None)


@pytest.mark.guarantee("G-DRIVER-6")
def test_a_line_without_end_costs_the_shim_no_memory_and_hides_no_later_line() -> None:
    read, write = os.pipe()
    os.set_blocking(read, False)
    lines = PipeLines()
    try:
        for _ in range(20):
            os.write(write, b"x" * 60_000)
            assert lines.read(read) == []
            assert len(lines._rest) <= LONGEST
        os.write(write, b"\njvm 7\njvm-")
        assert [line for line in lines.read(read) or () if line] == ["jvm 7"]
        os.write(write, b"exit 3\n")
        assert lines.read(read) == ["jvm-exit 3"]
        os.close(write)
        write = -1
        assert lines.read(read) is None
    finally:
        for descriptor in (read, write):
            if descriptor >= 0:
                os.close(descriptor)


@pytest.mark.parametrize("said", ["jvm-exit 99999", "jvm-exit -99999", f"jvm-exit {'9' * 200}"])
def test_an_exit_code_that_no_process_has_is_not_reported(own: Path, said: str) -> None:
    read, write = os.pipe()
    os.set_blocking(read, False)
    with socket.socket(socket.AF_UNIX) as claim:
        shim = Shim(DriverFolder.of(own.parent), _spec(3), claim)
    os.write(write, f"{said}\n".encode())
    shim._read_rest(read)
    assert shim.jvm_exit == ""
    os.write(write, b"jvm-exit -9\n")
    os.close(write)
    shim._read_rest(read)
    assert shim.jvm_exit == "SIGKILL"
    os.close(read)


def nested(folder: Path, depth: int) -> None:
    """Nest folders far below what a path or a recursion can name."""
    folder.mkdir()
    inner = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=inner)
        os.symlink("/", "link", dir_fd=inner)
        outer, inner = inner, os.open("d", os.O_RDONLY, dir_fd=inner)
        os.close(outer)
    os.close(inner)


@pytest.mark.guarantee("G-DRIVER-6")
def test_folders_nested_too_deeply_for_a_recursion_are_pruned(
    launcher: LocalProcessLauncher, own: Path
) -> None:
    DriverFolder.make(launcher.directory(NAME, 4))
    try:
        nested(own / TMP, 3000)
        launcher.prune(NAME, keep=1)
        assert not own.parent.exists()
    finally:  # pytest's own removal of old folders is a recursion
        subprocess.run(["rm", "-rf", own.parent], check=True, timeout=60)


def test_a_removal_follows_no_link_and_opens_closed_folders(tmp_path: Path, secret: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "closed/inner").mkdir(parents=True)
    (tree / "closed/inner/file").write_text("mine")
    (tree / "closed/link").symlink_to(tmp_path)
    (tree / "closed").chmod(0)
    assert remove_tree(tree)
    assert not tree.exists()
    (tmp_path / "linked").symlink_to(tmp_path)
    assert not remove_tree(tmp_path / "linked/secret_key")
    assert remove_tree(tmp_path / "linked")
    assert secret.read_text().strip() == SECRET
    assert remove_tree(tmp_path / "gone/and/gone")


@pytest.mark.guarantee("G-DRIVER-6")
@pytest.mark.parametrize("name", [STATUS, DRIVER_LOG, RESULT])
@pytest.mark.parametrize("kind", ["fifo", "socket", "device", "folder", "link", "sparse"])
def test_whatever_stands_in_a_files_place_is_read_at_once_or_not_at_all(
    launcher: LocalProcessLauncher, own: Path, secret: Path, name: str, kind: str
) -> None:
    place = DriverFolder.make(launcher.directory(NAME, 3, probe=True)).own / name
    for path in (own / name, place):
        if kind == "fifo":
            os.mkfifo(path)
        elif kind == "socket":
            there = os.open(path.parent, os.O_PATH)
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(f"/proc/self/fd/{there}/{path.name}")
            os.close(there)
        elif kind == "device":
            if os.geteuid():
                pytest.skip("only root creates devices")
            os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5))  # /dev/zero
        elif kind == "folder":
            path.mkdir()
        elif kind == "link":
            path.symlink_to(secret)
        else:
            path.touch()
            os.truncate(path, 1 << 42)
    assert launcher.sight(NAME, 3).status is None
    assert SECRET not in launcher.log_tail(NAME, 3)
    assert len(launcher.log_tail(NAME, 3)) <= LOG_TAIL_BYTES
    assert len(launcher.log_part(NAME, 3, start=0, size=100)) <= 100
    launcher.log_size(NAME, 3)
    assert SECRET not in launcher.probe_result(NAME, 3)
    launcher.forget_result(NAME, 3)
