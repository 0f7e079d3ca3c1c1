"""Archives of Spark's classes, which the drivers' JVMs map instead of loading the classes.

An archive (application class-data sharing, JEP 350) belongs to one Java build and one class path.
So its name is a digest of both, and a change of either leads to a different name. It contains only
classes from Spark's own jars: connector jars are loaded by one of Spark's class loaders, and are
not part of the class path.
"""

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from headgate_ground.tolerant import whole
from headgate_server import places
from queries.jvm.compiled import SPARK_JARS
from queries.launchers.base import NotMade
from queries.launchers.process import environment

#: Folder of the archives, next to the drivers' folder.
FOLDER = "classes"
#: Variable that names the archive for a driver, and for the shim that starts it.
VARIABLE = environment.CLASS_ARCHIVE
#: Java's archive of its own classes, to which others add theirs.
_BASE = "lib/server/classes.jsa"
#: Ending of the file with an archive's size.
SIZE = ".size"
#: What `prune` removes: sizes before their archives.
_MADE = ("*.size", "*.jsa", "*.draft", ".training-*")
#: Increased when the training runs other code, so that archives are made again.
TRAINING = 1
#: Seconds that Java may take to print its version.
_VERSION_WITHIN_S = 120
#: Seconds that the training and writing the archive may take; on two quiet cores it is 40. It gets
#: what nothing else needs, so on a busy host it takes as long as that lasts.
MADE_WITHIN_S = 3600
#: Seconds for the training to end after SIGTERM.
_ENDS_WITHIN_S = 10


