"""Record failures in groups, resolve and reopen them, and read drivers' output with secrets masked.

A driver masks secrets, by value, in everything that it writes itself. However, Spark and users'
code can write anything to its log, and a status may come from an older release, so everything is
masked again before it is stored, sent or shown.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q

from controlplane.masking import IN_REQUEST, WebSearch
from controlplane.nudge import changed
from headgate_ground.masking import TABLE, mask, searched_by
from queries.domain.access import Act
from queries.domain.errors import NotAllowed
from queries.domain.failures.error_text import Level, LogLine, lines_of, select
from queries.domain.probes.questions import ProbeResult, read_result
from queries.domain.protocol import DRIVER_LOG, OWN, DriverStatus
from queries.domain.reasons import Because, Detail
from queries.domain.states import DISPATCHED_KINDS, GroupStatus, Reason
from queries.domain.supervision.decision import Decision, Fault, QueryDecision
from queries.domain.supervision.observation import Sighting
from queries.launchers.base import Launcher
from queries.models.applications import Application
from queries.models.definitions import Query
from queries.models.drivers import Driver, Run
from queries.models.history import Failure, FailureGroup
from queries.secret_references import References
from queries.services.access.audit import record_act
from queries.services.changes import record
from queries.services.local_roots import local_references


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

    `choice` says which attempt failed, and when the next one is due. In `fault`
    and `log_tail`, secrets are already masked.
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


def resolve_group(*, group: FailureGroup, actor: str, now: datetime) -> None:
    """Mark a failure group as resolved; its next failure reopens it."""
    _mark(group, GroupStatus.RESOLVED, actor, now, resolved_at=now, resolved_by=actor)


def reopen_group(*, group: FailureGroup, actor: str, now: datetime) -> None:
    """Mark a resolved failure group as open again."""
    _mark(group, GroupStatus.OPEN, actor, now, resolved_at=None, resolved_by="")


def _mark(
    group: FailureGroup, status: GroupStatus, actor: str, now: datetime, **fields: object
) -> None:
    with transaction.atomic():
        updated = (
            FailureGroup.objects.filter(pk=group.pk)
            .exclude(status=status)
            .update(status=status, **fields)
        )
        if not updated:
            return
        before = GroupStatus.OPEN if status is GroupStatus.RESOLVED else GroupStatus.RESOLVED
        detail = Because(Detail.GROUP, {"group": group.title})
        ids = {"application_id": group.application_id, "query_id": group.query_id}
        record("group", before, status, Reason.NONE, now=now, detail=detail, actor=actor, **ids)
        subject = (group.query or group.application).name
        details = {"group": group.pk, "before": before, "after": status}
        record_act(Act.FAILURES, actor=actor, now=now, subject=subject, **details)
        changed(f"group:{group.pk}")


#: Most lines shown; the launcher returns at most 256 KiB.
MOST_LINES = 5000
#: Bytes of a log that a page shows, and that a search reads at a time. A page masks at most what it
#: shows without a search.
SHOWN, SEARCHED = IN_REQUEST, 8 * 1024 * 1024
#: Bytes of a line, after which a download ends: a driver can write one without end, and a sparse
#: file costs it nothing.
MOST_OF_LINE = 16 * 1024 * 1024
#: Most lines that a page shows.
MATCH_LIMIT = 1000


class LogElsewhere(NotAllowed):
    """The driver's log is on another host."""

    code = "on-another-host"

    def __init__(self, driver: Driver) -> None:
        super().__init__(
            f"The log of driver {driver.epoch} is on host {driver.host}.",
            way_out=f"Open Headgate on that host, or read {OWN}/{DRIVER_LOG} there, in "
            f"{driver.directory}.",
        )


def read_log(driver: Driver, *specs: Any, launcher: Launcher, lines: int = 200) -> str:
    """Return the end of a driver's or a probe's log, at most 5,000 lines; "" if there is no log.

    Raises `LogElsewhere` if it is on the host that the driver ran on. The secrets named in the
    driver's definitions (for a probe: `specs`) are looked up on this host and masked by value;
    anything else that looks like a secret is masked because of its form.
    """
    if driver.host != settings.HEADGATE_HOST:
        raise LogElsewhere(driver)
    wanted = max(1, min(lines, MOST_LINES))
    text = launcher.log_tail(
        driver.application.name,
        driver.epoch,
        probe=driver.kind not in DISPATCHED_KINDS,
        lines=wanted,
    )
    return secrets_of(driver, *specs).mask(text)


@dataclass(frozen=True, slots=True)
class LogPage:
    """Some lines of a driver's log, oldest first."""

    lines: list[LogLine]
    end: int  # offset in bytes at which later output begins
    older: int | None  # offset before which lines were not shown; None if none are left
    searched: int  # bytes searched


