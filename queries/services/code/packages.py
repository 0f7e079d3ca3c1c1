"""Install an application's packages with uv, as wheels from the installation's index.

1. Constraints pin the packages that every driver has to their versions.
2. uv resolves the requirements within these constraints, and lists the missing packages
   (`--dry-run`).
3. The missing wheels are unpacked into a draft folder, which is then renamed. Nothing is built, and
   no package code is run.
"""

import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import uv
from django.conf import settings

from queries.domain.code import requirements
from queries.domain.code.shipping import (
    ARCHIVE,
    DAEMON_MODULE,
    DAEMON_SOURCE,
    INSIDE,
    SHIPPED,
)
from queries.domain.definitions.spec import ApplicationSpec
from queries.domain.errors import in_words
from queries.selectors import code
from queries.services.code.commands import CommandFailed, CommandOutput, environment, run
from queries.services.code.download_limits import Download
from queries.services.code.unpacking import DRAFT

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
    wanted, folder = requirements.read(spec.packages), code.packages_folder(spec)
    if folder is None:
        return
    if wanted.problems:
        raise InstallFailed(in_words(wanted.problems))
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=DRAFT, dir=folder.parent))
    try:
        target = draft / "packages"
        target.mkdir(mode=0o700)
        _install(wanted.text, draft, target)
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


def _install(text: str, draft: Path, target: Path) -> None:
    installed, env = code.environment(), _environment()
    download = Download.into(draft, Path(env["UV_CACHE_DIR"]))
    wishes, limits, rest = (draft / f"{name}.txt" for name in ("wishes", "constraints", "rest"))
    wishes.write_text(text)
    limits.write_text(
        "".join(f"{name}=={version}\n" for name, version in sorted(installed.items()))
    )
    dry_run = _uv(
        *("pip", "install", "--dry-run", "--constraint", str(limits), "--requirement", str(wishes)),
        folder=draft,
        env=env,
        download=download,
    )
    missing = _MISSING.findall(dry_run.err)
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
        completed = subprocess.run(command, capture_output=True, text=True, env=env, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    uv_settings: dict[str, str] = {}
    for line in completed.stdout.splitlines():
        where, _, value = line.partition("=")
        section, _, name = where.rpartition(".")
        if section in ("global", "install", ":env:") and name in _FROM_PIP:
            uv_settings[_FROM_PIP[name]] = " ".join(value.strip().strip("'\"").split())
        if section in ("global", ":env:") and name == "no-index" and value.strip("'\" ") != "0":
            uv_settings["UV_NO_INDEX"] = "1"
    return uv_settings
