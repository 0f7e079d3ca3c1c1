"""The trial servers of an installation: a Kafka broker, an S3 gateway, HDFS with YARN.

The broker is a daemon: drivers read from it, so it outlives `make run`, as they do. It has two
listeners, one without and one with a password (SASL/PLAIN), and keeps its ports and its password
across restarts, because definitions contain its address.

The gateway is a daemon, and keeps its port and its keys across restarts, because definitions
contain them. It honours `If-None-Match: *`, on which the fence of checkpoints relies.

Not for production. The JVM is a daemon, and HDFS keeps its port and its files across restarts,
because checkpoints are named by it. YARN's ports change at each start: Spark reads them from `conf`
in the folder (HADOOP_CONF_DIR).
"""

import base64
import http.client
import os
import re
import secrets
import subprocess
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from django.conf import settings

from controlplane.home import Home, StartProblem, write_private
from controlplane.servers import port_is_free
from installation.machine.daemon import Daemon

USER = "headgate"
SECRET = "kafka-jaas"  # file in the secrets folder with a Java client's JAAS configuration
USUAL_PORT = 9092  # Kafka's default; the other two ports follow it if free
_FORMAT_LIMIT_S = 300
_HEAP = "512m"

_PROPERTIES = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{sasl},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{sasl}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
sasl.enabled.mechanisms=PLAIN
listener.name.sasl_plaintext.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_{user}="{password}";
log.dirs={data}
auto.create.topics.enable=false
num.partitions=5
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
log.cleaner.dedupe.buffer.size=16777216
log.retention.check.interval.ms=30000
num.network.threads=2
num.io.threads=4
"""  # noqa: E501


@dataclass(frozen=True, slots=True)
class KafkaAddress:
    """The broker's ports on 127.0.0.1, and its user's password."""

    plain: int
    sasl: int
    controller: int
    password: str


class Broker(Daemon):
    """A broker in a folder with its configuration, records, log, and process identity."""

    label, name, keeps = "Kafka", "Kafka broker", "records"

    def __init__(
        self,
        folder: Path,
        *,
        jars: Path | None = None,
        usual_port: int | None = USUAL_PORT,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """`jars` defaults to `jars` in the folder; `settings` are further broker settings."""
        super().__init__(folder, "broker")  # its log holds warnings and above
        self.jars = jars or folder / "jars"
        self._usual_port = usual_port  # None: any free one
        self._settings = dict(settings or {})
        self._configuration = folder / "server.properties"

    @property
    def servers(self) -> str:
        """Return the clients' `bootstrap.servers` for access without a password."""
        return f"127.0.0.1:{self.address().plain}"

    @property
    def place(self) -> str:
        """Return `servers`."""
        return self.servers

    @property
    def sasl_servers(self) -> str:
        """Return the address that requires user and password (SASL_PLAINTEXT, mechanism PLAIN)."""
        return f"127.0.0.1:{self.address().sasl}"

    def jaas(self, *, password: str | None = None) -> str:
        """Return a Java client's `sasl.jaas.config`."""
        word = self.address().password if password is None else password
        return (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'username="{USER}" password="{word}";'
        )

    def has_jars(self) -> bool:
        """Return whether the broker's jars exist."""
        return any(self.jars.glob("kafka_*.jar"))

    def is_set_up(self) -> bool:
        """Return whether the broker has been started before; if so, it runs with the system."""
        return self.has_jars() and self._address.exists()

    def address(self) -> KafkaAddress:
        """Return the stored ports and password; the first call chooses them."""
        ports, password = ("plain", "sasl", "controller"), secrets.token_urlsafe(18)
        return self._stored_address(KafkaAddress, ports, self._usual_port, password=password)

    def secrets(self) -> Mapping[str, str]:
        """Return the password as a Java client's configuration."""
        return {SECRET: self.jaas()}

    def sentence(self) -> str:
        """Return the broker's description for users."""
        return f"{self._version()} at {self.servers}, with a password at {self.sasl_servers}"

    # --- inside -----------------------------------------------------------------------

    def _version(self) -> str:
        names = [jar.name for jar in self.jars.glob("kafka_*.jar")]
        match = re.fullmatch(r"kafka_[\d.]+-(.+)\.jar", names[0]) if names else None
        return match[1] if match else "of an unknown version"

    def _ports(self) -> tuple[int, ...]:
        address = self.address()
        return address.plain, address.sasl, address.controller

    def _prepare(self) -> list[str]:
        if not self.has_jars():
            raise StartProblem(
                f"There are no broker jars in {self.jars}.", "Get them with `make kafka`."
            )
        self._check_ports()
        write_private(self._configuration, self._properties())
        self._format()
        return [*self._command("kafka.Kafka"), str(self._configuration)]

    def _properties(self) -> str:
        address = self.address()
        text = _PROPERTIES.format(**asdict(address), user=USER, data=self.folder / "data")
        return text + "".join(f"{name}={value}\n" for name, value in self._settings.items())

    def _format(self) -> None:
        if (self.folder / "data" / "meta.properties").exists():
            return
        # Kafka's id format: 22 characters, and no leading "-", which would be an option.
        name = "A" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]
        try:
            answer = subprocess.run(
                [
                    *self._command("kafka.tools.StorageTool"),
                    *("format", "-t", name, "-c", str(self._configuration)),
                ],
                capture_output=True,
                text=True,
                timeout=_FORMAT_LIMIT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise StartProblem(
                f"The broker's folder {self.folder / 'data'} cannot be created: {error}",
                "Check that Java is installed and the host is not overloaded. Then try again.",
            ) from error
        if answer.returncode:
            raise StartProblem(
                f"The broker's folder {self.folder / 'data'} cannot be created:",
                (answer.stderr or answer.stdout).strip()[-2000:],
            )

    def _command(self, main: str) -> list[str]:
        return [
            *(self._java, f"-Xmx{_HEAP}", "-Djava.awt.headless=true"),
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ssZ",
            *("-cp", f"{self.jars}/*", main),
        ]

    def _responds(self) -> bool:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        if port_is_free(self.address().plain):
            return False
        # Its own log of refused connections would appear on the terminal.
        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        try:
            return bool(admin.list_topics(timeout=1).brokers)
        except KafkaException:
            return False


BUCKET = "headgate"
#: Files in the secrets folder: the access key and the secret key.
SECRETS = ("s3-access-key", "s3-secret-key")
S3_USUAL_PORT = 7070  # versitygw's default
_HEALTH = "/health"  # hides a bucket of this name, which is not ours


@dataclass(frozen=True, slots=True)
class S3Address:
    """The gateway's port on 127.0.0.1, and its keys."""

    port: int
    access_key: str
    secret_key: str


class Gateway(Daemon):
    """A gateway in a folder with its program, keys, data, log, and process identity."""

    label, name, keeps = "S3", "S3 gateway", "objects"

    def __init__(
        self, folder: Path, *, program: Path | None = None, usual_port: int | None = S3_USUAL_PORT
    ) -> None:
        """`program` defaults to `bin/versitygw` in the folder."""
        super().__init__(folder, "gateway")
        self.program = program or folder / "bin" / "versitygw"
        self.data = folder / "data"  # each folder in it is a bucket
        self._usual_port = usual_port  # None: any free one

    @property
    def place(self) -> str:
        """Return the endpoint: the value of `fs.s3a.endpoint`."""
        return f"http://127.0.0.1:{self.address().port}"

    def is_set_up(self) -> bool:
        """Return whether the gateway has been started before; if so, it runs with the system."""
        return self.program.exists() and self._address.exists()

    def address(self) -> S3Address:
        """Return the stored port and keys; the first call chooses them."""
        keys = {
            "access_key": f"headgate-{secrets.token_hex(6)}",
            "secret_key": secrets.token_urlsafe(30),
        }
        return self._stored_address(S3Address, ("port",), self._usual_port, **keys)

    def secrets(self) -> Mapping[str, str]:
        """Return the two keys."""
        address = self.address()
        return dict(zip(SECRETS, (address.access_key, address.secret_key), strict=True))

    def sentence(self) -> str:
        """Return the gateway's description for users."""
        return f"bucket {BUCKET} at {self.place}"

    # --- inside -----------------------------------------------------------------------

    def _ports(self) -> tuple[int, ...]:
        return (self.address().port,)

    def _prepare(self) -> list[str]:
        if not self.program.exists():
            raise StartProblem(
                f"There is no S3 gateway at {self.program}.", "Build it with `make s3`."
            )
        self._check_ports()
        (self.data / BUCKET).mkdir(mode=0o700, parents=True, exist_ok=True)
        return [
            *(str(self.program), "--quiet", "--port", f"127.0.0.1:{self.address().port}"),
            *("--health", _HEALTH, "posix", str(self.data)),
        ]

    def _environment(self) -> dict[str, str]:
        address = self.address()  # not on the command line, which all users can read
        keys = {"ROOT_ACCESS_KEY": address.access_key, "ROOT_SECRET_KEY": address.secret_key}
        return {**os.environ, **keys}

    def _responds(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.address().port, timeout=1)
        try:
            connection.request("GET", _HEALTH)
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


#: The JVM's heap with YARN, and with HDFS alone.
_HEAPS = ("1g", "256m")


class MiniHadoop(Daemon):
    """The clusters in a folder with their configuration, files, log, and process identity."""

    label, name, keeps = "Hadoop", "Hadoop cluster", "files"
    start_limit_s = 600  # 12 on two idle cores

    def __init__(
        self,
        folder: Path,
        *,
        port: int,
        program: Path | None = None,
        yarn_memory_mb: int = 4096,
    ) -> None:
        """`port` is HDFS's, and `yarn_memory_mb` the memory of YARN's one node; 0: HDFS alone.

        `program` is the folder with `jars` and `classes`; it defaults to the folder itself.
        """
        super().__init__(folder, "hadoop")
        self.program = program or folder
        self.conf = folder / "conf"  # HADOOP_CONF_DIR
        self._port, self._memory_mb = port, yarn_memory_mb

    @property
    def place(self) -> str:
        """Return HDFS's address, with which locations begin."""
        return f"hdfs://localhost:{self._port}"

    def sentence(self) -> str:
        """Return the clusters' description for users."""
        return f"HDFS at {self.place}{' and YARN' if self._memory_mb else ''}"

    # --- inside -----------------------------------------------------------------------

    def _ports(self) -> tuple[int, ...]:
        return (self._port,)

    def _prepare(self) -> list[str]:
        jars, classes = self.program / "jars", self.program / "classes"
        if not any(classes.glob("*.class")) or not any(jars.glob("*.jar")):
            raise StartProblem(
                f"There are no Hadoop jars or classes in {self.program}.",
                "Get them with `make hadoop`.",
            )
        self._check_ports()
        self._ready.unlink(missing_ok=True)
        return [
            *(self._java, f"-Xmx{_HEAPS[not self._memory_mb]}", "-XX:+UseSerialGC"),
            *("-cp", f"{classes}:{jars}/*", "MiniHadoop"),
            *(str(self.folder), str(self._port), str(self._memory_mb)),
        ]

    @property
    def _ready(self) -> Path:
        """Return the file that the JVM writes once everything responds."""
        return self.conf / "core-site.xml"

    def _responds(self) -> bool:
        return self._ready.exists()


def servers(home: Home) -> list[Daemon]:
    """Return all servers, whether they exist or not."""
    return [
        *with_the_demo(home),
        MiniHadoop(home.hadoop, port=settings.HADOOP_PORT),
    ]


def with_the_demo(home: Home) -> list[Broker | Gateway]:
    """Return the servers that the demo uses, and `make run` keeps running once they exist."""
    return [Broker(home.kafka), Gateway(home.s3)]
