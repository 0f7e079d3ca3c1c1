"""Start Spark for our drivers, keep one session per query, and warm a standby up.

Two queries must not see each other's views and configuration, and each session that streams leaves
a bus on Spark's listener queue until that bus is removed. So a session is created once per query,
reused, and closed when the query has not run here for a while.

Only what the JVM needs to start is on its command line; everything else, including resolved
secrets, is set in the JVM itself, where it does not appear in any process list.

A JVM loads about 20,000 classes for a first batch and compiles its code, which takes most of a
fresh driver's time (docs/figures.md). No user's code and no user's data are involved, and the
query has ended before the listener is registered.
"""

import base64
import contextlib
import logging
import os
import re
import secrets
import shutil
import socket
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError

from headgate_ground import spark_names
from headgate_ground.secret_kinds import NAME, VALUE
from listeners.spark.telemetry import ListenerRefused, Telemetry
from queries.domain.definitions.kubernetes import MASTER
from queries.domain.protocol import POOLS, TMP, DriverSpec
from queries.driver_folder import DriverFolder
from queries.runtime import catalogs, pods
from queries.runtime.allowed_paths import roots_of
from queries.runtime.build import CONFIGURATION, session_conf, views
from queries.runtime.code import packages
from queries.runtime.failures.error_capture import StepFailed
from queries.runtime.jvms.driver import on_loopback
from queries.secret_references import References

KEEP_S = 600  # seconds: a query that returns within this time finds its session


@dataclass(slots=True)
class _OpenSession:
    session: Any
    views: set[str] = field(default_factory=set)
    conf: set[str] = field(default_factory=set)
    used_at: float = field(default_factory=time.monotonic)


class Sessions:
    """The sessions of one driver, by query."""

    def __init__(
        self, spark: Any, telemetry: Telemetry, listeners: tuple[str, ...], references: References
    ) -> None:
        self._spark = spark
        self._telemetry = telemetry
        self._listeners = listeners
        self._references = references
        self._lock = threading.Lock()
        self._open_sessions: dict[int, _OpenSession] = {}

    def open(self, query: int, spec: dict[str, Any]) -> Any:
        """Return the query's session, with only the definition's configuration and views.

        It becomes the active session of the calling thread.
        """
        open_session = self._get(query)
        session = open_session.session
        for name in open_session.views - views(spec):
            session.catalog.dropTempView(name)
        conf = session_conf(spec, self._references)
        for name in open_session.conf - conf.keys():
            session.conf.unset(name)
        for name, value in conf.items():
            session.conf.set(name, value)
        open_session.views, open_session.conf, open_session.used_at = (
            views(spec),
            set(conf),
            time.monotonic(),
        )
        spark_names.activate(session)
        return session

    def close_unused(self, hosted: set[int]) -> None:
        """Close sessions of queries that have not run in this driver for a while."""
        now = time.monotonic()
        with self._lock:
            for query in hosted & self._open_sessions.keys():
                self._open_sessions[query].used_at = now
            unused_queries = [
                query
                for query, open_session in self._open_sessions.items()
                if now - open_session.used_at > KEEP_S
            ]
            closed = [self._open_sessions.pop(query) for query in unused_queries]
        for open_session in closed:
            self._telemetry.session_closed(open_session.session)

    def _get(self, query: int) -> _OpenSession:
        with self._lock:
            open_session = self._open_sessions.get(query)
        if open_session is None:
            session = self._spark.newSession()
            try:
                self._telemetry.session_opened(session, self._listeners)
            except ListenerRefused as error:
                raise StepFailed("listeners", error, error_class=CONFIGURATION) from error
            open_session = _OpenSession(session)
            with self._lock:
                self._open_sessions[query] = open_session
        return open_session


_LOOPBACK = "127.0.0.1"
#: Classes that check a signature, Spark's own and ours (`queries.jvm`), which is for 3.5 alone.
_UI_FILTERS = ("org.apache.spark.ui.JWSFilter", "headgate.UiFilter")

logger = logging.getLogger("headgate.driver")

