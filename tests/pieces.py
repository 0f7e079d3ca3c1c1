"""The real pieces that marked tests need: where they are, how to get them, how to start them."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
import pyspark
import redis

from controlplane.home import StartProblem
from headgate_server.kubernetes import missing_to_run
from installation.machine import java as javas
from installation.machine import valkey
from queries.domain.sparks import (
    FEATURES_SINCE,
    OURS,
    SPARKS,
    Feature,
    Spark,
    command,
    has_feature,
)
from queries.launchers.process.isolation import bubblewrap

START_LIMIT_S = 60

_CHROMIUM_SWITCHES = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@cache
def missing_browser() -> str:
    """Return why no browser can be driven, "" where one can."""
    if _chromium() is None:
        return "there is no Chromium; get it with `sudo apt-get install chromium`"
    return ""


_REPOSITORY = Path(__file__).resolve().parent.parent
#: Where the tests' identity provider is, a program for Node.
IDENTITY_PROVIDER = _REPOSITORY / "tests" / "oidc"
#: Where the SQL editor of the console is built.
EDITOR = _REPOSITORY / "bootstrap" / "editor"


@cache
def missing_identity_provider() -> str:
    """Return why no identity provider can be started, "" where one can."""
    return _missing_of_npm("oidc-provider", IDENTITY_PROVIDER)


@cache
def missing_editor_build() -> str:
    """Return why the SQL editor cannot be built, "" where it can."""
    return _missing_of_npm("esbuild-wasm", EDITOR)


def _missing_of_npm(package: str, folder: Path) -> str:
    where = folder.relative_to(_REPOSITORY)
    get = f"`sudo apt-get install nodejs npm`, then `npm ci --ignore-scripts --prefix {where}`"
    if shutil.which("node") is None:
        return f"there is no Node; get it with {get}"
    if not (folder / "node_modules" / package).is_dir():
        return f"{package} is not installed; get it with {get}"
    return ""


@cache
def missing_postgres() -> str:
    """Return why no PostgreSQL can be started, "" where one can."""
    if _postgres_folder() is None:
        return "there is no PostgreSQL server; get it with `sudo apt-get install postgresql`"
    return ""


@cache
def missing_prometheus() -> str:
    """Return why no Prometheus can be started, "" where one can."""
    if shutil.which("prometheus") and shutil.which("promtool"):
        return ""
    return "there is no Prometheus; get it with `sudo apt-get install prometheus`"


@cache
def missing_walls() -> str:
    """Return why bubblewrap cannot be used, "" where it can: its namespaces, and no more."""
    if shutil.which(bubblewrap.PROGRAM) is None:
        return "there is no bubblewrap; get it with `sudo apt-get install bubblewrap`"
    command = (bubblewrap.PROGRAM, *bubblewrap.NAMESPACES, "--ro-bind", "/", "/")
    tried = subprocess.run(
        [*command, "--proc", "/proc", "true"],
        capture_output=True,
        text=True,
        timeout=START_LIMIT_S,
        check=False,
    )
    if tried.returncode:
        return f"{tried.stderr.strip()}; docs/isolation.md lists what isolation needs"
    return ""


def prometheus() -> str:
    """Return the program, which is there where `missing_prometheus` finds nothing."""
    return shutil.which("prometheus") or "prometheus"


def promtool() -> str:
    """Return the program that checks rules, which comes with Prometheus."""
    return shutil.which("promtool") or "promtool"


@cache
def missing_redis() -> str:
    """Return why no Redis can be started, "" where one can."""
    try:
        valkey.server()
    except StartProblem as trouble:
        return str(trouble)
    return ""


@cache
def missing_kafka() -> str:
    """Return why no Kafka broker can be started, or not be read by Spark; "" where all is there."""
    missing = [
        what
        for what, jars in (("broker", kafka_jars()), ("connector", kafka_connector()))
        if not any(jars.glob("*.jar"))
    ]
    if missing:
        return (
            f"the jars of the {' and the '.join(missing)} are missing; get them with `make kafka`"
        )
    return missing_java()


def kafka_jars() -> Path:
    """Return the folder of the trial broker's jars."""
    return _installed("kafka/jars")


def kafka_connector() -> Path:
    """Return the folder of the Kafka connector's jars."""
    return _installed("connectors/kafka")


def avro_jar() -> Path | None:
    """Return the connector avro's jar for the Spark under test; None where it is not installed."""
    return next(map(Path, connector_jars("avro", spark_version())), None)


