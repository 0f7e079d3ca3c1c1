"""A program within a storage JVM's own sandbox turns against the worker that uses the JVM.

The JVM is a real one behind real walls. The program is started in a second sandbox with the same
mounts, so it can do there what one that the JVM had started could.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import LazySettings
from django.utils import timezone

from queries.domain.hosts import Mode, choose
from queries.domain.protocol import SPEC, STORAGE_SOCKET, TMP, DriverSpec
from queries.driver_folder import DriverFolder
from queries.launchers.process.isolation import mounts
from queries.launchers.process.isolation.bubblewrap import NAMESPACES
from queries.launchers.process.launcher import LocalProcessLauncher
from queries.models.drivers import Driver
from queries.services.checkpoints.storage_jvms import stages
from queries.storage.hadoop import HadoopStorage, StorageFailed
from queries.storage.remote_checkpoint import Mirror, download
from queries.storage.remote_sink import RemoteSink
from tests import pieces
from tests.storage.servers import StorageJvm
from tests.storage.stores import S3Store
from tests.storage.test_storage_jvms import application, reached, until

pytestmark = [
    pytest.mark.s3,
    pytest.mark.walls,
    pytest.mark.django_db(transaction=True),
    pytest.mark.timeout(600),
]

SECRET = "a-key-that-only-the-control-plane-has"
#: Listens in the JVM's place and says that nothing is there.
LISTEN = """
import os, socket, sys
os.chdir(sys.argv[1])
os.rename("storage.sock", "theirs.sock")
with socket.socket(socket.AF_UNIX) as ear:
    ear.bind("storage.sock")
    ear.listen()
    print("listens", flush=True)
    while True:
        link, _ = ear.accept()
        with link:
            link.recv(65536)
            link.sendall(b'{"found": [], "more": false}\\n')
"""


class Within:
    """One storage JVM within walls, and what else runs there."""

    def __init__(self, launcher: LocalProcessLauncher, s3: S3Store) -> None:
        row = application("lake", dict(s3.conf))
        self.storage: HadoopStorage = until(lambda: reached(row, launcher))
        self.epoch = Driver.objects.get().epoch
        self.folder = DriverFolder.of(launcher.directory("lake", self.epoch, probe=True))
        self.spec = DriverSpec.loads((self.folder.control / SPEC).read_text())
        assert self.spec.walls == Mode.BUBBLEWRAP

    def start(self, *command: str) -> "subprocess.Popen[str]":
        """Start a program with the JVM's view of the host."""
        shown = mounts.mounts(self.spec, self.folder, os.environ)
        try:
            return subprocess.Popen(
                ["bwrap", "--die-with-parent", *NAMESPACES, *shown.options, "--", *command],
                pass_fds=shown.descriptors,
                stdout=subprocess.PIPE,
                text=True,
            )
        finally:
            for descriptor in shown.descriptors:
                os.close(descriptor)

    def do(self, command: str) -> None:
        """Run a shell's command to its end."""
        with self.start("/bin/sh", "-ec", command) as done:
            assert done.wait(60) == 0


@pytest.fixture
def launcher(settings: LazySettings, tmp_path: Path) -> Iterator[LocalProcessLauncher]:
    settings.DRIVERS_DIR = tmp_path / "drivers"
    settings.CONNECTORS_DIR = pieces.s3_connector().parent
    settings.STORAGE_IDLE_S = 300
    found = LocalProcessLauncher(
        settings.DRIVERS_DIR, tmp_path / "code", isolation=lambda: choose(Mode.BUBBLEWRAP)
    )
    yield found
    found.end_probes()


def test_a_link_in_place_of_its_scratch_folder_changes_nothing_outside(
    launcher: LocalProcessLauncher, s3: S3Store, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "0").write_text(SECRET)
    within = Within(launcher, s3)
    place, own = s3.place("sink"), within.folder.own
    for batch in range(2):
        within.storage.write(f"{place}/_spark_metadata", str(batch), b"v1")
    within.do(f"mv {own}/{TMP} {own}/gone && ln -s {outside} {own}/{TMP}")
    assert (own / TMP / "0").read_text() == SECRET  # so a plain path would lead there
    mirror = Mirror(tmp_path / "mirror")
    RemoteSink(within.storage, place, stages()).refresh(mirror, now=timezone.now())
    assert sorted(path.name for path in mirror.checkpoint.iterdir()) == ["0", "1"]
    here = tmp_path / "here"
    gone = download(within.storage, place, {"_spark_metadata/0": 2, "_spark_metadata/7": 2}, here)
    assert gone == ("_spark_metadata/7",)
    launcher.end_probe("lake", within.epoch)
    until(lambda: not (own / TMP).is_symlink())  # the shim removes it, and not what it leads to
    assert (outside / "0").read_text() == SECRET
    assert [path.name for path in outside.iterdir()] == ["0"]


def test_a_socket_in_the_place_of_the_jvms_is_not_believed(
    launcher: LocalProcessLauncher, s3: S3Store, s3_jvm: StorageJvm
) -> None:
    within = Within(launcher, s3)
    place, own = s3.place("listed"), within.folder.own
    within.storage.write(place, "metadata", b"{}")
    with within.start("/usr/bin/env", "python3", "-c", LISTEN, str(own)) as impostor:
        assert impostor.stdout is not None
        try:
            assert impostor.stdout.readline() == "listens\n"
            with pytest.raises(StorageFailed, match="listens in the place of the storage JVM"):
                within.storage.list(place, most=5)
        finally:
            impostor.kill()
    within.do(f"rm {own}/{STORAGE_SOCKET} && ln -s {s3_jvm.socket} {own}/{STORAGE_SOCKET}")
    assert (own / STORAGE_SOCKET).is_socket()  # another application's, by a plain path
    with pytest.raises(StorageFailed, match="is not a socket"):
        within.storage.list(place, most=5)
    within.do(f"mv {own}/theirs.sock {own}/{STORAGE_SOCKET}")
    assert [entry.name for entry in within.storage.list(place, most=5).entries] == ["metadata"]
