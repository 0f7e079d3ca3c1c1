"""A real S3 gateway and a real HDFS of the tests' own: free ports, one of each for the session.

Places in them get names that no other test has.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from examples.flights import s3_definitions
from installation.machine import trial_servers
from installation.machine.trial_servers import MiniHadoop
from queries.domain.sparks import OURS, Spark
from queries.jvm.compiled import SPARK_JARS
from tests import pieces

#: Seconds that the small JVM may take to end.
ENDS_WITHIN_S = 30.0


@dataclass(frozen=True, slots=True)
class Store:
    """A store that tests may write to; `server` can be stopped, killed and started again."""

    root: str  # locations begin with it: "s3a://headgate", "hdfs://localhost:PORT"
    server: Any
    conf: Mapping[str, str] = field(default_factory=dict)  # Spark's: `spark.hadoop.…`

    def place(self, name: str = "place") -> str:
        """Return a location that begins with a name, and where there is nothing yet."""
        return f"{self.root}/{name}-{uuid4().hex[:8]}"


@dataclass(frozen=True, slots=True)
class S3Store(Store):
    """A bucket behind an S3 gateway; `conf` contains the keys themselves."""

    endpoint: str = ""  # "http://127.0.0.1:PORT"
    access_key: str = ""
    secret_key: str = ""
    bucket: str = trial_servers.BUCKET
    #: The folder whose files are the bucket's objects, to look behind the gateway's back.
    folder: Path = Path()


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Store]:
    """Return the session's bucket; the test is marked `s3`."""
    gateway = trial_servers.Gateway(
        tmp_path_factory.mktemp("s3"), program=pieces.versitygw(), usual_port=None
    )
    gateway.start(pieces.java().home)
    address = gateway.address()
    keys = address.access_key, address.secret_key
    try:
        yield S3Store(
            f"s3a://{trial_servers.BUCKET}",
            gateway,
            s3_definitions.store(gateway.place, *keys),
            gateway.place,
            *keys,
            folder=gateway.data / trial_servers.BUCKET,
        )
    finally:
        gateway.stop()


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Return the session's HDFS; the test is marked `hdfs`. No connector is needed."""
    hadoop = MiniHadoop(
        tmp_path_factory.mktemp("hadoop"),
        port=pieces.free_port(),
        program=pieces.hadoop(),
        yarn_memory_mb=0,
    )
    hadoop.start(pieces.java().home)
    try:
        yield Store(hadoop.place, hadoop)
    finally:
        hadoop.stop()


class HadoopJvm:
    """A small JVM with a Spark's jars and the connector s3, without a SparkSession."""

    def __init__(self, spark: Spark = OURS) -> None:
        self.jars = pieces.jars_of_sparks()[spark]
        port, self._process = launch_gateway(
            jarpath=str(next(SPARK_JARS.glob("py4j-*.jar"))),
            classpath=f"{self.jars}/*:{pieces.s3_connector(spark)}/*",
            javaopts=["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"],
            java_path=str(pieces.java().home / "bin" / "java"),
            die_on_exit=True,
            return_proc=True,
        )
        self._gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
        self.jvm = self._gateway.jvm  # any class: `jvm.java.net.URI("s3a://…")`

    def files(self, store: Store) -> Any:
        """Return a new org.apache.hadoop.fs.FileSystem for a store."""
        hadoop = self.jvm.org.apache.hadoop
        conf = hadoop.conf.Configuration()
        for name, value in store.conf.items():
            conf.set(name.removeprefix("spark.hadoop."), value)
        return hadoop.fs.FileSystem.newInstance(self.jvm.java.net.URI(store.root), conf)

    def path(self, location: str) -> Any:
        """Return an org.apache.hadoop.fs.Path."""
        return self.jvm.org.apache.hadoop.fs.Path(location)

    def read(self, files: Any, location: str) -> bytes:
        """Return a file's bytes."""
        stream = files.open(self.path(location))
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def end(self) -> None:
        """End the JVM."""
        self._gateway.shutdown()
        self._process.stdin.close()
        try:
            self._process.wait(ENDS_WITHIN_S)
        finally:
            self._process.kill()
            self._process.stdout.close()


@pytest.fixture(scope="session")
def hadoop_jvm() -> Iterator[HadoopJvm]:
    """Return the session's small JVM with Hadoop's file systems."""
    jvm = HadoopJvm()
    try:
        yield jvm
    finally:
        jvm.end()
