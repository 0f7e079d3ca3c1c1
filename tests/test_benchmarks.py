"""Benchmarks can be listed and started on a fresh clone, and clean up after those killed."""

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from django.conf import settings

from benchmarks import _measuring

REPOSITORY = Path(settings.BASE_DIR)
FILES = sorted((REPOSITORY / "benchmarks").rglob("[a-z]*.py"))
NAMES = sorted(file.stem for file in FILES)


def make(*arguments: str) -> str:
    """Return what make would run."""
    command = ["make", "--no-print-directory", "-n", *arguments]
    return subprocess.run(
        command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False
    ).stdout


def test_what_the_tests_import_is_installed_for_a_benchmark_too() -> None:
    assert "bootstrap/run.py --dev bootstrap/bench.py" in make("bench")


def test_the_goal_after_bench_names_the_benchmark() -> None:
    assert (
        make("bench", "triggers", "ARGS=--rounds 9")
        .splitlines()[0]
        .endswith("bootstrap/bench.py triggers --rounds 9")
    )


def test_without_a_name_each_is_listed_with_the_time_that_it_takes() -> None:
    listed = _bench().stdout
    for name in NAMES:
        assert re.search(rf"make bench {name} +\d+ minutes? +[A-Z]", listed), listed


def test_an_unknown_name_is_told_which_there_are() -> None:
    found = _bench("nothing")
    assert found.returncode == 1
    assert all(name in found.stderr for name in NAMES)


def test_the_page_of_figures_has_each_benchmark_and_no_other() -> None:
    page = (REPOSITORY / "docs" / "figures.md").read_text()
    section = page.partition("\n## Speed\n")[2].partition("\n## ")[0]
    assert sorted(set(re.findall(r"^\| `(\w+)` \|", section, re.M))) == NAMES
    assert set(re.findall(r"make bench (\w+)", page)) - {"NAME"} <= set(NAMES)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_can_be_imported_with_what_is_installed(file: Path) -> None:
    module = ".".join(file.relative_to(REPOSITORY).with_suffix("").parts)
    assert callable(importlib.import_module(module).main)


def test_figures_come_with_their_machine_and_the_last_line_is_json(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _measuring.report("speed", ours=2, baseline=1, ratio=2.0)
    said = capsys.readouterr().out.splitlines()
    told = json.loads(said[-1])
    assert [told[key] for key in ("name", "ours", "baseline", "ratio")] == ["speed", 2, 1, 2.0]
    assert {"cpu", "cores", "memory_gb", "kernel", "load", "python", "java", "spark"} == set(
        told["machine"]
    )
    assert told["machine"]["kernel"] in said[-2]


def test_a_median_is_told_with_its_spread() -> None:
    assert _measuring.spread([3, 1, 2]) == "2.0 (1.0 to 3.0)"
    assert _measuring.ratios([4, 9], [2, 3]) == [2, 3]


def test_the_workplace_goes_with_the_benchmark() -> None:
    with _measuring.workplace("here") as folder:
        assert _measuring.clean_up(folder.parent) == []
        assert folder.is_dir()
    assert not folder.exists()


def test_what_a_killed_benchmark_left_is_removed(tmp_path: Path) -> None:
    gone = psutil.Process().pid, 1  # this process did not begin in 1970
    folder = tmp_path / f"{_measuring.PREFIX}dead-{gone[0]}-{gone[1]}-abc"
    folder.mkdir()
    left = subprocess.Popen([sys.executable, "-c", "input()", str(folder)], stdin=subprocess.PIPE)
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert _measuring.clean_up(tmp_path) == [folder]
        assert not psutil.pid_exists(left.pid)
        assert other.poll() is None
        assert not folder.exists()
    finally:
        for process in (left, other):
            process.kill()
            process.communicate(timeout=30)


def _bench(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "bootstrap/bench.py", *arguments],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
