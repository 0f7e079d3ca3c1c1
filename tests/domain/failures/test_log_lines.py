"""Lines of a log keep their place and belong to their entry; a search tells no secret."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.failures.error_text import LOG_LINE_LIMIT, Level, LogLine, lines_of, select

LOG = b"""starting
2026-11-23 16:13:13,001 INFO queries.runtime: run 7 of delays starts
26/11/23 16:13:16 WARN Utils: set SPARK_LOCAL_IP
26/11/23 16:13:29.685 ERROR MicroBatchExecution: Query delays terminated
java.lang.ArithmeticException: / by zero
\tat acme.Delays.ratio(Delays.scala:7)
26/11/23 16:13:30 INFO SparkContext: bye
"""


_LIMITS = {"most": 100, "most_masked": 100_000}


def _plain(text: str) -> str:
    return text


def test_each_line_has_its_place_and_the_level_of_its_entry() -> None:
    lines = list(lines_of(LOG, 0, whole=True))
    assert [line.level for line in lines] == [
        *(None, Level.INFO, Level.WARN),
        *(Level.ERROR, Level.ERROR, Level.ERROR),
        Level.INFO,
    ]
    for line in lines:
        assert LOG[line.at :].startswith(line.text.encode())


def test_a_part_begins_with_its_first_whole_line() -> None:
    start = LOG.index(b"SPARK")
    lines = list(lines_of(LOG[start:], start))
    assert lines[0].text.startswith("26/11/23 16:13:29.685 ERROR")
    assert lines[0].at == LOG.index(b"26/11/23 16:13:29")


@given(st.binary(max_size=300), st.integers(0, 40))
def test_parts_together_are_the_whole(data: bytes, cut: int) -> None:
    cut = min(cut, len(data))
    whole = [(line.at, line.text) for line in lines_of(data, 0, whole=True)]
    later = [(line.at, line.text) for line in lines_of(data[cut:], cut)]
    assert later == [one for one in whole if one[0] > cut]


@pytest.mark.parametrize(
    ("words", "least", "found"),
    [
        ("", None, 7),
        ("", Level.WARN, 4),
        ("", Level.ERROR, 3),
        ("ZERO", None, 1),
        ("delays", Level.ERROR, 2),
        ("nothing like it", None, 0),
    ],
)
def test_lines_are_found_by_words_and_level(words: str, least: Level | None, found: int) -> None:
    lines = list(lines_of(LOG, 0, whole=True))
    kept, unread = select(lines, words=words, least=least, **_LIMITS, mask=_plain)
    assert (len(kept), unread) == (found, None)
    assert kept == [line for line in lines if line in kept]


def test_of_many_the_newest_are_kept() -> None:
    lines = [LogLine(number, None, f"line {number}") for number in range(10)]
    limits = {"most": 3, "most_masked": 1000}
    kept, unread = select(lines, words="line", least=None, **limits, mask=_plain)
    assert ([line.at for line in kept], unread) == ([7, 8, 9], 7)
    assert select(lines[-3:], words="", least=None, **limits, mask=_plain) == (lines[-3:], None)


@pytest.mark.guarantee("G-SECRET-6")
def test_no_more_is_masked_than_the_limit_and_at_least_one_line() -> None:
    lines = [LogLine(number, None, f"line {number}") for number in range(10)]
    masked: list[str] = []

    def mask(text: str) -> str:
        masked.append(text)
        return text

    limits = {"most": 100, "most_masked": 14}
    assert select(lines, words="", least=None, **limits, mask=mask) == (lines[8:], 8)
    assert masked == ["line 9", "line 8"]
    # The words of the last line are only within a secret: the search goes on before it.
    limits = {"most": 100, "most_masked": 0}
    hidden = select(lines, words="line", least=None, **limits, mask=lambda text: "••••")
    assert hidden == ([], 9)


def test_a_search_does_not_tell_what_a_secret_is() -> None:
    def mask(text: str) -> str:
        return text.replace("hunter2", "••••")

    lines = [LogLine(0, None, "password hunter2")]
    assert select(lines, words="hunter", least=None, **_LIMITS, mask=mask) == ([], None)
    kept, _ = select(lines, words="password", least=None, **_LIMITS, mask=mask)
    assert kept[0].text == "password ••••"


def test_a_long_line_is_cut_after_it_was_masked() -> None:
    secret = "s" * 100
    data = b"x" * (LOG_LINE_LIMIT - 50) + secret.encode() + b"y" * 100_000
    (line,) = lines_of(data, 0, whole=True)
    kept, _ = select(
        [line], words="", least=None, **_LIMITS, mask=lambda text: text.replace(secret, "•")
    )
    assert "s" not in kept[0].text
    assert kept[0].text.endswith("…")
    assert len(kept[0].text) == LOG_LINE_LIMIT + 1