#: Settings that an application's configuration may change.
_DEFAULTS = {
    "spark.sql.shuffle.partitions": "4",  # 200, Spark's default, costs 18 s per batch on two cores
    "spark.sql.session.timeZone": "UTC",
    # A driver that streams for months must not keep everything its UI has ever shown.
    "spark.ui.retainedJobs": "200",
    "spark.ui.retainedStages": "200",
    "spark.ui.retainedTasks": "5000",
    "spark.sql.ui.retainedExecutions": "100",
    "spark.sql.streaming.ui.retainedProgressUpdates": "100",
    "spark.sql.streaming.ui.retainedQueries": "20",
}


def guard_callbacks(gateway: Any) -> None:
    """Accept callback connections only from this process's own JVM; raise if that is impossible.

    PySpark starts py4j's callback server without a token, and gives the JVM a client without one:
    anyone who can reach the port could call any Python object that the JVM holds, or have it
    removed. py4j has no setter for its client's token, so it is written to the field after PySpark
    has finished.
    """
    from py4j.java_gateway import JavaObject
    from pyspark.java_gateway import ensure_callback_server_started

    token = secrets.token_urlsafe(32)
    gateway.callback_server_parameters.auth_token = token
    ensure_callback_server_started(gateway)
    client = JavaObject("GATEWAY_SERVER", gateway._gateway_client).getCallbackClient()
    owner = gateway.jvm.java.lang.Class.forName("py4j.CallbackClient")
    field = owner.getDeclaredField("authToken")
    field.setAccessible(True)
    field.set(client, token)
    if field.get(client) != token:
        raise RuntimeError("the JVM's callback client does not store a token")


def start_spark(
    spec: DriverSpec, folder: DriverFolder, gateway: Any, references: References
) -> Any:
    """Return a Spark session, started in the JVM with the definition's configuration and ours.

    Our configuration takes precedence.
    """
    import pyspark
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    guard_callbacks(gateway)  # before any code of users'
    ours = _reserved(spec, folder, references) | _guarded_ui(spec, gateway.jvm)
    conf = SparkConf(loadDefaults=False)
    conf.setAll({**_DEFAULTS, **references.resolve_all(spec.conf), **ours}.items())
    if spec.master.startswith("local"):
        # Spark would copy each connector's jar for an executor that is this JVM, which already has
        # them: its class loader got them from spark-submit.
        gateway.jvm.java.lang.System.clearProperty("spark.jars")
    try:
        context = SparkContext(conf=conf, gateway=gateway)
        if not spec.master.startswith("local"):
            _ship_code(context, spec.code_roots, folder.own / TMP)
        catalogs.declare(
            gateway, spec.catalogs, roots_of(spec), references, folder.own / TMP / "catalogs"
        )
        return SparkSession(context)
    except Exception as error:
        if spec.master.startswith("spark://") and stopped_while_starting(str(error)):
            raise NotAccepted(
                f"The master {spec.master} did not accept this driver, whose Spark is "
                f"{pyspark.__version__}, within a minute."
            ) from None  # the cause says only that Spark is stopped
        raise


class NotAccepted(Exception):
    """A standalone cluster's master does not respond, or cannot parse this Spark's messages."""


#: After 3 attempts of 20 s each (StandaloneAppClient), another thread of Spark's stops the context
#: (StandaloneSchedulerBackend.dead; "All masters are unresponsive" is just in the log) while its
#: constructor goes on. What the constructor says depends on how far it gets: the check of a stopped
#: context, a part of its own that is null by now, or a metrics system or RPC that has ended.
_STOPPED = re.compile(
    r"Cannot call methods on a stopped SparkContext|SparkContext (was|has been) shut ?down"
    r'|the return value of "org\.apache\.spark\.(SparkContext|SparkEnv)\$?\.\w+\(\)" is null'
    r"|Spark context stopped while waiting for backend"
    r"|Can only call getServletHandlers on a running MetricsSystem"
    r"|RpcEnvStoppedException|RpcEnv already stopped|Could not find HeartbeatReceiver"
)


def stopped_while_starting(text: str) -> bool:
    """Return whether an error of SparkContext's constructor means that the context was stopped."""
    return _STOPPED.search(text) is not None


