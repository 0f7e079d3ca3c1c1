"""What listens at a storage JVM's socket may be anything: it costs a bounded time and memory."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from headgate_ground import identities
from headgate_ground.untrusted import connected
from queries.domain.protocol import STORAGE_SOCKET, Ident
from queries.driver_folder import DriverFolder
from queries.launchers.process import pipes
from queries.storage import hadoop
from queries.storage.hadoop import HadoopStorage, StorageFailed

Serve = Callable[[Callable[[socket.socket, threading.Event], None]], HadoopStorage]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Return a function that serves connections with another one, which is told when to end."""
    over = threading.Event()
    listening = socket.socket(socket.AF_UNIX)
    path = tmp_path / STORAGE_SOCKET
    threads: list[threading.Thread] = []

    def start(answer: Callable[[socket.socket, threading.Event], None]) -> HadoopStorage:
        listening.bind(str(path))
        listening.listen()

        def run() -> None:
            with suppress(OSError):
                while True:
                    link, _ = listening.accept()
                    with link, suppress(OSError):
                        link.recv(1 << 16)
                        answer(link, over)

        threads.append(threading.Thread(target=run))
        threads[0].start()
        return HadoopStorage(partial(connected, path))

    yield start
    over.set()
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()
    for thread in threads:
        thread.join(60)


@pytest.mark.guarantee("G-ISOLATION-12")
@pytest.mark.timeout(120)
def test_an_answer_that_comes_a_byte_at_a_time_has_one_limit(serve: Serve) -> None:
    def drip(link: socket.socket, over: threading.Event) -> None:
        for _ in range(500):  # ten seconds at least, and not for ever
            link.sendall(b" ")
            if over.wait(0.02):
                return

    with pytest.raises(StorageFailed, match="no answer within 1 s"):
        serve(drip).list("s3a://lake/x", most=1, limit_s=1.0)


@pytest.mark.timeout(120)
def test_an_answer_without_end_is_given_up(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    def flood(link: socket.socket, over: threading.Event) -> None:
        while not over.is_set():
            link.sendall(b"x" * 65_536)

    monkeypatch.setattr(hadoop, "MOST_ANSWER", 1024 * 1024)
    with pytest.raises(StorageFailed, match="more than 1 MiB"):
        serve(flood).list("s3a://lake/x", most=1)


@pytest.mark.guarantee("G-ISOLATION-12")
@pytest.mark.parametrize(
    "said",
    [b'{"found": [["0", "eA==", 1], ["0", "eHg=", 1]]}', b'{"found": [["0", "eHh4", 1]]}'],
    ids=["the last one counts", "longer than listed"],
)
def test_a_file_of_another_size_than_was_listed_is_refused(
    serve: Serve, said: bytes, tmp_path: Path
) -> None:
    storage = serve(lambda link, over: link.sendall(said + b"\n"))
    with pytest.raises(StorageFailed, match="changed while it was copied"):
        storage.download("s3a://lake/x", {"0": 1}, lambda *_: None)


def test_a_file_that_was_not_asked_for_is_not_taken(serve: Serve) -> None:
    said = b'{"found": [["0", "eA==", 1], ["another", "eA==", 1]]}'
    storage = serve(lambda link, over: link.sendall(said + b"\n"))
    with pytest.raises(StorageFailed, match="'another' was not asked for"):
        storage.read("s3a://lake/x", ["0"], most=9)


# --- who listens ---------------------------------------------------------------------------


def ident(pid: int) -> Ident:
    return Ident(
        boot_id=identities.boot_id(),
        pid=pid,
        start_time=0,
        shim_pid=0,
        shim_start_time=0,
        spawned_at="",
        jvm_pid=pid,
        jvm_start_time=identities.start_time(pid),
    )


@pytest.fixture
def folder(tmp_path: Path) -> DriverFolder:
    return DriverFolder.make(tmp_path / "drivers/app/probes/1")


@contextmanager
def address_in(folder: Path) -> Iterator[str]:
    """Yield a socket's address, which holds 107 bytes: a test's folder may need more."""
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{STORAGE_SOCKET}"
    finally:
        os.close(descriptor)


@pytest.fixture
def theirs(tmp_path: Path) -> Iterator[Path]:
    """Return the socket of another application's storage JVM: this process is that JVM."""
    own = DriverFolder.make(tmp_path / "drivers/other/probes/1").own
    with socket.socket(socket.AF_UNIX) as listening, address_in(own) as address:
        listening.bind(address)
        listening.listen()
        yield own / STORAGE_SOCKET


@pytest.mark.guarantee("G-ISOLATION-12")
def test_only_the_recorded_jvm_is_talked_to(folder: DriverFolder, theirs: Path) -> None:
    os.rename(theirs, folder.own / STORAGE_SOCKET)
    ours = ident(os.getpid())
    assert pipes.listens(folder.root, ours)
    pipes.connect(folder.root, ours, 5).close()
    for another in (ident(os.getppid()), None):
        with pytest.raises(OSError, match="listens in the place of the storage JVM"):
            pipes.connect(folder.root, another, 5).close()


@pytest.mark.guarantee("G-ISOLATION-12")
def test_a_link_to_another_applications_socket_is_refused(
    folder: DriverFolder, theirs: Path
) -> None:
    (folder.own / STORAGE_SOCKET).symlink_to(theirs)
    with socket.socket(socket.AF_UNIX) as plain, address_in(folder.own) as address:
        plain.connect(address)  # so a plain path would lead there
    before = os.stat(theirs).st_mtime_ns
    with pytest.raises(OSError, match="is not a socket"):
        pipes.connect(folder.root, ident(os.getpid()), 5).close()
    pipes.note_use(folder.root)
    assert pipes.unused_s(folder.root) < 3600
    assert os.stat(theirs).st_mtime_ns == before


def test_a_folder_that_is_a_link_leads_to_no_socket(folder: DriverFolder, theirs: Path) -> None:
    folder.own.rmdir()
    folder.own.symlink_to(theirs.parent)
    with pytest.raises(OSError, match="is a link"):
        pipes.connect(folder.root, ident(os.getpid()), 5).close()
