"""Start Spark as a driver of ours: what the definition may say, and what it may not change.

Only what the JVM needs to come up is put on its command line; all the rest, resolved secrets
among it, is set in the JVM itself, where no list of processes shows it.
"""

import base64
import contextlib
import logging
import os
import shutil
import socket
from functools import partial
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

from queries.domain.protocol import POOLS, SPARK_LOG, TMP, DriverSpec
from queries.driver_folder import DriverFolder
from queries.runtime.code import packages
from queries.runtime.process import claim
from queries.secret_references import References

_LOG_CONFIG = "log4j2.xml"
_LOOPBACK = "127.0.0.1"
_JWS_FILTER = "org.apache.spark.ui.JWSFilter"

logger = logging.getLogger("headgate.driver")

#: What an application's configuration may change.
_DEFAULTS = {
    "spark.sql.shuffle.partitions": "4",  # 200, Spark's own, costs 18 s a batch on two cores
    "spark.sql.session.timeZone": "UTC",
    # A driver that streams for months must not keep what its UI has shown for ever.
    "spark.ui.retainedJobs": "200",
    "spark.ui.retainedStages": "200",
    "spark.ui.retainedTasks": "5000",
    "spark.sql.ui.retainedExecutions": "100",
    "spark.sql.streaming.ui.retainedProgressUpdates": "100",
    "spark.sql.streaming.ui.retainedQueries": "20",
}


def equip(spec: DriverSpec, references: References) -> None:
    """Give this process, and so its JVM and Python workers, the application's own: its
    environment, with secrets resolved, and its packages."""
    references.take_from_environment()
    os.environ.update(references.resolve_all(spec.env))
    packages.add(spec.packages)
    packages.lead_to_daemon(spec.packages, spec.master)


def launch_jvm(spec: DriverSpec, own: Path, lock: int) -> Any:
    """Start the JVM and return its gateway; the JVM inherits and so holds `lock`, and the epoch."""
    from pyspark import SparkConf
    from pyspark.java_gateway import launch_gateway

    (own / TMP).mkdir(mode=0o700, exist_ok=True)
    (own / _LOG_CONFIG).write_text(_log_config(own / SPARK_LOG))
    if _on_loopback(spec.master):
        os.environ["SPARK_LOCAL_IP"] = _LOOPBACK
    # Not spark.local.dir, of which Spark warns at every start.
    os.environ["SPARK_LOCAL_DIRS"] = str(own / TMP)
    conf = SparkConf(loadDefaults=False)
    conf.set("spark.master", spec.master)
    conf.set("spark.submit.deployMode", "client")
    conf.set("spark.driver.memory", spec.memory)
    conf.set("spark.driver.extraJavaOptions", _java_options(spec, own))
    if spec.jars:
        conf.set("spark.jars", ",".join(spec.jars))
    epoch = claim()
    held = (lock,) if epoch is None else (lock, epoch)
    gateway = launch_gateway(conf, popen_kwargs={"pass_fds": held})
    if epoch is not None:  # not earlier: the JVM's own start runs what is registered for forks
        os.register_at_fork(after_in_child=partial(os.close, epoch))
    return gateway


def start_spark(
    spec: DriverSpec, folder: DriverFolder, gateway: Any, references: References
) -> Any:
    """Return a session of Spark, started in the JVM with the definition's configuration and ours.

    Ours is on top.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    ours = _reserved(spec, folder, references)
    conf = SparkConf(loadDefaults=False)
    conf.setAll({**_DEFAULTS, **references.resolve_all(spec.conf), **ours}.items())
    context = SparkContext(conf=conf, gateway=gateway)
    if not spec.master.startswith("local"):
        _ship_code(context, spec.code_roots, folder.own / TMP)
    return SparkSession(context)


#: What SQL may call of Java by reflect(); with an empty list it may call anything, and read the
#: JVM's properties and environment (Spark: SQLConf, spark.sql.reflect.allowList). A sleep holds up
#: its own query only.
_REFLECT = r"java\.util\.UUID\.randomUUID,java\.lang\.Thread\.sleep"


def _on_loopback(master: str) -> bool:
    """Whether nothing outside of the driver's host has to reach it."""
    hosts = master.removeprefix("spark://").split(",")
    return master.startswith("local") or all(
        host.rpartition(":")[0] in ("127.0.0.1", "localhost") for host in hosts
    )


def _ship_code(context: Any, roots: tuple[str, ...], folder: Path) -> None:
    """Have Spark bring the code roots to every executor: they see no folder of the driver's."""
    for place, root in enumerate(roots):
        archive = shutil.make_archive(str(folder / f"code-{place}"), "zip", root)
        context.addPyFile(archive)


def close_in_forked_children(gateway: Any, *descriptors: int) -> None:
    """Keep forked children from holding an orphaned JVM alive (trap 23).

    A child that inherits the JVM's standard input or the gateway's sockets keeps the JVM from
    seeing that its driver has died.
    """
    ports = {gateway.gateway_parameters.port, gateway.java_parameters.port}

    def close() -> None:
        for descriptor in (gateway.proc.stdin.fileno(), *descriptors):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        callback = getattr(gateway, "_callback_server", None)
        own = {callback.server_socket.getsockname()[1]} if callback is not None else set()
        for descriptor in _sockets_of(ports | own):
            os.close(descriptor)

    os.register_at_fork(after_in_child=close)


