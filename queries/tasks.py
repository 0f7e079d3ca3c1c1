"""Celery tasks: each calls one service. Arguments are IDs; a task with a stale ID does nothing.

`PROCEDURES` lists all multi-step operations, which tasks advance.
"""

import logging
import threading
import time
from functools import partial
from typing import Any

import redis
from celery import shared_task, signals
from django.conf import settings
from django.db import close_old_connections, connection
from django.utils import timezone

from controlplane import signs_of_life
from controlplane.celery import app, leaving, stopping
from controlplane.nudge import advance_soon, lease, send_to_others
from listeners.loops.side_threads import SideThreads
from listeners.loops.troubles import each
from queries.domain.states import MANY_VERBS, Verb
from queries.launchers.configured import launcher
from queries.launchers.process.class_archives import beside
from queries.models.drivers import Driver
from queries.services import arrivals, spark_ui
from queries.services.access import audit_trail, sessions
from queries.services.alerts import dead_mans_switch, deliveries, figure_samples, incidents, outlook
from queries.services.checkpoints import (
    batch_repair,
    clone,
    file_sinks,
    foreign_batches,
    remote,
    reset,
    rewind,
    snapshot,
    storage_jvms,
)
from queries.services.code.pruning import prune_contents
from queries.services.console import tokens
from queries.services.definitions import sql_recheck
from queries.services.definitions.sql_check import Answering
from queries.services.deploys.advancing import advance_all
from queries.services.downloads.class_archives import Archiver
from queries.services.downloads.installs import Install
from queries.services.downloads.removal import prune_sparks
from queries.services.idempotency_keys import forget_answers
from queries.services.kafka import lag, loss_ledger
from queries.services.kafka.go_on_after_loss import GO_ON
from queries.services.probes import preflight, record_search, xray
from queries.services.procedures.bulk_operations import BulkOperation
from queries.services.procedures.engine import (
    Procedure,
    Work,
    advance,
    due_operations,
    note_silent_hosts,
)
from queries.services.schedules import ticks
from queries.services.supervision import adoption, standbys, verdicts
from queries.services.supervision import reconcile as service
from queries.services.tables import lag as table_lag
from queries.services.triggers.async_off import ASYNC_OFF

logger = logging.getLogger(__name__)
_sweep = each("sweep", logger)

#: All operations with steps, by the verb that requests them.
PROCEDURES: dict[Verb, Procedure] = {
    Verb.ASYNC_OFF: ASYNC_OFF,
    Verb.GO_ON: GO_ON,
    Verb.SNAPSHOT: snapshot.PROCEDURE,
    Verb.CLONE: clone.PROCEDURE,
    Verb.REWIND: rewind.PROCEDURE,
    Verb.RESET: reset.PROCEDURE,
    Verb.PREFLIGHT: preflight.PROCEDURE,
    Verb.XRAY: xray.PROCEDURE,
    Verb.RECORDS: record_search.PROCEDURE,
}
#: All operations that outlive a worker.
WORK: dict[Verb, Work] = {
    **PROCEDURES,
    **dict.fromkeys(MANY_VERBS, BulkOperation()),
    Verb.INSTALL: Install(stopping),
}

#: Seconds: the length of a wait for a driver's exit, and the pause after a failed wait.
EXIT_WAIT_S, EXITS_AGAIN_S = 2.0, 5.0
#: Seconds between two looks for a storage JVM that is starting, and their number.
READ_AGAIN_S, READ_ATTEMPTS = 0.5, 60
#: Seconds without a sweep after which the worker sweeps by itself: beat or Redis is down, and five
#: ticks are lost; otherwise queries due for a retry would wait until it is back.
UNASKED_AFTER_S = 5 * settings.SWEEP_EVERY_S
_swept_at = time.monotonic()
_outlook_round = outlook.Round()
_beside = SideThreads(settings.WORKER_THREADS, "tick")


