"""Watch Headgate from outside its worker, and be watched from outside by pings (decisions/0015).

A tick of the leader sends the ping, so none is sent without a worker, Redis and the database. Nor
is one sent while another part has a problem.

All its state is in one file: the watched parts, the channels as last read from the database (their
URLs are references, never secrets), and undelivered messages.
"""

import contextlib
import logging
import threading
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import redis
from django.conf import settings
from django.db import DatabaseError, close_old_connections
from django.urls import reverse

from controlplane import servers, signs_of_life
from controlplane.servers import own_certificate
from headgate_ground.files import read_file, replace_file
from queries.channels.base import AtUrl, Message, SendFailed, request, through
from queries.domain.alerts.explanations import IncidentScope, explained
from queries.domain.alerts.forms import NotificationStep
from queries.domain.alerts.routing import (
    KINDS,
    Look,
    Patience,
    ProblemWatch,
    Saying,
    SelfCheck,
    drop_unreported,
    due_reports,
)
from queries.domain.system import READY_PARTS, PartState
from queries.secret_references import ReferenceMissing
from queries.selectors.alerts.own_routes import Route, own_routes
from queries.services.alerts.deliveries import allowed_networks
from queries.services.local_roots import local_references
from queries.services.system.health import look, system_health

#: Interval between two checks, in seconds.
EVERY_S = 10.0
#: Timeout for the web process's response, in seconds.
WEB_LIMIT_S = 5.0
#: The pause after a failed message; it doubles up to the longest.
FIRST_PAUSE, LONGEST_PAUSE = timedelta(seconds=15), timedelta(minutes=15)
#: How long a message is retried before it is given up.
GIVEN_UP_AFTER = timedelta(days=1)
#: Most undelivered messages kept; with this many, the channels are not delivering anyway.
MOST_WAITING = 200

_LOOKS = {PartState.OK: Look.WELL, PartState.PROBLEM: Look.TROUBLE, PartState.UNKNOWN: Look.UNKNOWN}

Send = Callable[[Route, Message], None]


@dataclass(slots=True)
class Waiting:
    """An undelivered message to one channel."""

    channel: str
    message: Message
    made_at: datetime
    due_at: datetime
    attempts: int = 0
    begun: bool = False  # may have been sent: sent again, it is marked as a repeat


@dataclass(slots=True)
class Memory:
    """The watcher's state, stored in its file."""

    watched: dict[str, ProblemWatch] = field(default_factory=dict)
    #: kind of incident -> the channels notified of it
    routes: dict[str, list[Route]] = field(default_factory=dict)
    waiting: list[Waiting] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> "Memory":
        """Return the state left by an earlier watcher; empty if its file cannot be read."""
        try:
            text = read_file(path)
            return cls._of(orjson.loads(text)) if text else cls()
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            logger.warning("%s cannot be read and will be rewritten: %s", path.name, error)
            return cls()

    @classmethod
    def _of(cls, form: Any) -> "Memory":
        return cls(
            watched=drop_unreported(
                {part: ProblemWatch(**_times(one)) for part, one in form["watched"].items()}
            ),
            routes={
                kind: [Route(**one) for one in routes] for kind, routes in form["routes"].items()
            },
            waiting=[_waiting(one) for one in form["waiting"]],
        )

    def write(self, path: Path) -> None:
        """Replace the file with the current state."""
        form = {
            "watched": {part: asdict(one) for part, one in self.watched.items()},
            "routes": {str(kind): [asdict(one) for one in on] for kind, on in self.routes.items()},
            "waiting": [asdict(one) for one in self.waiting],
        }
        replace_file(path, orjson.dumps(form, option=orjson.OPT_INDENT_2).decode())


