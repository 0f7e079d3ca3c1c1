"""System says what Spark's parser does, and what that means for SQL that is saved meanwhile."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from queries.services.system.parts import PARSER, judged

NOW = datetime(2026, 11, 26, 3, 0, tzinfo=UTC)


def asked(seconds_ago: float) -> bytes:
    return json.dumps({"at": (NOW - timedelta(seconds=seconds_ago)).timestamp()}).encode()


def told(error: str = "") -> str:
    return json.dumps({"at": NOW.isoformat(), "ms": 1250, "error": error})


@pytest.mark.parametrize(
    ("waiting", "answer", "is_ok", "sentence"),
    [
        ([], None, True, "Spark's parser starts when the first SQL is saved."),
        ([], told(), True, "Spark's parser responded in 1,250 ms at 03:00:00 UTC."),
        ([asked(2)], told(), True, "Spark's parser responded in 1,250 ms at 03:00:00 UTC."),
        ([asked(6)], told(), False, "1 request is waiting for Spark's parser."),
        ([asked(60)] * 41, None, False, "41 or more requests are waiting for Spark's parser."),
        ([], told("No Java was found."), False, "No Java was found."),
        ([b"rotten"], told(), True, "Spark's parser responded in 1,250 ms at 03:00:00 UTC."),
    ],
)
def test_the_row_says_whether_sql_is_checked(
    waiting: list[bytes | str], answer: str | None, is_ok: bool, sentence: str
) -> None:
    part = judged(waiting, answer, NOW)
    assert (part.name, part.ok) == (PARSER, is_ok)
    assert part.sentence.startswith(sentence)
    assert ("saved as “SQL not checked”" in part.sentence) is not is_ok
