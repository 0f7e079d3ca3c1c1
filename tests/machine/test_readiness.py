"""`make run` waits for programs that get on, and for no others."""

import subprocess
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from controlplane.home import Home, StartProblem
from installation.machine import claims, preparation

_BUSY = "while True: pass"
_IDLE = "import time; time.sleep(600)"


class _NotReady(BaseHTTPRequestHandler):
    """A web server whose worker has not come up."""

    def do_GET(self) -> None:
        self.send_response(503)
        self.end_headers()
        self.wfile.write(b'{"checks": {"worker": {"status": "problem", "message": "No sign."}}}')

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _NotReady)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(("program", "waits"), [(_BUSY, True), (_IDLE, False)])
def test_a_program_that_works_to_start_is_waited_for(
    tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch, program: str, waits: bool
) -> None:
    monkeypatch.setattr(preparation, "STANDSTILL_S", 2.0)
    monkeypatch.setattr(preparation, "AT_MOST_S", 6.0)
    monkeypatch.setattr(preparation, "BUSY_S", 0.05)
    home = Home(tmp_path)
    home.make()
    with subprocess.Popen([sys.executable, "-c", program]) as worker:
        claims.record(home, "worker", worker.pid)
        began = time.monotonic()
        try:
            with pytest.raises(StartProblem, match=r"not ready after \d+ s\. worker: No sign\."):
                preparation.wait_until_ready(home, address, check=lambda: None)
        finally:
            worker.kill()
    took = time.monotonic() - began
    assert (took >= 6.0) is waits, took