class HostArchives:
    """The archives of one host's folder, for drivers that get this process's environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, spark: str) -> Path:
        """Return the archive for a Spark, which may not exist. Raises `NotMade`."""
        return archive(self.folder, environment.passed(os.environ, ()), spark)

    def is_whole(self, path: Path) -> bool:
        """Return whether an archive exists with its original size."""
        return is_whole(path)

    def make(self, target: Path, spark: str, leaving: Callable[[float], bool]) -> None:
        """Make an archive in a process of low priority; see `make`."""
        make(target, environment.passed(os.environ, ()), spark, leaving)

    def prune(self, wanted: Iterable[Path], *, before: float) -> None:
        """Remove archives that are not wanted; see `prune`."""
        prune(self.folder, wanted, before=before)


def beside(drivers: Path) -> Path:
    """Return the folder of archives for a folder of drivers."""
    return drivers.parent / FOLDER


def archive(folder: Path, environ: Mapping[str, str], spark: str = "") -> Path:
    """Return the archive for a driver; the file may not exist.

    `environ` is the launcher's environment, as far as drivers may see it, and `spark` is the folder
    of another version of PySpark, as in a driver's spec. Raises `NotMade` if there is no Java or no
    Spark, or if this Java cannot archive classes.
    """
    java = environment.java(environ)
    if java is None:
        raise NotMade("There is no Java in JAVA_HOME or PATH.")
    jar_folder = jars(environ, spark)
    options = environ.get("JDK_JAVA_OPTIONS", "")
    try:
        java_home, build, _ = _build(java, _state(Path(os.path.realpath(java))))
        if not (java_home / _BASE).exists():
            raise NotMade(f"{java_home} has no archive of Java's own classes ({_BASE}).")
        # Java refuses an archive if its own classes or a jar have another size or time.
        parts = [
            str(TRAINING),
            build,
            options,
            str(jar_folder),
            _state(java_home / "lib" / "modules"),
        ]
        parts += sorted(f"{jar.name} {_state(jar)}" for jar in jar_folder.glob("*.jar"))
    except OSError as error:
        raise NotMade(f"Java or Spark cannot be read: {error}.") from error
    return folder / f"{hashlib.sha256(chr(10).join(parts).encode()).hexdigest()[:24]}.jsa"


def java_release(environ: Mapping[str, str]) -> int | None:
    """Return the major version of the Java that a driver gets; None if it cannot be determined."""
    java = environment.java(environ)
    try:
        return _build(java, _state(Path(os.path.realpath(java))))[2] if java is not None else None
    except OSError:
        return None


def jars(environ: Mapping[str, str], spark: str = "") -> Path:
    """Return the folder of Spark's jars as drivers name it: Java compares it with the archive's."""
    home = f"{spark}/pyspark" if spark else environ.get("SPARK_HOME", "")
    return Path(home) / "jars" if home else Path(os.path.realpath(SPARK_JARS))


def existing(folder: Path, environ: Mapping[str, str], spark: str = "") -> Path | None:
    """Return that archive and note its use; None if there is none (yet), or if it is incomplete."""
    with suppress(NotMade):
        path = archive(folder, environ, spark)
        if is_whole(path):
            with suppress(OSError):  # a folder that only another account may write to
                os.utime(path)
            return path
    return None


def is_whole(path: Path) -> bool:
    """Return whether an archive exists with its original size.

    Java itself ignores one with other contents, but it crashes if the end is missing.
    """
    try:
        return whole(path.with_suffix(SIZE).read_text()) == path.stat().st_size
    except (OSError, ValueError):
        return False


def make(
    target: Path, environ: Mapping[str, str], spark: str, leaving: Callable[[float], bool]
) -> None:
    """Make an archive in a process of low priority; return once it exists.

    `leaving` waits for the given seconds, and returns whether to give up. Raises `NotMade`.
    """
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(target.parent, os.W_OK):
            raise PermissionError(f"{target.parent} is not writable")
        process = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "queries.launchers.process.class_training"),
                *(str(target), spark),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=target.parent,
            env={**environ, "PYTHONPATH": ":".join(places.import_path())},
            start_new_session=True,
            text=True,
        )
    except OSError as error:
        raise NotMade(f"The folder of class archives cannot be used: {error}.") from error
    try:
        while process.poll() is None:
            if leaving(0.5):
                raise NotMade("Headgate is stopping.")
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_ENDS_WITHIN_S)
        with suppress(ProcessLookupError):  # its driver's JVM, which would still write the archive
            os.killpg(process.pid, signal.SIGKILL)
        assert process.stdout is not None
        output = process.stdout.read()
        process.wait(_ENDS_WITHIN_S)
        process.stdout.close()
    if process.returncode != 0 or not is_whole(target):
        raise NotMade(output.strip().rpartition("\n")[2] or f"Exit code {process.returncode}.")


def prune(folder: Path, wanted: Iterable[Path], *, before: float) -> None:
    """Remove archives that are not wanted and were last used before a time, and old leftovers.

    A JVM that has mapped an archive keeps it.
    """
    wanted_paths = set(wanted)
    for path in (path for pattern in _MADE for path in folder.glob(pattern)):
        with suppress(OSError):
            archived = path.with_suffix(".jsa")
            used_at = (archived if archived.exists() else path).stat().st_mtime
            if archived in wanted_paths or used_at >= before:
                continue
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


@lru_cache(maxsize=16)
def _build(java: Path, state: str) -> tuple[Path, str, int | None]:
    """Return a Java's home, build and major version, as it prints them.

    `state` changes with the program. The version is None if it cannot be parsed.

    Raises OSError if it does not respond.
    """
    try:
        done = subprocess.run(
            [java, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            timeout=_VERSION_WITHIN_S,
            check=True,
        )
    except subprocess.SubprocessError as error:
        raise OSError(f"{java} is not responding") from error
    properties = dict(re.findall(r"^\s+([a-z.]+) = (.+)$", done.stderr, re.M))
    names = ("java.vm.vendor", "java.vm.name", "java.vm.version", "os.arch")
    home = properties.get("java.home", "")
    build = " ".join((home, *(properties.get(name, "") for name in names)))
    return Path(home), build, whole(properties.get("java.specification.version", ""))


def _state(path: Path) -> str:
    stat = path.stat()
    return f"{stat.st_size} {stat.st_mtime_ns}"
