"""Real receivers of messages on this machine: HTTP, plain and over TLS, and SMTP."""

import asyncio
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import Message as Mail
from email.policy import default
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import trustme
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, Session


@dataclass(frozen=True, slots=True)
class Got:
    """One request."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def form(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


class Receiver(ThreadingHTTPServer):
    """A server that keeps what it was sent, and answers as the story says."""

    daemon_threads = True

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.got: list[Got] = []
        self.status = 202
        self.location = ""
        self.hold = threading.Event()
        self.hold.set()
        super().__init__(("127.0.0.1", 0), _Handler)
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_side=True)
        scheme = "https" if context else "http"
        self.url = f"{scheme}://127.0.0.1:{self.server_port}/hook?x=1"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Receiver)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.got.append(Got(self.path, dict(self.headers), body))
        self.server.hold.wait(30)
        self.send_response(self.server.status)
        if self.server.location:
            self.send_header("Location", self.server.location)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@contextmanager
def receiving(context: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    """Run a receiver."""
    server = Receiver(context)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.hold.set()
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass
class Post:
    """A mail server, and what it has taken."""

    port: int = 0
    mails: list[Mail] = field(default_factory=list)
    recipients: list[str] = field(default_factory=list)
    logins: list[bytes] = field(default_factory=list)
    refuses: str = ""

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        if self.refuses:
            return self.refuses
        assert isinstance(envelope.content, bytes)
        self.mails.append(message_from_bytes(envelope.content, policy=default))
        self.recipients += envelope.rcpt_tos
        return "250 OK"


@contextmanager
def post_office(context: ssl.SSLContext) -> Iterator[Post]:
    """Run a mail server that wants STARTTLS and a log-in, the password being "pw"."""
    post = Post()

    def log_in(server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
        post.logins.append(data.login)
        return AuthResult(success=data.password == b"pw", handled=False)

    def accept() -> SMTP:
        return SMTP(
            post,
            tls_context=context,
            require_starttls=True,
            auth_required=True,
            authenticator=log_in,
            loop=loop,
        )

    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(loop.create_server(accept, "127.0.0.1", 0))
    post.port = server.sockets[0].getsockname()[1]
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield post
    finally:
        asyncio.run_coroutine_threadsafe(_closed(server), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _closed(server: asyncio.Server) -> None:
    """Close a server, and end what still talks to it."""
    server.close()
    rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
    await asyncio.sleep(0)  # transports close in the loop's next turn


def server_context(authority: trustme.CA, *names: str) -> ssl.SSLContext:
    """Return a server's TLS context with a certificate for these names."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    return context
