"""The web process over a test's database, for what asks it through the network."""

import asyncio
import socket
import threading

import uvicorn

from tests.spark.driver_under_test import wait_for

LIMIT_S = 60.0


class Web:
    """The web process, which can go away and come back at its address."""

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Serve, as from the beginning."""
        from django.core.asgi import get_asgi_application

        config = uvicorn.Config(
            get_asgi_application(),
            host="127.0.0.1",
            port=self.port,
            log_level="warning",
            lifespan="off",
            timeout_graceful_shutdown=10,
        )
        server = self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=lambda: asyncio.run(server.serve()), name="web")
        self._thread.start()
        wait_for(lambda: server.started, "the web server runs", LIMIT_S)

    def stop(self) -> None:
        """Be away."""
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True  # requests under way are answered, or they would leak
            self._thread.join(LIMIT_S)