@shared_task(name="queries.tasks.in_turn")
def in_turn(names: list[str]) -> None:
    """Run ticks of Celery beat: one after the other, those that may wait in threads of their own.

    An error of one is logged, and the others run. No message is needed for each, nor Celery's
    preparations for a task, which cost more than a tick that finds nothing to do.
    """
    for name in names:
        if name in settings.BESIDE:
            _beside.run(name, partial(_run_beside, name))
        else:
            _run(name)


def _run(name: str) -> None:
    try:
        app.tasks[name].run()
    except Exception:  # a tick's boundary
        logger.exception("%s failed; the next tick runs it again", name)


def _run_beside(name: str) -> None:
    close_old_connections()
    _run(name)


@shared_task(name="queries.tasks.on_each_host")
def on_each_host(names: list[str], expires_s: float) -> None:
    """Run ticks on each live host's worker: on this host immediately.

    The other workers find them in their own queues; if the queues cannot be reached, the ticks
    still run here.
    """
    try:
        send_to_others("queries.tasks.in_turn", names, expires_s=expires_s)
    finally:
        in_turn(names)


@shared_task(name="queries.tasks.reconcile_application")
def reconcile_application(application_id: int) -> None:
    """Reconcile one application now (a nudge)."""
    service.reconcile(application_id, launcher=launcher(), now=timezone.now())


@shared_task(name="queries.tasks.reconcile_driver")
def reconcile_driver(driver_id: int) -> None:
    """Reconcile the application of a driver that has reported something (a nudge)."""
    found = Driver.objects.filter(pk=driver_id).values_list("application_id", flat=True).first()
    if found is not None:
        service.reconcile(found, launcher=launcher(), now=timezone.now())


@signals.worker_init.connect  # not "ready": that waits for Redis, while drivers do not
def _worker_begins(**_: Any) -> None:
    threading.Thread(target=_supervise, name="supervision", daemon=True).start()
    threading.Thread(target=lambda: launcher().walls(), name="walls", daemon=True).start()
    threading.Thread(target=Answering(leaving).run, name="spark-parser", daemon=True).start()
    if settings.CLASS_ARCHIVES:
        archiver = Archiver(beside(settings.DRIVERS_DIR), leaving.wait)
        threading.Thread(target=archiver.run, name="class-archives", daemon=True).start()


def _supervise() -> None:
    """Adopt this host's drivers, reconcile as soon as one exits, and sweep if Celery beat does not.

    A task would run later, or not at all while Redis is down.
    """
    told = ""
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
                    told = ""
                    if driver is not None:
                        reconcile_driver(driver)
                    else:
                        _sweep_unasked()
        except Exception as error:  # loop boundary: the sweep finds what is missed here
            if str(error) != told:
                logger.warning("a driver's exit will be handled by the sweep: %s", error)
            told = str(error)
            leaving.wait(EXITS_AGAIN_S)
            with _sweep.by_itself("the sweep in place of beat"):
                _sweep_unasked()


def _sweep_unasked() -> None:
    """Sweep if Celery beat or Redis is down."""
    if time.monotonic() - _swept_at > UNASKED_AFTER_S:
        _sweep_all()


@shared_task(name="queries.tasks.watch_incidents")
def watch_incidents() -> None:
    """Open, update and close incidents from current problems."""
    figure_samples.sample_figures(now=timezone.now())
    incidents.watch_incidents(now=timezone.now())
    deliveries.announce_incidents(now=timezone.now())


@shared_task(name="queries.tasks.send_alerts")
def send_alerts() -> None:
    """Send pending messages."""
    deliveries.send_alerts(now=timezone.now(), clock=timezone.now)


@shared_task(name="queries.tasks.forget_old_incidents")
def forget_old_incidents() -> None:
    """Delete incidents past the retention period."""
    deliveries.forget_old(now=timezone.now())


@shared_task(name="queries.tasks.call_outside")
def call_outside() -> None:
    """Ping the external watcher, as long as all of Headgate works."""
    if settings.DEAD_MANS_SWITCH_URL:
        dead_mans_switch.call_outside(now=timezone.now())