@cache
def missing_s3() -> str:
    """Return why no S3 gateway can be started, or not be used by Spark; "" where all is there."""
    missing = [
        what
        for what, found in (
            ("S3 gateway", versitygw().exists()),
            ("connector s3", any(s3_connector(spark_version()).glob("*.jar"))),
        )
        if not found
    ]
    if missing:
        return f"the {' and the '.join(missing)} are missing; get them with `make s3`"
    return missing_java()


@cache
def missing_hdfs() -> str:
    """Return why no HDFS can be started, "" where one can."""
    if not all(any((hadoop() / part).glob("*")) for part in ("jars", "classes")):
        return "the jars and classes of Hadoop are missing; get them with `make hadoop`"
    return missing_java()


@cache
def missing_kubernetes() -> str:
    """Return why no Kubernetes cluster can be started, "" where one can."""
    built = kubernetes()
    if not all((built / part).exists() for part in ("bin/kubernetes", "images/spark.tar")):
        return "Kubernetes is not built; get it with `make kubernetes ARGS=--jars`"
    return " ".join(missing_to_run())


def kubernetes() -> Path:
    """Return the folder with the `bin` and `images` of Kubernetes."""
    return _installed("kubernetes/bin", "kubernetes").parent


def versitygw() -> Path:
    """Return the program of the S3 gateway."""
    return _installed("s3/bin", "versitygw") / "versitygw"


def s3_connector(version: Spark = OURS) -> Path:
    """Return the folder of the connector s3's jars for a version of Spark."""
    return _installed("connectors/s3" if version == OURS else f"connectors/{version}/s3")


def hadoop() -> Path:
    """Return the folder with the `jars` and `classes` of HDFS and YARN."""
    return _installed("hadoop/classes", "*.class").parent


@cache
def missing_rest_catalog() -> str:
    """Return why no REST catalog can be started, "" where one can."""
    if not all(any((rest_catalog() / part).glob("*")) for part in ("jars", "classes")):
        return "the trial REST catalog is missing; get it with `make rest-catalog`"
    return missing_java()


def rest_catalog() -> Path:
    """Return the folder with the `jars` and `classes` of Iceberg's REST catalog."""
    return _installed("rest-catalog/classes", "*.class").parent


def spark_version() -> Spark:
    """Return the version of Spark under test; HEADGATE_TEST_SPARK names another than ours."""
    named = os.environ.get("HEADGATE_TEST_SPARK", OURS)
    return next(version for version in SPARKS if version == named)


def lacking(feature: Feature) -> str:
    """Return that the Spark under test lacks a feature, and which has it; "" if it has it."""
    if has_feature(version := spark_version(), feature):
        return ""
    return f"Spark {version} lacks {feature}, which {FEATURES_SINCE[feature]} and newer have"


def spark() -> str:
    """Return the folder of the Spark under test, "" for ours."""
    if (version := spark_version()) == OURS:
        return ""
    found = spark_folder(version)
    assert found, f"get it with `{command(version)}`"
    return found


@cache
def missing_connector(name: str, version: Spark = OURS) -> str:
    """Return why a connector of a Spark cannot be used, "" where both are there."""
    missing = [f"`{command(version)}`"] if version != OURS and not spark_folder(version) else []
    if not connector_jars(name, version):
        arguments = name if version == OURS else f'"{name} --spark {version}"'
        missing.append(f"`make connector ARGS={arguments}`")
    if missing:
        return f"there is no {name} for Spark {version}; get it with {' and '.join(missing)}"
    return missing_java()


def connector_jars(name: str, version: Spark = OURS) -> tuple[str, ...]:
    """Return the jars of a connector for a version of Spark; none where it is not installed."""
    folder = f"connectors/{name}" if version == OURS else f"connectors/{version}/{name}"
    return tuple(map(str, sorted(_installed(folder).glob("*.jar"))))


def spark_folder(version: Spark) -> str:
    """Return the folder of another version of Spark, "" where it is not installed."""
    found = _installed(f"sparks/{version}", "pyspark")
    return str(found) if (found / "pyspark").is_dir() else ""


def sparks_folder() -> Path:
    """Return the folder that holds the other versions of Spark, as far as they are installed."""
    return _installed("sparks", "*/pyspark")


def jars_of_sparks() -> dict[Spark, Path]:
    """Return the folder of the jars of each version that is installed; ours is among them."""
    ours = Path(pyspark.__file__).parent / "jars"
    folders = {spark: sparks_folder() / spark / "pyspark" / "jars" for spark in SPARKS}
    return {
        spark: folder
        for spark, folder in (folders | {OURS: ours}).items()
        if any(folder.glob("*.jar"))
    }


def spark_jars() -> Path:
    """Return the folder of the jars of the Spark under test."""
    return jars_of_sparks()[spark_version()]


