"""The checks of the system's parts: bulk work, Spark's parser, places on this host, processes."""

import json
import logging
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import redis
from django.conf import settings
from django.db import DatabaseError

from controlplane import servers, signs_of_life
from controlplane.servers import own_certificate, port_is_free
from controlplane.signs_of_life import Sign
from controlplane.ticks import LATE_INTERVALS, LateTick, TickReport, late_ticks
from headgate_ground.identities import read_identity
from headgate_ground.masking import mask_text
from queries.domain.definitions.locations import local_path
from queries.domain.hosts import SILENT_AFTER
from queries.domain.readings import counted
from queries.domain.system import OF_DATA, Part, clock, first_line, ok, problem, unknown
from queries.selectors.hosts import low_disks

logger = logging.getLogger(__name__)

#: Checks one part, or several with one request.
Check = Callable[[], Part | tuple[Part, ...]]


def checked(name: str, look: Check) -> tuple[Part, ...]:
    """Return the parts that a check finds; one that fails does not affect the others."""
    try:
        parts = look()
    except Exception as error:  # loop boundary: the others must still be reported
        logger.exception("the check of %s failed", name)
        cause = f"{type(error).__name__}: {first_line(error)}"
        return (problem(name, f"It could not be checked: {cause}."),)
    return (parts,) if isinstance(parts, Part) else parts


if TYPE_CHECKING:
    from listeners.loops.backlogs import Backlog, SkippedRow


def backlog(now: datetime) -> Part:
    """Check the part "backlog"."""
    from listeners.loops.backlogs import backlogs

    try:
        current_backlogs = backlogs()
    except DatabaseError as error:
        return problem("backlog", f"The backlog cannot be read: {first_line(error)}")
    return backlog_part(current_backlogs, now)


def backlog_part(current_backlogs: "list[Backlog]", now: datetime) -> Part:
    """Check how far behind the bulk work is: the number of rows, and the age of the oldest."""
    behind = [backlog for backlog in current_backlogs if backlog.rows and backlog.since is not None]
    summary = "; ".join(_behind(backlog, now) for backlog in behind)
    late = [
        backlog
        for backlog in behind
        if backlog.since is not None and now - backlog.since > backlog.late_after
    ]
    stuck = [
        backlog
        for backlog in current_backlogs
        if backlog.ran_at and now - backlog.ran_at > backlog.silent_after
    ]
    if late:
        since = min(backlog.since for backlog in late if backlog.since is not None)
        return problem("backlog", f"{_capital(summary)}. It is processed in slices.", since)
    if stuck:
        oldest = min(backlog.ran_at for backlog in stuck if backlog.ran_at is not None)
        names = ", ".join(backlog.title for backlog in stuck)
        return problem("backlog", f"No run of {names} has finished since {clock(oldest)}.", oldest)
    return ok("backlog", f"{_capital(summary)}." if summary else "No background work is behind.")


def _behind(job: "Backlog", now: datetime) -> str:
    noun = "batch,batches" if job.unit == "batch" else job.unit
    assert job.since is not None, "only such are told"
    return f"{job.title}: {counted(job.rows, noun)} behind, the oldest by {_span(now - job.since)}"


def loops(now: datetime) -> Part:
    """Check the part "loops"."""
    from listeners.loops.backlogs import current, of_drivers

    try:
        skipped_rows = [*current(now), *of_drivers(now)]
    except DatabaseError as error:
        return problem("loops", f"The list of skipped objects cannot be read: {first_line(error)}")
    return loops_part(skipped_rows)


