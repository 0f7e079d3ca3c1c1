"""Measure how long the slowest texts are searched for secrets, and an ordinary log.

The arms take turns over the same texts of 256 KiB, which repeat the pieces that each row of the
table names as its slowest. In the baseline, the row of JWTs begins as it did before it could not
begin again within a token: with a boundary of words, so at each hyphen. Both mask an ordinary log
first, with the same result. `ratio` is how many times as long the baseline's slowest text takes.
`within_limit` says whether each text took our arm at most 0.5 s. All times are of the processor, as
a search waits for nothing else. The last line is JSON.
"""

import argparse
import re
import statistics
import time
from collections.abc import Iterable

from benchmarks._measuring import report
from headgate_ground.masking import MASK, LocalSearcher
from headgate_ground.secret_kinds import NAMES, VALUES, SecretValue

TAKES = "1 minute"

SIZE = 256 * 1024  # characters: the longest tail of a log
LIMIT_S = 0.5  # for a row's slowest text
_NOW, _BEFORE = r"(?<![\w\-])eyJ", r"\beyJ"
_LINE = (
    "26/11/23 16:13:30 INFO MicroBatchExecution: Streaming query made progress: "
    '{"id" : "5f2f4a3e-1", "numInputRows" : 120, "password" : "hunter2hunter2"}\n'
)


def before(row: SecretValue) -> str:
    """Return a row's pattern, as it was before."""
    return row.before + row.pattern.replace(_NOW, _BEFORE) + row.after


def now(row: SecretValue) -> str:
    """Return a row's pattern."""
    return row.before + row.pattern + row.after


ARMS = {"ours": [re.compile(now(row)) for row in VALUES]}
ARMS["baseline"] = [re.compile(before(row)) for row in VALUES]


def main() -> None:
    """Check both arms over a log, run the rounds, and print the figures."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=5)
    rounds = max(5, options.parse_args().rounds)
    texts = {piece: repeated(piece) for row in VALUES for piece in row.hostile}
    texts["an ordinary log"] = log = repeated(_LINE)
    if searched("ours", log)[1] != searched("baseline", log)[1]:
        raise SystemExit("the arms mask an ordinary log differently")
    times: dict[str, dict[str, list[float]]] = {arm: {text: [] for text in texts} for arm in ARMS}
    for number in range(rounds):
        order = list(ARMS) if number % 2 else list(ARMS)[::-1]
        for name, text in texts.items():
            for arm in order:
                times[arm][name].append(searched(arm, text)[0])
    whole = {one: whole_s(one) for one in (*(row.example for row in NAMES), _LINE)}
    _report(times, whole, rounds)


def repeated(piece: str) -> str:
    """Return a text of the measured size that repeats a piece."""
    return (piece * (SIZE // len(piece) + 1))[:SIZE]


def searched(arm: str, text: str) -> tuple[float, str]:
    """Return the seconds that an arm's rows took to search a text, and the text without matches."""
    began = time.process_time()
    for pattern in ARMS[arm]:
        text = pattern.sub("", text)
    return time.process_time() - began, text


def whole_s(piece: str) -> float:
    """Return the median seconds for masking a text with the whole table, names and values."""
    text, here, found = repeated(piece), LocalSearcher(), []
    for _ in range(3):
        began = time.process_time()
        masked = here.mask(text)
        found.append(time.process_time() - began)
    if piece == _LINE and MASK not in masked:
        raise SystemExit("a password in a log was not masked")
    return statistics.median(found)


def _report(times: dict[str, dict[str, list[float]]], whole: dict[str, float], rounds: int) -> None:
    """Print the slowest texts of each arm, then the JSON line."""
    medians = {
        arm: {text: statistics.median(one) for text, one in found.items()}
        for arm, found in times.items()
    }
    for arm, found in medians.items():
        text, took = _slowest(found.items())
        print(f"{arm}: slowest {text!r:.40}, {took * 1000:.1f} ms")
    ours, baseline = (_slowest(medians[arm].items())[1] for arm in ("ours", "baseline"))
    name, names_s = _slowest(whole.items())
    print(f"with the whole table: slowest {name!r:.40}, {names_s * 1000:.1f} ms")
    report(
        "masking",
        ours=round(ours * 1000, 2),
        baseline=round(baseline * 1000, 2),
        ratio=round(baseline / ours, 1),
        unit="ms for the slowest of 256 KiB, by the table's values",
        rounds=rounds,
        ordinary_log_ms={arm: round(medians[arm]["an ordinary log"] * 1000, 2) for arm in ARMS},
        whole_table_ms={"slowest": round(names_s * 1000, 1), "log": round(whole[_LINE] * 1000, 1)},
        within_limit=max(ours, names_s / 3) <= LIMIT_S,  # three patterns search for names
    )


def _slowest(times: Iterable[tuple[str, float]]) -> tuple[str, float]:
    return max(times, key=lambda one: one[1])


if __name__ == "__main__":
    main()
