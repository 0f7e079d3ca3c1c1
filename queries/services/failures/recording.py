"""Record failures in their groups, with all the details that operators need later."""

from datetime import datetime

from django.db.models import F, Q

from controlplane.nudge import changed
from headgate_ground.masking import TABLE, mask
from queries.domain.reasons import Because, Detail
from queries.domain.states import GroupStatus, Reason
from queries.domain.supervision.decision import Decision, Fault, QueryDecision
from queries.models.applications import Application
from queries.models.definitions import Query
from queries.models.drivers import Driver, Run
from queries.models.failures import Failure, FailureGroup
from queries.services.changes import record


def record_failure(
    fault: Fault,
    choice: Decision | QueryDecision,
    *,
    driver: Driver,
    run: Run | None,
    log_tail: str,
    now: datetime,
) -> Failure:
    """Insert a failure into its group, and reopen the group if it was resolved.

    `choice` says which attempt failed, and when the next one is due. The texts come from
    `driver_logs`, which has masked the secrets.
    """
    query = run.query if run is not None else None
    error, classified = fault.error, fault.classified
    group = _group(fault, driver.application, query, now)
    failure = Failure.objects.create(
        driver=driver,
        run=run,
        group=group,
        at=now,
        category=classified.category,
        policy=classified.policy,
        error_class=(error.error_class if error else "")[:200],
        error_type=(error.type_name if error else "")[:200],
        root_cause=error.root_cause if error else classified.title,
        message=error.message if error else "",
        batch=fault.batch,
        offsets=fault.offsets,
        log_tail=log_tail,
        masked_with=TABLE,
        conf=mask(driver.application_revision.spec.get("conf", {})),
        last_progress=fault.last_progress,
        attempt=choice.failures,
        next_attempt_at=choice.next_attempt_at,
    )
    changed(f"group:{group.pk}", *([f"query:{query.pk}"] if query else []))
    return failure


def _group(
    fault: Fault, application: Application, query: Query | None, now: datetime
) -> FailureGroup:
    key = Q(query=query) if query is not None else Q(query=None, application=application)
    group = FailureGroup.objects.filter(key, fingerprint=fault.fingerprint).first()
    if group is None:
        group = FailureGroup.objects.create(
            query=query,
            application=application,
            fingerprint=fault.fingerprint,
            title=fault.classified.title[:300],
            count=0,
            first_seen=now,
            last_seen=now,
        )
    FailureGroup.objects.filter(pk=group.pk).update(count=F("count") + 1, last_seen=now)
    reopened = FailureGroup.objects.filter(pk=group.pk, status=GroupStatus.RESOLVED).update(
        status=GroupStatus.OPEN, regressed_at=now
    )
    if reopened:
        detail = Because(Detail.GROUP, {"group": group.title})
        about = {"application": application, "query": query, "detail": detail}
        record("group", GroupStatus.RESOLVED, GroupStatus.OPEN, Reason.REGRESSED, now=now, **about)
    return group
