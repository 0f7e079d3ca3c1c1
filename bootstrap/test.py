"""Run the tests that a change needs: `make test`.

Always: the light tests, PostgreSQL, the browser, and every promise. In addition, each area whose
contents differ from those on which `make test-all` last passed (areas.py). Skipped areas are
printed at the end, with the command that runs it. Arguments are passed to pytest and narrow the
run; `--ci` runs what CI has time for (ci.py).
"""

import os
import sys
from collections.abc import Sequence

import ci
from areas import Area, AreaTable, left_out
from groups import EXAMPLES, Groups
from run import print_line
from steps import print_durations, repeated, run


def main(arguments: list[str]) -> int:
    """Run the requested tests; return the exit code of the first failing group, otherwise 0."""
    if arguments[:1] == ["--ci"]:
        return ci.main(arguments[1:])
    if arguments:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        return run(sys.executable, "-m", "pytest", *arguments, go_on=True)
    os.environ.setdefault("HEADGATE_TEST_EXAMPLES", EXAMPLES)
    table = AreaTable.read()
    changed = table.named(table.changed())
    print_line(_plan(changed))
    with repeated() as reports, print_durations():
        groups = Groups(table, reports)
        groups.light()
        on_postgresql = groups.postgresql()
        on_other_spark = None
        try:
            large = [area for area in changed if not area.small and not area.other_sparks]
            groups.large("promises and changed areas", large, promises=True)
            for area in changed:
                if area not in large:
                    groups.whole(area)
            if not any(area.other_sparks for area in changed):
                on_other_spark = groups.promises_on_other_spark(table.areas["sparks"])
            groups.browser()
        finally:
            groups.end(on_other_spark)
            groups.end(on_postgresql)
    print_line(left_out(table, [area for area in table.optional if area not in changed]))
    return groups.code


def _plan(changed: Sequence[Area]) -> str:
    names = ", ".join(area.name for area in changed)
    return (
        f"Changed since `make test-all` last passed, so run whole: {names}."
        if changed
        else "No area has changed since `make test-all` last passed on it."
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
