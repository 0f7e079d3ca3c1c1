"""Run every test, or all tests of some areas: `make test-all`, `make test-all ARGS="kafka s3"`.

Property tests try all of their examples, and models take their whole walks. Each area that passes
whole is recorded in `tests/last-full` with a digest of its contents: `make test` leaves it out
until they change. An area is not recorded if a test of it was skipped because something is missing
here, or if its contents changed during the run.
"""

import sys
from collections.abc import Sequence

from areas import AreaTable, GitMissingError
from groups import Groups, how_to_install_sparks, installed_sparks, spark_versions
from run import print_line
from steps import Reports, print_durations, repeated


def main(names: Sequence[str]) -> int:
    """Run the named areas, or all; return the exit code of the first that fails, otherwise 0."""
    table = AreaTable.read()
    area_names = [area.name for area in table.named(names)] or list(table.areas)
    before = _digests(table)
    with repeated() as reports, print_durations():
        groups = Groups(table, reports)
        if "light" in area_names:
            record(table, before, "light", groups.light(covered=True), reports)
        else:
            groups.archive_classes()
        on_postgresql = groups.postgresql() if "postgresql" in area_names else None
        try:
            for area in table.optional:
                if area.name in area_names:
                    record(table, before, area.name, groups.whole(area), reports)
            if "browser" in area_names:
                record(table, before, "browser", groups.browser(), reports)
        finally:
            code = groups.end(on_postgresql)
            if on_postgresql is not None:
                record(table, before, "postgresql", code, reports)
    return groups.code


def record(
    table: AreaTable, before: dict[str, str], name: str, code: int, reports: Reports
) -> None:
    """Record an area that has passed completely, or print why it is not recorded."""
    if code:
        return
    problem = ""
    if missing := reports.skipped(name):
        problem = f"{len(missing)} tests were skipped, the first because {missing[0]}"
    if table.areas[name].other_sparks and installed_sparks() != spark_versions():
        problem = f"not every version of Spark is installed: {how_to_install_sparks()}"
    if not before:
        problem = "git cannot tell its contents"
    elif _digests(table).get(name) != before[name]:
        problem = "its files changed during the run"
    if problem:
        print_line(f"\n{name} passed, but is not recorded in tests/last-full: {problem}.")
    else:
        table.record({name: before[name]})


def _digests(table: AreaTable) -> dict[str, str]:
    try:
        return table.digests()
    except GitMissingError:
        return {}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
