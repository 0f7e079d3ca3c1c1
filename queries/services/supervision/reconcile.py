"""observe → decide → apply, for one application; every call is idempotent and short.

A nudge triggers a prompt call, and the sweep guarantees one. A call that loses the compare-and-set
on the application's version does nothing: the winner saw at least as much.
"""

import logging
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Q

from controlplane.nudge import changed
from listeners.loops.backlogs import loop_errors
from listeners.missing.gaps import note_exit
from queries.domain.definitions.spec import ApplicationSpec
from queries.domain.hosts import Responsibility, responsibility
from queries.domain.protocol import Assignment
from queries.domain.states import Reason, RestartBlock
from queries.domain.supervision.decide import WATCHFUL, decide
from queries.domain.supervision.decision import Decision, DriverAction, RunEnd
from queries.domain.supervision.observation import Liveness, Sighting
from queries.jvm import compiled
from queries.launchers.base import Launcher, LaunchRefused
from queries.models.applications import Application
from queries.models.drivers import Driver, Installation, Run
from queries.models.history import Failure
from queries.models.lock_waits import again_if_busy
from queries.selectors.hosts import at_work, is_silent, on_this_host, to_look_after
from queries.selectors.spark_folders import jars_of
from queries.selectors.supervision.observation import Rows, observation, read_rows, slots, statuses
from queries.services.code import preparing
from queries.services.code.preparing import NO_CODE
from queries.services.failures import read_log, record_failure, without_secrets
from queries.services.scripts import create_discovered_queries
from queries.services.supervision import (
    adoption,
    assignments,
    decision_rows,
    operation_rows,
    standbys,
)

logger = logging.getLogger(__name__)
_loop = loop_errors("reconcile", logger)
_prune = loop_errors("prune", logger)

#: Rounds per call: after an end is recorded, its consequences are decided at once.
ROUNDS = 4


def reconcile(application_id: int, *, launcher: Launcher, now: datetime) -> bool:
    """Bring one application a step closer to its desired state.

    Returns whether this call succeeded. False means that nothing was done, because the application
    was changed in the meantime, is gone, or belongs to another host. A write that timed out waiting
    for the database is retried once, with the state at that time: the next sweep may be far off.
    """
    return again_if_busy(lambda: _reconcile(application_id, launcher=launcher, now=now))


def _reconcile(application_id: int, *, launcher: Launcher, now: datetime) -> bool:
    for _ in range(ROUNDS):
        rows = read_rows(application_id)
        if rows is None:
            return False
        ours = responsibility_for(rows)
        if ours is Responsibility.THEIRS:
            return False
        silent = rows.placed_on if ours is Responsibility.SILENT else ""
        sighting = _sight(rows, launcher)
        adopted = create_discovered_queries(rows, sighting, now=now)
        if adopted is None:
            return False
        if adopted and (rows := read_rows(application_id)) is None:
            return False
        alone = rows.driver is None and not silent
        standby = standbys.able(rows, launcher, now=now) if alone else None
        observed = observation(
            rows, sighting, now=now, silent_host=silent, standby=standby is not None
        )
        decision = decide(observed, now)
        if not _Step(rows, sighting, decision, launcher, now, standby).take():
            return False
        if not decision.again:
            return True
    return True


def responsibility_for(rows: Rows) -> Responsibility:
    """Return the responsibility of this host's worker for an application."""
    this_host, placed_on = settings.HEADGATE_HOST, rows.placed_on
    silent = placed_on not in ("", this_host) and is_silent(placed_on)
    return responsibility(placed_on, this_host, silent=silent, movable=rows.movable)


def _sight(rows: Rows, launcher: Launcher) -> Sighting | None:
    if rows.driver is None:
        return None
    if rows.driver.host != settings.HEADGATE_HOST:
        # Only its host, which is silent, can tell a dead driver from a live one; a user who
        # declares the host gone takes responsibility.
        abandoned = rows.driver.end_wanted == Reason.HOST_GONE
        return Sighting(Liveness.GONE if abandoned else Liveness.ELSEWHERE)
    sighting = launcher.sight(
        rows.application.name,
        rows.driver.epoch,
        locations=rows.locations,
        identity=rows.driver.identity,
    )
    return without_secrets(sighting, rows.driver)


