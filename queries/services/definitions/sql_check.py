"""Check SQL with Spark's own parser and analyzer before it is saved.

A worker checks the SQL on its host: the web process does not have a JVM, and one JVM is enough for
all. The JVM runs isolated, without a network, as far as this host's drivers are isolated. It starts
with the first request and exits after a period without requests; applications with another Spark
have its parser, in another JVM. If no answer arrives in time, the SQL is validated as far as
possible without Spark, the result says "SQL not checked", and `sql_recheck` checks it again later.
"""

import json
import logging
import os
import sys
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

from controlplane import servers, signs_of_life
from queries.domain.definitions import parsing
from queries.domain.definitions.spec import Source, SqlQuery, Table
from queries.domain.definitions.sql_verdict import (
    SqlQuestion,
    SqlVerdict,
    folder_of,
    has_own_grammar,
    question_about,
    read_question,
)
from queries.domain.errors import Invalid
from queries.domain.hosts import SILENT_AFTER
from queries.domain.sparks import OURS, Spark, command
from queries.domain.validation.skipped import Check, Skip
from queries.launchers.base import LaunchRefused
from queries.launchers.configured import launcher
from queries.selectors.spark_folders import installed_sparks, jars_of
from queries.services.system import parts
from queries.spark_parser.parser import NoParser
from queries.spark_parser.process import ParserProcess

logger = logging.getLogger(__name__)

#: Maximum time that a user waits for a form, in seconds.
ASK_LIMIT_S = 3
#: Idle time after which the JVM exits, in seconds.
IDLE_S = 300
#: Lifetime of unfetched answers and unanswered questions, in seconds.
_KEPT_S = 30
#: How long a worker waits for a question before checking its timers.
_WAIT_S = 2
_AGAIN_S = 5
LONGEST = 200_000  # characters
_ENTRIES = 1000  # of a folder, examined for partitions
_JVMS = 2  # of 160 MB each
_SOME = 20  # questions of one set queued at once; some tenths of a second


def _questions() -> str:
    return parts.questions()


def question_of(
    spec: Mapping[str, Any], conf: Mapping[str, str], spark: Spark = OURS
) -> SqlQuestion | None:
    """Return the request for a definition of any structure; None if there is nothing to check."""
    try:
        form = parsing.parse_query(dict(spec))
    except Invalid:
        return None
    if not isinstance(form, SqlQuery) or not form.sql.strip() or len(form.sql) > LONGEST:
        return None
    if has_own_grammar({**conf, **form.conf}):
        return None
    return question_about(form, conf=conf, partitioned=_partitioned(form), spark=spark)


def sql_skips(
    form: SqlQuery, verdict: SqlVerdict | None, conf: Mapping[str, str], spark: Spark = OURS
) -> list[Skip]:
    """Return the parts of accepted SQL that were not checked, each with the reason."""
    if verdict is not None:
        return [Skip(Check.NAMES, f"{verdict.unjudged}.")] if verdict.unjudged else []
    if has_own_grammar({**conf, **form.conf}):
        why = "spark.sql.extensions or the parser settings change Spark's grammar."
    elif len(form.sql) > LONGEST:
        why = f"it has more than {LONGEST:,} characters."
    else:
        why = "Spark's parser did not respond. The SQL will be checked when it does."
        if spark != OURS:
            why = (
                f"The parser of Spark {spark} did not respond. If the worker's host lacks that "
                f"version, run `{command(spark)}` there. The SQL will be checked afterwards."
            )
        return [Skip(Check.SQL, why, again=True)]
    return [Skip(Check.SQL, why)]


def _partitioned(form: SqlQuery) -> dict[str, str]:
    """Return the folders whose partitions may add columns, each with the reason.

    Local folders are examined; folders that cannot be examined from here may have partitions.
    """
    parts: list[Source | Table] = [*form.sources, *form.tables]
    folders = {folder for part in parts if (folder := folder_of(part))}
    found = {}
    for folder in sorted(folders):
        path = folder.removeprefix("file://") if folder.startswith("file:///") else folder
        if not path.startswith("/"):
            found[folder] = "they cannot be read from here"
            continue
        try:
            with os.scandir(path) as entries:
                first = islice(entries, _ENTRIES)
                names = [one.name for one in first if "=" in one.name and one.is_dir()]
        except OSError:
            continue  # it does not exist, so nothing adds a column yet
        if names:
            found[folder] = f"{names[0]} exists"
    return found


def _is_answered() -> bool:
    """Return whether a worker that can answer has a recent heartbeat."""
    try:
        with servers.client(settings.REDIS_URL, limit_s=ASK_LIMIT_S + 1.0) as client:
            worker = signs_of_life.heartbeats(client).get(signs_of_life.WORKER)
    except redis.RedisError as error:
        logger.info("could not contact Spark's parser: %s", error)
        return False
    return worker is not None and datetime.now(UTC) - worker.at <= SILENT_AFTER


def _ask(questions: Sequence[SqlQuestion], *, limit_s: float) -> list[SqlVerdict | None]:
    """Send all requests and wait for the answers; an answer that does not arrive is None."""
    mine = {f"{_questions()}:{uuid4()}": asdict(one) for one in questions}
    answers: dict[str, SqlVerdict | None] = {}
    deadline = time.monotonic() + limit_s
    # One extra second for the connection; the command limits the wait itself.
    try:
        with servers.client(settings.REDIS_URL, limit_s=limit_s + 1.0) as client:
            asked = [{"to": to, "asked": one, "at": time.time()} for to, one in mine.items()]
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
        logger.info("could not contact Spark's parser: %s", error)
    return [answers.get(to) for to in mine]


