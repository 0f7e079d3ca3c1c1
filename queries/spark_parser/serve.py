"""Answer requests about SQL in a separate process: the part that runs isolated.

`python -m queries.spark_parser.serve JARS` reads requests from its input, one JSON line each, and
writes a line for each: {"verdict": …}, or {"failed": "why"} and exits. Before the first one, it
writes {"version": "4.3.0"}. It ends when its input is closed.
"""

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from queries.domain.definitions.sql_verdict import read_question
from queries.spark_parser.parser import NoParser, SparkParser


def main(jars: Path) -> None:
    """Serve until the input is closed, or the parser has failed."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints is not an answer

    def answer(said: dict[str, Any]) -> None:
        answers.write(f"{json.dumps(said)}\n")
        answers.flush()

    try:
        with SparkParser(jars) as parser:
            answer({"version": parser.version})
            for line in sys.stdin.buffer:
                answer({"verdict": asdict(parser.judge(read_question(json.loads(line))))})
    except NoParser as error:
        answer({"failed": str(error)})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