class Watcher:
    """Check, decide, store and notify; one watcher per installation."""

    def __init__(
        self,
        path: Path,
        *,
        send: Send,
        clock: Callable[[], datetime],
        patience: Patience | None = None,
    ) -> None:
        self._path = path
        self._send = send
        self._clock = clock
        self._patience = patience or Patience()
        self._memory = Memory.read(path)

    def run(self, stop: threading.Event) -> None:
        """Watch until `stop` is set."""
        while not stop.is_set():
            try:
                close_old_connections()
                self.step(stop)
            except Exception:  # the loop must never end
                logger.exception("a check failed; continuing with the next one")
            stop.wait(EVERY_S)

    def step(self, stop: threading.Event | None = None) -> None:
        """Check once, and send the messages that are due."""
        now = self._clock()
        seen = [*_parts(now), _web()]
        self._learn(seen)
        self._live(now)
        memory = self._memory
        memory.watched, sayings = due_reports(
            memory.watched, seen, now=now, patience=self._patience
        )
        for saying in sayings:
            self._announce(saying, now)
        self._remember()
        for one in list(memory.waiting):
            if stop is not None and stop.is_set():
                return
            if one.due_at <= now:
                self._deliver(one)

    def _learn(self, seen: Sequence[SelfCheck]) -> None:
        """Store the current routes from the database, for use when it is not responding."""
        if any(one.part == "database" and one.look is Look.WELL for one in seen):
            try:
                self._memory.routes = own_routes()
            except DatabaseError as error:
                logger.warning("could not read the channels, keeping the previous ones: %s", error)

    def _live(self, now: datetime) -> None:
        """Record a heartbeat, so that the pages can report a missing watcher."""
        with (
            contextlib.suppress(redis.RedisError),
            servers.client(settings.REDIS_URL, limit_s=1.0) as client,
        ):
            signs_of_life.record_heartbeat(client, signs_of_life.WATCHER, now=now)

    def _announce(self, saying: Saying, now: datetime) -> None:
        kind = KINDS[saying.part]
        title = {
            NotificationStep.RESOLVED: f"Headgate: {saying.part} works again",
            NotificationStep.REMINDER: f"Headgate: {kind.label.lower()}, still",
        }.get(saying.step, f"Headgate: {kind.label.lower()}")
        why = explained(kind, saying.sentence, IncidentScope(host=settings.HEADGATE_HOST))
        facts = [("Where", why.place)]
        if saying.step is not NotificationStep.RESOLVED:
            facts.append(("What to do", why.step))
            if settings.PUBLIC_URL:
                facts.append(("Do it here", f"{settings.PUBLIC_URL}{reverse(why.page)}"))
        message = Message(
            key=f"headgate/{settings.HEADGATE_HOST}/{saying.part}/{saying.since:%Y%m%dT%H%M%SZ}",
            step=saying.step,
            severity=kind.severity,
            kind=kind,
            title=title,
            text=saying.sentence if saying.step is NotificationStep.RESOLVED else why.cause,
            url="",
            at=now,
            facts=(
                *facts,
                ("Host", settings.HEADGATE_HOST),
                ("Since", f"{saying.since:%Y-%m-%d %H:%M:%S} UTC"),
            ),
        )
        routes = self._memory.routes.get(kind, [])
        logger.warning("%s: %s (%d channels)", title, saying.sentence, len(routes))
        for route in routes:
            self._memory.waiting.append(Waiting(route.name, message, now, now))
        del self._memory.waiting[:-MOST_WAITING]

    def _deliver(self, one: Waiting) -> None:
        route = self._route(one)
        if route is None:  # the channel has since been deleted
            self._drop(one)
            return
        message = one.message
        if one.begun:
            message = Message(**{**asdict(message), "facts": message.facts, "repeat": True})
        one.begun = True
        self._remember()
        try:
            self._send(route, message)
        except SendFailed as error:
            self._failed(one, error)
        except Exception as error:  # a bug in a channel affects that channel only
            self._failed(one, SendFailed(type(error).__name__))
        else:
            logger.info("%s notified: %s", one.channel, message.title)
            self._drop(one)

    def _failed(self, one: Waiting, error: SendFailed) -> None:
        now = self._clock()
        logger.warning("%s was not notified: %s", one.channel, error)
        if error.lasting or now - one.made_at > GIVEN_UP_AFTER:
            self._drop(one)
            return
        one.attempts += 1
        one.begun = False
        one.due_at = now + min(FIRST_PAUSE * 2 ** min(one.attempts - 1, 10), LONGEST_PAUSE)
        self._remember()

    def _route(self, one: Waiting) -> Route | None:
        routes = self._memory.routes.get(one.message.kind, [])
        return next((route for route in routes if route.name == one.channel), None)

    def _drop(self, one: Waiting) -> None:
        self._memory.waiting.remove(one)
        self._remember()

    def _remember(self) -> None:
        try:
            self._memory.write(self._path)
        except OSError as error:  # a full disk is one of the things to report
            logger.warning("%s could not be written: %s", self._path.name, error.strerror)


