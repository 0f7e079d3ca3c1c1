"""`make test` prints the failures of all its groups once more, after the table of times."""

import subprocess
import sys
from pathlib import Path

from django.conf import settings

REPOSITORY = Path(settings.BASE_DIR)
#: Two groups as `bootstrap/test.py` runs them, the second of which fails.
PROGRAM = """
import sys
from steps import repeated, run, print_durations

with repeated() as reports, print_durations():
    for part, file in (("first", sys.argv[1]), ("second", sys.argv[2])):
        pytest = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null")
        run(*pytest, *reports.of(part), file, part=part)
"""

#: A group of one test, which asks in a loop, in two processes as all groups are.
LOOP = """
import sys
sys.path.insert(0, sys.argv[1])
from steps import repeated, run, print_durations

with repeated() as reports, print_durations():
    pytest = (sys.executable, "-m", "pytest", "-q", "-n", "1", "-p", "no:cacheprovider")
    run(*pytest, "-p", "no:playwright", *reports.of("loop"), sys.argv[2], part="loop", go_on=True)
"""


def test_a_failure_is_printed_with_its_output_below_the_times(tmp_path: Path) -> None:
    good, bad = tmp_path / "test_good.py", tmp_path / "test_bad.py"
    good.write_text("def test_good():\n    print('said by the good one')\n")
    bad.write_text("def test_bad():\n    print('said <by> the bad one')\n    assert 1 + 1 == 3\n")

    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(good), str(bad)],
        env={"PYTHONPATH": str(REPOSITORY / "bootstrap")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert ran.returncode == 1
    _, times, end = ran.stdout.partition("\ntogether")
    assert times, ran.stdout
    assert "==== second: test_bad::test_bad" in end
    assert "assert (1 + 1) == 3" in end
    assert "said <by> the bad one" in end
    assert end.rstrip().endswith("1 failed")
    assert "test_good" not in end
    assert "said by the good one" not in ran.stdout


def test_each_round_of_a_loop_that_failed_is_printed_with_its_name() -> None:
    test = "tests.checks.a_loop"
    ran = subprocess.run(
        [sys.executable, "-c", LOOP, str(REPOSITORY / "bootstrap"), f"{test.replace('.', '/')}.py"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    _, times, end = ran.stdout.partition("\ntogether")
    assert times, ran.stdout + ran.stderr
    assert f"==== loop: {test}::test_a_loop" in end
    assert "[two of 4]" in end
    assert "[two of 5]" in end
    assert "[two of 3]" not in end


def test_nothing_is_printed_where_nothing_failed(tmp_path: Path) -> None:
    good = tmp_path / "test_good.py"
    good.write_text("def test_good():\n    pass\n")
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(good), str(good)],
        env={"PYTHONPATH": str(REPOSITORY / "bootstrap")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert len(ran.stdout.partition("\ntogether")[2].splitlines()) == 1