def loops_part(skipped_rows: "list[SkippedRow]") -> Part:
    """Check for elements that loops skip while they process the others."""
    if not skipped_rows:
        return ok("loops", "Nothing is skipped.")
    first = min(skipped_rows, key=lambda element: element.since)
    more = f" And {len(skipped_rows) - 1:,} more." if len(skipped_rows) > 1 else ""
    times = "once" if first.times == 1 else f"{first.times:,} times"
    return problem(
        "loops",
        f"{_capital(first.loop)}: {first.about} "
        f"{'is set aside' if first.set_aside else 'fails'}, {times} since "
        f"{clock(first.since)}: {mask_text(first.cause)}.{more} Everything else is processed.",
        first.since,
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _span(passed: timedelta) -> str:
    """Return a duration with its unit, rounded down: "45 s", "14 min", "3 h", "2 days"."""
    seconds = max(0, int(passed.total_seconds()))
    for most, unit, name in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < most:
            return f"{seconds // unit:,} {name}"
    return f"{seconds // 86_400:,} days"


PARSER = "SQL parser"
#: Most questions queued at once: a set of manifests asks twenty.
_MOST_WAITING = 40
#: A worker takes a question within two seconds; after this, nobody waits for it any more.
_LATE_S = 5.0
_FORGOTTEN_AFTER_S = 86400
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def questions() -> str:
    """Return the Redis list in which requests wait for a worker."""
    return f"{settings.QUEUE}:parse"


def note(client: redis.Redis, took_s: float, error: str, *, now: datetime) -> None:
    """Record the newest answer: how long it took, or why there was none."""
    answer = json.dumps({"at": now.isoformat(), "ms": int(took_s * 1000), "error": error[:500]})
    client.set(f"{questions()}:last", answer, ex=_FORGOTTEN_AFTER_S)


def parser_part(client: redis.Redis, now: datetime) -> Part:
    """Check the part; raises `redis.RedisError`."""
    waiting: Any = client.lrange(questions(), 0, _MOST_WAITING)
    last_answer: Any = client.get(f"{questions()}:last")
    return judged(waiting, last_answer, now)


def judged(waiting: list[bytes | str], last_answer: bytes | str | None, now: datetime) -> Part:
    """Evaluate the queued requests and the newest answer."""
    unchecked = "New SQL is saved as “SQL not checked” and checked later."
    since = _question_time(waiting[0]) if waiting else None
    if since is not None and (now - since).total_seconds() > _LATE_S:
        many = counted(len(waiting), "request is,requests are")
        if len(waiting) > _MOST_WAITING:
            many = f"{len(waiting)} or more requests are"
        return problem(PARSER, f"{many} waiting for Spark's parser. {unchecked}", since)
    last = json.loads(last_answer) if last_answer else None
    if last is None:
        return ok(PARSER, "Spark's parser starts when the first SQL is saved.")
    at = datetime.fromisoformat(last["at"])
    if last["error"]:
        return problem(PARSER, f"{last['error']} {unchecked}", at)
    return ok(PARSER, f"Spark's parser responded in {last['ms']:,} ms at {clock(at)}.")


def _question_time(question: bytes | str) -> datetime | None:
    try:
        return _EPOCH + timedelta(seconds=float(json.loads(question)["at"]))
    except (ValueError, KeyError, TypeError, OverflowError):
        return None


ALLOWED_PATHS = "allowed paths"
DATA_DISKS = "data disks"
SPARK_UI = "Spark UI"
_LOOK_LIMIT_S = 1.0
#: Time that the Spark UI server gets to start before it is asked whether it responds.
_STARTS_WITHIN_S = 30.0


def allowed_paths_part() -> Part:
    """Check whether this host's allowed paths exist."""
    from queries.selectors.secrets import all_given_roots
    from queries.services.local_roots import missing, root_location

    try:
        application_roots = [root for roots in all_given_roots().values() for root in roots]
        absent_roots = missing(
            root_location(root) for root in (*settings.ALLOWED_PATHS, *application_roots)
        )
    except DatabaseError as error:
        return problem(ALLOWED_PATHS, f"The allowed paths cannot be read: {first_line(error)}")
    if not absent_roots:
        return ok(ALLOWED_PATHS, "All allowed paths exist on this host.")
    which = "is not a folder" if len(absent_roots) == 1 else "are not folders"
    return problem(
        ALLOWED_PATHS,
        f"{', '.join(absent_roots)} {which} on host {settings.HEADGATE_HOST}; reads and writes "
        "there fail. Create or mount it, then restart the applications that use it.",
    )


def data_disks() -> tuple[Part, ...]:
    """Check the free space of every local folder that queries may write to, on this host.

    One part for each file system with too little space, named after where it is mounted; () if
    there is none. The file system of HEADGATE_HOME is the part "disk".
    """
    from queries.selectors.secrets import all_given_roots
    from queries.services.local_roots import root_location

    try:
        application_roots = [root for roots in all_given_roots().values() for root in roots]
    except DatabaseError:  # the part "allowed paths" says so
        application_roots = []
    roots = (root_location(root) for root in (*settings.ALLOWED_PATHS, *application_roots))
    paths = [str(settings.CHECKPOINTS_DIR), *filter(None, map(local_path, roots))]
    return tuple(
        problem(f"{OF_DATA}{disk.mount}", f"{disk.sentence} Free up space there.")
        for disk in low_disks(paths)
    )


def spark_ui_part(*, now: datetime) -> tuple[Part, ...]:
    """Check the Spark UI server that `make run` has started; () if it is not ours.

    A request would start the server, so it is sent only if the server is running already.
    """
    if settings.HOME.holder() is None:
        return ()
    run, port = settings.HOME.run, settings.SPARK_UI_PORT
    listener = read_identity(run / "spark-ui.process")
    if listener is None or not listener.alive() or port_is_free(port):
        why = "nothing of ours listens there"
    else:
        why = _silence(port) if _is_running(run / "spark-ui-server.process", now) else ""
    if not why:
        return (ok(SPARK_UI, f"The Spark UI server is available on port {port}."),)
    return (
        problem(
            SPARK_UI,
            f"The Spark UI server is not responding on port {port}: {why}. Is the port in use? "
            "Set another one with HEADGATE_SPARK_UI_PORT.",
        ),
    )


def _is_running(identity: Path, now: datetime) -> bool:
    """Return whether the server runs, and has had the time to start."""
    server = read_identity(identity)
    if server is None or not server.alive():
        return False
    with suppress(FileNotFoundError):
        return now.timestamp() - identity.stat().st_mtime > _STARTS_WITHIN_S
    return False


def _silence(port: int) -> str:
    """Return why the running server does not respond as it should; "" if it does."""
    url = f"{'https' if settings.TLS_CERT else 'http'}://127.0.0.1:{port}/healthz"
    try:
        with urllib.request.urlopen(
            url, timeout=_LOOK_LIMIT_S, context=own_certificate(url)
        ) as answer:
            return "" if answer.read(20) == b"ok\n" else "another program responds there"
    except (OSError, ValueError) as error:
        return first_line(error)


#: The watcher checks every 10 s, and may wait for channels in between.
WATCHER_SILENT_AFTER = timedelta(minutes=3)
SWEEP = "sweep"  # the tick without which nothing is supervised


def redis_and_processes(now: datetime) -> tuple[Part, ...]:
    """Check Redis and the parts with heartbeats there, including Spark's parser, in one request."""
    try:
        with servers.client(settings.REDIS_URL, limit_s=servers.LOOK_LIMIT_S) as client:
            info: Any = client.info()
            signs = signs_of_life.heartbeats(client)
            reports = signs_of_life.reports(client)
            consumers = _consumers(client)
            parser = checked(PARSER, lambda: parser_part(client, now))
    except redis.RedisError as error:
        why = "Redis is not responding"
        return (
            problem("redis", f"{why}: {first_line(error)}"),
            *(unknown(name, why) for name in ("worker", "ticks", "ingester", "watcher", PARSER)),
        )
    return (
        *checked("redis", lambda: redis_part(info)),
        *checked("worker", lambda: worker_part(signs, reports, now)),
        *checked("ticks", lambda: ticks_part(reports, now)),
        *checked("ingester", lambda: ingester_part(signs, consumers, now)),
        *checked("watcher", lambda: watcher_part(signs, now)),
        *parser,
    )


def redis_part(info: dict[str, Any]) -> Part:
    """Check a Redis by its own INFO: it must not evict keys, and must be able to write."""
    version = info.get("valkey_version") or info.get("redis_version", "?")
    policy = str(info.get("maxmemory_policy", "noeviction"))
    if policy.startswith("allkeys"):
        return problem(
            "redis",
            f"Its maxmemory-policy is {policy}, which can discard events. "
            "Set maxmemory-policy to noeviction.",
        )
    if info.get("aof_last_write_status", "ok") != "ok":
        return problem("redis", "It cannot write its append-only file. Is its disk full?")
    return ok("redis", f"Redis {version} responds.")


def worker_part(signs: dict[str, Sign], reports: list[TickReport], now: datetime) -> Part:
    """Check the workers: at least one must run, and sweep on time."""
    worker = signs.get(signs_of_life.WORKER)
    if worker is None:
        return problem("worker", "No worker has sent a heartbeat.")
    if _silent(worker, now):
        return problem("worker", f"No worker heartbeat since {clock(worker.at)}.", worker.at)
    live_hosts = {report.host for report in reports if now - report.at <= SILENT_AFTER}
    if not live_hosts:
        return problem("worker", "A worker is running, but its timers do not report.")
    late = {
        late_tick.host: late_tick
        for late_tick in _late(reports, now)
        if late_tick.tick.name == SWEEP
    }
    if on_time := sorted(live_hosts - late.keys()):
        return ok("worker", f"Sweeps run on {', '.join(on_time)}.")
    first = min(late.values(), key=lambda late_tick: late_tick.since)
    return problem("worker", _sentence(first), first.since)


def ticks_part(reports: list[TickReport], now: datetime) -> Part:
    """Check that no tick of the workers is late; which workers run is another part's."""
    late = sorted(_late(reports, now), key=lambda late_tick: late_tick.since)
    if not late:
        return ok("ticks", "The periodic work of every worker is on time.")
    return problem("ticks", " ".join(map(_sentence, late)), late[0].since)


def _late(reports: list[TickReport], now: datetime) -> list[LateTick]:
    return late_ticks(reports, now=now, silent_after=SILENT_AFTER)


def _sentence(late: LateTick) -> str:
    name = late.tick.name.replace("_", " ").capitalize()
    where = f" on {late.host}" if late.host else ""
    if late.is_running:
        return f"“{name}”{where} has been running since {clock(late.since)} and has not ended."
    return (
        f"“{name}”{where} was due at {clock(late.since)} and has not begun: it is late by more "
        f"than {LATE_INTERVALS} intervals of {late.tick.every_s:g} s."
    )


def ingester_part(signs: dict[str, Sign], consumers: list[datetime], now: datetime) -> Part:
    """Check the ingester by its last read of the event stream or by its own heartbeat."""
    times = [sign.at for name, sign in signs.items() if name == signs_of_life.INGESTER] + consumers
    if not times:
        return problem("ingester", "No ingester is reading events.")
    newest = max(times)
    if now - newest > SILENT_AFTER:
        return problem("ingester", f"No ingester has read events since {clock(newest)}.", newest)
    return ok("ingester", "Events are being read.")


def watcher_part(signs: dict[str, Sign], now: datetime) -> Part:
    """Check the watcher: it is optional, but if it ran before, its loss must be noticed."""
    sign = signs.get(signs_of_life.WATCHER)
    if sign is None:
        return ok(
            "watcher",
            "Not running. `manage.py watch` sends notifications when no worker can do so.",
        )
    if now - sign.at > WATCHER_SILENT_AFTER:
        return problem("watcher", f"No watcher has run since {clock(sign.at)}.", sign.at)
    return ok("watcher", f"The watcher runs on {sign.host}.")


def _consumers(client: redis.Redis) -> list[datetime]:
    """Return when each consumer of the event stream last read entries."""
    reads = []
    at = datetime.now(UTC)
    try:
        groups: Any = client.xinfo_groups(settings.EVENT_STREAM)
        for group in groups:
            consumers: Any = client.xinfo_consumers(settings.EVENT_STREAM, group["name"])
            reads += [at - timedelta(milliseconds=int(entry["idle"])) for entry in consumers]
    except redis.ResponseError:  # no such stream: nobody has read it yet
        return []
    return reads


def _silent(sign: Sign, now: datetime) -> bool:
    return now - sign.at > SILENT_AFTER