def _as_text(name: str | bytes) -> str:
    return name if isinstance(name, str) else name.decode()


def ask_spark_of_many(
    asked: Sequence[tuple[Mapping[str, Any], Mapping[str, str], Spark]], *, limit_s: float
) -> list[SqlVerdict | None]:
    """Return Spark's verdict on many definitions, each with its application's conf and Spark.

    Sends a few requests at a time, so that a user who saves a form does not have to wait for all of
    them. Identical requests are sent once. The verdict is None if it does not arrive within
    `limit_s` seconds.
    """
    return ask([question_of(*one) for one in asked], limit_s=limit_s)


def ask(questions: Sequence[SqlQuestion | None], *, limit_s: float) -> list[SqlVerdict | None]:
    """Return the verdict for each request, in the same way; None for None."""
    keys = [None if one is None else repr(one) for one in questions]
    different = {key: one for key, one in zip(keys, questions, strict=True) if one is not None}
    said: dict[str | None, SqlVerdict | None] = {}
    deadline = time.monotonic() + limit_s
    if different and _is_answered():
        waiting = iter(different.items())
        while (left := deadline - time.monotonic()) > 0 and (some := list(islice(waiting, _SOME))):
            answers = _ask([one for _, one in some], limit_s=min(left, ASK_LIMIT_S))
            said |= dict(zip((key for key, _ in some), answers, strict=True))
            if not any(answers):
                break  # nobody is answering any more
    return [said.get(key) for key in keys]


def start_parser(spark: Spark) -> ParserProcess:
    """Start the parser of a version, isolated; raise `NoParser` with the way out otherwise."""
    if spark not in installed_sparks():
        way_out = f"Run `{command(spark)}` there."
        raise NoParser(f"Spark {spark} is not installed on {settings.HEADGATE_HOST}. {way_out}")
    jars = jars_of(spark)
    try:
        process = launcher().start_tool(
            [sys.executable, "-P", "-m", "queries.spark_parser.serve", str(jars)],
            reads=[jars],
            hidden=[settings.HEADGATE_HOME, settings.SECRETS_DIR],
        )
    except (LaunchRefused, OSError) as error:
        raise NoParser(f"Spark's parser cannot be started: {error}") from error
    return ParserProcess(process)


class Answering:
    """A worker's thread that answers requests, with a JVM per version while there are any.

    At most `_JVMS` run at once; a further version replaces the least recently used one.
    """

    def __init__(
        self, leaving: threading.Event, *, start: Callable[[Spark], ParserProcess] = start_parser
    ) -> None:
        self._leaving = leaving
        self._start = start
        self._parsers: dict[Spark, tuple[ParserProcess, float]] = {}  # and when it was asked last
        self.error = ""  # why the last question was not answered

    def run(self) -> None:
        """Answer until this worker stops; if Redis is not responding, retry after a pause."""
        try:
            while not self._leaving.is_set():
                try:
                    with servers.client(settings.REDIS_URL, limit_s=_WAIT_S + 3.0) as client:
                        while not self._leaving.is_set():
                            self.turn(client)
                except redis.RedisError as error:
                    logger.debug("Spark's parser cannot be used: %s", error)
                    self._rest()
                    self._leaving.wait(_AGAIN_S)
                except Exception as error:  # loop boundary: one question must not affect the next
                    said = f"{type(error).__name__}: {error}"
                    logger.warning("Spark's parser did not respond: %s", said)
                    self._end(*self._parsers)
        finally:
            self._end(*self._parsers)

    def turn(self, client: redis.Redis, *, wait_s: float = _WAIT_S) -> None:
        """Wait for one request and answer it; stop each JVM after a long idle time."""
        found: Any = client.blpop([_questions()], timeout=wait_s)
        self._rest()
        if found is None:
            return
        question = json.loads(found[1])
        if time.time() - question["at"] > _KEPT_S:
            return  # the client has stopped waiting
        began = time.monotonic()
        verdict = self._judge(read_question(question["asked"]))
        parts.note(client, time.monotonic() - began, self.error, now=datetime.now(UTC))
        client.rpush(question["to"], json.dumps(asdict(verdict) if verdict else None))
        client.expire(question["to"], _KEPT_S)

    def _judge(self, question: SqlQuestion) -> SqlVerdict | None:
        try:
            parser = self._parser_of(question.spark)
            self.error = ""
            return parser.judge(question)
        except NoParser as error:
            logger.warning("%s", error)
            self.error = str(error)
            self._end(question.spark)  # the next question starts a new one
            return None

    def _parser_of(self, spark: Spark) -> ParserProcess:
        if spark not in self._parsers and len(self._parsers) >= _JVMS:
            self._end(min(self._parsers, key=lambda each: self._parsers[each][1]))
        parser = self._parsers[spark][0] if spark in self._parsers else self._start(spark)
        self._parsers[spark] = parser, time.monotonic()
        return parser

    def _rest(self) -> None:
        now = time.monotonic()
        self._end(*(each for each, (_, at) in self._parsers.items() if now - at > IDLE_S))

    def _end(self, *sparks: Spark) -> None:
        for parser, _ in [self._parsers.pop(each) for each in sparks if each in self._parsers]:
            parser.close()
