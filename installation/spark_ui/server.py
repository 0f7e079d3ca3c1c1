"""Serve Spark UIs at the socket on standard input until it has been idle for a while.

`installation.spark_ui.on_demand` starts this at a connection. Before it ends, it leaves new
connections to the socket's queue, and finishes those that it has accepted.
"""

import asyncio
import os
import socket
import sys
import time

import uvicorn
from django.conf import settings

from installation.web.front import App, Receive, Scope, Send

#: Seconds without a request after which the server ends.
IDLE_S = 300.0
LOOK_EVERY_S = 1.0  # uvicorn reports no event when its last connection closes
_GRACEFUL_S = 3


def main() -> None:
    """Run the server."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
    from installation.spark_ui.asgi import application

    asyncio.run(serve(application, socket.socket(fileno=sys.stdin.fileno()), idle_s=IDLE_S))


class _Used:
    """The application and how long it has been idle; health checks do not count."""

    def __init__(self, application: App) -> None:
        self._application = application
        self._answering = 0
        self._used_at = time.monotonic()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("path") == "/healthz":
            await self._application(scope, receive, send)
            return
        self._answering += 1
        try:
            await self._application(scope, receive, send)
        finally:
            self._answering -= 1
            self._used_at = time.monotonic()

    def idle_s(self) -> float:
        """Return the seconds since the last answer; 0 while there is one to finish."""
        return 0.0 if self._answering else time.monotonic() - self._used_at


async def serve(application: App, listener: socket.socket, *, idle_s: float) -> None:
    """Serve the socket until it has been idle for `idle_s`, or until SIGTERM."""
    used = _Used(application)
    config = uvicorn.Config(
        used,
        timeout_graceful_shutdown=_GRACEFUL_S,
        access_log=False,
        log_level="warning",
        lifespan="off",
        proxy_headers=False,
        server_header=False,
        ws="none",
        http="installation.web.connections:Bounded",
        ssl_certfile=settings.TLS_CERT or None,
        ssl_keyfile=settings.TLS_KEY or None,
    )
    server = uvicorn.Server(config)
    ending = asyncio.create_task(_end_when_idle(server, used, idle_s))
    try:
        await server.serve(sockets=[listener])
    finally:
        ending.cancel()


async def _end_when_idle(server: uvicorn.Server, used: _Used, idle_s: float) -> None:
    """Once idle, stop accepting connections; then end without cutting one off."""
    while not server.started or used.idle_s() < idle_s:
        await asyncio.sleep(LOOK_EVERY_S)
    for listener in server.servers:
        listener.close()
    while True:
        await asyncio.sleep(LOOK_EVERY_S)  # what was accepted last is a connection by then
        if not server.server_state.connections:
            break
    server.should_exit = True


if __name__ == "__main__":
    main()
