"""Configure the Celery application: short idempotent tasks, JSON only.

The worker also sends heartbeats here (`controlplane.signs_of_life`); `/readyz` and the pages check
their age. Its timers (`controlplane.ticks`) run alongside the tasks.
"""

import logging
import os
import threading
from datetime import UTC, datetime
from typing import Any

from celery import Celery, signals
from django.db import close_old_connections, connections

from controlplane import signs_of_life
from controlplane.hosts import NAME_IN_USE, HostName, NameTaken

os.umask(0o077)  # as in manage.py
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
#: Django's system checks import every page and the REST API, 50 MB in each process that runs them.
#: They find mistakes in code, so tests run them.
os.environ.setdefault("CELERY_SKIP_CHECKS", "1")

app = Celery("headgate")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()

logger = logging.getLogger(__name__)

SIGN_EVERY_S = 2.0
#: Seconds for which a worker's thread keeps its database connection, up to its next task: opening
#: one, and reading the tables' layout through it, takes longer than most tasks.
CONNECTION_KEPT_S = 60
#: Set once this worker stops, so that its threads exit.
leaving = threading.Event()


def stopping() -> bool:
    """Return whether this worker is stopping; its tasks may still be running."""
    from celery.worker import state

    return leaving.is_set() or state.should_stop not in (None, False)


@signals.setup_logging.connect
def _keep_our_logging(**_: Any) -> None:
    """Keep Celery from setting up its own logging: it does not if this signal has a receiver."""


@signals.worker_init.connect
def _worker_begins(**_: Any) -> None:
    """Claim the host's name before the worker takes any task from the host's queue."""
    connections.settings["default"].update(CONN_MAX_AGE=CONNECTION_KEPT_S, CONN_HEALTH_CHECKS=True)
    name = HostName()
    try:
        name.take()
    except NameTaken as taken:
        logger.error("%s", taken)
        raise SystemExit(NAME_IN_USE) from None
    name.keep(_leave)
    signals.worker_shutdown.connect(lambda **_: name.release(), weak=False)


def _leave(conflict: NameTaken) -> None:
    """Stop this worker as SIGTERM would, with an exit code that gives the reason."""
    from celery.worker import state

    logger.error("%s", conflict)
    leaving.set()  # from now on, the other worker supervises this host
    setattr(state, "should_stop", NAME_IN_USE)  # noqa: B010 - what a signal's handler sets


@signals.worker_ready.connect
def _worker_is_ready(**_: Any) -> None:
    threading.Thread(
        target=_send_heartbeats, args=(signs_of_life.WORKER,), name="signs-of-life", daemon=True
    ).start()


@signals.worker_shutdown.connect
def _worker_leaves(**_: Any) -> None:
    leaving.set()


@signals.task_prerun.connect
def _check_connection(task: Any = None, **_: Any) -> None:
    """Close the thread's database connection if it is too old or broken: the task opens another."""
    if task is not None and not task.request.is_eager:
        close_old_connections()


def _send_heartbeats(name: str) -> None:
    while True:
        signs_of_life.try_to_record_heartbeat(name, now=datetime.now(UTC))
        if leaving.wait(SIGN_EVERY_S):
            return
