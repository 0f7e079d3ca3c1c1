"""Update the current state: each query's latest state, the newest heartbeat, new dropped events.

Events may arrive late, twice or out of order; each of these rows only moves forward. This is called
inside the transaction that stores the events; only one such transaction runs at a time.
"""

from collections.abc import Iterable
from datetime import UTC, datetime

from headgate_ground.tolerant import is_number, start_of
from headgate_ground.wire import EventKind, HeartbeatBody, WireEvent
from listeners import models

#: Width of a bucket of task times, in seconds: the shortest displayed range has 15 of them.
TASK_TIME_S = 60


def advance_latest(events: Iterable[WireEvent]) -> None:
    """Update each query's latest state with these events."""
    wanted = list(events)
    if not wanted:
        return
    ids = {event.query for event in wanted if event.query is not None}
    lines = models.Latest.objects.in_bulk(ids)
    changed = set()
    for event in wanted:
        if event.query is None or event.run is None:
            continue
        line = lines.get(event.query) or models.Latest(query=event.query, epoch=-1, seq=-1)
        lines[event.query] = line
        if advance(line, event):
            changed.add(event.query)
    models.upsert(models.Latest, (lines[query] for query in sorted(changed)), "query")


def advance(line: models.Latest, event: WireEvent) -> bool:
    """Update a line with one event; return whether anything in the line has changed.

    The line advances by (epoch, seq), the idle time by time, and the newest batch by (run, batch),
    because a batch fetched from memory has a higher sequence number than the batches after it.
    """
    before = (line.epoch, line.seq, line.idle_at, line.progress_run, line.batch)
    at = moment(event.at)
    if (event.epoch, event.seq) > (line.epoch, line.seq) and event.seq:
        line.driver, line.epoch, line.seq = event.driver, event.epoch, event.seq
        line.run, line.at = event.run or 0, at
    if event.kind is EventKind.IDLE and (line.idle_at is None or at > line.idle_at):
        line.idle_at = at
    if event.kind is EventKind.PROGRESS and event.batch is not None:
        newest = (line.progress_run or -1, -1 if line.batch is None else line.batch)
        if (event.run or 0, event.batch) > newest:
            line.progress_run, line.batch = event.run, event.batch
            line.progress_at, line.progress = at, event.body
    return before != (line.epoch, line.seq, line.idle_at, line.progress_run, line.batch)


def keep_heartbeats(events: Iterable[WireEvent], received_at: datetime) -> None:
    """Store each driver's newest heartbeat, and a row for each increase of a drop counter."""
    beats = sorted(events, key=lambda event: (event.driver, event.epoch, event.seq))
    if not beats:
        return
    rows = models.Heartbeat.objects.in_bulk({beat.driver for beat in beats})
    rises: list[models.DroppedEvents] = []
    changed = {}
    for beat in beats:
        row = rows.get(beat.driver)
        if row is not None and (beat.epoch, beat.seq) <= (row.epoch, row.seq):
            continue
        at = moment(beat.at)
        rises += rises_between(row, beat, at)
        rows[beat.driver] = changed[beat.driver] = models.Heartbeat(
            driver=beat.driver,
            epoch=beat.epoch,
            seq=beat.seq,
            at=at,
            received_at=received_at,
            body=beat.body,
        )
    models.DroppedEvents.objects.bulk_create(rises, ignore_conflicts=True)
    models.upsert(models.Heartbeat, changed.values(), "driver")
    _keep_task_times(beats)


def _keep_task_times(beats: Iterable[WireEvent]) -> None:
    """Store each run's sums by bucket: the newest value in a bucket replaces earlier ones."""
    times_reported = [
        (moment(beat.at), task_time)
        for beat in beats
        for task_time in HeartbeatBody.read(beat.body).task_times
    ]
    rows: dict[tuple[int, datetime], models.TaskTime] = {}
    for at, task_time in sorted(times_reported, key=lambda pair: pair[0]):
        start = start_of(at, TASK_TIME_S)
        rows[task_time.run, start] = models.TaskTime(
            run=task_time.run,
            start=start,
            at=at,
            task_ms=task_time.task_ms,
            waited_ms=task_time.waited_ms,
            waited_for=task_time.waited_for,
        )
    if not rows:
        return
    stored_rows = models.TaskTime.objects.filter(
        run__in={run for run, _ in rows}, start__gte=min(start for _, start in rows)
    )
    for row in stored_rows:
        if (row.run, row.start) in rows and rows[row.run, row.start].at < row.at:
            del rows[row.run, row.start]
    models.upsert(models.TaskTime, rows.values(), "run", "start")


def rises_between(
    before: models.Heartbeat | None, beat: WireEvent, at: datetime
) -> list[models.DroppedEvents]:
    """Return the events dropped between a driver's last known heartbeat and this one."""
    old = _totals(HeartbeatBody.read(before.body)) if before else {}
    new = _totals(HeartbeatBody.read(beat.body))
    return [
        models.DroppedEvents(
            driver=beat.driver,
            queue=queue,
            count=total - old.get(queue, 0),
            total=total,
            since=before.at if before else at,
            until=at,
        )
        for queue, total in new.items()
        if total > old.get(queue, 0)
    ]


def read_heartbeat(event: WireEvent) -> HeartbeatBody:
    """Return an event's heartbeat; raise ValueError if its body is not valid."""
    moment(event.at)
    beat = HeartbeatBody.read(event.body)
    if not all(isinstance(total, int) for total in _totals(beat).values()):
        raise ValueError("a heartbeat's counter is not a whole number")
    for query in beat.queries:
        moment(query.task_at or event.at)
    for task_time in beat.task_times:
        waits = task_time.waited_for.values() if isinstance(task_time.waited_for, dict) else (None,)
        if not all(
            is_number(value)
            for value in (task_time.run, task_time.task_ms, task_time.waited_ms, *waits)
        ):
            raise ValueError("a heartbeat's task time is not a whole number")
    return beat


def _totals(beat: HeartbeatBody) -> dict[str, int]:
    totals = {"outbox": beat.outbox_dropped}
    for name, queue in (("streams", beat.streams), ("ours", beat.ours)):
        if queue is not None:
            totals[name] = queue.dropped
    return totals


def moment(text: str) -> datetime:
    """Return an ISO 8601 time as an aware UTC datetime; without a zone it is taken as UTC."""
    at = datetime.fromisoformat(text)
    if at.tzinfo is UTC:
        return at
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
