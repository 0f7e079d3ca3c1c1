"""Celery tasks: each calls one service. Arguments are IDs; a task with a stale ID does nothing.

`PROCEDURES` lists all multi-step operations, which tasks advance. A worker's periodic work runs in
separate threads (`queries.ticks`).
"""

import logging
import threading
from typing import Any

from celery import shared_task, signals
from django.conf import settings
from django.db import close_old_connections, connection
from django.utils import timezone

from controlplane import nudge
from controlplane.celery import app, leaving, stopping
from listeners.loops.timers import Timers
from queries.domain.states import MANY_VERBS, Verb
from queries.launchers.configured import launcher
from queries.models.drivers import Driver
from queries.services import tables
from queries.services.checkpoints import clone, file_sinks, remote, rewind_and_reset, snapshot
from queries.services.definitions.sql_check import Answering
from queries.services.deploys.advancing import advance_all
from queries.services.downloads import Archiver
from queries.services.kafka.go_on_after_loss import GO_ON
from queries.services.probes import inspections, preflight
from queries.services.procedures.bulk_operations import BulkOperation
from queries.services.procedures.engine import Procedure, Work, advance
from queries.services.supervision import reconcile as service
from queries.services.system import installation
from queries.services.triggers import ASYNC_OFF
from queries.ticks import adopt

logger = logging.getLogger(__name__)

#: All operations with steps, by the verb that requests them.
PROCEDURES: dict[Verb, Procedure] = {
    Verb.ASYNC_OFF: ASYNC_OFF,
    Verb.GO_ON: GO_ON,
    Verb.SNAPSHOT: snapshot.PROCEDURE,
    Verb.CLONE: clone.PROCEDURE,
    Verb.REWIND: rewind_and_reset.REWIND,
    Verb.RESET: rewind_and_reset.RESET,
    Verb.PREFLIGHT: preflight.PROCEDURE,
    Verb.XRAY: inspections.XRAY,
    Verb.RECORDS: inspections.RECORD_SEARCH,
}
#: All operations that outlive a worker.
WORK: dict[Verb, Work] = {
    **PROCEDURES,
    **dict.fromkeys(MANY_VERBS, BulkOperation()),
}

#: Seconds: the length of a wait for a driver's exit, and the pause after a failed wait.
EXIT_WAIT_S, EXITS_AGAIN_S = 2.0, 5.0
#: Seconds between two looks for a storage JVM that is starting, and their number.
READ_AGAIN_S, READ_ATTEMPTS = 0.5, 60
_timers: list[Timers] = []  # of this worker


@shared_task(name="queries.tasks.take_nudges")
def take_nudges(queue: str) -> None:
    """Process the nudges of a queue, one row after the other, until none is left.

    Each nudge that was added has sent a message, so several threads share them.
    """
    for task, args in nudge.take_nudges(queue):
        close_old_connections()
        try:
            app.tasks[task].run(*args)
        except Exception:  # a row's boundary
            logger.exception("%s%s failed; the next tick finds the row", task, tuple(args))
        if stopping():
            return


@shared_task(name="queries.tasks.reconcile_application")
def reconcile_application(application_id: int) -> None:
    """Reconcile one application now (a nudge)."""
    service.reconcile(application_id, launcher=launcher(), now=timezone.now())


@shared_task(name="queries.tasks.reconcile_driver")
def reconcile_driver(driver_id: int) -> None:
    """Reconcile the application of a driver that has reported something (a nudge)."""
    application_id = (
        Driver.objects.filter(pk=driver_id).values_list("application_id", flat=True).first()
    )
    if application_id is not None:
        service.reconcile(application_id, launcher=launcher(), now=timezone.now())


@signals.celeryd_init.connect  # before the worker takes its host's name
def _refuse_former_accounts(**_: Any) -> None:
    if why := installation.refusal():
        raise SystemExit(why)


