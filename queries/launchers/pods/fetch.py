"""Fetch a driver's code and jars into its pod: the program of the pod's init container.

It runs before any of our packages are in the pod, as `python3 -c "<this file>"` or from the mounted
ConfigMap. So it imports only the standard library, and repeats the names that it needs from
`queries.launchers.pods.layout`; a test compares them.

Each archive is verified while it arrives, and only then gets its name. Connections that fail and
answers of a server in trouble are tried again until no new byte has arrived for `LIMIT_S`; any
other answer ends the program, with a sentence in its output and in the pod's termination message.
"""

import hashlib
import http.client
import json
import os
import shutil
import ssl
import sys
import tarfile
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path, PurePosixPath
from typing import Any

# As in `layout`.
INTENT = "/headgate/intent"
SECRET = "/headgate/secret"
WORK = "/headgate/work"
FETCHED = "fetched"  # in WORK
PLAN = "plan.json"
TOKEN = "token"
AUTHORITIES = "authorities.pem"
POD_UID = "HEADGATE_POD_UID"
UID_HEADER = "X-Headgate-Pod"

#: Jars that the image may contain: one with the same name and content is not fetched.
IMAGE_JARS = "/opt/headgate/jars"
TERMINATION_LOG = "/dev/termination-log"
AT_ONCE = 2
LIMIT_S = 120.0  # without any progress
ANSWER_S = 30.0  # for one connection to answer, or to send the next bytes
PAUSE_S, LONGEST_PAUSE_S = 0.5, 10.0
CHUNK = 256 * 1024  # bytes
#: Answers that a later attempt may change, besides those of a server in trouble (500 and above).
PASSING = frozenset({408, 429})


class Failed(Exception):
    """An archive cannot be fetched; the message is a sentence for an operator."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follow no redirect: the token is for one server only."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Return None, so that the redirect is an error."""


class Fetcher:
    """Fetches the archives of one plan."""

    def __init__(self, plan: dict[str, Any], token: str, intent: Path, fetched: Path) -> None:
        self._url = str(plan["url"])
        self._fetched = fetched
        self._jars = Path(os.environ.get("HEADGATE_POD_JARS", IMAGE_JARS))
        self._limit_s = float(os.environ.get("HEADGATE_POD_FETCH_LIMIT_S", LIMIT_S))
        self._headers = {
            "Authorization": f"Bearer {token}",
            UID_HEADER: os.environ.get(POD_UID, ""),
        }
        authorities = intent / AUTHORITIES
        context = ssl.create_default_context(
            cafile=str(authorities) if authorities.exists() else None
        )
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}),
            urllib.request.HTTPSHandler(context=context),
            _NoRedirect(),
        )
        self.over = threading.Event()  # another archive has failed

    def fetch(self, archive: dict[str, Any]) -> None:
        """Put one archive into its place; raise `Failed` if that is impossible."""
        sha256, target = str(archive["sha256"]), PurePosixPath(archive["target"])
        if target.is_absolute() or ".." in target.parts or not target.parts:
            raise Failed(f"The target {target} of an archive leads out of {self._fetched}.")
        path = self._fetched / target
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{sha256[:16]}")
        draft.unlink(missing_ok=True)
        of_image = self._jars / target.name
        if not archive["unpack"] and _has(of_image, sha256):
            draft.symlink_to(of_image)
            draft.rename(path)
            return
        self._download(sha256, draft)
        if archive["unpack"]:
            _unpack(draft, path)
        else:
            draft.rename(path)

    def _download(self, sha256: str, draft: Path) -> None:
        """Write the archive to a file; each attempt begins anew."""
        most, advanced, pause = 0, time.monotonic(), PAUSE_S
        request = urllib.request.Request(f"{self._url}/archives/{sha256}", headers=self._headers)
        while not self.over.is_set():
            received, digest = 0, hashlib.sha256()
            try:
                with self._opener.open(request, timeout=ANSWER_S) as answer, draft.open("wb") as to:
                    while chunk := answer.read1(CHUNK):
                        digest.update(chunk)
                        to.write(chunk)
                        received += len(chunk)
                        if received > most:
                            most, advanced, pause = received, time.monotonic(), PAUSE_S
                        if self.over.is_set():
                            break
                    left = answer.length  # bytes that are missing after a connection was closed
                    why = f"the connection ended {left} bytes too early" if left else ""
            except urllib.error.HTTPError as error:
                error.close()
                if error.code < 500 and error.code not in PASSING:
                    raise Failed(
                        f"The control plane at {self._url} answered {error.code} {error.reason} "
                        f"for the archive {sha256}."
                    ) from error
                why = f"it answered {error.code} {error.reason}"
            except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
                if isinstance(error, OSError) and error.filename == str(draft):
                    raise Failed(f"The file {draft} cannot be written: {error}.") from error
                why = str(error) or type(error).__name__
            if self.over.is_set():
                break
            if not why:
                if digest.hexdigest() == sha256:
                    return
                raise Failed(
                    f"The archive {sha256} from {self._url} has another content: its SHA-256 is "
                    f"{digest.hexdigest()}."
                )
            if time.monotonic() - advanced > self._limit_s:
                raise Failed(
                    f"The archive {sha256} could not be fetched from {self._url}: for "
                    f"{self._limit_s:g} s, no new byte has arrived; the last reason was: {why}."
                )
            self.over.wait(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)
        raise Failed("Another archive could not be fetched.")


