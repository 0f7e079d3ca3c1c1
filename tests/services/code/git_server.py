"""A git server on this machine: repositories by https, served by git's own `http-backend`."""

import os
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import trustme
from django.utils import timezone
from pytest_django.fixtures import Settings

from queries.services.code.git import list_host

_GIT = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
    "PATH": os.environ["PATH"],
}


def git(folder: Path, *arguments: str) -> str:
    """Run git in a folder and return what it printed."""
    command = ["git", *arguments]
    done = subprocess.run(
        command, cwd=folder, env=_GIT, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.strip()


def drip(out: Any, going_on: threading.Event) -> None:
    """Send a byte every tenth of a second until nobody listens any more."""
    with suppress(OSError):
        while going_on.is_set():
            out.write(b"0")
            out.flush()
            time.sleep(0.1)


class GitServer:
    """Serves the repositories below a folder; `redirect`, `locked` and `drips` change its answers.

    With `drips` an answer never ends: one byte after the other.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[str] = []
        self.redirect = ""
        self.locked = False
        self.drips = threading.Event()
        authority = trustme.CA()
        self.ca = folder / "ca.pem"
        authority.cert_pem.write_to_path(str(self.ca))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("localhost").configure_cert(context)
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._http.socket = context.wrap_socket(self._http.socket, server_side=True)
        self.host = f"localhost:{self._http.server_address[1]}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the server."""
        self.drips.clear()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(10)

    def url(self, name: str) -> str:
        """Return where a repository is."""
        return f"https://{self.host}/{name}.git"

    def commit(self, name: str, files: Mapping[str, str | Path], **config: str) -> str:
        """Add files to a repository (a path: a symbolic link there); return the commit."""
        bare, work = self.folder / f"{name}.git", self.folder / f"{name}.work"
        if not bare.exists():
            git(self.folder, "init", "--quiet", "--bare", str(bare))
            git(bare, "config", "uploadpack.allowAnySHA1InWant", "true")
            git(self.folder, "clone", "--quiet", str(bare), str(work))
        for file, content in files.items():
            path = work / file
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, Path):
                path.symlink_to(content)
            else:
                path.write_text(content)
        git(work, "add", "--all", "--force")
        git(work, "commit", "--quiet", "--allow-empty", "--message", "work")
        git(work, "push", "--quiet", "origin", "HEAD:refs/heads/main")
        return git(work, "rev-parse", "HEAD")


def _handler(server: GitServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._serve(b"")

        def do_POST(self) -> None:
            self._serve(self.rfile.read(int(self.headers.get("Content-Length") or 0)))

        def _serve(self, body: bytes) -> None:
            server.asked.append(self.path)
            if server.redirect:
                self.send_response(302)
                self.send_header("Location", server.redirect + self.path)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            if server.locked:
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="git"')
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            if server.drips.is_set():
                self.send_response(200)
                self.send_header("Content-Type", "application/x-git-upload-pack-advertisement")
                self.end_headers()
                drip(self.wfile, server.drips)
                return
            path, _, query = self.path.partition("?")
            done = subprocess.run(
                ["git", "http-backend"],
                input=body,
                capture_output=True,
                timeout=60,
                check=False,
                env={
                    **_GIT,
                    "GIT_PROJECT_ROOT": str(server.folder),
                    "GIT_HTTP_EXPORT_ALL": "1",
                    "PATH_INFO": path,
                    "QUERY_STRING": query,
                    "REQUEST_METHOD": self.command,
                    "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                    "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                    "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
                },
            )
            head, _, content = done.stdout.partition(b"\r\n\r\n")
            lines = [line.decode().partition(": ") for line in head.split(b"\r\n")]
            status = next((value for name, _, value in lines if name == "Status"), "200 OK")
            self.send_response(int(status.split()[0]))
            for name, _, value in lines:
                if name not in ("Status", "Content-Length"):
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler


@contextmanager
def listed_server(
    tmp_path: Path, patch: pytest.MonkeyPatch, settings: Settings
) -> Iterator[GitServer]:
    """Serve repositories from a host that an admin has listed, and whose certificate git trusts."""
    settings.CODE_DIR = tmp_path / "code"
    (tmp_path / "repositories").mkdir()
    server = GitServer(tmp_path / "repositories")
    patch.setenv("GIT_SSL_CAINFO", str(server.ca))
    patch.setenv("HOME", str(tmp_path))
    list_host({"host": server.host}, actor="ada", now=timezone.now())
    yield server
    server.close()