@shared_task(name="queries.tasks.sweep")
def sweep() -> None:
    """Reconcile every application of this host that is due, even if a nudge was lost."""
    _sweep_all()
    signs_of_life.try_to_say(signs_of_life.SWEEP, now=timezone.now())


def _sweep_all() -> None:
    global _swept_at
    _swept_at = time.monotonic()
    for application_id in service.due_applications(now=timezone.now()):
        with _sweep.by_itself(f"application number {application_id}"):
            service.reconcile(application_id, launcher=launcher(), now=timezone.now())
    standbys.keep_standbys(launcher=launcher(), now=timezone.now())


@shared_task(name="queries.tasks.read_checkpoint")
def read_checkpoint(checkpoint_id: int, attempt: int = 0) -> None:
    """Read a checkpoint that is not on a local disk, for the pages of this host."""
    again = remote.read_checkpoint(checkpoint_id, launcher=launcher(), now=timezone.now())
    if again:
        _read_again(read_checkpoint, checkpoint_id, attempt)


@shared_task(name="queries.tasks.read_sink")
def read_sink(query_id: int, attempt: int = 0) -> None:
    """Read the log of a file sink that is not on a local disk, for the pages of this host."""
    if file_sinks.read_sink(query_id, launcher=launcher(), now=timezone.now()):
        _read_again(read_sink, query_id, attempt)


@shared_task(name="queries.tasks.read_tables")
def read_tables(query_id: int, attempt: int = 0) -> None:
    """Read the logs of the tables that a query reads, for the pages of this host."""
    if table_lag.look_at_tables(launcher=launcher(), now=timezone.now(), query_ids=[query_id]):
        _read_again(read_tables, query_id, attempt)


def _read_again(task: Any, row_id: int, attempt: int) -> None:
    """Read again once the storage JVM may have started."""
    if attempt < READ_ATTEMPTS:
        task.apply_async(
            (row_id, attempt + 1),
            countdown=READ_AGAIN_S,
            queue=f"{settings.QUEUE}.{settings.HEADGATE_HOST}",
            expires=60,
            retry=False,
        )


@shared_task(name="queries.tasks.advance_operation")
def advance_operation(operation_id: int) -> None:
    """Take the next steps of one operation (a nudge)."""
    advance(operation_id, procedures=WORK, launcher=launcher(), now=timezone.now())


@shared_task(name="queries.tasks.advance_operations")
def advance_operations() -> None:
    """Nudge this host's unclaimed multi-step operations, in case a nudge was lost."""
    for operation_id in due_operations(now=timezone.now()):
        advance_soon(operation_id)
    note_silent_hosts()
    storage_jvms.note_ended(launcher=launcher(), now=timezone.now())


@shared_task(name="queries.tasks.advance_deploys")
def advance_deploys() -> None:
    """Take the next steps of deploys: after a nudge, and at a tick in case a nudge was lost."""
    advance_all(now=timezone.now())


@shared_task(name="queries.tasks.look_at_sources")
def look_at_sources() -> None:
    """Query the brokers for the lag of this host's queries; one pass at a time."""
    with lease(f"look-at-sources:{settings.HEADGATE_HOST}", limit_s=60) as held:
        if held:
            lag.look_at_sources(now=timezone.now())


@shared_task(name="queries.tasks.look_at_tables")
def look_at_tables() -> None:
    """Read the logs of the tables that this host's queries read; one pass at a time."""
    with lease(f"look-at-tables:{settings.HEADGATE_HOST}", limit_s=180) as held:
        if held:
            table_lag.look_at_tables(launcher=launcher(), now=timezone.now())


@shared_task(name="queries.tasks.run_schedules")
def run_schedules() -> None:
    """Start what is due by its schedule, and note the ends of planned runs."""
    ticks.run_schedules(now=timezone.now())


