"""Serve Spark UIs at the socket on standard input until nobody has asked for a while.

`installation.spark_ui.on_demand` starts this at a connection. Before it ends, it leaves new
connections to the socket's queue, and answers on those that it has accepted.
"""

import asyncio
import os
import socket
import sys
import time

import uvicorn
from django.conf import settings

#: Seconds without a connection after which the server ends; a page's own requests are closer.
IDLE_S = 300.0
LOOK_EVERY_S = 1.0  # uvicorn reports no event when its last connection closes
_GRACEFUL_S = 3


def main() -> None:
    """Run the server."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
    config = uvicorn.Config(
        "installation.spark_ui.asgi:application",
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
    asyncio.run(_serve(uvicorn.Server(config), socket.socket(fileno=sys.stdin.fileno())))


async def _serve(server: uvicorn.Server, listener: socket.socket) -> None:
    ending = asyncio.create_task(end_when_idle(server, idle_s=IDLE_S))
    try:
        await server.serve(sockets=[listener])
    finally:
        ending.cancel()


async def end_when_idle(server: uvicorn.Server, *, idle_s: float) -> None:
    """Stop accepting connections after `idle_s` without any; then end without cutting one off."""
    used = time.monotonic()
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        if server.server_state.connections or not server.started:
            used = time.monotonic()
        elif time.monotonic() - used >= idle_s:
            break
    for one in server.servers:
        one.close()
    while True:
        await asyncio.sleep(LOOK_EVERY_S)  # what was accepted last is a connection by then
        if not server.server_state.connections:
            break
    server.should_exit = True


if __name__ == "__main__":
    main()
