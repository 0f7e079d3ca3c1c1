"""Make the images of the trial Kubernetes cluster, without a registry and without an engine.

An image is a tar file that `ctr images import` reads ("docker-archive"): layers, a configuration
and a manifest (source: github.com/moby/docker-image-spec). Its files are those of this host's
Debian packages and of the Python packages next to PySpark. It needs only the standard library.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import py_compile
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from importlib.util import cache_from_source
from pathlib import Path

from headgate_ground import packages
from headgate_server.downloads import replaced

#: The image for drivers and executors, and that of the first process of each pod. No registry has
#: them.
IMAGE, PAUSE_IMAGE = "headgate/spark:trial", "headgate/pause:trial"
#: Debian's Java; drivers on hosts can use another, because Spark's protocol is the same.
JAVA = "openjdk-17-jre-headless"
#: The numeric account of the image, as Kubernetes' `runAsNonRoot` wants it.
USER = 10001
_PYTHON = "python{}.{}".format(*sys.version_info[:2])
_DEBIAN = (
    *("base-files", "bash", "ca-certificates", "coreutils", "dash", "findutils", "grep", "gzip"),
    *("libc-bin", "procps", "sed", "tar", JAVA, _PYTHON),
)
#: The Python distributions that executors import (PySpark, what its extra "sql" needs, and theirs),
#: and those that drivers import besides.
_DISTRIBUTIONS = (
    *("pyspark", "py4j", "pandas", "numpy", "pyarrow", "protobuf"),
    *("python-dateutil", "pytz", "six", "tzdata"),
    *("redis", "hiredis", "orjson", "packaging", "PyYAML", "sqlglot", "cryptography", "cffi"),
    *("pycparser", "pydantic", "pydantic_core", "annotated-types", "typing-extensions"),
    *("typing-inspection", "async-timeout"),
)
#: Where the image has them; PYTHONPATH.
_PACKAGES = "opt/headgate/python"
#: Spark fetches the application's files to the working directory of an executor.
_WORK = "opt/headgate/work"
#: Archive of Spark's classes, which drivers' JVMs map (docs/decisions/0037-class-archives.md).
_CLASSES = "opt/headgate/classes/spark.jsa"
_LEFT_OUT = ("doc", "man", "locale", "info", "lintian", "icons", "bug")
#: Files that Debian's packages make when they are installed, so that no package lists them.
_MADE = ("/etc/alternatives/*", "/etc/ssl/certs/*", "/etc/ld.so.cache", "/usr/bin/java")
_MADE_IN_JAVA = "/usr/lib/jvm/*/lib/server/*.jsa"
_MERGED = ("bin", "sbin", "lib", "lib64")  # links into /usr
_LIMIT_S = 120  # for dpkg, which only reads its database, and to unpack a layer
_TRAINING_LIMIT_S = 1200  # for the class archive, which takes 45 s on two quiet cores
#: Runs a command in the image's files as its account, with our packages; the mounts end with it.
_INSIDE = (
    "mount --bind /dev {root}/dev && mount -t proc proc {root}/proc && "
    "mount --bind {ours} {root}/mnt && "
    "exec /usr/sbin/chroot --userspec={user}:{user} {root} {command}"
)
_EPOCH = "1970-01-01T00:00:00Z"


def build(entrypoint: Path, *, pause: Path, target: Path, report: Callable[[str], None]) -> None:
    """Build `spark.tar` and `pause.tar` in a folder, unless they are up to date."""
    debian = _closure(_DEBIAN)
    versions = [f"{name} {metadata.version(name)}" for name in _DISTRIBUTIONS]
    ours = list(_our_files())
    made_of = hashlib.sha256(
        "\n".join([*(f"{name} {one.version}" for name, one in debian.items()), *versions]).encode()
    )
    for file in (Path(__file__), entrypoint, pause, *(path for path, _ in ours)):
        made_of.update(file.read_bytes())
    made_of.update(b"with classes" if os.geteuid() == 0 else b"")
    with replaced(target, made_of.digest()) as folder:
        if folder is None:
            return
        report(f"Making the image {IMAGE} of {len(debian)} Debian packages and PySpark…")
        image = Image(folder / "pause.tar", PAUSE_IMAGE, {"Entrypoint": ["/pause"]})
        image.layer(lambda tar: _add(tar, pause, "pause"))
        image.write()
        variables = _environment()
        image = Image(folder / "spark.tar", IMAGE, _configuration(variables))
        image.layer(lambda tar: _add_debian(tar, debian))
        image.layer(lambda tar: _add_packages(tar, _distribution_files()))
        image.layer(lambda tar: _add_ours(tar, ours, entrypoint))
        try:
            classes = _classes(target.parent / "classes", image.layers, variables)
            image.layer(lambda tar: _add(tar, classes, _CLASSES))
        except _NotMade as error:  # drivers start as before, and take 4 s longer
            report(f"  without a class archive: {error}")
        image.write()
    size = (target / "spark.tar").stat().st_size / 1e6
    report(f"  {IMAGE}, {size:.0f} MB, in {target}")


def is_installed(package: str) -> bool:
    """Return whether a Debian package is installed."""
    return package in _installed()


@dataclass
class Image:
    """An image that is being made: its layers are files next to it until it is written."""

    file: Path
    name: str  # NAME:TAG
    configuration: Mapping[str, object]
    layers: list[Path] = field(default_factory=list)

    def layer(self, fill: Callable[[tarfile.TarFile], None]) -> None:
        """Add a layer."""
        path = self.file.with_suffix(f".{len(self.layers)}")
        with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:
            fill(tar)
        self.layers.append(path)

    def write(self) -> None:
        """Write the image, and delete the files of its layers."""
        digests = []
        for layer in self.layers:
            with layer.open("rb") as opened:
                digests.append(hashlib.file_digest(opened, "sha256").hexdigest())
        configuration = {
            "architecture": _architecture(),
            "os": "linux",
            "created": _EPOCH,
            "config": dict(self.configuration),
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{one}" for one in digests]},
        }
        manifest = {
            "Config": "config.json",
            "RepoTags": [self.name],
            "Layers": [f"{one}.tar" for one in digests],
        }
        with tarfile.open(self.file, "w", format=tarfile.GNU_FORMAT) as tar:
            _add_text(tar, "config.json", json.dumps(configuration))
            _add_text(tar, "manifest.json", json.dumps([manifest]))
            for digest, layer in zip(digests, self.layers, strict=True):
                tar.add(layer, f"{digest}.tar")
                layer.unlink()


def _configuration(variables: Mapping[str, str]) -> dict[str, object]:
    return {
        "User": str(USER),
        "WorkingDir": f"/{_WORK}",
        "Entrypoint": [f"/usr/bin/{_PYTHON}", "-IS", "/opt/headgate/entrypoint.py"],
        "Env": [f"{name}={value}" for name, value in variables.items()],
    }


def _environment() -> dict[str, str]:
    java = next(Path("/usr/lib/jvm").glob(f"java-{JAVA.split('-')[1]}-openjdk-*"))
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "HOME": f"/{_WORK}",
        "JAVA_HOME": str(java),
        "SPARK_HOME": f"/{_PACKAGES}/pyspark",
        "PYTHONPATH": f"/{_PACKAGES}",
        "PYSPARK_PYTHON": f"/usr/bin/{_PYTHON}",
        "PYSPARK_DRIVER_PYTHON": f"/usr/bin/{_PYTHON}",
        "HEADGATE_CLASS_ARCHIVE": f"/{_CLASSES}",
    }


# --- Debian's packages ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Debian:
    version: str
    needs: tuple[tuple[str, ...], ...]  # alternatives of each dependency


def _closure(names: Iterable[str]) -> dict[str, _Debian]:
    """Return the installed packages among these and all that they depend on, sorted by name."""
    installed, todo, found = _installed(), list(names), dict[str, _Debian]()
    while todo:
        name = todo.pop()
        if name in found or name not in installed:
            continue
        found[name] = installed[name]
        for alternatives in installed[name].needs:
            todo += [one for one in alternatives if one in installed][:1]
    return dict(sorted(found.items()))


def _installed() -> dict[str, _Debian]:
    """Return the installed packages by name; provided names are left out."""
    shown = "${db:Status-Status}\t${Package}\t${Version}\t${Pre-Depends}, ${Depends}\n"
    found = {}
    for line in _output("dpkg-query", "-W", "-f", shown).splitlines():
        status, name, version, needs = line.split("\t")
        if status == "installed":
            found[name] = _Debian(
                version,
                tuple(
                    tuple(
                        one.strip().partition(" ")[0].partition(":")[0] for one in part.split("|")
                    )
                    for part in needs.split(",")
                ),
            )
    return found


def _output(*command: str, umask: int = -1) -> str:
    return subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=_LIMIT_S, umask=umask
    ).stdout


def _add_debian(tar: tarfile.TarFile, names: Iterable[str]) -> None:
    """Add the packages' files, the folders that every Linux has, and the image's accounts."""
    links = {name: f"usr/{name}" for name in _MERGED}
    # Drivers name the Python of their executors so, whatever its version (`runtime.jvms.driver`).
    links["usr/local/bin/python3"] = f"/usr/bin/{_PYTHON}"
    for name, target in links.items():
        link = tarfile.TarInfo(name)
        link.type, link.linkname = tarfile.SYMTYPE, target
        tar.addfile(link)
    for name in ("dev", "proc", "run", "sys"):
        _add_folder(tar, name)
    for name in ("tmp", "var/tmp"):
        _add_folder(tar, name, 0o1777)
    _add_text(
        tar,
        "etc/passwd",
        "root:x:0:0:root:/root:/bin/bash\n"
        f"spark:x:{USER}:{USER}:spark:/{_WORK}:/bin/bash\n",  # Hadoop wants a name for the account
    )
    _add_text(tar, "etc/group", f"root:x:0:\nspark:x:{USER}:\n")
    listed = set(_output("dpkg-query", "-L", *names).splitlines())
    for pattern in (*_MADE, _MADE_IN_JAVA):
        found = Path("/").glob(pattern[1:])
        listed |= {str(path.parent.resolve() / path.name) for path in found}
    own = {"/etc/passwd", "/etc/group", "/tmp", "/var/tmp", *(f"/{name}" for name in _MERGED)}
    done = set(own)
    for name in sorted(filter(os.path.isabs, listed)):
        top, _, rest = name[1:].partition("/")
        path = f"/usr{name}" if top in _MERGED and rest else name
        if path in done or (
            path.split("/")[1:3] == ["usr", "share"]
            and (path.split("/")[3:4] and path.split("/")[3] in _LEFT_OUT)
        ):
            continue
        done.add(path)
        if os.path.lexists(path):
            tar.add(path, path[1:], recursive=False)
        if path.endswith(".py") and os.path.exists(compiled := cache_from_source(path)):
            tar.add(compiled, compiled[1:], recursive=False)


# --- Python's packages, and ours ------------------------------------------------------


def _distribution_files() -> Iterator[tuple[Path, str]]:
    """Return the distributions' files, and their paths in `site-packages`; tests are left out."""
    for name in _DISTRIBUTIONS:
        for file in metadata.files(name) or ():
            parts = file.parts
            if parts[0] != ".." and "tests" not in parts and file.suffix != ".pyc":
                yield Path(str(file.locate())), file.as_posix()