@shared_task(name="queries.tasks.look_at_folders")
def look_at_folders() -> None:
    """List the folders whose new files start this host's queries; one pass at a time."""
    with lease(f"look-at-folders:{settings.HEADGATE_HOST}", limit_s=180) as held:
        if held:
            arrivals.look_at_folders(launcher=launcher(), now=timezone.now())


@shared_task(name="queries.tasks.note_verdicts")
def note_verdicts() -> None:
    """Record the time since which each query's health has been the same."""
    verdicts.note_verdicts(now=timezone.now())


@shared_task(name="queries.tasks.recheck_sql")
def recheck_sql() -> None:
    """Check with Spark's parser any SQL that was saved unchecked; one pass at a time."""
    with lease("recheck-sql", limit_s=60) as held:
        if held:
            sql_recheck.recheck_sql(now=timezone.now())


@shared_task(name="queries.tasks.keep_ledger")
def keep_ledger() -> None:
    """Record the losses in the newest batches."""
    loss_ledger.keep_ledger(now=timezone.now())


@shared_task(name="queries.tasks.repair_from_checkpoints")
def repair_from_checkpoints() -> None:
    """Count batches that no run reported, and restore those that only checkpoints still contain."""
    try:
        batch_repair.count_unreported(now=timezone.now())
    except redis.RedisError as error:  # the next call checks again
        logger.warning("cannot compare commits because Redis is not responding: %s", error)
    batch_repair.repair_from_checkpoints(now=timezone.now())


@shared_task(name="queries.tasks.look_for_foreign_batches")
def look_for_foreign_batches() -> None:
    """Find batches in this host's checkpoints that no run of ours wrote; one pass at a time."""
    with lease(f"look-for-foreign-batches:{settings.HEADGATE_HOST}", limit_s=60) as held:
        if held:
            foreign_batches.look_for_foreign_batches(now=timezone.now())


@shared_task(name="queries.tasks.look_ahead")
def look_ahead() -> None:
    """Record forecast problems for some of this host's queries; one pass at a time."""
    with lease(f"look-ahead:{settings.HEADGATE_HOST}", limit_s=60) as held:
        if held:
            outlook.look_ahead(now=timezone.now(), place=_outlook_round)


@shared_task(name="queries.tasks.adopt")
def adopt() -> None:
    """Find this host's existing drivers, when a worker starts and from time to time.

    Drivers that supervision has given up are ended first, so that none of them can still write.
    """
    adoption.end_strays(launcher=launcher())
    service.wake_all(now=timezone.now())


@shared_task(name="queries.tasks.forget_expired_tokens")
def forget_expired_tokens() -> None:
    """Delete expired tokens, sessions, stored responses, and Spark UI visits."""
    now = timezone.now()
    tokens.forget_expired_tokens(now=now)
    sessions.forget_expired_sessions(now=now)
    spark_ui.forget_visits(now=now)
    forget_answers(now=now)


@shared_task(name="queries.tasks.chain_audit_log")
def chain_audit_log() -> None:
    """Chain audit log entries whose process died before it could chain them."""
    while audit_trail.chain_entries():
        pass


@shared_task(name="queries.tasks.prune_audit_log")
def prune_audit_log() -> None:
    """Delete audit log entries past their retention period."""
    audit_trail.prune_audit_log(now=timezone.now())


@shared_task(name="queries.tasks.prune")
def prune() -> None:
    """Delete folders of old drivers, and state rows that have been shown for an hour."""
    service.prune_folders(launcher=launcher())
    xray.forget_old_results(launcher=launcher(), now=timezone.now())


@shared_task(name="queries.tasks.prune_snapshots")
def prune_snapshots() -> None:
    """Delete snapshots beyond the configured number."""
    remote.prune(now=timezone.now())
    snapshot.prune(launcher=launcher(), now=timezone.now())


@shared_task(name="queries.tasks.prune_code")
def prune_code() -> None:
    """Delete code, packages and versions of Spark that have been unreferenced for a few days."""
    prune_contents(now=timezone.now())
    prune_sparks(now=timezone.now())
