"""Communicate with the parser's process, which has parsed authors' SQL and is not trusted."""

import json
import subprocess
from dataclasses import asdict
from typing import ClassVar

from headgate_ground.tool_process import ToolProcess
from queries.domain.definitions.sql_verdict import (
    SqlQuestion,
    SqlVerdict,
    read_question,
    read_verdict,
)
from queries.spark_parser.parser import PARSE_LIMIT_S, NoParser

#: Seconds for Python and the JVM to start; on a quiet machine it is one.
STARTS_WITHIN_S = 120
#: Seconds for an answer: longer than the parser's own limit for a call of Java, so that it can
#: answer which call took too long.
ANSWERS_WITHIN_S = PARSE_LIMIT_S + 30


class ParserProcess(ToolProcess):
    """The process of a parser, which ends with the block. Not thread-safe."""

    name: ClassVar[str] = "Spark's parser"
    failure: ClassVar[type[Exception]] = NoParser
    longest: ClassVar[int] = 8 * 1024 * 1024  # the plan of a text with a thousand lines: 100 KB

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        super().__init__(process)
        self.version = ""

    def judge(self, question: SqlQuestion) -> SqlVerdict:
        """Return Spark's verdict on SQL; raise `NoParser` if there is none."""
        if not self.version:
            self.version = str(self.read_answer(STARTS_WITHIN_S).get("version", ""))[:40]
        line = json.dumps(asdict(read_question(asdict(question)))).encode() + b"\n"
        self.write(line, ANSWERS_WITHIN_S)
        answer = self.read_answer(ANSWERS_WITHIN_S)
        try:
            return read_verdict(answer["verdict"])
        except (KeyError, TypeError, ValueError) as error:
            raise NoParser(f"Spark's parser has sent no verdict: {error}") from error