#: What SQL may call in Java through reflect(). With an empty list it may call anything, and read
#: the JVM's properties and environment (Spark: SQLConf, spark.sql.reflect.allowList). A sleep holds
#: up only its own query.
_REFLECT = r"java\.util\.UUID\.randomUUID,java\.lang\.Thread\.sleep"
#: Which classes a schema in a text or in a file may name (`from_json`, Parquet's metadata). Without
#: this, Spark makes an object of any class on its class path, also for authors of SQL alone; older
#: than 4.3, it ignores these keys (Spark: SQLConf, ALLOW_CREATING_UDT_FROM_STRING). A connector's
#: `conf` can list its own classes.
_BY_SCHEMA = {
    "spark.sql.udt.allowCreatingUDTFromString": "false",
    "spark.sql.udt.allowedDynamicUDTClasses": (
        "org.apache.spark.ml.linalg.VectorUDT,org.apache.spark.ml.linalg.MatrixUDT"
    ),
}


def _ship_code(context: Any, roots: tuple[str, ...], folder: Path) -> None:
    """Make Spark copy the code roots to every executor, which cannot see the driver's folders."""
    for index, root in enumerate(roots):
        archive = shutil.make_archive(str(folder / f"code-{index}"), "zip", root)
        context.addPyFile(archive)


