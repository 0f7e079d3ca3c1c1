"""Run git and uv with limits, and install an application's packages with uv, as wheels.

The time limit ends a slow transfer, and the size limit ends an endless one. Both limits are
settings of the installation, and the error message names the one that was reached.

1. Constraints pin the packages that every driver on the Spark version has to their versions.
2. uv resolves the requirements within these constraints, and lists the missing packages
   (`--dry-run`).
3. The missing wheels are unpacked into a draft folder, which is then renamed. Nothing is built, and
   no package code is run.
"""

import contextlib
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import uv
from django.conf import settings

from headgate_ground.masking import mask_text
from queries.domain.code import references
from queries.domain.code.shipping import ARCHIVE, DAEMON_MODULE, DAEMON_SOURCE, INSIDE, SHIPPED
from queries.domain.definitions.spec import ApplicationSpec
from queries.domain.errors import in_words as errors_in_words
from queries.domain.sparks import Spark
from queries.selectors import code
from queries.services.code.uploads import DRAFT

#: Seconds between two checks of the folders; checking takes at most a tenth of the time.
LOOK_EVERY_S = 0.5
_SHARE = 10


class LimitReached(Exception):
    """A download took too long or became too large; its message is a sentence."""


@dataclass(slots=True)
class Download:
    """The limits of one download, which may consist of several commands."""

    folders: tuple[Path, ...]  # it writes to these
    ends: float  # monotonic time
    before: int  # bytes in the folders at the start
    limit_text: str  # its limit, for messages

    @classmethod
    def into(cls, *folders: Path, seconds: float | None = None) -> "Download":
        """Return a download that starts now; a limit of None means the one in the settings."""
        limit = settings.DOWNLOAD_S if seconds is None else seconds
        limit_text = f"{limit:g} s and was stopped" + (
            " (HEADGATE_DOWNLOAD_S)" if seconds is None else ""
        )
        return cls(folders, time.monotonic() + limit, _size(folders), limit_text)

    def pause(self) -> float:
        """Return the seconds until the next check; raise `LimitReached` if a limit is exceeded."""
        began = time.monotonic()
        self.check()
        now = time.monotonic()
        return max(0.0, min(max(LOOK_EVERY_S, (now - began) * _SHARE), self.ends - now))

    def check(self) -> None:
        """Raise `LimitReached` if a limit is exceeded."""
        if time.monotonic() >= self.ends:
            raise LimitReached(f"It took longer than {self.limit_text}.")
        if _size(self.folders) - self.before > settings.DOWNLOAD_MB * 2**20:
            raise LimitReached(
                f"It downloaded more than {settings.DOWNLOAD_MB:g} MB and was stopped "
                "(HEADGATE_DOWNLOAD_MB)."
            )


def _size(folders: tuple[Path, ...]) -> int:
    """Return the total size of the files in these folders, in bytes; missing ones are skipped."""
    total, left = 0, [str(folder) for folder in folders]
    while left:
        with suppress(OSError), os.scandir(left.pop()) as entries:
            for entry in entries:
                with suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        left.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_size
    return total