def of_spark() -> dict[str, str]:
    """Return the variables with which a Python of the tests' own imports the Spark under test."""
    if not (folder := spark()):
        return {}
    path = [folder, *filter(None, [os.environ.get("PYTHONPATH", "")])]
    return {"PYTHONPATH": os.pathsep.join(path), "SPARK_HOME": f"{folder}/pyspark"}


def _installed(folder: str, what: str = "*.jar") -> Path:
    """Return a folder of HEADGATE_HOME's where it holds jars, else the one of `make kafka`."""
    usual = Path(__file__).resolve().parent.parent / "var" / folder
    own = Path(os.environ.get("HEADGATE_HOME") or usual.parents[len(Path(folder).parts) - 1])
    return own / folder if any((own / folder).glob(what)) else usual


@cache
def missing_java() -> str:
    """Return why no Spark can be started, "" where one can."""
    try:
        java()
    except StartProblem as trouble:
        return str(trouble)
    return ""


@cache
def java() -> javas.Java:
    """Return the Java that drivers run on; raises `Trouble` where there is none."""
    return javas.choose(Path(tempfile.gettempdir()) / f"headgate-tests-java-{os.getuid()}")


def chromium_arguments() -> dict[str, Any]:
    """Return Playwright's launch arguments for the machine's own Chromium."""
    found = _chromium()
    return {"executable_path": found, "args": _CHROMIUM_SWITCHES} if found else {}


@contextmanager
def redis_server() -> Iterator[str]:
    """Run a Redis with nothing in it, and yield its address."""
    server, _ = valkey.server()
    port = free_port()
    url = f"redis://127.0.0.1:{port}/0"
    with tempfile.TemporaryDirectory(prefix="headgate-redis-") as folder:
        process = subprocess.Popen(
            [str(server), "--port", str(port), "--bind", "127.0.0.1", "--dir", folder]
            + ["--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            with redis.Redis.from_url(url, socket_timeout=5) as client:
                _until(client.ping, redis.RedisError)
            yield url
        finally:
            process.terminate()
            process.wait(START_LIMIT_S)


@contextmanager
def postgres_server() -> Iterator[str]:
    """Run a PostgreSQL cluster of its own, and yield the address of a database in it."""
    binaries = _postgres_folder()
    assert binaries is not None
    # The server refuses to run as root; Debian's package brings an account for it.
    account: dict[str, Any] = {"user": "postgres"} if os.geteuid() == 0 else {}
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="headgate-postgres-") as folder:
        data = Path(folder) / "data"
        if account:
            shutil.chown(folder, "postgres")
        command = [str(binaries / "initdb"), "-D", str(data), "-U", "headgate", "-A", "trust"]
        subprocess.run(
            [*command, "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"],
            check=True,
            cwd="/",
            stdout=subprocess.DEVNULL,
            timeout=START_LIMIT_S,
            **account,
        )
        process = subprocess.Popen(
            [str(binaries / "postgres"), "-D", str(data), "-p", str(port), "-k", folder]
            + ["-c", "listen_addresses=127.0.0.1", "-c", "max_connections=200"]
            # What makes it durable costs time, and nobody needs these rows tomorrow.
            + ["-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off"]
            + ["-c", "autovacuum=off", "-c", "jit=off"],
            cwd="/",
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **account,
        )
        url = f"postgres://headgate@127.0.0.1:{port}/postgres"
        try:
            _until(lambda: psycopg.connect(url, connect_timeout=5).close(), psycopg.Error)
            yield url
        finally:
            process.send_signal(2)  # SIGINT: fast shutdown
            with suppress(subprocess.TimeoutExpired):
                process.wait(START_LIMIT_S)
            process.kill()
            process.wait()


def free_port() -> int:
    """Return a port of 127.0.0.1 that was free a moment ago, with the next one, for Spark UIs."""
    for _ in range(100):
        with socket.socket() as trial, socket.socket() as following:
            trial.bind(("127.0.0.1", 0))
            port: int = trial.getsockname()[1]
            with suppress(OSError, OverflowError):
                following.bind(("127.0.0.1", port + 1))
                return port
    raise AssertionError("no two ports in a row are free")


def _until(attempt: Any, error: type[Exception]) -> None:
    """Try until it succeeds; after the limit let the error out."""
    deadline = time.monotonic() + START_LIMIT_S
    while True:
        try:
            attempt()
        except error:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


def _chromium() -> str | None:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := os.environ.get("HEADGATE_CHROMIUM") or shutil.which(name):
            return found
    return None


def _postgres_folder() -> Path | None:
    if found := shutil.which("initdb"):
        return Path(found).parent
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return folders[-1] if folders else None