def _our_files() -> Iterator[tuple[Path, str]]:
    """Return the files of the packages that run in executors, and their paths."""
    root = Path(__file__).resolve().parent.parent
    for package in packages.DRIVER:
        for path in sorted((root / package).rglob("*.py")):
            yield path, str(path.relative_to(root))


def _add_packages(tar: tarfile.TarFile, files: Iterable[tuple[Path, str]]) -> None:
    """Add Python files, each with its byte code, which the image's account could not write."""
    with tempfile.TemporaryDirectory() as folder:
        compiled = Path(folder) / "compiled.pyc"
        for path, name in files:
            _add(tar, path, f"{_PACKAGES}/{name}")
            if path.suffix != ".py":
                continue
            with_code = py_compile.compile(
                str(path),
                str(compiled),
                f"/{_PACKAGES}/{name}",
                invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
                quiet=2,
            )
            if with_code:
                _add(tar, compiled, f"{_PACKAGES}/{cache_from_source(name)}")


def _add_ours(tar: tarfile.TarFile, files: Sequence[tuple[Path, str]], entrypoint: Path) -> None:
    _add_packages(tar, files)
    # Drivers find the packages without PYTHONPATH, which names the code that their pods fetch.
    _add_text(tar, f"usr/local/lib/{_PYTHON}/dist-packages/headgate.pth", f"/{_PACKAGES}\n")
    _add(tar, entrypoint, "opt/headgate/entrypoint.py")
    _add_folder(tar, _WORK, 0o777)