@signals.worker_init.connect  # not "ready": that waits for Redis, while drivers do not
def _worker_begins(**_: Any) -> None:
    _timers.append(Timers(leaving))
    _timers[-1].start()
    threading.Thread(target=_supervise, name="supervision", daemon=True).start()
    threading.Thread(target=lambda: launcher().isolation(), name="isolation", daemon=True).start()
    threading.Thread(target=Answering(leaving).run, name="spark-parser", daemon=True).start()
    archives = launcher().class_archives() if settings.CLASS_ARCHIVES else None
    if archives is not None:
        archiver = Archiver(archives, leaving.wait)
        threading.Thread(target=archiver.run, name="class-archives", daemon=True).start()


@signals.worker_shutdown.connect  # after `leaving` is set, before the host's name is released
def _worker_leaves(**_: Any) -> None:
    for timers in _timers:
        timers.join()


def _supervise() -> None:
    """Adopt this host's drivers, and reconcile as soon as one exits.

    A task would run later, or not at all while Redis is down.
    """
    logged_error = ""
    adopted = False
    while not leaving.is_set():
        try:
            close_old_connections()
            if not adopted:
                adopt()
                adopted = True
            with launcher().exits() as wait:
                while not leaving.is_set():
                    close_old_connections()
                    connection.ensure_connection()  # an exit might not need one
                    driver = wait(EXIT_WAIT_S)
                    logged_error = ""
                    if driver is not None:
                        reconcile_driver(driver)
        except Exception as error:  # loop boundary: the sweep finds what is missed here
            if str(error) != logged_error:
                logger.warning("a driver's exit will be handled by the sweep: %s", error)
            logged_error = str(error)
            leaving.wait(EXITS_AGAIN_S)


@shared_task(name="queries.tasks.read_checkpoint")
def read_checkpoint(checkpoint_id: int, attempt: int = 0) -> None:
    """Read a checkpoint that is not on a local disk, for the pages of this host."""
    again = remote.read_checkpoint(checkpoint_id, launcher=launcher(), now=timezone.now())
    if again:
        _read_again(read_checkpoint, checkpoint_id, attempt)


@shared_task(name="queries.tasks.read_snapshot")
def read_snapshot(snapshot_id: int, attempt: int = 0) -> None:
    """Read a snapshot that is not on a local disk, for the pages of this host."""
    if remote.read_snapshot(snapshot_id, launcher=launcher(), now=timezone.now()):
        _read_again(read_snapshot, snapshot_id, attempt)


@shared_task(name="queries.tasks.read_sink")
def read_sink(query_id: int, attempt: int = 0) -> None:
    """Read the log of a file sink that is not on a local disk, for the pages of this host."""
    if file_sinks.read_sink(query_id, launcher=launcher(), now=timezone.now()):
        _read_again(read_sink, query_id, attempt)


@shared_task(name="queries.tasks.read_tables")
def read_tables(query_id: int, attempt: int = 0) -> None:
    """Read the logs of the tables that a query reads, for the pages of this host."""
    if tables.look_at_tables(launcher=launcher(), now=timezone.now(), query_ids=[query_id]):
        _read_again(read_tables, query_id, attempt)


def _read_again(task: Any, row_id: int, attempt: int) -> None:
    """Read again once the storage JVM may have started."""
    if attempt < READ_ATTEMPTS:
        task.apply_async(
            (row_id, attempt + 1),
            countdown=READ_AGAIN_S,
            queue=f"{settings.QUEUE}.{settings.HEADGATE_HOST}",
            retry=False,
        )


@shared_task(name="queries.tasks.advance_operation")
def advance_operation(operation_id: int) -> None:
    """Take the next steps of one operation (a nudge)."""
    advance(operation_id, procedures=WORK, launcher=launcher(), now=timezone.now())


@shared_task(name="queries.tasks.advance_deploys")
def advance_deploys() -> None:
    """Take the next steps of deploys (a nudge)."""
    advance_all(now=timezone.now())