#: Largest file that a command can write, in bytes.
LARGEST_FILE = 512 * 1024 * 1024
#: Memory limit of a command, in bytes: git holds a server's whole ref list in memory.
MOST_MEMORY = 4 * 1024**3
#: Characters of a command's output kept, from the end, which says why it failed.
OUTPUT_LIMIT = 4_000
#: Worker environment variables passed to a command: program paths, proxies, CAs.
_PASS = re.compile(
    r"(PATH|HOME|LANG|TZ|SSL_CERT_(FILE|DIR)|(HTTP|HTTPS|NO|ALL)_PROXY)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class CommandOutput:
    """The output of a successful command."""

    out: str
    err: str


class CommandFailed(Exception):
    """The error that a command failed; its message is the command's output, with secrets masked."""


def environment(*names: str, **more: str) -> dict[str, str]:
    """Return the environment for a command: a few allowed variables, plus `more`."""
    allowed_variables = {
        name: value
        for name, value in os.environ.items()
        if _PASS.fullmatch(name) or (names and name.startswith(names))
    }
    return allowed_variables | more


def run(
    command: Sequence[str],
    *,
    folder: Path,
    env: Mapping[str, str],
    download: Download,
    output: Path | None = None,
) -> CommandOutput:
    """Run a command and return its output; with `output`, write its stdout to that file instead.

    Raises `CommandFailed` with the command's own output, or if the download that it is part of
    takes too long or becomes too large.
    """
    into = output.open("xb") if output else None
    with contextlib.ExitStack() as stack:
        if into is not None:
            stack.enter_context(into)
        try:
            process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=into or subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=folder,
                env=dict(env),
                start_new_session=True,
            )
        except OSError as error:
            raise CommandFailed(f"{command[0]} cannot be run: {error.strerror}.") from error
        with contextlib.suppress(ProcessLookupError):  # child processes inherit the limits
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (LARGEST_FILE, LARGEST_FILE))
            resource.prlimit(process.pid, resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
        printed, stderr = _followed(process, download)
    if process.returncode == -signal.SIGXFSZ:
        raise CommandFailed(f"It wrote more than {LARGEST_FILE // 2**20} MB and was stopped.")
    if process.returncode:
        raise CommandFailed(in_words(stderr) or f"It exited with code {process.returncode}.")
    return CommandOutput(printed.decode("utf-8", "replace"), stderr.decode("utf-8", "replace"))


def _followed(process: subprocess.Popen[bytes], download: Download) -> tuple[bytes, bytes]:
    """Return a command's stdout and stderr; if it reaches a limit, kill it and all its children."""
    try:
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                printed, stderr = process.communicate(timeout=download.pause())
                break
        download.check()  # it may have ended between two checks
    except LimitReached as error:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise CommandFailed(str(error)) from None
    return printed or b"", stderr


def in_words(output: bytes) -> str:
    """Return the end of a command's output as a string, with secrets masked."""
    text = output.decode("utf-8", "replace").replace("\0", "").strip()
    return mask_text(text[-2 * OUTPUT_LIMIT :])[-OUTPUT_LIMIT:]


#: File in a package folder that lists its contents.
INSTALLED = "installed.txt"
#: uv's message when the index cannot be reached; the cache may still do.
_NO_NETWORK = re.compile(
    r"error sending request|dns error|connection|timed out|failed to fetch", re.IGNORECASE
)


#: uv's first line of output.
_PREAMBLE = re.compile(r"^Using Python .*\n")
#: A package that uv would install, in its dry run.
_MISSING = re.compile(r"^ \+ (\S+==\S+)$", re.MULTILINE)


class InstallFailed(Exception):
    """The error that packages could not be installed; its message includes uv's own output."""


def install(spec: ApplicationSpec) -> None:
    """Install an application's packages into their folder; raise `InstallFailed`."""
    wanted, folder = references.read(spec.packages), code.packages_folder(spec)
    if folder is None:
        return
    if wanted.problems:
        raise InstallFailed(errors_in_words(wanted.problems))
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=DRAFT, dir=folder.parent))
    try:
        target = draft / "packages"
        target.mkdir(mode=0o700)
        _install(wanted.text, spec.spark, draft, target)
        if code.is_shipped(spec):
            _pack(target, draft)
        if not folder.is_dir():
            target.rename(folder)
    except CommandFailed as error:
        message = _PREAMBLE.sub("", str(error))
        raise InstallFailed(f"The packages cannot be installed. uv says: {message}") from error
    except OSError as error:
        raise InstallFailed(f"The packages cannot be stored: {error}.") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _install(text: str, spark: Spark, draft: Path, target: Path) -> None:
    env = _environment()
    download = Download.into(draft, Path(env["UV_CACHE_DIR"]))
    wishes, limits, rest = (draft / f"{name}.txt" for name in ("wishes", "constraints", "rest"))
    wishes.write_text(text)
    limit_lines = [
        f"{name}=={version}" for name, version in sorted(code.environment(spark).items())
    ]
    limits.write_text("".join(f"{line}\n" for line in limit_lines))
    stand_ins = _stand_ins(code.replaced_by(spark), draft)
    env["UV_FIND_LINKS"] = ",".join(filter(None, (env.get("UV_FIND_LINKS"), stand_ins)))
    dry_run = _uv(
        *("pip", "install", "--dry-run", "--constraint", str(limits), "--requirement", str(wishes)),
        folder=draft,
        env=env,
        download=download,
    )
    missing = [line for line in _MISSING.findall(dry_run.err) if line not in limit_lines]
    rest.write_text("".join(f"{line}\n" for line in missing))
    if missing:
        _uv(
            *("pip", "install", "--no-deps", "--target", str(target)),
            *("--link-mode", "copy", "--requirement", str(rest)),
            folder=draft,
            env=env,
            download=download,
        )
    (target / INSTALLED).write_text("".join(f"{line}\n" for line in missing))