class _NotMade(Exception):
    """There is no class archive; the message says why."""


def _classes(folder: Path, layers: Iterable[Path], variables: Mapping[str, str]) -> Path:
    """Return an archive of the classes that a driver loads, written by a driver in the layers.

    It is kept in the folder until Java, Spark or the training changes. Raises `_NotMade`.
    """
    training = Path(__file__).parent.parent / "queries/launchers/process"
    jars = Path(str(metadata.distribution("pyspark").locate_file("pyspark/jars")))
    java = Path(variables["JAVA_HOME"]) / "lib/modules"
    made_of = [(training / name).read_text() for name in ("class_training.py", "class_archives.py")]
    for file in (java, *sorted(jars.glob("*.jar"))):  # Java compares their sizes and times
        made_of.append(f"{file} {file.stat().st_size} {file.stat().st_mtime_ns}")
    with replaced(folder, "\n".join(made_of).encode()) as made:
        if made is not None:
            _train(made / "spark.jsa", layers, variables)
    return folder / "spark.jsa"


def _train(target: Path, layers: Iterable[Path], variables: Mapping[str, str]) -> None:
    """Have a driver in the image's files write its classes; raise `_NotMade`. That needs root."""
    if os.geteuid() != 0:
        raise _NotMade("only root can run a driver in the image.")
    try:
        with tempfile.TemporaryDirectory(dir=target.parent, ignore_cleanup_errors=True) as folder:
            made = _trained(Path(folder), layers, variables)
            made.rename(target)
    except (OSError, subprocess.SubprocessError) as error:  # no program, no space, no time
        raise _NotMade(f"{error}") from error