def _parts(now: datetime) -> list[SelfCheck]:
    return [SelfCheck(part.name, _LOOKS[part.state], part.sentence) for part in look(now)]


def web_answers() -> bool:
    """Return whether the web process responds over HTTP."""
    return _web().look is Look.WELL


def _web() -> SelfCheck:
    try:
        url = settings.WATCHED_URL
        with urllib.request.urlopen(
            url, timeout=WEB_LIMIT_S, context=own_certificate(url)
        ) as answer:
            answer.read(1024)
    except (OSError, ValueError) as error:
        why = getattr(error, "reason", error)
        return SelfCheck("web", Look.TROUBLE, f"The console is not responding: {why}.")
    return SelfCheck("web", Look.WELL, "The console responds.")


def _waiting(form: Mapping[str, Any]) -> Waiting:
    message = dict(form["message"])
    facts = tuple((str(name), str(value)) for name, value in message.pop("facts"))
    at = datetime.fromisoformat(message.pop("at"))
    return Waiting(**{**_times(form), "message": Message(**message, at=at, facts=facts)})


def _times(form: Mapping[str, Any]) -> dict[str, Any]:
    """Return the form's values with its times parsed as aware datetimes."""
    return {
        name: datetime.fromisoformat(value).astimezone(UTC)
        if isinstance(value, str) and name.endswith(("_at", "since"))
        else value
        for name, value in form.items()
    }


logger = logging.getLogger(__name__)

#: Timeout for the external watcher's response, in seconds.
LIMIT_S = 10.0
#: Parts that must work before a ping is sent.
NEEDED = (*READY_PARTS, "ticks", "disk", "data")


def call_outside(*, now: datetime) -> str:
    """Ping `HEADGATE_DEAD_MANS_SWITCH_URL`; return why that was not done, "" if it was.

    The URL may be a secret, so no message contains it.
    """
    if not settings.DEAD_MANS_SWITCH_URL:
        return "HEADGATE_DEAD_MANS_SWITCH_URL is not set"
    ill = [part.name for part in system_health(now).parts if part.name in NEEDED and not part.ok]
    if not web_answers():
        ill.append("web")
    if ill:
        logger.warning("not calling the external watcher: %s", ", ".join(ill))
        return f"not all of Headgate works: {', '.join(ill)}"
    why = _call()
    if why:
        logger.warning("could not call the external watcher: %s", why)
    return why


def _call() -> str:
    references = local_references()
    try:
        url = references.resolve(settings.DEAD_MANS_SWITCH_URL).strip()
        with through(AtUrl(url).way({}), allowed=allowed_networks()):
            request("GET", url, timeout_s=LIMIT_S)
    except ReferenceMissing as error:
        return f"HEADGATE_DEAD_MANS_SWITCH_URL: {error}"
    except SendFailed as error:
        return references.mask(f"HEADGATE_DEAD_MANS_SWITCH_URL: {error}")
    return ""
