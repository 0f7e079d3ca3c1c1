"""Compile our few Java classes with the compiler that Spark brings (Janino): no JDK is needed.

The sources are next to this module. Janino does not support type inference or try-with-resources;
results of generic methods must be cast.

Each Spark version has a jar of its own, compiled with that version's jars. Functions take the
folder of these jars; by default, that of the PySpark of this process.

A wheel and a container image have the jar for Headgate's own Spark next to the sources; a checkout
compiles it below `HEADGATE_HOME` when it is set up. The jar for another version is compiled there
when a driver first needs it. Checkpoints that are not local depend on these classes (the watch
over owner objects, and the file manager on S3), so no run on one starts without them. A missing jar
is compiled by one process of a host: the others wait for it.

    python -m queries.jvm.compiled FOLDER    compile the jar into a folder, for a wheel or an image
"""

import contextlib
import hashlib
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterator
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path

from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import Py4JError, Py4JJavaError

from headgate_ground.files import lock_of, take_lock

logger = logging.getLogger(__name__)

SOURCES = Path(__file__).parent
_PYSPARK = find_spec("pyspark")  # found and not imported, which would take 8 MB
assert _PYSPARK is not None
assert _PYSPARK.origin is not None
SPARK_JARS = Path(_PYSPARK.origin).parent / "jars"
#: Seconds for Java to start and compile, which takes one on a quiet machine and minutes on a busy
#: one. A Java that fails ends by itself, so this only ends one that hangs.
COMPILE_LIMIT_S = 600
#: Seconds to wait for another process that is compiling: its limit, and what ending it takes.
WAIT_LIMIT_S = COMPILE_LIMIT_S + 15
#: Seconds between looks whether that process is done.
_LOOK_S = 0.1
#: Seconds for a JVM whose connection broke to be gone, so that its end can be reported.
_EXIT_WITHIN_S = 2
#: Seconds after a failure in which it is reported again instead of starting another JVM.
RETRY_S = 30
_BUILDING = ".building-"
_OPTIONS = ["-Xmx160m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
#: What `missing` returns while the jar is neither there nor known to be impossible.
COMPILING = "they are still being compiled"

#: Sources for some versions of Spark only: it has no filter of its own before 4.0.
_ONLY_FOR = {"UiFilter.java": ("3.5.",)}
#: What the sources name that older versions lack or have elsewhere (versions, name, name there).
#: Source: the versions' spark-sql jars.
_DIFFERS = (
    (("3.5.", "4.0."), "execution.streaming.checkpointing.", "execution.streaming."),
    (("3.5.", "4.0."), "plain.close();", ""),
)
_CORE = re.compile(r"spark-core_[\d.]+-(.+)\.jar")

_failed: dict[Path, tuple[float, str]] = {}  # jar -> monotonic time of the failure, and why
_at_work: dict[Path, threading.Thread] = {}  # jar -> the thread of this process that compiles it
_guard = threading.Lock()


class NotCompiled(Exception):
    """Our classes could not be compiled; the message is a sentence."""


def existing(folder: Path, jars: Path = SPARK_JARS) -> Path | None:
    """Return the jar of our classes for a PySpark: the shipped one, or one below `folder`."""
    name = jar_name(jars)
    return next((jar for jar in (SOURCES / name, folder / name) if jar.exists()), None)


def missing(folder: Path, jars: Path = SPARK_JARS) -> str:
    """Return why there is no jar (part of a sentence); "" if there is one."""
    if existing(folder, jars) is not None:
        return ""
    _, why = _failed.get(folder / jar_name(jars), (0.0, COMPILING))
    return why.rstrip(".")


def compile_failed(folder: Path, jars: Path = SPARK_JARS) -> bool:
    """Return whether this process has failed to compile the jar, and it is still missing."""
    return folder / jar_name(jars) in _failed and existing(folder, jars) is None


def is_compiling(folder: Path, jars: Path = SPARK_JARS) -> bool:
    """Return whether a thread of this process compiles the jar, or waits for who does."""
    return folder / jar_name(jars) in _at_work


def begin(folder: Path, jars: Path = SPARK_JARS) -> None:
    """Compile the jar in a thread if it is missing, unless that has just failed or is in progress.

    `missing` shows how it ended.
    """
    jar = folder / jar_name(jars)
    with _guard:
        if jar in _at_work or existing(folder, jars) is not None or _failed_lately(jar):
            return
        thread = threading.Thread(
            target=_try, args=(folder, jars), name="java classes", daemon=True
        )
        thread.start()  # before it is noted: a host without room for a thread raises here
        _at_work[jar] = thread


def wait(timeout_s: float) -> None:
    """Wait until this process compiles nothing, at most `timeout_s`."""
    with _guard:
        threads = list(_at_work.values())
    for thread in threads:
        thread.join(timeout_s)


def our_jar(folder: Path, java_home: str = "", jars: Path = SPARK_JARS) -> Path:
    """Return the jar with our classes for a PySpark; compile it below `folder` if it is missing.

    `java_home` is where Java is; "" for `JAVA_HOME` or `PATH`. Every account can read the jar,
    because drivers load it. While another process compiles it, this waits up to `WAIT_LIMIT_S`.
    Raises `NotCompiled` if there is no Java, if it fails, or if it has failed within the last
    `RETRY_S`.
    """
    if (jar := existing(folder, jars)) is not None:
        return jar
    target = folder / jar_name(jars)
    if why := _failed_lately(target):
        raise NotCompiled(why)
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        folder.chmod(0o755)
        with _alone(target):
            if not target.exists():  # nobody has compiled it in the meantime
                _build(target, java_home, jars)
    except OSError as error:
        problem = f"Headgate's Java classes cannot be written to {folder}: {error}."
        _failed[target] = time.monotonic(), problem
        raise NotCompiled(problem) from error
    except NotCompiled as error:
        _failed[target] = time.monotonic(), str(error)
        raise
    _failed.pop(target, None)
    return target


def _try(folder: Path, jars: Path) -> None:
    """Compile the jar; a failure is noted, and the next request tries again."""
    try:
        our_jar(folder, jars=jars)
    except NotCompiled as error:
        logger.warning("%s", error)
    except Exception as error:  # thread boundary: local checkpoints wait only for a known failure
        logger.exception("our Java classes could not be compiled")
        problem = f"An error in Headgate: {type(error).__name__}."
        _failed[folder / jar_name(jars)] = time.monotonic(), problem
    finally:
        with _guard:
            _at_work.pop(folder / jar_name(jars), None)


def _failed_lately(jar: Path) -> str:
    at, why = _failed.get(jar, (0.0, ""))
    return why if why and time.monotonic() - at < RETRY_S else ""


def jar_name(jars: Path = SPARK_JARS) -> str:
    """Return the jar's file name, which changes with our sources and with the PySpark."""
    return _jar_name(_spark_version(jars))


@cache
def _jar_name(spark: str) -> str:
    texts = [text.encode() for _, text in sorted(_sources(spark).items())]
    return f"headgate-{hashlib.sha256(b''.join(texts) + spark.encode()).hexdigest()[:16]}.jar"


def _spark_version(jars: Path) -> str:
    """Return the Spark version whose jars are in a folder; "" if there is none."""
    try:
        return _version_in(jars, jars.stat().st_mtime_ns)
    except FileNotFoundError:
        return ""


@lru_cache(maxsize=16)
def _version_in(jars: Path, _: int) -> str:
    """Read the folder once for as long as its time stays the same: every tick asks."""
    names = (_CORE.fullmatch(path.name) for path in jars.glob("spark-core_*.jar"))
    return next((name[1] for name in names if name), "")


def _sources(spark: str) -> dict[str, str]:
    """Return the sources for a version of Spark, by file name."""
    found = {}
    for path in SOURCES.glob("*.java"):
        if not spark.startswith(_ONLY_FOR.get(path.name, "")):
            continue
        text = path.read_text()
        for versions, name, former in _DIFFERS:
            if spark.startswith(versions):
                text = text.replace(name, former)
        found[path.name] = text
    return found


@contextlib.contextmanager
def _alone(target: Path) -> Iterator[None]:
    """Hold the lock of those who compile a jar; raise `NotCompiled` after `WAIT_LIMIT_S`."""
    ends = time.monotonic() + WAIT_LIMIT_S
    while (lock := take_lock(lock_of(target))) is None:
        if time.monotonic() > ends:
            raise NotCompiled(
                "Another process has been compiling Headgate's Java classes for "
                f"{WAIT_LIMIT_S} s, and is not done."
            )
        time.sleep(_LOOK_S)
    try:
        yield
    finally:
        os.close(lock)


def _build(target: Path, java_home: str, jars: Path) -> None:
    """Compile the jar; call this with its lock held."""
    prefix = f"{_BUILDING}{target.stem}-"
    for left in target.parent.glob(f"{prefix}*"):  # of a process that was killed
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=target.parent) as building:
        sources = []
        for name, text in _sources(_spark_version(jars)).items():
            sources.append(Path(building) / name)
            sources[-1].write_text(text)
        _compile(sources, Path(building), java_home, jars)
        draft = _packed(Path(building))
        draft.chmod(0o644)
        draft.rename(target)


