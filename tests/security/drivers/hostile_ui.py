"""A driver whose author has put a web server of his own in place of Spark's UI."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Asked:
    """One request that reached it."""

    method: str
    path: str
    headers: dict[str, str]


@dataclass
class Says:
    """What it answers at a path."""

    status: int = 200
    headers: tuple[tuple[str, str], ...] = (("Content-Type", "text/html; charset=utf-8"),)
    body: bytes = b"<title>mine</title>"
    #: Sent again and again, until the other side hangs up.
    without_end: bool = False


@dataclass
class HostileUi:
    """What it was asked, and what it answers."""

    port: int
    asked: list[Asked] = field(default_factory=list)
    says: dict[str, Says] = field(default_factory=dict)

    def answer(self, path: str) -> Says:
        """Return its answer; to the look for a guard it says what Spark's filter says."""
        return self.says.get(path.partition("?")[0], Says())


@contextmanager
def hostile_ui(port: int) -> Iterator[HostileUi]:
    """Serve on 127.0.0.1 at this port."""
    ui = HostileUi(port, says={"/version": Says(status=403)})

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.requestline.split()[1]  # as it was sent
            ui.asked.append(Asked(self.command, path, dict(self.headers)))
            said = ui.answer(self.path)
            self.send_response(said.status)
            for name, value in said.headers:
                self.send_header(name, value)
            if not said.without_end:
                self.send_header("Content-Length", str(len(said.body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(said.body)
                while said.without_end:
                    self.wfile.write(said.body)

        do_HEAD = do_GET
        do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            pass  # the other side has hung up

    server = Server(("127.0.0.1", port), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield ui
    finally:
        server.shutdown()
        server.server_close()
        thread.join(30)
