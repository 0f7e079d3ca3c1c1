"""A storage JVM of the tests' own, with Spark's jars, ours, and the connector s3."""

import json
import subprocess
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest

from headgate_ground.untrusted import connected
from queries.jvm.compiled import SPARK_JARS, our_jar
from queries.storage.hadoop import HadoopStorage
from tests import pieces
from tests.storage.stores import Store

STARTS_WITHIN_S, ENDS_WITHIN_S = 60.0, 30.0


class StorageJvm:
    """One `headgate.StorageServer` in a folder."""

    def __init__(self, folder: Path, conf: Mapping[str, str], idle_s: int = 3600) -> None:
        (folder / "tmp").mkdir(parents=True)
        self.socket = folder / "storage.sock"
        jars = [str(our_jar(folder)), f"{SPARK_JARS}/*", f"{pieces.s3_connector()}/*"]
        java = str(pieces.java().home / "bin" / "java")
        self.process = subprocess.Popen(
            [
                *(java, "-Xmx200m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
                *("-cp", ":".join(jars), "headgate.StorageServer", "storage.sock", str(idle_s)),
            ],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            text=True,
        )
        assert self.process.stdin is not None
        told = {name.removeprefix("spark.hadoop."): value for name, value in conf.items()}
        self.process.stdin.write(json.dumps({**told, "fs.defaultFS": "file:///"}) + "\n")
        self.process.stdin.flush()
        deadline = time.monotonic() + STARTS_WITHIN_S
        while not self._listens() and time.monotonic() < deadline:
            time.sleep(0.05)
        self.storage = HadoopStorage(partial(connected, self.socket))

    def _listens(self) -> bool:
        """Return whether it accepts connections: its socket exists a moment before it does."""
        try:
            connected(self.socket, STARTS_WITHIN_S).close()
        except OSError:
            return False
        return True

    def end(self) -> None:
        """End it as its Python does when that ends."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(ENDS_WITHIN_S)
        finally:
            self.process.kill()
            self.process.wait()


@pytest.fixture(scope="session")
def s3_jvm(s3: Store, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StorageJvm]:
    """Return the session's storage JVM for the bucket."""
    jvm = StorageJvm(tmp_path_factory.mktemp("storage-jvm") / "jvm", s3.conf)
    yield jvm
    jvm.end()