def close_in_forked_children(gateway: Any, *descriptors: int) -> None:
    """Prevent forked children from keeping an orphaned JVM alive (trap 23).

    A child that inherits the JVM's standard input or the gateway's sockets keeps the JVM from
    noticing that its driver has died.
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
    descriptors = []
    for name in os.listdir("/proc/self/fd"):
        descriptor = int(name)
        try:
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            socket_copy = socket.socket(fileno=os.dup(descriptor))
        except OSError:
            continue
        with socket_copy:
            for address_of in (socket_copy.getsockname, socket_copy.getpeername):
                with contextlib.suppress(OSError):
                    address = address_of()
                    if isinstance(address, tuple) and address[1] in ports:
                        descriptors.append(descriptor)
                        break
    return descriptors


def _reserved(spec: DriverSpec, folder: DriverFolder, references: References) -> dict[str, str]:
    tmp = str(folder.own / TMP)
    conf = {
        "spark.app.name": spec.application,
        "spark.master": spec.master,
        "spark.scheduler.mode": spec.scheduler_mode,
        "spark.sql.warehouse.dir": spec.conf.get(
            "spark.sql.warehouse.dir", f"file://{tmp}/warehouse"
        ),
        "spark.ui.killEnabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Five times Spark's default, so that events missing from a fast query are still in memory
        # when looked for.
        "spark.sql.streaming.numRecentProgressUpdates": "500",
        "spark.sql.streaming.stopTimeout": f"{int(spec.stop_timeout_s * 1000)}ms",
        "spark.sql.streaming.stopActiveRunOnRestart": "false",  # one live run, or a refusal
        "spark.submit.deployMode": "client",
        "spark.sql.reflect.allowList": _REFLECT,
        **{name: spec.conf.get(name, value) for name, value in _BY_SCHEMA.items()},
        **catalogs.spark_conf(spec.catalogs),
        **packages.worker_conf(spec.packages, spec.master, references.resolve_all(spec.conf)),
    }
    if spec.master != "yarn":
        # A path without a scheme is local, as allowed paths assume, whatever Hadoop's own
        # configuration says. On YARN, Spark stores its own files where that configuration says.
        conf["spark.hadoop.fs.defaultFS"] = "file:///"
    if makes_its_secret(spec.master):
        conf["spark.authenticate"] = "true"
    pools = folder.control / POOLS
    if spec.scheduler_mode == "FAIR" and pools.exists() and pools.read_text().strip():
        conf["spark.scheduler.allocation.file"] = pools.as_uri()
    named = os.environ.get(pods.ADDRESS, "")
    if on_loopback(spec.master):
        conf["spark.driver.host"] = conf["spark.driver.bindAddress"] = _LOOPBACK
    elif spec.master.startswith(MASTER):
        conf |= pods.executor_conf(spec, pods.own_address(spec.master, named))
    elif named:
        conf["spark.driver.host"] = conf["spark.driver.bindAddress"] = named
    # Spark masks anything that matches these in its UI and plans, including values of the JVM's
    # properties.
    names = [name.replace(".", "[.]") for name in references.named_by(spec.conf)]
    conf["spark.redaction.regex"] = "|".join([f"(?i){NAME}", *names, f"(?-i:{VALUE})"])
    conf["spark.redaction.string.regex"] = VALUE
    return conf


def _guarded_ui(spec: DriverSpec, jvm: Any) -> dict[str, str]:
    """Return the UI's port, and the settings that make the UI require a signature with our key.

    The UI is off if no class can check signatures.
    """
    checked_by = _ui_filter(jvm) if spec.ui_key else ""
    if spec.ui_key and not checked_by and not spec.probe:
        logger.warning(
            "the driver's Spark UI is off: without Headgate's Java classes, nothing checks "
            "requests to it"
        )
    if spec.probe or spec.pod or (spec.ui_key and not checked_by):  # nobody could open it
        return {"spark.ui.enabled": "false"}
    port = spec.ui_port
    if port and not _is_free(port):  # Spark would use the next port, or end the driver
        logger.warning("port %s is in use, so Headgate cannot show this driver's Spark UI", port)
        port = 0
    conf = {"spark.ui.enabled": "true", "spark.ui.port": str(port)}
    if checked_by:
        secret = base64.urlsafe_b64encode(bytes.fromhex(spec.ui_key)).decode()
        conf |= {
            "spark.ui.filters": checked_by,
            f"spark.{checked_by}.param.secretKey": secret,
            f"spark.{checked_by}.param.requireExpiration": "true",
        }
    return conf


def _ui_filter(jvm: Any) -> str:
    """Return the class that checks signatures; "" if the JVM has none.

    It is loaded as the UI's server loads it: by the thread's class loader, to which spark-submit
    has added our jar.
    """
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    for name in _UI_FILTERS:
        with contextlib.suppress(Py4JJavaError):
            loader.loadClass(name)
            return name
    return ""


def _is_free(port: int) -> bool:
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((_LOOPBACK, port))
        except OSError:
            return False
    return True


def makes_its_secret(master: str) -> bool:
    """Return whether Spark itself creates the secret for an application's ports (SecurityManager).

    A standalone cluster has one secret for all its applications, and its admin would have to give
    it to each of them.
    """
    return master.startswith(("local", "yarn", "k8s:"))


LONGEST_S = 120
_FOLDER = "warm-up"
#: Each file is a batch: the second one reads the state of the first, as after a takeover.
_FILES, _ROWS = 4, 50


def warm_up(spark: Any, tmp: Path) -> None:
    """Run batches of JSON rows through a window and a state store, and delete their files.

    Raises the query's own error if a batch fails.
    """
    from pyspark.sql import functions as F

    session, folder = spark.newSession(), tmp / _FOLDER
    rows = folder / "rows"
    rows.mkdir(parents=True, exist_ok=True)
    for number in range(_FILES):
        lines = (f'{{"at": "2026-01-01T0{number}:{n:02}:00", "n": {n}}}\n' for n in range(_ROWS))
        (rows / f"{number}.json").write_text("".join(lines))
    source = session.readStream.schema("at TIMESTAMP, n BIGINT").option("maxFilesPerTrigger", 1)
    counts = (
        source.json(rows.as_uri())
        .withWatermark("at", "1 minute")
        .groupBy(F.window("at", "5 minutes"), (F.col("n") % 3).alias("key"))
        .agg(F.count("*").alias("rows"), F.avg("n").alias("mean"), F.max("n").alias("most"))
    )
    writer = counts.writeStream.format("noop").outputMode("update").trigger(availableNow=True)
    query = writer.option("checkpointLocation", (folder / "checkpoint").as_uri()).start()
    try:
        query.awaitTermination(LONGEST_S)
    finally:
        query.stop()
        shutil.rmtree(folder, ignore_errors=True)
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
