"""Ask Spark's own parser whether a text is SQL, before it is saved.

A worker answers, on its host: the web process has no JVM, and one is enough for all. It starts with
the first question and leaves when nobody has asked for a while. Where nobody answers in time, the
text is judged as far as it can be without Spark; the first start judges the rest.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import islice
from typing import Any
from uuid import uuid4

import redis
from django.conf import settings

from controlplane import redis_client
from controlplane.health import signs_of_life
from queries.domain.definitions.sql_verdict import SqlVerdict, has_own_grammar
from queries.domain.supervision.hosts import SILENT_AFTER
from queries.spark_parser.parser import NoParser, SparkParser

logger = logging.getLogger(__name__)

#: A person waits for a form for so long at most. Seconds.
ASK_LIMIT_S = 3
#: The JVM leaves after so long without a question. Seconds.
IDLE_S = 300
#: An answer that nobody fetches, and a question that nobody takes, are forgotten. Seconds.
_KEPT_S = 30
#: How long a worker waits for a question before it looks at the clock.
_WAIT_S = 2
_AGAIN_S = 5
_LONGEST = 200_000  # characters
_SOME = 20  # questions of one set that wait at once; some tenths of a second


def _questions() -> str:
    return f"{settings.QUEUE}:parse"


def ask_spark(spec: Mapping[str, Any]) -> SqlVerdict | None:
    """Return what Spark says of a definition's SQL; None where it has none, or nobody answers."""
    text = _text_of(spec)
    if text is None or not _is_answered():
        return None
    return _ask([text], limit_s=ASK_LIMIT_S)[0]


def _text_of(spec: Mapping[str, Any]) -> str | None:
    """Return the SQL of a definition, of whatever shape; None where it has none to ask about."""
    text, conf = spec.get("sql"), spec.get("conf") or {}
    if not isinstance(text, str) or not text.strip() or len(text) > _LONGEST:
        return None
    return text if isinstance(conf, Mapping) and not has_own_grammar(conf) else None


def _is_answered() -> bool:
    """Return whether a worker gives signs of life that would answer."""
    try:
        with redis_client.client(settings.REDIS_URL, limit_s=ASK_LIMIT_S + 1.0) as client:
            worker = signs_of_life.heard(client).get(signs_of_life.WORKER)
    except redis.RedisError as error:
        logger.info("Spark's parser was not asked: %s", error)
        return False
    return worker is not None and datetime.now(UTC) - worker.at <= SILENT_AFTER


def _ask(texts: Sequence[str], *, limit_s: float) -> list[SqlVerdict | None]:
    """Ask about texts, and wait for all answers together; None for those that do not come."""
    mine = {f"{_questions()}:{uuid4()}": text for text in texts}
    answers: dict[str, SqlVerdict | None] = {}
    deadline = time.monotonic() + limit_s
    # One second more, for the connection; the wait itself is bounded by the command.
    try:
        with redis_client.client(settings.REDIS_URL, limit_s=limit_s + 1.0) as client:
            asked = [{"to": to, "text": text, "at": time.time()} for to, text in mine.items()]
            client.rpush(_questions(), *map(json.dumps, asked))
            client.expire(_questions(), _KEPT_S)
            while (open_ := [to for to in mine if to not in answers]) and (
                left := deadline - time.monotonic()
            ) > 0:
                found: Any = client.blpop(open_, timeout=left)
                if found is None:
                    break
                told = json.loads(found[1])
                answers[_as_text(found[0])] = SqlVerdict(**told) if told else None
    except redis.RedisError as error:
        logger.info("Spark's parser was not asked: %s", error)
    return [answers.get(to) for to in mine]


def _as_text(name: str | bytes) -> str:
    return name if isinstance(name, str) else name.decode()


def ask_spark_of_many(
    specs: Sequence[Mapping[str, Any]], *, limit_s: float
) -> list[SqlVerdict | None]:
    """Return what Spark says of the SQL of many definitions, as far as it is told in time.

    A few at a time, so that a person who saves a form need not wait for all of them. Each text is
    asked once. None for those of which nothing was said within `limit_s` seconds.
    """
    texts = {text: spec for spec in specs if (text := _text_of(spec)) is not None}
    said: dict[str, SqlVerdict | None] = {}
    deadline = time.monotonic() + limit_s
    if texts and _is_answered():
        waiting = iter(texts.items())
        while (left := deadline - time.monotonic()) > 0 and (some := list(islice(waiting, _SOME))):
            answers = _ask([text for text, _ in some], limit_s=min(left, ASK_LIMIT_S))
            said |= dict(zip((text for text, _ in some), answers, strict=True))
            if not any(answers):
                break  # nobody answers any more
    found = (_text_of(spec) for spec in specs)
    return [said.get(text) if text is not None else None for text in found]


class Answering:
    """A worker's thread that answers, with a JVM while there is something to answer."""

    def __init__(
        self, leaving: threading.Event, *, start: Callable[[], SparkParser] = SparkParser
    ) -> None:
        self._leaving = leaving
        self._start = start
        self.parser: SparkParser | None = None
        self._asked_at = time.monotonic()

    def run(self) -> None:
        """Answer until this worker leaves; without Redis, try again after a while."""
        try:
            while not self._leaving.is_set():
                try:
                    with redis_client.client(settings.REDIS_URL, limit_s=_WAIT_S + 3.0) as client:
                        while not self._leaving.is_set():
                            self.turn(client)
                except redis.RedisError as error:
                    logger.debug("nobody can ask Spark's parser: %s", error)
                    self._rest()
                    self._leaving.wait(_AGAIN_S)
                except Exception as error:  # the loop's edge: one question, not the next
                    said = f"{type(error).__name__}: {error}"
                    logger.warning("a question to Spark's parser is not answered: %s", said)
                    self._end()
        finally:
            self._end()

    def turn(self, client: redis.Redis, *, wait_s: float = _WAIT_S) -> None:
        """Wait for one question and answer it; end the JVM where nobody has asked for long."""
        found: Any = client.blpop([_questions()], timeout=wait_s)
        if found is None:
            self._rest()
            return
        self._asked_at = time.monotonic()
        question = json.loads(found[1])
        if time.time() - question["at"] > _KEPT_S:
            return  # who asked has gone on
        verdict = self._parse(question["text"])
        client.rpush(question["to"], json.dumps(asdict(verdict) if verdict else None))
        client.expire(question["to"], _KEPT_S)

    def _parse(self, text: str) -> SqlVerdict | None:
        try:
            if self.parser is None:
                self.parser = self._start()
            return self.parser.parse(text)
        except NoParser as error:
            logger.warning("%s", error)
            self._end()  # the next question begins with another
            return None

    def _rest(self) -> None:
        if self.parser is not None and time.monotonic() - self._asked_at > IDLE_S:
            self._end()

    def _end(self) -> None:
        ended, self.parser = self.parser, None
        if ended is not None:
            ended.close()