class _NoSlot(Exception):
    """Another application has since taken the host's last slot, or the standby has ended."""


class _Step:
    """Carry out one decision: first the rows, in one transaction, then the launcher."""

    def __init__(
        self,
        rows: Rows,
        sighting: Sighting | None,
        decision: Decision,
        launcher: Launcher,
        now: datetime,
        standby: Driver | None = None,
    ) -> None:
        self.rows = rows
        self.standby = standby  # that could take over
        self.sighting = sighting
        self.decision = decision
        self.launcher = launcher
        self.now = now
        self.application = rows.application
        self.driver = rows.driver
        self.code = NO_CODE
        self.assignment: Assignment | None = None  # what its driver must do now
        self.assignment_is_news = False  # the file on disk is outdated
        self.driver_failure: Failure | None = None

    def take(self) -> bool:
        """Carry out the decision; return whether the compare-and-set was won."""
        if not self._freeze_code():
            return False
        log_tail = self._log_tail()
        try:
            with transaction.atomic():
                if not self._claim():
                    return False
                record = partial(record_failure, log_tail=log_tail, now=self.now)
                self._write_driver(record)
                self._write_queries(record)
                self._write_assignment()
        except _NoSlot:
            self._look_again()
            return False
        self._act()
        return True

    def _freeze_code(self) -> bool:
        """Copy the code that a driver is about to run; if refused, block the restart."""
        action = self.decision.driver.action
        if action is DriverAction.SPAWN and self.driver is not None:
            return self._take_frozen(self.driver)
        if action not in {DriverAction.LAUNCH, DriverAction.TAKE_OVER}:
            return True
        if adoption.end_given_up(self.application, launcher=self.launcher):
            self._look_again()  # once it is confirmed gone
            return False
        try:
            self.code = preparing.freeze(self._spec(), self.launcher)
        except LaunchRefused as error:
            if error.passing:
                self._look_again()
            else:
                decision_rows.block_application(self.application, str(error), now=self.now)
            return False
        if action is DriverAction.TAKE_OVER:
            return self._standby_fits()
        return True

    def _standby_fits(self) -> bool:
        """Return whether a new driver would be the same; if not, end the standby and look again."""
        assert self.standby is not None
        try:
            if standbys.fits(self.standby, self.code):
                return True
        except LaunchRefused as error:  # a new driver is refused too, and puts that on record
            logger.info("standby %s does not take over: %s", self.standby.epoch, error)
        standbys.end(self.standby, Reason.REPLACED, now=self.now)
        self._look_again()
        return False

    def _take_frozen(self, driver: Driver) -> bool:
        """Find the code that was frozen for a driver whose launch must be completed."""
        try:
            self.code = preparing.frozen(driver, self.launcher)
        except LaunchRefused as error:
            self._refuse(driver, str(error))
            return False
        return True

    def _spec(self) -> ApplicationSpec:
        return ApplicationSpec.model_validate(self.rows.revision.spec)

    def _look_again(self) -> None:
        rows = Application.objects.filter(pk=self.application.pk)
        rows.update(reconcile_after=self.now + WATCHFUL)

    def _log_tail(self) -> str:
        ended = self.decision.driver.fault is not None or any(
            choice.ended and choice.ended.fault for choice in self.decision.queries
        )
        if not ended or self.driver is None or self.driver.host != settings.HEADGATE_HOST:
            return ""
        with _loop.isolate_errors(f"the log of driver {self.driver.epoch}"):
            return read_log(self.driver, launcher=self.launcher, lines=100)
        return ""

    def _claim(self) -> bool:
        """Claim the application's version; return whether this call won it."""
        choice, before = self.decision, self.application
        fields: dict[str, Any] = {
            "failures": choice.failures,
            "next_attempt_at": choice.next_attempt_at,
            "restart_block": choice.restart_block,
            "restart_block_reason": choice.restart_block_reason,
            "seen_generation": choice.seen_generation,
            "reached_generation": choice.reached_generation,
            "reconcile_after": choice.wake_at,
        }
        if choice.driver.action in {DriverAction.LAUNCH, DriverAction.TAKE_OVER}:
            fields["host"] = settings.HEADGATE_HOST
        won = Application.objects.filter(
            pk=before.pk, version=before.version, generation=before.generation
        ).update(version=before.version + 1, **fields)
        self.application.version = before.version + 1
        return bool(won)

    def _take_slot(self) -> None:
        """Check the host's slots again, under a lock: others may have launched since."""
        Installation.objects.select_for_update().filter(pk=1).first()
        if slots(self._spec(), now=self.now).free:
            raise _NoSlot

    def _write_driver(self, record: Callable[..., Failure]) -> None:
        choice = self.decision.driver
        if choice.action is DriverAction.TAKE_OVER:
            assert self.standby is not None
            if not decision_rows.take_over(self.standby, self.application, now=self.now):
                raise _NoSlot
            self.driver = self.standby
        elif choice.action is DriverAction.LAUNCH:
            self._take_slot()
            standbys.make_room(self._spec(), now=self.now)
            for query in self.rows.queries:
                if query.pk in self.rows.checkpoints:
                    assignments.relocate_checkpoint(query, self.rows.checkpoints[query.pk])
            self.driver = decision_rows.create_driver(
                self.application,
                self.rows.revision,
                launcher=self.launcher,
                code_sha256=self.code.sha256,
                now=self.now,
            )
        elif self.driver is not None:
            if choice.exit is not None:  # the shim's own notice may have been lost with Redis
                note_exit(
                    driver=self.driver.pk,
                    epoch=self.driver.epoch,
                    last_seq=choice.exit.last_seq,
                    at=self.now,
                )
            decision_rows.update_driver(self.driver, self.sighting, choice, now=self.now)
            if choice.fault is not None:
                self.driver_failure = record(
                    choice.fault, self.decision, driver=self.driver, run=None
                )

    def _write_queries(self, record: Callable[..., Failure]) -> None:
        by_run = statuses(self.sighting)
        rows = {query.pk: query for query in self.rows.queries}
        failed = operation_rows.FailedRuns(self.driver_failure)
        for choice in self.decision.queries:
            query, run = rows[choice.query], self.rows.runs.get(choice.query)
            if run is not None:
                status = by_run.get(run.pk) or by_run.get(-(run.found or 0))
                decision_rows.update_run(run, status, choice, now=self.now)
            failure = self.driver_failure if choice.ended is not None else None
            if choice.ended is not None and choice.ended.fault is not None and run is not None:
                failure = record(choice.ended.fault, choice, driver=run.driver, run=run)
            if failure is not None and run is not None:
                failed.runs[query.pk] = failure, run.generation
            if choice.ended is not None:
                self._outrun(choice.ended, run)
                self.rows.runs.pop(choice.query, None)
            if choice.open_run is not None and self.driver is not None:
                checkpoint = self.rows.checkpoints[choice.query]
                assignments.relocate_checkpoint(query, checkpoint)
                self.rows.runs[choice.query] = decision_rows.create_run(
                    query, self.driver, checkpoint, choice.open_run, now=self.now
                )
            about = self.rows.runs.get(choice.query) or run
            decision_rows.update_query(query, about, choice, now=self.now)
        if self.rows.script is not None and self.decision.script is not None:
            decision_rows.update_script(self.rows.script, self.decision.script, now=self.now)
        operation_rows.close_operations(
            self.application, self.driver, self.decision, failed, now=self.now
        )

    def _outrun(self, ended: RunEnd, run: Run | None) -> None:
        error = ended.fault.error if ended.fault else None
        if run is not None and error is not None and error.refused == "fenced":
            adoption.outrun_owner(run.checkpoint.location, error.owner_epoch)

    def _write_assignment(self) -> None:
        """Give the assignment a new number if its contents have changed."""
        driver = self.driver
        if driver is None or self.decision.driver.exit is not None:
            return
        if driver.host != settings.HEADGATE_HOST:
            return  # nobody on this host can deliver it
        runs = {query: run for query, run in self.rows.runs.items() if run.driver_id == driver.pk}
        entries = assignments.entries(self.decision, runs, self.rows.checkpoints)
        end = bool(self.decision.driver.end_wanted)
        digest = assignments.digest(entries, end=end)
        generation = self.application.assignment_generation
        if digest != driver.assignment_digest:
            generation += 1
            Application.objects.filter(pk=self.application.pk).update(
                assignment_generation=generation
            )
            Driver.objects.filter(pk=driver.pk).update(assignment_digest=digest)
        on_disk = self.sighting.assignment_generation if self.sighting else 0
        self.assignment = Assignment(
            generation=generation, epoch=driver.epoch, queries=entries, end=end
        )
        self.assignment_is_news = on_disk < generation

    def _act(self) -> None:
        """Act on the process as the updated rows require; the next call repeats any lost action."""
        name, driver, action = self.application.name, self.driver, self.decision.driver.action
        if action is DriverAction.PREPARE:
            preparing.begin(self._spec())
        elif action is DriverAction.COMPILE:
            compiled.begin(settings.JARS_DIR, jars_of(self._spec().spark))
        if driver is None or driver.host != settings.HEADGATE_HOST:
            return
        if action in {DriverAction.LAUNCH, DriverAction.SPAWN} and self.assignment is not None:
            self._launch(driver, self.assignment)
            return
        if self.assignment is not None and self.assignment_is_news:
            self.launcher.assign(name, self.assignment)
        if action is DriverAction.TERMINATE:
            self.launcher.terminate(name, driver.epoch)
        elif action is DriverAction.KILL:
            why = self.decision.driver.end_wanted or Reason.DRIVER_DIED  # else: a part outlived it
            self.launcher.kill(name, driver.epoch, why)
        elif action is DriverAction.SEAL:
            self._seal(driver)
        if self.decision.driver.exit is not None:
            changed(f"application:{self.application.pk}")

    def _launch(self, driver: Driver, assignment: Assignment) -> None:
        try:
            spec = assignments.driver_spec(driver, self.code)
            self.launcher.launch(spec, assignment, assignments.pools_xml(driver))
        except LaunchRefused as error:
            logger.warning("driver %s not launched: %s", driver.epoch, error)
            if not error.passing:
                self._refuse(driver, str(error))
            return
        if self.decision.driver.action is DriverAction.LAUNCH:
            logger.info("launched driver %s of %s", driver.epoch, self.application.name)

    def _refuse(self, driver: Driver, refusal: str) -> None:
        """Block the application's restart, with the refusal as the reason.

        Its driver is ended if it can no longer start.
        """
        try:
            if self.launcher.seal(self.application.name, driver.epoch):
                decision_rows.refuse_launch(self.application, driver, refusal, now=self.now)
        except LaunchRefused as error:
            logger.warning("driver %s not sealed: %s", driver.epoch, error)
            decision_rows.block_application(self.application, refusal, now=self.now)

    def _seal(self, driver: Driver) -> None:
        """Ensure that a driver can no longer start; the next pass finds its exit or its process."""
        try:
            self.launcher.seal(self.application.name, driver.epoch)
        except LaunchRefused as error:
            logger.warning("driver %s not sealed: %s", driver.epoch, error)
            if self.decision.restart_block is not RestartBlock.FAILED:
                decision_rows.block_application(self.application, str(error), now=self.now)


def due_applications(*, now: datetime, limit: int = 200) -> list[int]:
    """Return the applications whose `reconcile_after` has passed, longest overdue first.

    This includes applications on this host, without a host, and on silent hosts.
    """
    due = Application.objects.filter(to_look_after(), reconcile_after__lte=now)
    rows = due.order_by("reconcile_after")
    return list(rows.values_list("pk", flat=True)[:limit])


def wake_all(*, now: datetime) -> None:
    """Reconcile every application of this host that has something to do."""
    application_ids = list(at_work().values_list("pk", flat=True))
    Application.objects.filter(pk__in=application_ids).update(reconcile_after=now)


def prune_folders(*, launcher: Launcher) -> None:
    """Delete the folders of this host's ended drivers, except each application's newest few."""
    local = on_this_host() | Q(drivers__host=settings.HEADGATE_HOST)
    for name in Application.objects.filter(local).values_list("name", flat=True).distinct():
        with _prune.isolate_errors(f"folders of {name}"):
            launcher.prune(name, keep=settings.DRIVER_FOLDERS_KEPT)
