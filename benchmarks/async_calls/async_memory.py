"""How much memory a task of `map_async` holds, whatever passes through it.

Runs one task's function, as a Python worker would, over Arrow batches that are made as they are
asked for: `--rows` (10 million) rows, 3,000 keys, a call that waits for one turn of the loop, one
hot key in ten rows so that rows do wait. Counts the rows between taken and given back, and
measures this process's resident memory after a tenth of the rows and at its highest from there on.
The last line is JSON; `ratio` is the highest over the first.
"""

import argparse

from benchmarks._measuring import report
from tests.headgate_async.passage import pass_through

TAKES = "5 minutes"


def main() -> None:
    """Measure, and print a line of JSON."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rows", type=int, default=10_000_000)
    found = pass_through(options.parse_args().rows)
    ratio = round(found["highest_mb"] / found["early_mb"], 3)
    report(
        "async_memory", ours=found["highest_mb"], baseline=found["early_mb"], ratio=ratio, **found
    )


if __name__ == "__main__":
    main()