def _sockets_of(ports: set[int]) -> list[int]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        descriptor = int(name)
        try:
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            known = socket.socket(fileno=os.dup(descriptor))
        except OSError:
            continue
        with known:
            for ask in (known.getsockname, known.getpeername):
                with contextlib.suppress(OSError):
                    address = ask()
                    if isinstance(address, tuple) and address[1] in ports:
                        found.append(descriptor)
                        break
    return found


def _reserved(spec: DriverSpec, folder: DriverFolder, references: References) -> dict[str, str]:
    tmp = str(folder.own / TMP)
    conf = {
        "spark.app.name": spec.application,
        "spark.master": spec.master,
        "spark.scheduler.mode": spec.scheduler_mode,
        "spark.sql.warehouse.dir": spec.conf.get("spark.sql.warehouse.dir", f"{tmp}/warehouse"),
        "spark.ui.enabled": str(not spec.probe).lower(),
        **_guarded_ui(spec),
        "spark.ui.killEnabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Five times Spark's own: a fast query's holes are still in memory when they are looked for.
        "spark.sql.streaming.numRecentProgressUpdates": "500",
        "spark.sql.streaming.stopTimeout": f"{int(spec.stop_timeout_s * 1000)}ms",
        "spark.sql.streaming.stopActiveRunOnRestart": "false",  # one live run, or a refusal
        "spark.submit.deployMode": "client",
        "spark.sql.reflect.allowList": _REFLECT,
        **packages.worker_conf(spec.packages, spec.master, references.resolve_all(spec.conf)),
    }
    if spec.master != "yarn":
        # A path without a scheme is a local one, as data roots take it, whatever Hadoop's own
        # configuration says. On YARN Spark keeps its files where that says.
        conf["spark.hadoop.fs.defaultFS"] = "file:///"
    if makes_its_secret(spec.master):
        conf["spark.authenticate"] = "true"
    pools = folder.control / POOLS
    if spec.scheduler_mode == "FAIR" and pools.exists() and pools.read_text().strip():
        conf["spark.scheduler.allocation.file"] = pools.as_uri()
    if _on_loopback(spec.master):
        conf["spark.driver.host"] = conf["spark.driver.bindAddress"] = _LOOPBACK
    secret = references.named_by(spec.conf)
    if secret:  # Spark's UI masks what this matches, values of the JVM's properties included
        names = "|".join(name.replace(".", "[.]") for name in secret)
        conf["spark.redaction.regex"] = (
            f"(?i)secret|password|passwd|token|credential|access[._-]?key|jaas|{names}"
        )
    return conf


def _guarded_ui(spec: DriverSpec) -> dict[str, str]:
    """Return at which port the UI is, and that it answers only to what our key has signed."""
    port = spec.ui_port
    if port and not _is_free(port):  # Spark would take the next port, or end the driver
        logger.warning("port %s is in use: Headgate cannot show this driver's Spark UI", port)
        port = 0
    conf = {"spark.ui.port": str(port)}
    if spec.ui_key:
        secret = base64.urlsafe_b64encode(bytes.fromhex(spec.ui_key)).decode()
        conf |= {
            "spark.ui.filters": _JWS_FILTER,
            f"spark.{_JWS_FILTER}.param.secretKey": secret,
            f"spark.{_JWS_FILTER}.param.requireExpiration": "true",
        }
    return conf


def _is_free(port: int) -> bool:
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((_LOOPBACK, port))
        except OSError:
            return False
    return True


def makes_its_secret(master: str) -> bool:
    """Tell whether Spark itself makes the secret of an application's ports (SecurityManager).

    A standalone cluster has one for all its applications, which its admin would give to each.
    """
    return master.startswith(("local", "yarn", "k8s:"))


def _java_options(spec: DriverSpec, own: Path) -> str:
    options: tuple[str, ...] = (
        f"-Dlog4j2.configurationFile={(own / _LOG_CONFIG).as_uri()}",
        f"-Djava.io.tmpdir={own / TMP}",
        f"-XX:ErrorFile={own}/hs_err_%p.log",
        "-XX:+ExitOnOutOfMemoryError",
    )
    if spec.walls:  # the account's home, which Java takes from passwd, is not there
        options += (f"-Duser.home={own / TMP}",)
    if spec.probe:
        # A JVM that lives for seconds: its compiling and collecting cost more than they give.
        options += ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
    # Spark splits this text at blanks, except within quotes.
    return " ".join(f'"{option}"' if " " in option else option for option in options)


def _log_config(path: Path) -> str:
    """Return log4j2's configuration: warnings to the driver's log, the story to spark.log."""
    file, old = quoteattr(str(path)), quoteattr(f"{path}.%i.gz")
    head = "%d{yy/MM/dd HH:mm:ss.SSS} %p %c{1}: %m%n"
    whole = f'<PatternLayout pattern="{head}%ex"/>'
    # What a failure's page shows is the end of this one: Spark tells each error three times.
    short = f'<PatternLayout pattern="{head}%ex{{12}}"/>'
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
    <Logger name="org.apache.spark.SparkContext" level="INFO" additivity="false">
      <AppenderRef ref="file"/>
    </Logger>
    <Logger name="org.apache.spark.sql.execution.streaming.runtime.ProcessingTimeExecutor"
            level="WARN" additivity="false">
      <AppenderRef ref="file"/>
    </Logger>
    <Logger name="org.apache.spark.sql.execution.streaming" level="INFO" additivity="false">
      <AppenderRef ref="file"/>
      <AppenderRef ref="console" level="WARN"/>
    </Logger>
  </Loggers>
</Configuration>
"""