def log_page(
    driver: Driver,
    *,
    launcher: Launcher,
    before: int | None = None,
    after: int | None = None,
    words: str = "",
    least: Level | None = None,
) -> LogPage:
    """Return lines of a driver's log, masked: the newest lines, or those before or after an offset.

    With words or a minimum level, at most `SEARCHED` bytes are searched; `older` in the result is
    where to continue. Raises `LogElsewhere` if the log is on the host that the driver ran on.
    """
    if driver.host != settings.HEADGATE_HOST:
        raise LogElsewhere(driver)
    name, epoch = driver.application.name, driver.epoch
    total = launcher.log_size(name, epoch)
    span = SEARCHED if words or least is not None else SHOWN
    if after is not None and after <= total:  # a shorter file was truncated
        start, end = max(after, total - span), total
    else:
        end = total if before is None else min(before, total)
        start = max(0, end - span)
    data = launcher.log_part(name, epoch, start=start, size=end - start)
    if after is not None and not data.endswith(b"\n"):  # an incomplete last line
        data = data[: data.rfind(b"\n") + 1]
    references = secrets_of(driver)
    selection = (start, start in (0, after), words, least)
    key = (sha256(data).digest(), references.digest(), *selection)
    page = _pages.get(key)
    if page is None:
        page = _page(data, *selection, mask=references.mask)
        _pages.put(key, page)
    return page


def _page(
    data: bytes,
    start: int,
    whole: bool,
    words: str,
    least: Level | None,
    *,
    mask: Callable[[str], str],
) -> LogPage:
    """Return the lines of a part of a log that begins at `start`."""
    lines = list(lines_of(data, start, whole=whole))
    selected_lines, unread = select(
        lines, words=words, least=least, most=MATCH_LIMIT, most_masked=SHOWN, mask=mask
    )
    older = unread if unread is not None else lines[0].at if start and lines else start or None
    return LogPage(selected_lines, start + len(data), older, len(data))


class _Pages:
    """The pages shown last: viewers of one log, and reloads, do not mask it again."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._guard = threading.Lock()
        self._pages: OrderedDict[Any, LogPage] = OrderedDict()

    def get(self, key: Any) -> LogPage | None:
        """Return a page by its content, position, secrets and search; None if it was not kept."""
        with self._guard:
            if key in self._pages:
                self._pages.move_to_end(key)
            return self._pages.get(key)

    def put(self, key: Any, page: LogPage) -> None:
        """Keep a page in place of the one that was used the longest ago."""
        with self._guard:
            self._pages[key] = page
            while len(self._pages) > self._most:
                self._pages.popitem(last=False)


_pages = _Pages(64)  # of 64 KiB each


def whole_log(driver: Driver, *, launcher: Launcher) -> Iterator[str]:
    """Yield a driver's log, masked, for a download; the first `next()` may raise `LogElsewhere`.

    It is sent after the request's own context has ended, so it masks in one for itself.
    """
    if driver.host != settings.HEADGATE_HOST:
        raise LogElsewhere(driver)
    references, search = secrets_of(driver), WebSearch()

    def mask(text: str) -> str:
        with searched_by(search):
            return references.mask(text)

    name, epoch, start = driver.application.name, driver.epoch, 0
    total, rest = launcher.log_size(name, epoch), b""
    while start < total:
        data = launcher.log_part(name, epoch, start=start, size=min(SHOWN, total - start))
        if not data:
            break
        start += len(data)
        whole, newline, rest = (rest + data).rpartition(b"\n")
        if newline:
            yield mask(whole.decode("utf-8", errors="replace")) + "\n"
        if len(rest) > MOST_OF_LINE:
            yield f"(The log continues with a line of more than {MOST_OF_LINE >> 20} MiB.)\n"
            return
    if rest:
        yield mask(rest.decode("utf-8", errors="replace"))


def without_secrets(sighting: Sighting, driver: Driver) -> Sighting:
    """Return a driver's sighting with secrets masked in its status messages."""
    status = sighting.status
    if status is None or not _says_something(status):
        return sighting
    masked = DriverStatus.loads(status.dumps(secrets_of(driver).mask_within))
    return replace(sighting, status=masked)


def _says_something(status: DriverStatus) -> bool:
    """Return whether a status contains messages from Spark or users' code; few do."""
    return (
        status.error is not None
        or any(run.error or run.warnings for run in status.runs)
        or any(executor.reason for executor in status.executors)
        or (status.script is not None and bool(status.script.notes))
        or any(query.temporary for query in status.found)
    )


def probe_answer(driver: Driver, *specs: Any, launcher: Launcher) -> ProbeResult | None:
    """Return a probe's findings so far, None without any; `specs` are the definitions it tests.

    Raises ValueError (`UnreadableResult`, or undecodable bytes) if the answer is incomplete.
    """
    text = launcher.probe_result(driver.application.name, driver.epoch)
    if not text:
        return None
    answer = read_result(text)
    return ProbeResult.loads(answer.dumps(secrets_of(driver, *specs).mask_within))


def mask_failure(failure: Failure) -> Failure:
    """Mask a stored failure's messages in memory, including secrets that became known later.

    They were searched for unknown secrets when stored, and are searched again only if the table
    changed.
    """
    references = secrets_of(failure.driver)
    for name in ("root_cause", "message", "log_tail"):
        setattr(failure, name, failure.shown(references.mask_resolved(getattr(failure, name))))
    failure.group.title = references.mask(failure.group.title)
    return failure


def secrets_of(driver: Driver, *specs: Any) -> References:
    """Return the secrets that a driver and its queries received, as far as this host knows them."""
    secrets = local_references()
    secrets.learn(driver.application_revision.spec, *specs)
    secrets.learn(*driver.runs.values_list("revision__spec", flat=True).distinct())
    return secrets
