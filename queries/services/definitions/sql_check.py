"""Ask Spark's own parser whether a text is SQL, before it is saved.

A worker answers, on its host: the web process has no JVM, and one is enough for all. It starts with
the first question and leaves when nobody has asked for a while. Where nobody answers in time, the
text is judged as far as it can be without Spark; the first start judges the rest.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import redis
from django.conf import settings

from controlplane import redis_client
from controlplane.health import signs_of_life
from controlplane.health.processes import SILENT_AFTER_S
from queries.domain.definitions.sql_verdict import SqlVerdict, has_own_grammar
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


def _questions() -> str:
    return f"{settings.QUEUE}:parse"


def ask_spark(spec: Mapping[str, Any]) -> SqlVerdict | None:
    """Return what Spark says of a definition's SQL; None where it has none, or nobody answers."""
    text, conf = spec.get("sql"), spec.get("conf") or {}
    if not isinstance(text, str) or not text.strip() or len(text) > _LONGEST:
        return None
    if not isinstance(conf, Mapping) or has_own_grammar(conf):
        return None
    mine = f"{_questions()}:{uuid4()}"
    limit_s = ASK_LIMIT_S + 1.0  # for the connection; the wait itself is bounded by the command
    try:
        with redis_client.client(settings.REDIS_URL, limit_s=limit_s) as client:
            worker = signs_of_life.heard(client).get(signs_of_life.WORKER)
            if worker is None or (datetime.now(UTC) - worker.at).total_seconds() > SILENT_AFTER_S:
                return None  # nobody would answer
            asked = json.dumps({"to": mine, "text": text, "at": time.time()})
            client.rpush(_questions(), asked)
            client.expire(_questions(), _KEPT_S)
            answer: Any = client.blpop([mine], timeout=ASK_LIMIT_S)
    except redis.RedisError as error:
        logger.info("Spark's parser was not asked: %s", error)
        return None
    if answer is None:
        return None
    told = json.loads(answer[1])
    return SqlVerdict(**told) if told else None


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