def _trained(root: Path, layers: Iterable[Path], variables: Mapping[str, str]) -> Path:
    """Unpack the layers, and run the training in them; return the archive."""
    root.chmod(0o755)
    for layer in layers:
        _output("tar", "--extract", f"--file={layer}", f"--directory={root}", umask=0o022)
    made = root / _CLASSES
    made.parent.mkdir()
    os.chown(made.parent, USER, USER)
    training = f"python3 -m queries.launchers.process.class_training /{_CLASSES} ''"
    (root / "mnt").mkdir(exist_ok=True)
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n")  # a container gets one
    ours = Path(__file__).resolve().parent.parent
    script = _INSIDE.format(root=root, ours=ours, user=USER, command=training)
    done = subprocess.run(
        # What the training has started ends with this process, and so do the mounts.
        ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script],
        cwd="/",
        env={**variables, "PYTHONPATH": f"/{_PACKAGES}:/mnt"},
        capture_output=True,
        text=True,
        timeout=_TRAINING_LIMIT_S,
    )
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip().rpartition("\n")[2]
        raise _NotMade(said or f"exit code {done.returncode}.")
    return made


# --- tar files ------------------------------------------------------------------------


def _add(tar: tarfile.TarFile, path: Path, name: str) -> None:
    """Add a file that everybody can read, and without its owner."""
    information = tar.gettarinfo(str(path.resolve()), name)
    information.mode = 0o755 if information.mode & 0o100 else 0o644
    information.uid = information.gid = 0
    information.uname = information.gname = ""
    with path.open("rb") as opened:
        tar.addfile(information, opened)


def _add_text(tar: tarfile.TarFile, name: str, text: str) -> None:
    information = tarfile.TarInfo(name)
    content = text.encode()
    information.size = len(content)
    tar.addfile(information, io.BytesIO(content))


def _add_folder(tar: tarfile.TarFile, name: str, mode: int = 0o755) -> None:
    information = tarfile.TarInfo(name)
    information.type, information.mode = tarfile.DIRTYPE, mode
    tar.addfile(information)


def _architecture() -> str:
    """Return Go's name for this host's processor, which images use."""
    machine = os.uname().machine
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)
