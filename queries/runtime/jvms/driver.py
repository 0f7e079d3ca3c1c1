"""Start a driver's JVM as PySpark does, but before Python has imported anything else.

The JVM needs a second to start, and Python half a second for its imports: both take place at the
same time. Only what the JVM needs to start is on its command line.
"""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

from headgate_ground import spark_names
from queries.domain.definitions.kubernetes import MASTER, PYTHON
from queries.domain.protocol import SPARK_LOG, TMP, DriverSpec
from queries.runtime.code import packages
from queries.runtime.process import ShimPipe, Steps, claim
from queries.secret_references import References

#: Variable that names the archive of Spark's classes (`queries.launchers.process.class_archives`).
CLASS_ARCHIVE = "HEADGATE_CLASS_ARCHIVE"
#: The JVM silently ignores an archive with wrong checksums, or of another Java or other jars.
_SHARED = ("-Xshare:auto", "-XX:+VerifySharedSpaces", "-Xlog:cds=off", "-Xlog:cds+dynamic=off")

_LOG_CONFIG = "log4j2.xml"
_LOOPBACK = "127.0.0.1"
#: Seconds between two looks whether the JVM has reported its port.
_LOOK_S = 0.005


class Jvm:
    """The JVM of one driver, which is started once."""

    def __init__(
        self,
        spec: DriverSpec,
        own: Path,
        *,
        lock: int,
        shim: ShimPipe | None = None,
        steps: Steps | None = None,
    ) -> None:
        self.lock = lock  # on the driver's folder
        self.shim = shim or ShimPipe()
        self.steps = steps or Steps()
        self.references = References(env_allowlist=spec.env_allowlist, secrets_dir=spec.secrets_dir)
        self.process: subprocess.Popen[bytes] | None = None
        self._spec = spec
        self._own = own
        self._folder = ""  # where the JVM reports its port

    def begin(self) -> None:
        """Start the JVM if it has not been started; it inherits and holds the lock and the epoch.

        This process gets the application's environment, with secrets resolved, and its packages;
        the JVM and Python workers inherit the environment.
        """
        if self.process is not None:
            return
        archive = os.environ.pop(CLASS_ARCHIVE, "")
        _equip(self._spec, self.references)
        self._folder = tempfile.mkdtemp()
        epoch = claim()
        inherited_descriptors = (self.lock,) if epoch is None else (self.lock, epoch)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # inherited by the JVM
        self.process = subprocess.Popen(
            _command(self._spec, self._own, archive),
            stdin=subprocess.PIPE,  # its end ends the JVM
            env=os.environ
            | {
                "SPARK_HOME": str(_spark_home()),  # in the class path, and so in the archive
                "SPARK_CONNECT_MODE": "0",
                "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._port_file),
            },
            pass_fds=inherited_descriptors,
        )
        self.shim.send_line(f"jvm {self.process.pid}")
        if epoch is not None:  # not earlier: that start runs the functions registered for forks
            os.register_at_fork(after_in_child=partial(os.close, epoch))

    def gateway(self) -> Any:
        """Return the gateway to the JVM, once the JVM accepts connections.

        Raises PySpark's error if the JVM exits first.
        """
        self.begin()
        assert self.process is not None
        from pyspark.errors import PySparkRuntimeError
        from pyspark.java_gateway import launch_gateway
        from pyspark.serializers import UTF8Deserializer, read_int

        try:
            while self.process.poll() is None and not self._port_file.exists():
                time.sleep(_LOOK_S)
            if not self._port_file.exists():
                raise PySparkRuntimeError(None, "JAVA_GATEWAY_EXITED", {})
            with self._port_file.open("rb") as info:
                port, secret = read_int(info), UTF8Deserializer().loads(info)
        finally:
            shutil.rmtree(self._folder)
        # What makes PySpark connect to a JVM that exists; no child may inherit it.
        os.environ |= {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
        try:
            gateway = launch_gateway()
        finally:
            del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]
        gateway.proc = self.process
        self.steps.done("JVM")
        return gateway

    @property
    def _port_file(self) -> Path:
        return Path(self._folder) / "port"


def on_loopback(master: str) -> bool:
    """Return whether only processes on the driver's host need to reach the driver."""
    hosts = master.removeprefix("spark://").split(",")
    return master.startswith("local") or all(
        host.rpartition(":")[0] in ("127.0.0.1", "localhost") for host in hosts
    )


