"""Compile our few Java classes with the compiler that Spark brings (Janino): no JDK is needed.

The sources stand next to this module. Janino knows no type inference and no try-with-resources;
what it gets from a generic method must be cast.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
import threading
import zipfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import Py4JError, Py4JJavaError

SOURCES = Path(__file__).parent
_PYSPARK = find_spec("pyspark")  # found and not imported, which would take 8 MB
assert _PYSPARK is not None
assert _PYSPARK.origin is not None
SPARK_JARS = Path(_PYSPARK.origin).parent / "jars"
#: Seconds for Java to start and compile; on a quiet machine it takes one.
COMPILE_LIMIT_S = 60
_OPTIONS = ["-Xmx160m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]


class NotCompiled(Exception):
    """Our classes could not be compiled; the message is a sentence."""


def our_jar(folder: Path) -> Path:
    """Return the jar of our classes for this PySpark, below `folder`; compile it if it is missing.

    Every account can read the jar, because drivers load it. Raises `NotCompiled` if there is no
    Java, or if it fails.
    """
    sources = sorted(SOURCES.glob("*.java"))
    text = b"".join(path.read_bytes() for path in sources) + version("pyspark").encode()
    target = folder / f"headgate-{hashlib.sha256(text).hexdigest()[:16]}.jar"
    if target.exists():
        return target
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        folder.chmod(0o755)
        with tempfile.TemporaryDirectory(prefix=".building-", dir=folder) as building:
            _compile(sources, Path(building))
            draft = _packed(Path(building))
            draft.chmod(0o644)
            draft.rename(target)
    except OSError as error:
        raise NotCompiled(f"Headgate's Java classes cannot be written to {folder}: {error}.") from (
            error
        )
    return target


def java() -> str:
    """Return the path of Java in JAVA_HOME or PATH; raise `NotCompiled` if there is none."""
    home = os.environ.get("JAVA_HOME", "")
    found = Path(home) / "bin" / "java" if home else shutil.which("java")
    if not found:
        raise NotCompiled("There is no Java in JAVA_HOME or PATH.")
    return str(found)


def _compile(sources: list[Path], target: Path) -> None:
    [own] = SPARK_JARS.glob("py4j-*.jar")
    server = ("py4j.GatewayServer", "--die-on-broken-pipe", "--enable-auth", "0")
    try:
        process = subprocess.Popen(
            [java(), *_OPTIONS, "-classpath", f"{own}:{SPARK_JARS}/*", *server],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except OSError as error:
        raise NotCompiled(f"Java cannot be started: {error}") from error
    assert process.stdin is not None
    assert process.stdout is not None
    limit = threading.Timer(COMPILE_LIMIT_S, process.kill)
    limit.start()
    try:
        port, token = int(process.stdout.readline()), process.stdout.readline().decode().strip()
        _compile_in(GatewayParameters(port=port, auth_token=token), sources, target)
    except ValueError as error:
        raise NotCompiled(f"Java does not start within {COMPILE_LIMIT_S} s, or fails.") from error
    finally:
        limit.cancel()
        process.kill()  # it has nothing left to do
        process.wait(COMPILE_LIMIT_S)
        process.stdin.close()
        process.stdout.close()


def _compile_in(jvm: GatewayParameters, sources: list[Path], target: Path) -> None:
    gateway = JavaGateway(gateway_parameters=jvm)
    try:
        compiler = gateway.jvm.org.codehaus.janino.Compiler()
        compiler.setDestinationDirectory(gateway.jvm.java.io.File(str(target)), False)
        files = gateway.new_array(gateway.jvm.java.io.File, len(sources))
        for place, path in enumerate(sources):
            files[place] = gateway.jvm.java.io.File(str(path))
        compiler.compile(files)
    except Py4JJavaError as error:
        said = str(error.java_exception.getMessage()).splitlines()[0]
        raise NotCompiled(f"Headgate's Java classes cannot be compiled: {said}") from error
    except Py4JError as error:
        raise NotCompiled(f"Headgate's Java classes cannot be compiled: {error}") from error
    finally:
        gateway.shutdown()


def _packed(folder: Path) -> Path:
    """Return a jar of the class files in a folder, the same for the same classes."""
    draft = folder / "classes.jar"
    with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(folder.rglob("*.class")):
            packed.writestr(zipfile.ZipInfo(str(path.relative_to(folder))), path.read_bytes())
    return draft
