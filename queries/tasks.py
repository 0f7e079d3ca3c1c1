"""Celery shells: each fetches, calls one service, ends. Ids only; a stale one does nothing."""

import logging

from celery import shared_task
from django.utils import timezone

from controlplane.nudge import advance_soon, lease
from queries.launchers.configured import launcher
from queries.models.drivers import Driver
from queries.services.checkpoints import batch_repair
from queries.services.checkpoints.snapshot import prune as prune_kept_snapshots
from queries.services.console import tokens
from queries.services.kafka import lag, loss_ledger
from queries.services.probes.xray import forget_old_results
from queries.services.procedure_registry import PROCEDURES
from queries.services.procedures.engine import advance, due_operations
from queries.services.supervision import reconcile as service

logger = logging.getLogger(__name__)


@shared_task(name="queries.tasks.reconcile_application")
def reconcile_application(application_id: int) -> None:
    """Look at one application now (a nudge)."""
    service.reconcile(application_id, launcher=launcher(), now=timezone.now())


@shared_task(name="queries.tasks.reconcile_driver")
def reconcile_driver(driver_id: int) -> None:
    """Look at the application of a driver that has said something (a nudge)."""
    found = Driver.objects.filter(pk=driver_id).values_list("application_id", flat=True).first()
    if found is not None:
        service.reconcile(found, launcher=launcher(), now=timezone.now())


@shared_task(name="queries.tasks.sweep")
def sweep() -> None:
    """Look at every application that is due: the certainty behind lost nudges."""
    for application_id in service.due_applications(now=timezone.now()):
        try:
            service.reconcile(application_id, launcher=launcher(), now=timezone.now())
        except Exception:  # one application's trouble must not keep the others waiting
            logger.exception("application %s could not be reconciled", application_id)


@shared_task(name="queries.tasks.advance_operation")
def advance_operation(operation_id: int) -> None:
    """Take the next steps of one operation (a nudge)."""
    advance(operation_id, procedures=PROCEDURES, launcher=launcher(), now=timezone.now())


@shared_task(name="queries.tasks.advance_operations")
def advance_operations() -> None:
    """Nudge every operation with steps that nobody is at: the certainty behind lost nudges."""
    for operation_id in due_operations(now=timezone.now()):
        advance_soon(operation_id)


@shared_task(name="queries.tasks.look_at_sources")
def look_at_sources() -> None:
    """Ask the brokers how far every query is behind; one look at a time, whoever takes it."""
    with lease("look-at-sources", limit_s=60) as held:
        if held:
            lag.look_at_sources(now=timezone.now())


@shared_task(name="queries.tasks.keep_ledger")
def keep_ledger() -> None:
    """Write down what the newest batches have lost."""
    loss_ledger.keep_ledger(now=timezone.now())


@shared_task(name="queries.tasks.repair_from_checkpoints")
def repair_from_checkpoints() -> None:
    """Ask checkpoints for the batches that nothing else remembers."""
    batch_repair.repair_from_checkpoints(now=timezone.now())


@shared_task(name="queries.tasks.adopt")
def adopt() -> None:
    """Look at every application that has a driver on this host: a worker has come up."""
    service.wake_all(now=timezone.now())


@shared_task(name="queries.tasks.forget_expired_tokens")
def forget_expired_tokens() -> None:
    """Remove the tokens whose time is over."""
    tokens.forget_expired_tokens(now=timezone.now())


@shared_task(name="queries.tasks.prune")
def prune() -> None:
    """Remove the folders of old drivers, and rows of state that were shown long enough."""
    service.prune_folders(launcher=launcher())
    forget_old_results(launcher=launcher(), now=timezone.now())


@shared_task(name="queries.tasks.prune_snapshots")
def prune_snapshots() -> None:
    """Remove snapshots of checkpoints beyond those that are kept."""
    prune_kept_snapshots(now=timezone.now())
