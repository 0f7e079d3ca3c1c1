"""Run what CI has time for: everything that a change could break first, then the rest in turn.

The light tests with coverage, PostgreSQL, the browser and every promise always run. Then come the
areas that recent commits touched, then all others, beginning with a different one for each commit:
each is started only if it is expected to end in time. Skipped areas are printed. The developer's
own record (`tests/last-full`) is not trusted here.
"""

import os
import time
from collections.abc import Sequence

from areas import PROMISE, AreaTable, GitMissingError, left_out
from groups import EXAMPLES, Groups
from run import print_line
from steps import print_durations, repeated

#: No area is started that would end later than this after CI began.
TIME_S = 60 * 60


def main(arguments: Sequence[str]) -> int:
    """Run the tests; `arguments` may give the time at which CI began (Unix seconds)."""
    passed_s = max(0.0, time.time() - float(arguments[0])) if arguments else 0.0
    end = time.monotonic() + TIME_S - passed_s
    os.environ.setdefault("HEADGATE_TEST_EXAMPLES", EXAMPLES)
    table = AreaTable.read()
    touched, others = _order(table)
    print_line(f"Touched by recent commits: {', '.join(touched) or 'no area'}.")
    with repeated() as reports, print_durations():
        groups = Groups(table, reports)
        began = time.monotonic()
        groups.light(covered=True)
        slowness = max(1.0, (time.monotonic() - began) / (60 * table.areas["light"].minutes))
        on_postgresql, on_other_spark = groups.postgresql(), None
        try:
            groups.large("promises", [], promises=True)
            on_other_spark = groups.promises_on_other_spark(table.areas["sparks"])
            groups.browser()
        finally:
            groups.end(on_other_spark)
            groups.end(on_postgresql)
        remaining = []
        for area in table.named([*touched, *others]):
            if time.monotonic() + area.minutes * 60 * slowness > end:
                remaining.append(area)
            else:
                groups.whole(area, but=PROMISE)
    print_line(left_out(table, remaining))
    return groups.code


def _order(table: AreaTable) -> tuple[list[str], list[str]]:
    """Return the areas that recent commits touched, and all others in the order of this commit."""
    names = [area.name for area in table.optional]
    try:
        touched = table.touched_by_recent_commits()
        return touched, table.rotated([name for name in names if name not in touched])
    except GitMissingError:
        return names, []
