"""Measure how much memory a `map_async` task uses, regardless of the number of rows.

This runs one task's function, as a Python worker would, over Arrow batches that are created on
demand: `--rows` (10 million) rows, 3,000 keys, a call that waits for one iteration of the loop, and
one hot key in ten rows so that rows have to wait. It counts the rows that were taken but not yet
returned, and measures this process's resident memory after a tenth of the rows and its maximum from
then on. The last line is JSON; `ratio` is the maximum divided by the first value.
"""

import argparse

from benchmarks._measuring import report
from tests.headgate_async.passage import pass_through

TAKES = "5 minutes"


def main() -> None:
    """Measure the memory, and print a line of JSON."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rows", type=int, default=10_000_000)
    found = pass_through(options.parse_args().rows)
    ratio = round(found["highest_mb"] / found["early_mb"], 3)
    report(
        "async_memory", ours=found["highest_mb"], baseline=found["early_mb"], ratio=ratio, **found
    )


if __name__ == "__main__":
    main()
