"""Run a Kafka broker for trials and tests: one KRaft node on loopback, not for production.

The broker is a daemon: drivers read from it, so it outlives `make run`, as they do. It has two
listeners, one without and one with a password (SASL/PLAIN), and keeps its ports and its password
across restarts, because definitions contain its address.
"""

import base64
import fcntl
import json
import os
import re
import secrets
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

from controlplane.home import Trouble, read_line, write_private
from controlplane.ports import free_ports, port_is_free
from headgate_ground.files import read_tail
from installation.machine import claims, program
from queries.launchers.process import identities

USER = "headgate"
SECRET = "kafka-jaas"  # file in the secrets folder with a Java client's JAAS configuration
USUAL_PORT = 9092  # Kafka's default; the other two ports follow it if free
START_LIMIT_S = 60
STOP_LIMIT_S = 30
_FORMAT_LIMIT_S = 60
_LOOK_EVERY_S = 0.1  # there is no event to wait for when a port opens
_LOG_BYTES = 5_000_000  # beyond it, the log of earlier starts is moved aside
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
class Address:
    """The broker's ports on 127.0.0.1, and its user's password."""

    plain: int
    sasl: int
    controller: int
    password: str


class Broker:
    """A broker in a folder with its configuration, records, log, and process identity."""

    def __init__(
        self,
        folder: Path,
        *,
        jars: Path | None = None,
        usual_port: int | None = USUAL_PORT,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """`jars` defaults to `jars` in the folder; `settings` are further broker settings."""
        self.folder = folder
        self.jars = jars or folder / "jars"
        self._usual_port = usual_port  # None: any free one
        self._settings = dict(settings or {})
        self.log = folder / "broker.log"  # the broker's output: warnings and above
        self._identity = folder / "broker.process"
        self._stopped = folder / "stopped"  # exists from a stop until the next start
        self._address = folder / "address.json"
        self._configuration = folder / "server.properties"

    @property
    def servers(self) -> str:
        """Return the clients' `bootstrap.servers` for access without a password."""
        return f"127.0.0.1:{self.address().plain}"

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

    def has_crashed(self) -> bool:
        """Return whether the broker exited without being stopped."""
        ended = self._identity.exists() and self.process() is None
        return ended and not self._stopped.exists()

    def process(self) -> claims.Process | None:
        """Return the broker's live process, or None."""
        found = claims.read_identity(self._identity)
        return found if found is not None and found.alive() else None

    def address(self) -> Address:
        """Return the stored ports and password; the first call chooses them."""
        try:
            return Address(**json.loads(read_line(self._address)))
        except (ValueError, TypeError):
            pass
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        chosen = Address(*self._free_ports(), password=secrets.token_urlsafe(18))
        write_private(self._address, json.dumps(asdict(chosen)))
        return chosen

    def start(self, java_home: Path, *, limit_s: float = START_LIMIT_S) -> bool:
        """Start the broker if necessary, and wait until it responds; return whether it was down.

        Raises `Trouble` if its jars are missing, one of its ports is taken, or it does not respond
        within the time limit.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _exclusive(self.folder / "start.lock", limit_s):
            if self.process() is not None:
                self._wait_until_it_answers(limit_s)
                return False
            self._check()
            java = str(java_home / "bin" / "java")
            write_private(self._configuration, self._properties())
            self._format(java)
            self._put_old_log_aside()
            self._stopped.unlink(missing_ok=True)
            self._spawn(java)
            self._wait_until_it_answers(limit_s)
            return True

    def stop(self, *, limit_s: float = STOP_LIMIT_S) -> bool:
        """Stop the broker (SIGTERM, SIGKILL after the limit); return whether it was running."""
        process = self.process()
        if process is None:
            return False
        self._stopped.touch()  # first: `make run` notices the exit as soon as we do
        claims.end([process], limit_s=limit_s)
        self._identity.unlink(missing_ok=True)
        return True

    def kill(self) -> None:
        """SIGKILL the broker, like a crash, and wait until it is gone."""
        process = self.process()
        if process is not None:
            identities.kill_and_wait(process.pid, process.start_time, STOP_LIMIT_S)

    def sentence(self) -> str:
        """Return the broker's description for users."""
        return f"{self._version()} at {self.servers}, with a password at {self.sasl_servers}"

    def log_tail(self) -> str:
        """Return the end of the broker's log; "" if there is none."""
        return "\n".join(read_tail(self.log, 20_000).splitlines()[-15:])

    # --- inside -----------------------------------------------------------------------

    def _version(self) -> str:
        names = [jar.name for jar in self.jars.glob("kafka_*.jar")]
        found = re.fullmatch(r"kafka_[\d.]+-(.+)\.jar", names[0]) if names else None
        return found[1] if found else "of an unknown version"

    def _check(self) -> None:
        if not self.has_jars():
            raise Trouble(
                f"There are no broker jars in {self.jars}.", "Get them with `make kafka`."
            )
        address = self.address()
        for port in (address.plain, address.sasl, address.controller):
            if not port_is_free(port):
                raise Trouble(
                    f"Port {port}, where the Kafka broker listens, is in use.",
                    f"Stop the program that uses it (`ss -ltnp 'sport = :{port}'` shows "
                    f"which), or remove {self._address} to get another port, and correct the "
                    "queries that use it.",
                )

    def _properties(self) -> str:
        address = self.address()
        text = _PROPERTIES.format(**asdict(address), user=USER, data=self.folder / "data")
        return text + "".join(f"{name}={value}\n" for name, value in self._settings.items())

    def _format(self, java: str) -> None:
        if (self.folder / "data" / "meta.properties").exists():
            return
        # Kafka's id format: 22 characters, and no leading "-", which would be an option.
        name = "A" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]
        try:
            answer = subprocess.run(
                [
                    *self._command(java, "kafka.tools.StorageTool"),
                    *("format", "-t", name, "-c", str(self._configuration)),
                ],
                capture_output=True,
                text=True,
                timeout=_FORMAT_LIMIT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Trouble(
                f"The broker's folder {self.folder / 'data'} cannot be created: {error}",
                "Check that Java is installed and the host is not overloaded. Then try again.",
            ) from error
        if answer.returncode:
            raise Trouble(
                f"The broker's folder {self.folder / 'data'} cannot be created:",
                (answer.stderr or answer.stdout).strip()[-2000:],
            )

    def _spawn(self, java: str) -> None:
        subprocess.run(
            [
                *(sys.executable, "-I", "-S", program.__file__, "--daemon", str(self.log)),
                str(self._identity),
                *self._command(java, "kafka.Kafka"),
                str(self._configuration),
            ],
            check=True,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            timeout=START_LIMIT_S,
        )

    def _command(self, java: str, main: str) -> list[str]:
        return [
            *(java, f"-Xmx{_HEAP}", "-Djava.awt.headless=true"),
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ssZ",
            *("-cp", f"{self.jars}/*", main),
        ]

    def _put_old_log_aside(self) -> None:
        if self.log.exists() and self.log.stat().st_size > _LOG_BYTES:
            self.log.replace(self.log.with_suffix(".log.1"))

    def _wait_until_it_answers(self, limit_s: float) -> None:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        deadline = time.monotonic() + limit_s
        # Its own log of refused connections would appear on the terminal.
        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        while time.monotonic() < deadline:
            process = self.process()
            if process is None:
                break
            try:
                if not port_is_free(self.address().plain) and admin.list_topics(timeout=1).brokers:
                    return
            except KafkaException:
                pass
            process.wait_for_end(_LOOK_EVERY_S)
        else:
            raise Trouble(
                f"The Kafka broker is not responding at {self.servers} after {limit_s:.0f} s.",
                f"The end of {self.log}:\n{self.log_tail()}",
            )
        raise Trouble(
            f"The Kafka broker ended before it responded at {self.servers}.",
            f"The end of {self.log}:\n{self.log_tail()}",
        )

    def _free_ports(self) -> tuple[int, int, int]:
        usual = self._usual_port
        if usual is not None and all(port_is_free(usual + step) for step in range(3)):
            return usual, usual + 1, usual + 2
        found = list(islice(free_ports(), 3))
        if len(found) < 3:
            raise Trouble(
                "A Kafka broker needs three free ports between 20000 and 31999, but fewer are "
                "free.",
                "",
            )
        return found[0], found[1], found[2]


def keep_secret(broker: Broker, secrets_folder: Path) -> None:
    """Write the broker's password to the file that definitions can reference: "file:kafka-jaas"."""
    secret = secrets_folder / SECRET
    if read_line(secret) != broker.jaas():
        write_private(secret, broker.jaas())


@contextmanager
def _exclusive(path: Path, limit_s: float) -> Iterator[None]:
    """Hold the start lock; raise `Trouble` after the limit."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + limit_s
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise Trouble(
                        f"Another process has been starting the Kafka broker for {limit_s:.0f} s.",
                        f"Check {path.parent}, then try again.",
                    ) from None
                time.sleep(_LOOK_EVERY_S)  # the kernel offers no bounded wait for a lock
        yield
    finally:
        os.close(descriptor)