def java(home: str = "") -> str:
    """Return the path of Java in a home, or else in JAVA_HOME or PATH.

    Raises `NotCompiled` if there is none.
    """
    home = home or os.environ.get("JAVA_HOME", "")
    path = Path(home) / "bin" / "java" if home else shutil.which("java")
    if not path:
        raise NotCompiled("There is no Java in JAVA_HOME or PATH.")
    return str(path)


def _compile(sources: list[Path], target: Path, java_home: str, jars: Path) -> None:
    own = next(jars.glob("py4j-*.jar"), None)
    if own is None:
        raise NotCompiled(f"{jars} contains no Spark.")
    server = ("py4j.GatewayServer", "--die-on-broken-pipe", "--enable-auth", "0")
    try:
        process = subprocess.Popen(
            [java(java_home), *_OPTIONS, "-classpath", f"{own}:{jars}/*", *server],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except OSError as error:
        raise NotCompiled(f"Java cannot be started: {error.strerror}.") from error
    assert process.stdin is not None
    assert process.stdout is not None
    limit = threading.Timer(COMPILE_LIMIT_S, process.kill)
    limit.start()
    try:
        port, token = int(process.stdout.readline()), process.stdout.readline().decode().strip()
        jvm = GatewayParameters(port=port, auth_token=token)
        _compile_in(process, jvm, sources, target)
    except ValueError as error:
        raise NotCompiled(f"Java does not start within {COMPILE_LIMIT_S} s, or fails.") from error
    finally:
        limit.cancel()
        process.kill()  # it has nothing left to do
        process.wait(COMPILE_LIMIT_S)
        process.stdin.close()
        process.stdout.close()


def _compile_in(
    process: "subprocess.Popen[bytes]", jvm: GatewayParameters, sources: list[Path], target: Path
) -> None:
    gateway = JavaGateway(gateway_parameters=jvm)
    try:
        compiler = gateway.jvm.org.codehaus.janino.Compiler()
        compiler.setDestinationDirectory(gateway.jvm.java.io.File(str(target)), False)
        files = gateway.new_array(gateway.jvm.java.io.File, len(sources))
        for index, path in enumerate(sources):
            files[index] = gateway.jvm.java.io.File(str(path))
        compiler.compile(files)
    except Py4JJavaError as error:
        problem = str(error.java_exception.getMessage()).splitlines()[0]
        raise NotCompiled(f"Headgate's Java classes cannot be compiled: {problem}") from error
    except Py4JError as error:
        problem = without_answer(error, process)
        raise NotCompiled(f"Headgate's Java classes cannot be compiled: {problem}.") from error
    finally:
        gateway.shutdown()


def without_answer(error: Exception, process: "subprocess.Popen[bytes]") -> str:
    """Return why a py4j call got no response; py4j's own messages are meant for its developers."""
    with contextlib.suppress(subprocess.TimeoutExpired):  # one that was killed is gone in a moment
        process.wait(_EXIT_WITHIN_S)
    if (code := process.poll()) is not None:
        end = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        return f"its JVM ended {end}"
    if isinstance(error, TimeoutError) or isinstance(getattr(error, "cause", None), TimeoutError):
        return "its JVM did not answer in time"
    return "its JVM gave an answer that cannot be read"


def _packed(folder: Path) -> Path:
    """Return a jar of the class files in a folder, the same for the same classes."""
    draft = folder / "classes.jar"
    with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(folder.rglob("*.class")):
            packed.writestr(zipfile.ZipInfo(str(path.relative_to(folder))), path.read_bytes())
    return draft


def main(arguments: list[str]) -> int:
    """Compile the jar into a folder; print its path, or why there is none."""
    try:
        sys.stdout.write(f"{our_jar(Path(arguments[0]))}\n")
    except NotCompiled as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
