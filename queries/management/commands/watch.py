"""`manage.py watch`: report problems when the worker, Redis or the database cannot do so."""

import signal
import threading
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from queries.channels.base import Message
from queries.selectors.alerts.own_routes import Route
from queries.services.alerts.deliveries import send
from queries.services.alerts.watcher import Watcher


class Command(BaseCommand):
    """Watch until SIGTERM or SIGINT."""

    help = (
        "Watch the web server, the worker and its periodic work, the ingester, Redis, the database "
        "and the disk, and notify the channels of problems."
    )
    requires_system_checks = ()

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the watcher in this thread."""
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        watcher = Watcher(
            settings.HEADGATE_HOME / "watch.json", send=_send, clock=lambda: datetime.now(UTC)
        )
        self.stdout.write("watching Headgate")
        watcher.run(stop)


def _send(route: Route, message: Message) -> None:
    bound = {secret: tuple(hosts) for secret, hosts in route.bound.items()}
    send(route.kind, route.settings, message, name=route.name, bound=bound)
