"""Run Spark's own SQL parser and analyzer in a small JVM, without the rest of Spark."""

import contextlib
import logging
import os
import subprocess
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JError, Py4JJavaError

from queries.domain.definitions.sql_verdict import SqlQuestion, SqlReads, SqlVerdict, is_certain
from queries.domain.probes.plan_shapes import of_plan
from queries.jvm.compiled import SPARK_JARS, NotCompiled, java, without_answer
from queries.spark_parser.analyzer import Analyzer, nodes, nodes_of, reads_of, refusal

logger = logging.getLogger(__name__)

#: Seconds; a text that takes longer was not written by hand. A second is enough on a quiet machine,
#: but a parser that is ended on a busy one only has to load its classes again.
PARSE_LIMIT_S = 60
#: Nodes of a plan that are looked at, of which a SELECT has three; a thousand take a second.
MOST_NODES = 2_000
TOO_DEEP = "it is too long or nested too deeply for Headgate's parser"
_LEAVE_S = 5
#: Spark's error for a parameter in place of what the grammar calls a string or a number.
_MARKER = "[UNEXPECTED_USE_OF_PARAMETER_MARKER]"
#: 160 MB are enough for the grammar and a text of a thousand lines; deep nesting needs more stack.
_OPTIONS = ["-Xmx160m", "-Xss4m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]


class NoParser(Exception):
    """The parser cannot run here, or has failed; the SQL may or may not be valid."""


class SparkParser:
    """A JVM for the parser, which ends with the block or with this process. Not thread-safe.

    `jars` is the folder with the jars of the Spark whose parser runs.
    """

    def __init__(self, jars: Path = SPARK_JARS) -> None:
        (own,) = jars.glob("py4j-*.jar")
        (catalyst,) = jars.glob("spark-catalyst_*.jar")
        self.version = catalyst.stem.rpartition("-")[2]  # "4.2.1"
        with open(os.devnull, "w", encoding="utf-8") as nothing:
            try:
                port, token, self.process = launch_gateway(
                    jarpath=str(own),
                    classpath=str(jars / "*"),
                    javaopts=_OPTIONS,
                    java_path=_java(),
                    die_on_exit=True,  # it reads our end of a pipe, which closes with us
                    enable_auth=True,
                    return_proc=True,
                    redirect_stdout=nothing,
                    redirect_stderr=nothing,
                )
            except OSError as error:
                raise NoParser(f"Spark's parser cannot be started: {error.strerror}.") from error
            except (Py4JError, ValueError) as error:
                why = "its JVM ended at once"
                raise NoParser(f"Spark's parser cannot be started: {why}.") from error
        self._gateway = JavaGateway(
            gateway_parameters=GatewayParameters(
                port=port, auth_token=token, read_timeout=PARSE_LIMIT_S
            )
        )
        self._parser: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def judge(self, question: SqlQuestion) -> SqlVerdict:
        """Return Spark's verdict on SQL; raise `NoParser` if there is none."""
        try:
            if self._parser is None:
                package = self._gateway.jvm.org.apache.spark.sql.catalyst.parser
                self._parser = package.CatalystSqlParser()
            parsed_plan = self._parser.parsePlan(question.text)
            plan_nodes = list(
                islice(nodes(parsed_plan, self._parser, self._gateway.jvm), MOST_NODES + 1)
            )
            if len(plan_nodes) > MOST_NODES:
                return _unjudged(TOO_DEEP)
            reads = reads_of(plan_nodes, self._gateway.jvm).as_json()
            refused = refusal(question.text, plan_nodes, self._gateway.jvm)
        except Py4JJavaError as error:
            return self._refusal(error.java_exception)
        except (Py4JError, OSError) as error:
            raise self._broken("parser", error) from error
        if refused:
            return SqlVerdict(ok=False, message=refused, reads=reads)
        if question.unknown:
            return SqlVerdict(ok=True, unjudged=question.unknown, reads=reads)
        return replace(self._analyzed(question, parsed_plan), reads=reads)

    def _analyzed(self, question: SqlQuestion, parsed_plan: Any) -> SqlVerdict:
        """Return the analyzer's verdict; doubts left to a driver are not a rejection."""
        try:
            plan = Analyzer(self._gateway.jvm, question).plan(parsed_plan)
            shapes = of_plan(nodes_of(plan), question.output_mode)
        except Py4JJavaError as error:
            message = _first_line(error.java_exception)
            if is_certain(message):
                return self._rejection(error.java_exception, message)
            return SqlVerdict(ok=True, unjudged=f"Spark's analyzer reports {message}")
        except RecursionError:
            return SqlVerdict(ok=True, unjudged=TOO_DEEP)
        except (Py4JError, OSError) as error:
            if self.process.poll() is not None or not isinstance(error, Py4JError):
                raise self._broken("analyzer", error) from error
            # Java's answer could not be sent: the messages of some exceptions cannot be encoded.
            unread = "Spark's analyzer gave an answer that cannot be read"
            return SqlVerdict(ok=True, unjudged=unread)
        return SqlVerdict(ok=True, state=asdict(shapes), spark=self.version)

    def _refusal(self, error: Any) -> SqlVerdict:
        try:
            kind = error.getClass().getSimpleName()
            if _MARKER in str(error.getMessage()):
                message = "A parameter (:name) can only replace a value in an expression."
                return SqlVerdict(ok=False, message=message)
            if kind in ("StackOverflowError", "OutOfMemoryError"):  # the JVM continues
                return _unjudged(TOO_DEEP)
            if kind != "ParseException":
                raise NoParser(f"Spark's parser has failed: {kind}")
            origin = error.origin()
            return self._verdict(str(error.getMessage()).strip(), origin.line(), origin)
        except (Py4JError, OSError) as failed:
            raise self._broken("parser", failed) from failed

    def _broken(self, part: str, error: Exception) -> NoParser:
        return NoParser(f"Spark's {part} has failed: {without_answer(error, self.process)}.")

    def _rejection(self, error: Any, message: str) -> SqlVerdict:
        """Return the analyzer's rejection, with its position if it has one."""
        try:
            return self._verdict(message, error.line(), error)
        except (Py4JError, OSError):
            return SqlVerdict(ok=False, message=message)

    @staticmethod
    def _verdict(message: str, line: Any, placed: Any) -> SqlVerdict:
        start = placed.startPosition()
        if not (line.isDefined() and start.isDefined()):
            return SqlVerdict(ok=False, message=message)
        return SqlVerdict(False, message, int(line.get()), int(start.get()) + 1)

    def close(self) -> None:
        """End the JVM, by force if it does not exit."""
        with contextlib.suppress(Py4JError, OSError):
            self._gateway.close()
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(_LEAVE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(_LEAVE_S)


def _unjudged(why: str) -> SqlVerdict:
    """Return the verdict for SQL that only a driver can judge."""
    return SqlVerdict(ok=True, unjudged=why, reads=SqlReads(unknown=(why,)).as_json())


def _first_line(error: Any) -> str:
    return next(iter(str(error.getMessage()).strip().splitlines()), "")


def _java() -> str:
    try:
        return java()
    except NotCompiled as error:
        raise NoParser(f"Spark's parser cannot run. {error}") from error