def _has(file: Path, sha256: str) -> bool:
    """Return whether there is such a file with this content."""
    try:
        with file.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest() == sha256
    except OSError:
        return False


def _unpack(archive: Path, folder: Path) -> None:
    """Replace a folder with the members of a tar file, and remove the file."""
    draft = archive.with_name(f"{archive.name}.unpacked")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir()
    try:
        with tarfile.open(archive) as members:
            for member in members:
                _extract(members, member, draft)
    except (tarfile.TarError, EOFError) as error:
        raise Failed(f"The archive {archive.name} cannot be unpacked: {error}.") from error
    shutil.rmtree(folder, ignore_errors=True)
    draft.rename(folder)
    archive.unlink()


def _extract(members: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """Write a member below a folder; Python's own filters do not exist in each 3.11."""
    name = PurePosixPath(member.name)
    if name.is_absolute() or ".." in name.parts or not (member.isreg() or member.isdir()):
        raise Failed(f"An archive contains {name}, which is not a file or folder below its own.")
    path = folder / name
    if member.isdir():
        path.mkdir(parents=True, exist_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    content = members.extractfile(member)
    assert content is not None  # of a regular file
    with content, path.open("wb") as file:
        shutil.copyfileobj(content, file)
    path.chmod(0o755 if member.mode & 0o100 else 0o644)


def _say(sentence: str) -> None:
    """Write a sentence to the output, and to where Kubernetes reads why a container has ended."""
    sys.stderr.write(f"{sentence}\n")
    sys.stderr.flush()
    try:
        log = os.environ.get("HEADGATE_POD_TERMINATION_LOG", TERMINATION_LOG)
        descriptor = os.open(log, os.O_WRONLY | os.O_TRUNC)  # not created: it exists in a pod
    except OSError:
        return
    with os.fdopen(descriptor, "w") as message:
        message.write(sentence)


def main() -> int:
    """Fetch everything in the plan; return 0, or 1 if something cannot be fetched."""
    intent = Path(os.environ.get("HEADGATE_POD_INTENT", INTENT))
    secret = Path(os.environ.get("HEADGATE_POD_SECRET", SECRET))
    fetched = Path(os.environ.get("HEADGATE_POD_WORK", WORK)) / FETCHED
    try:
        plan = json.loads((intent / PLAN).read_text())
        fetcher = Fetcher(plan, (secret / TOKEN).read_text().strip(), intent, fetched)
        fetched.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            tasks = [pool.submit(fetcher.fetch, archive) for archive in plan["archives"]]
            done, left = wait(tasks, return_when=FIRST_EXCEPTION)
            if left:
                fetcher.over.set()
            for task in left:
                task.cancel()
        for task in done:
            task.result()
    except Failed as failure:
        _say(str(failure))
        return 1
    except (OSError, ValueError, KeyError, TypeError) as error:
        _say(f"The driver's files cannot be fetched: {type(error).__name__}: {error}.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
