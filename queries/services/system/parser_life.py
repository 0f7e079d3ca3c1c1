"""Check Spark's parser, the part of the system that checks SQL when a definition is saved."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import redis
from django.conf import settings

from queries.domain.counts import counted
from queries.domain.system import Part, clock, ok, problem

PARSER = "SQL parser"
#: Most questions queued at once: a set of manifests asks twenty.
_MOST_WAITING = 40
#: A worker takes a question within two seconds; after this, nobody waits for it any more.
_LATE_S = 5.0
_FORGOTTEN_AFTER_S = 86400
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def questions() -> str:
    """Return the Redis list in which questions wait for a worker."""
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
    """Evaluate the queued questions and the newest answer."""
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
