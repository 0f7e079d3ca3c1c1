"""A real REST catalog of the tests' own, and one that answers whatever a test wants."""

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests import pieces

#: Seconds that a JVM may take to start or to end on a busy machine.
LIMIT_S = 120.0


class RealCatalog:
    """Iceberg's REST catalog in a process of its own; it can be killed and started again."""

    def __init__(self, folder: Path, warehouse: Path) -> None:
        self.port = pieces.free_port()
        self.uri = f"http://127.0.0.1:{self.port}"
        self._folder, self._warehouse = folder, warehouse
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        program, ready = pieces.rest_catalog(), self._folder / "ready"
        ready.unlink(missing_ok=True)
        with (self._folder / "catalog.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    str(pieces.java().home / "bin" / "java"),
                    *("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
                    *("-cp", f"{program}/classes:{program}/jars/*", "TrialCatalog"),
                    *(str(self._warehouse), str(self.port), str(ready)),
                ],
                stdout=log,
                stderr=log,
            )
        end = time.monotonic() + LIMIT_S
        while not ready.exists():
            assert self._process.poll() is None, (self._folder / "catalog.log").read_text()[-3000:]
            assert time.monotonic() < end, "the catalog does not start"
            time.sleep(0.1)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(LIMIT_S)


@dataclass
class HostileCatalog:
    """A server that speaks the protocol, and adds what a test has put into `config` and so on."""

    uri: str = ""
    #: Replace parts of the answers; `table` replaces parts of the table's metadata.
    config: dict[str, Any] = field(default_factory=dict)
    load: dict[str, Any] = field(default_factory=dict)
    table: dict[str, Any] = field(default_factory=dict)
    view: bool = False
    missing: bool = False  # the table, until it is created
    redirect: str = ""
    location: str = ""
    requests: list[tuple[str, str, dict[str, str], str]] = field(default_factory=list)

    def reset(self) -> None:
        self.config, self.load, self.table = {}, {}, {}
        self.view, self.missing, self.redirect = False, False, ""
        self.requests.clear()

    def answer(self, method: str, path: str) -> tuple[int, dict[str, Any]]:
        """Return the status and body of an answer."""
        path = path.partition("?")[0]
        if path.endswith("/oauth/tokens"):
            return 200, {"access_token": "issued-token", "token_type": "bearer", "expires_in": 3600}
        if path.endswith("/config"):
            return 200, {"defaults": {}, "overrides": {}, **self.config}
        if method == "POST" and "/tables/" in path:
            error = {"message": "unknown", "type": "CommitStateUnknownException", "code": 500}
            return 500, {"error": error}  # a commit
        if method == "POST" and path.endswith("/tables"):
            self.missing = False
            return self.answer("GET", "/tables/created")
        if "/tables/" in path and not self.missing:
            return 200, {"metadata": self._metadata(), "config": {}, **self._loaded()}
        if "/views/" in path and self.view:
            return 200, {"metadata": _view(self.location), "metadata-location": self.location}
        if path.endswith("/namespaces/air"):
            return 200, {"namespace": ["air"], "properties": {}}
        kinds = {"/views/": "NoSuchViewException", "/tables/": "NoSuchTableException"}
        kind = next((kinds[part] for part in kinds if part in path), "NoSuchNamespaceException")
        return 404, {"error": {"message": "not here", "type": kind, "code": 404}}

    def _loaded(self) -> dict[str, Any]:
        return {"metadata-location": f"{self.location}/metadata/v1.json", **self.load}

    def _metadata(self) -> dict[str, Any]:
        return {
            "format-version": 2,
            "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
            "location": self.location,
            "last-sequence-number": 0,
            "last-updated-ms": 1_600_000_000_000,
            "last-column-id": 1,
            "current-schema-id": 0,
            "schemas": [
                {
                    "type": "struct",
                    "schema-id": 0,
                    "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}],
                }
            ],
            "default-spec-id": 0,
            "partition-specs": [{"spec-id": 0, "fields": []}],
            "last-partition-id": 999,
            "default-sort-order-id": 0,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "properties": {},
            "current-snapshot-id": -1,
            "refs": {},
            "snapshots": [],
            **self.table,
        }


def snapshot(**parts: Any) -> dict[str, Any]:
    """Return the parts of a table's metadata with one snapshot, which has these parts."""
    one = {
        "snapshot-id": 7,
        "sequence-number": 1,
        "timestamp-ms": 1_600_000_000_000,
        "schema-id": 0,
        "summary": {"operation": "append"},
        **parts,
    }
    return {"snapshots": [one], "current-snapshot-id": 7, "last-sequence-number": 1}


def _view(location: str) -> dict[str, Any]:
    text = "SELECT * FROM parquet.`/etc`"
    return {
        "view-uuid": "fa6506c3-7681-40c8-86dc-e36561f83385",
        "format-version": 1,
        "location": location,
        "current-version-id": 1,
        "properties": {},
        "versions": [
            {
                "version-id": 1,
                "timestamp-ms": 1_600_000_000_000,
                "schema-id": 1,
                "default-namespace": ["air"],
                "summary": {},
                "representations": [{"type": "sql", "sql": text, "dialect": "spark"}],
            }
        ],
        "version-log": [{"timestamp-ms": 1_600_000_000_000, "version-id": 1}],
        "schemas": [
            {
                "schema-id": 1,
                "type": "struct",
                "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}],
            }
        ],
    }


@contextmanager
def hostile_catalog() -> Iterator[HostileCatalog]:
    """Yield a hostile catalog, which ends with the block."""
    one = HostileCatalog()

    class Handler(BaseHTTPRequestHandler):
        def _reply(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length).decode()
            one.requests.append((self.command, self.path, dict(self.headers), body))
            if one.redirect and "/config" not in self.path:
                self.send_response(307)
                self.send_header("Location", one.redirect)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            status, answer = one.answer(self.command, self.path)
            text = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(text)

        do_GET = do_POST = do_HEAD = do_DELETE = _reply

        def log_message(self, *_: Any) -> None:
            """Stay silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    one.uri = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield one
    finally:
        server.shutdown()
        server.server_close()
        thread.join(LIMIT_S)
