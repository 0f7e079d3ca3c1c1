"""A worker's periodic work (`controlplane.ticks`): each function calls services and returns.

A thread of the worker runs it, so a function is never run twice at a time on one host, and an
error is logged and shown in the system's health. Ticks of the leader may overlap for some seconds
when the leader changes.
"""

import logging

import redis
from django.conf import settings
from django.utils import timezone

from controlplane.nudge import advance_soon
from listeners.loops.backlogs import loop_errors
from queries.launchers.configured import launcher
from queries.services import arrivals, spark_ui, tables
from queries.services.access import accounts, audit, tokens
from queries.services.alerts import deliveries, figures, incidents, watcher
from queries.services.checkpoints import batch_repair, remote, snapshot, storage_jvms
from queries.services.code.preparing import prune_contents
from queries.services.definitions import sql_recheck
from queries.services.deploys.advancing import advance_all
from queries.services.downloads import prune_sparks
from queries.services.idempotency_keys import forget_answers
from queries.services.kafka import lag, loss_ledger
from queries.services.probes import inspections
from queries.services.procedures.engine import due_operations, note_silent_hosts
from queries.services.schedules import ticks
from queries.services.supervision import adoption, records, standbys
from queries.services.supervision import reconcile as service

logger = logging.getLogger(__name__)
_sweep = loop_errors("sweep", logger)
_outlook_round = figures.Round()


def sweep() -> None:
    """Reconcile every application of this host that is due, even if a nudge was lost."""
    for application_id in service.due_applications(now=timezone.now()):
        with _sweep.isolate_errors(f"application number {application_id}"):
            service.reconcile(application_id, launcher=launcher(), now=timezone.now())
    standbys.keep_standbys(launcher=launcher(), now=timezone.now())


def watch_incidents() -> None:
    """Open, update and close incidents from current problems."""
    figures.sample_figures(now=timezone.now())
    incidents.watch_incidents(now=timezone.now())
    deliveries.announce_incidents(now=timezone.now())


def send_alerts() -> None:
    """Send pending messages."""
    deliveries.send_alerts(now=timezone.now(), clock=timezone.now)


def forget_old_incidents() -> None:
    """Delete incidents past the retention period."""
    deliveries.forget_old(now=timezone.now())


def call_outside() -> None:
    """Ping the external watcher, as long as all of Headgate works."""
    if settings.DEAD_MANS_SWITCH_URL:
        watcher.call_outside(now=timezone.now())


def advance_operations() -> None:
    """Nudge this host's unclaimed multi-step operations, in case a nudge was lost."""
    for operation_id in due_operations(now=timezone.now()):
        advance_soon(operation_id)
    note_silent_hosts()
    storage_jvms.note_ended(launcher=launcher(), now=timezone.now())


def advance_deploys() -> None:
    """Take the next steps of deploys, in case a nudge was lost."""
    advance_all(now=timezone.now())


def look_at_sources() -> None:
    """Query the brokers for the lag of this host's queries."""
    lag.look_at_sources(now=timezone.now())


def look_at_tables() -> None:
    """Read the logs of the tables that this host's queries read."""
    tables.look_at_tables(launcher=launcher(), now=timezone.now())


def run_schedules() -> None:
    """Start due schedules, and record the ends of planned runs."""
    ticks.run_schedules(now=timezone.now())


def look_at_folders() -> None:
    """List the folders whose new files start this host's queries."""
    arrivals.look_at_folders(launcher=launcher(), now=timezone.now())


def note_verdicts() -> None:
    """Record the time since which each query's health has been the same."""
    records.note_verdicts(now=timezone.now())


def recheck_sql() -> None:
    """Check with Spark's parser any SQL that was saved unchecked, and read its relations."""
    sql_recheck.recheck_sql(now=timezone.now())
    sql_recheck.read_unread_sql()


def keep_ledger() -> None:
    """Record the losses in the newest batches."""
    loss_ledger.keep_ledger(now=timezone.now())


def repair_from_checkpoints() -> None:
    """Count batches that no run reported, and restore those that only checkpoints still contain."""
    try:
        batch_repair.count_unreported(now=timezone.now())
    except redis.RedisError as error:  # the next call checks again
        logger.warning("cannot compare commits because Redis is not responding: %s", error)
    batch_repair.repair_from_checkpoints(now=timezone.now())


def look_for_foreign_batches() -> None:
    """Find batches in this host's checkpoints that no run of ours wrote."""
    batch_repair.look_for_foreign_batches(now=timezone.now())


def look_ahead() -> None:
    """Record forecast problems for some of this host's queries."""
    figures.look_ahead(now=timezone.now(), place=_outlook_round)


def adopt() -> None:
    """Find this host's existing drivers, when a worker starts and from time to time.

    Drivers that supervision has given up are ended first, so that none of them can still write.
    """
    adoption.end_strays(launcher=launcher())
    service.wake_all(now=timezone.now())


def forget_expired_tokens() -> None:
    """Delete expired tokens, sessions, stored responses, and Spark UI visits."""
    now = timezone.now()
    tokens.forget_expired_tokens(now=now)
    accounts.forget_expired_sessions(now=now)
    spark_ui.forget_visits(now=now)
    forget_answers(now=now)


def chain_audit_log() -> None:
    """Chain audit log entries whose process died before it could chain them."""
    while audit.chain_entries():
        pass


def prune_audit_log() -> None:
    """Delete audit log entries past their retention period."""
    audit.prune_audit_log(now=timezone.now())


def prune() -> None:
    """Delete folders of old drivers, and state rows that have been shown for an hour."""
    service.prune_folders(launcher=launcher())
    inspections.forget_old_results(launcher=launcher(), now=timezone.now())


def prune_snapshots() -> None:
    """Delete snapshots beyond the configured number."""
    remote.prune(now=timezone.now())
    snapshot.prune(launcher=launcher(), now=timezone.now())


def prune_code() -> None:
    """Delete code, packages and Spark versions that have been unreferenced for a few days."""
    prune_contents(now=timezone.now())
    prune_sparks(now=timezone.now())