def _equip(spec: DriverSpec, references: References) -> None:
    references.take_from_environment()
    os.environ.update(references.resolve_all(spec.env))
    packages.add(spec.packages)
    packages.lead_to_daemon(spec.packages, spec.master)
    if on_loopback(spec.master):
        os.environ["SPARK_LOCAL_IP"] = _LOOPBACK
    if spec.master.startswith(MASTER):
        # Tasks name the image's Python; here, the same name must find the driver's own.
        folder = str(Path(sys.executable).parent)
        os.environ["PATH"] = os.pathsep.join((folder, os.environ.get("PATH", os.defpath)))
        os.environ["PYSPARK_PYTHON"] = PYTHON


def _command(spec: DriverSpec, own: Path, archive: str) -> list[str]:
    """Return the command with which PySpark would start the JVM (pyspark.java_gateway)."""
    (own / TMP).mkdir(mode=0o700, exist_ok=True)
    (own / _LOG_CONFIG).write_text(_log_config(own / SPARK_LOG))
    if not spec.master.startswith(MASTER):  # pods would get folders of this host's name
        # Not spark.local.dir, which makes Spark warn at every start.
        os.environ["SPARK_LOCAL_DIRS"] = str(own / TMP)
    conf = {
        "spark.master": spec.master,
        "spark.submit.deployMode": "client",
        "spark.driver.memory": spec.memory,
        "spark.driver.extraJavaOptions": _java_options(spec, own, archive),
    }
    if spec.jars:
        conf["spark.jars"] = ",".join(spec.jars)
    options = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    arguments = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    return [str(_spark_home() / "bin" / "spark-submit"), *options, *arguments]


def _spark_home() -> Path:
    """Return Spark's folder as PySpark finds it, without importing PySpark."""
    if named := os.environ.get("SPARK_HOME"):
        return Path(named)
    package = find_spec("pyspark")
    assert package is not None
    assert package.origin is not None
    return Path(os.path.realpath(package.origin)).parent


def _java_options(spec: DriverSpec, own: Path, archive: str) -> str:
    options: tuple[str, ...] = (
        f"-Dlog4j2.configurationFile={(own / _LOG_CONFIG).as_uri()}",
        f"-Djava.io.tmpdir={own / TMP}",
        f"-XX:ErrorFile={own}/hs_err_%p.log",
        "-XX:+ExitOnOutOfMemoryError",
    )
    if archive:
        options += (f"-XX:SharedArchiveFile={archive}", *_SHARED)
    if spec.walls:  # the account's home, which Java takes from passwd, does not exist there
        options += (f"-Duser.home={own / TMP}",)
    if spec.probe:
        # For a JVM that lives for seconds, optimizing compilation and parallel collection would
        # cost more than they gain.
        options += ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
    # Spark splits this text at spaces, except within quotes.
    return " ".join(f'"{option}"' if " " in option else option for option in options)


def _log_config(path: Path) -> str:
    """Return log4j2's configuration: warnings to the driver's log, everything to spark.log."""
    file, old = quoteattr(str(path)), quoteattr(f"{path}.%i.gz")
    head = "%d{yy/MM/dd HH:mm:ss.SSS} %p %c{1}: %m%n"
    whole = f'<PatternLayout pattern="{head}%ex"/>'
    # A failure's page shows the end of this log, and Spark logs each error three times.
    short = f'<PatternLayout pattern="{head}%ex{{12}}"/>'
    timers = "".join(
        f'    <Logger name="{name}" level="WARN" additivity="false">\n'
        '      <AppenderRef ref="file"/>\n    </Logger>\n'
        for name in spark_names.every_name(spark_names.TRIGGER_TIMER)
    )
    return f"""<Configuration status="ERROR">
  <Appenders>
    <RollingFile name="file" fileName={file} filePattern={old}>
      {whole}
      <Policies><SizeBasedTriggeringPolicy size="10 MB"/></Policies>
      <DefaultRolloverStrategy max="5"/>
    </RollingFile>
    <Console name="console" target="SYSTEM_ERR">{short}</Console>
  </Appenders>
  <Loggers>
    <Root level="WARN">
      <AppenderRef ref="file"/>
      <AppenderRef ref="console"/>
    </Root>
    <!-- They print pages of counters if an object exists already, which the fence provokes. -->
    <Logger name="org.apache.hadoop.fs.s3a.S3ABlockOutputStream" level="ERROR"/>
    <Logger name="org.apache.hadoop.fs.s3a.S3AInstrumentation" level="ERROR"/>
    <Logger name="org.apache.spark.SparkContext" level="INFO" additivity="false">
      <AppenderRef ref="file"/>
    </Logger>
{timers}    <Logger name="org.apache.spark.sql.execution.streaming" level="INFO" additivity="false">
      <AppenderRef ref="file"/>
      <AppenderRef ref="console" level="WARN"/>
    </Logger>
  </Loggers>
</Configuration>
"""