def _stand_ins(packages: Mapping[str, str], draft: Path) -> str:
    """Write an empty wheel for each package of a Spark folder, and return their folder.

    uv takes the versions that are installed here for granted, but not those of the folder; and it
    must not build PySpark to learn its name.
    """
    folder = draft / "stand-ins"
    folder.mkdir(mode=0o700)
    for name, version in packages.items():
        about = f"{name.replace('-', '_')}-{version}"
        with ZipFile(folder / f"{about}-py3-none-any.whl", "w") as wheel:
            metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
            wheel.writestr(f"{about}.dist-info/METADATA", metadata)
            wheel.writestr(f"{about}.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
            wheel.writestr(f"{about}.dist-info/RECORD", "")
    return str(folder)


def _pack(target: Path, draft: Path) -> None:
    """Put the executors' archive into the folder, with the module that locates it there."""
    shipped = draft / SHIPPED
    shipped.mkdir(mode=0o700)
    daemon = shipped / f"{DAEMON_MODULE}.py"
    daemon.write_text(DAEMON_SOURCE)
    with tarfile.open(shipped / ARCHIVE, "w") as archive:  # uncompressed: sent once per executor
        archive.add(target, arcname=INSIDE)
        archive.add(daemon, arcname=daemon.name)
    shipped.rename(target / SHIPPED)


def _uv(*arguments: str, **how: Any) -> CommandOutput:
    """Run uv with the installation's index settings, or from its cache if that is unreachable."""
    command = [
        *(uv.find_uv_bin(), *arguments),
        *(
            "--only-binary",
            ":all:",
            "--python",
            sys.executable,
            "--no-progress",
            "--color",
            "never",
        ),
    ]
    try:
        return run(command, **how)
    except CommandFailed as error:
        if not _NO_NETWORK.search(str(error)):
            raise
        try:
            return run([*command, "--offline"], **how)
        except CommandFailed:
            raise error from None


def _environment() -> dict[str, str]:
    """Return uv's environment: uv's own variables or, if there are none, pip's configuration."""
    env = environment("UV_", "NETRC", "XDG_CONFIG_")
    env.setdefault("UV_CACHE_DIR", str(Path(settings.PACKAGES_DIR) / "cache"))
    for name, value in _of_pip().items():
        env.setdefault(name, value)
    return env | {"UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1"}


#: pip's setting -> uv's variable.
_FROM_PIP = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "cert": "SSL_CERT_FILE",
}


@cache
def _of_pip() -> dict[str, str]:
    """Return the index settings in pip's files and variables, converted to uv's variables."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    env = environment("PIP_", "XDG_CONFIG_")
    try:
        process = subprocess.run(command, capture_output=True, text=True, env=env, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    uv_settings: dict[str, str] = {}
    for line in process.stdout.splitlines():
        where, _, value = line.partition("=")
        section, _, name = where.rpartition(".")
        if section in ("global", "install", ":env:") and name in _FROM_PIP:
            several = value.strip().strip("'\"").split()
            uv_settings[_FROM_PIP[name]] = ("," if name == "find-links" else " ").join(several)
        if section in ("global", ":env:") and name == "no-index" and value.strip("'\" ") != "0":
            uv_settings["UV_NO_INDEX"] = "1"
    return uv_settings
