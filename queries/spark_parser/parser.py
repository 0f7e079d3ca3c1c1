"""Spark's own SQL parser in a small JVM of its own: nothing of Spark but its grammar runs there."""

import contextlib
import logging
import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JError, Py4JJavaError

from queries.domain.definitions.sql_verdict import SqlVerdict

logger = logging.getLogger(__name__)

#: A text that takes longer is one that nobody wrote by hand. Seconds.
PARSE_LIMIT_S = 10
_LEAVE_S = 5
#: 160 MB hold the grammar and a text of a thousand lines; deep nesting needs a deeper stack.
_OPTIONS = ["-Xmx160m", "-Xss4m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]


class NoParser(Exception):
    """The parser cannot run here, or has failed; the text may be right or wrong."""


class SparkParser:
    """One JVM; it ends with this process, and with the block. Not for two threads at once."""

    def __init__(self) -> None:
        jars = Path(pyspark.__file__).parent / "jars"
        (own,) = jars.glob("py4j-*.jar")
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
            except (OSError, Py4JError, ValueError) as error:
                raise NoParser(f"Spark's parser does not start: {error}") from error
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

    def parse(self, text: str) -> SqlVerdict:
        """Return what Spark says of a text; raise `NoParser` where it says nothing."""
        try:
            if self._parser is None:
                package = self._gateway.jvm.org.apache.spark.sql.catalyst.parser
                self._parser = package.CatalystSqlParser()
            self._parser.parsePlan(text)
        except Py4JJavaError as error:
            return self._refusal(error.java_exception)
        except (Py4JError, OSError) as error:
            raise NoParser(f"Spark's parser has failed: {error}") from error
        return SqlVerdict(ok=True)

    def _refusal(self, error: Any) -> SqlVerdict:
        try:
            kind = error.getClass().getSimpleName()
            if kind != "ParseException":
                raise NoParser(f"Spark's parser has failed: {kind}")
            origin = error.origin()
            line, start = origin.line(), origin.startPosition()
            placed = line.isDefined() and start.isDefined()
            return SqlVerdict(
                ok=False,
                message=str(error.getMessage()).strip(),
                line=int(line.get()) if placed else None,
                column=int(start.get()) + 1 if placed else None,
            )
        except (Py4JError, OSError) as failed:
            raise NoParser(f"Spark's parser has failed: {failed}") from failed

    def close(self) -> None:
        """End the JVM, by force where it does not leave."""
        with contextlib.suppress(Py4JError, OSError):
            self._gateway.close()
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(_LEAVE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(_LEAVE_S)


def _java() -> str:
    home = os.environ.get("JAVA_HOME", "")
    found = Path(home) / "bin" / "java" if home else shutil.which("java")
    if not found:
        raise NoParser("Spark's parser needs a Java: there is none in JAVA_HOME or PATH")
    return str(found)
