"""What `make test` runs is enough: the table of areas is complete, and held by the guards."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings

REPOSITORY = Path(settings.BASE_DIR)
sys.path.append(str(REPOSITORY / "bootstrap"))

import areas  # noqa: E402
import groups  # noqa: E402
import sabotage  # noqa: E402
import test_all  # noqa: E402
from areas import Area, AreaTable  # noqa: E402
from steps import Reports  # noqa: E402

from tests.checks.listed_areas import LISTED  # noqa: E402

TABLE = AreaTable.read()


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, bool]]:
    """Return (area, promise) of each test of a guard or in a file with a promise; none is run."""
    file = tmp_path_factory.mktemp("areas") / "listed.json"
    guarded = {test.partition("::")[0] for test in sabotage.read().tests}
    promising = {
        str(one.relative_to(REPOSITORY))
        for one in (REPOSITORY / "tests").rglob("test_*.py")
        if "mark.promise" in one.read_text()
    }
    subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:playwright"),
            *("-p", "no:cacheprovider", "-p", "tests.checks.listed_areas"),
            *sorted(guarded | promising),
        ],
        cwd=REPOSITORY,
        env={**os.environ, LISTED: str(file)},
        stdout=subprocess.DEVNULL,
        check=True,
        timeout=300,
    )
    return {name: (area, promise) for name, (area, promise) in json.loads(file.read_text()).items()}


def test_every_file_belongs_to_an_area() -> None:
    without = [path for path in TABLE.files() if not TABLE.about(path)]
    assert without == [], "add each to an area in bootstrap/areas.toml"


def test_every_pattern_of_an_area_is_the_path_of_a_file() -> None:
    files = TABLE.files()
    idle = [
        f"{area.name}: {pattern}"
        for area in TABLE.areas.values()
        for pattern in area.patterns
        if not any(areas.matches(path, [pattern]) for path in [*files, areas.LAST_FULL])
    ]
    assert idle == []


def test_every_area_has_a_promise(listed: dict[str, tuple[str, bool]]) -> None:
    promised = {area for area, promise in listed.values() if promise}
    tests = [area for area in TABLE.optional if not area.small and not area.other_sparks]
    assert {area.name for area in tests} <= promised
    [elsewhere] = [area for area in TABLE.optional if area.other_sparks]
    assert any(
        promise and areas.matches(name.partition("::")[0], elsewhere.tests)
        for name, (_, promise) in listed.items()
    )


@pytest.mark.parametrize("area", TABLE.optional, ids=lambda area: area.name)
def test_an_areas_patterns_become_the_files_that_pytest_gets(area: Area) -> None:
    files = groups.files_of(area)
    assert files
    assert all((REPOSITORY / file).is_file() for file in files)
    assert all(areas.matches(file, area.tests) for file in files)


def test_a_change_of_a_guards_file_runs_one_of_its_tests(
    listed: dict[str, tuple[str, bool]], subtests: pytest.Subtests
) -> None:
    always = {area.name for area in TABLE.areas.values() if area.always}
    for guard in sabotage.read().guards:
        with subtests.test(guard.name):
            runs = always.union(area.name for area in TABLE.about(guard.file))
            cases = [
                about
                for name, about in listed.items()
                if name in guard.tests or name.partition("[")[0] in guard.tests
            ]
            assert cases
            assert any(promise or area in runs for area, promise in cases)


@pytest.mark.parametrize(
    ("path", "selected"),
    [
        ("templates/base.html", []),  # the browser tests always run
        ("queries/domain/kafka/lag.py", ["kafka"]),
        ("queries/runtime/kafka/positions.py", ["kafka", "runtime", "sparks"]),
        ("queries/tasks.py", ["systems"]),
        ("queries/jvm/Fence.java", ["hdfs", "s3", "runtime", "sparks"]),
        ("connectors/delta/pom.xml", ["tables"]),
        ("README.md", ["systems"]),
        ("controlplane/settings.py", []),
        ("tests/conftest.py", []),
        ("tests/conftest_kafka.py", ["async", "kafka"]),
        ("tests/kafka/world.py", ["kafka"]),
        ("tests/faults/shared.py", ["systems", "kafka"]),  # by its fixtures
        ("tests/spark/scripts/programs.py", ["isolation", "scripts", "sparks"]),
        ("tests/domain/test_masking.py", []),
    ],
)
def test_a_change_runs_the_areas_that_are_about_it(path: str, selected: list[str]) -> None:
    assert TABLE.selected([path]) == selected


@pytest.mark.parametrize(
    ("file", "marks", "area"),
    [
        ("tests/storage/test_fence.py", {"spark", "hdfs"}, "hdfs"),
        ("tests/storage/test_fence.py", {"spark", "s3"}, "s3"),
        ("tests/kafka/test_flights.py", {"kafka"}, "kafka"),
        ("tests/kafka/test_flights.py", {"redis"}, "light"),
        ("tests/model/test_leases.py", {"django_db"}, "models"),
        ("tests/faults/test_slow_listener.py", {"browser", "spark", "faults"}, "browser"),
        ("tests/web/test_new.py", {"spark"}, ""),
    ],
)
def test_a_test_is_run_by_the_first_area_that_lists_it(
    file: str, marks: set[str], area: str
) -> None:
    assert TABLE.running(file, marks) == area


def test_a_large_test_that_no_area_runs_ends_the_run(tmp_path: Path) -> None:
    place = REPOSITORY / "tests" / "checks" / f"test_of_no_area_{os.getpid()}.py"
    place.write_text("import pytest\n\n@pytest.mark.spark\ndef test_something(): ...\n")
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(place)],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    finally:
        place.unlink()
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert f"{place.name}::test_something: add its file to one" in done.stderr


# --- contents, in a small repository of its own -------------------------------------------


@pytest.fixture
def small(tmp_path: Path) -> AreaTable:
    """Return a table of one area whose code, test and helper are in a repository."""
    for name, text in {
        "water/pump.py": "RATE = 1\n",
        "tests/conftest.py": "",
        "tests/tools.py": "from tests import bucket\n",
        "tests/bucket.py": "",
        "tests/test_pump.py": "from tests import tools\n",
        "tests/test_other.py": "",
        "docs/page.md": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    _git(tmp_path, "init", "-q")
    _commit(tmp_path, "first")
    return AreaTable(
        [
            Area("light", "", ("tests/",), paths=("docs/",), always=True),
            Area("ground", "", (), paths=("tests/conftest.py", "tests/last-full"), always=True),
            Area("pump", "", ("tests/test_pump.py",), minutes=3, paths=("water/",)),
        ],
        tmp_path,
    )


def _git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=folder, check=True, timeout=60, capture_output=True)


def _commit(folder: Path, subject: str) -> None:
    _git(folder, "add", "-A")
    who = ("-c", "user.name=Aude", "-c", "user.email=aude@example.org")
    _git(folder, *who, "commit", "-q", "--allow-empty", "-m", subject)


def test_an_area_is_left_out_until_its_contents_change(small: AreaTable) -> None:
    assert small.changed() == ["pump"]
    small.record({"pump": small.digests()["pump"]})
    assert small.changed() == []
    _commit(small.root, "the record")
    (small.root / "docs/page.md").write_text("another page")
    (small.root / "tests/test_other.py").write_text("# another test")
    (small.root / "tests/conftest.py").write_text("# the ground")
    assert small.changed() == []
    _git(small.root, "reset", "-q", "--hard")
    _commit(small.root, "a commit of nothing")
    assert small.changed() == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("water/pump.py", "RATE = 2\n"),
        ("water/valve.py", ""),  # not added to git yet
        ("tests/test_pump.py", "from tests import tools  # again\n"),
        ("tests/tools.py", "from tests import bucket  # again\n"),
        ("tests/bucket.py", "# used through tools\n"),
    ],
)
def test_a_change_that_is_not_committed_runs_the_area(
    small: AreaTable, name: str, text: str
) -> None:
    small.record(small.digests())
    assert small.changed() == []
    (small.root / name).write_text(text)
    assert small.changed() == ["pump"]


def test_a_removed_file_runs_the_area(small: AreaTable) -> None:
    small.record(small.digests())
    (small.root / "water/pump.py").unlink()
    assert small.changed() == ["pump"]


def test_without_git_every_area_may_have_changed(small: AreaTable) -> None:
    small.record(small.digests())
    (small.root / ".git").rename(small.root / "elsewhere")
    assert small.changed() == ["pump"]


def test_recent_commits_touch_the_areas_of_their_files(small: AreaTable) -> None:
    assert small.touched_by_recent_commits() == ["pump"]  # the first commit is recent
    for number in range(areas.RECENT_COMMITS):
        (small.root / "docs/page.md").write_text(str(number))
        _commit(small.root, "docs")
    assert small.touched_by_recent_commits() == ["pump"]
    old = {"GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z", "GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z"}
    for name, value in old.items():
        os.environ[name] = value
    try:
        _git(small.root, "rebase", "-q", "--root", "--force-rebase", "--reset-author-date")
    finally:
        for name in old:
            del os.environ[name]
    assert small.touched_by_recent_commits() == []


def test_a_record_keeps_the_other_areas(small: AreaTable) -> None:
    small.record({"light": "1"})
    small.record({"pump": "2"})
    assert small.last_full() == {"light": "1", "pump": "2"}


def test_an_area_that_does_not_exist_is_refused_with_those_that_do(small: AreaTable) -> None:
    with pytest.raises(SystemExit, match=r"There is no area pumps. Choose light, ground, pump\."):
        small.named(["pumps"])


def test_what_was_left_out_is_shown_with_its_command(small: AreaTable) -> None:
    assert "`make test-all` runs all of their tests: about 3 min" in areas.left_out(
        small, small.optional
    )
    assert 'ARGS="kafka s3"`' in areas.left_out(TABLE, TABLE.named(["kafka", "s3"]))
    assert areas.left_out(small, []) == "\nEvery area was run whole."


@pytest.mark.parametrize(
    ("skipped", "code", "recorded"),
    [
        ("", 0, True),
        ("kafka: the jars are missing", 0, False),
        ("", 1, False),
    ],
)
def test_only_an_area_that_has_passed_whole_is_recorded(
    small: AreaTable, tmp_path: Path, skipped: str, code: int, recorded: bool
) -> None:
    before = small.digests()
    reason = f'<skipped type="pytest.skip" message="{skipped}"/>' if skipped else ""
    folder = tmp_path / "reports"
    folder.mkdir()
    (folder / "pump.xml").write_text(f"<s><testcase>{reason}</testcase></s>")
    test_all.record(small, before, "pump", code, Reports(folder))
    assert ("pump" in small.last_full()) is recorded


def test_an_area_that_changed_during_its_run_is_not_recorded(
    small: AreaTable, tmp_path: Path
) -> None:
    before = small.digests()
    (small.root / "water/pump.py").write_text("RATE = 3\n")
    test_all.record(small, before, "pump", 0, Reports(tmp_path))
    assert small.last_full() == {}
