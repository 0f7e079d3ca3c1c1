"""`make test` and CI put the right groups together; nothing is run here but their lists."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from django.conf import settings

BOOTSTRAP = Path(settings.BASE_DIR) / "bootstrap"
sys.path.append(str(BOOTSTRAP))

from areas import Area, AreaTable  # noqa: E402

TABLE = AreaTable.read()
NAMES = [area.name for area in TABLE.optional]


def _module(name: str) -> ModuleType:
    """Return a script of bootstrap/: `test` is also a package of Python's own."""
    spec = importlib.util.spec_from_file_location(f"bootstrap_{name}", BOOTSTRAP / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Listing:
    """Notes which groups would run, each taking as many minutes as the table expects."""

    code = 0

    def __init__(self, clock: list[float], slow: float = 1.0) -> None:
        self.clock, self.slow = clock, slow
        self.ran: list[str] = []

    def light(self, *, covered: bool = False) -> None:
        self._note("light", "light, covered" if covered else "light")

    def postgresql(self) -> None:
        self.ran.append("postgresql")

    def browser(self) -> None:
        self._note("browser", "browser")

    def promises_on_other_spark(self, area: Area) -> None:
        self.ran.append(f"promises of {area.name}")

    def end(self, group: None) -> None: ...

    def large(self, part: str, areas: list[Area], *, promises: bool) -> None:
        assert promises
        self.ran.append(" ".join(["promises", *(area.name for area in areas)]))

    def whole(self, area: Area, *, but: str = "") -> None:
        self._note(area.name, area.name)

    def _note(self, name: str, told: str) -> None:
        self.ran.append(told)
        self.clock[0] += TABLE.areas[name].minutes * 60 * self.slow


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Return what runs a script and returns the groups that it would have run."""
    monkeypatch.setenv("HEADGATE_TEST_EXAMPLES", "0.2")

    def run(name: str, arguments: list[str], slow: float = 1.0, **changes: Any) -> list[str]:
        script = _module(name)
        clock = [0.0]
        listing = Listing(clock, slow)
        monkeypatch.setattr(script, "Groups", lambda *_: listing)
        if name == "ci":
            monkeypatch.setattr(script.time, "monotonic", lambda: clock[0])
            monkeypatch.setattr(script.time, "time", lambda: 1_000_000.0)
        for method, value in changes.items():
            monkeypatch.setattr(script.AreaTable, method, lambda *_, value=value: value)
        assert script.main(arguments) == 0
        return listing.ran

    return run


ALWAYS = ["light", "postgresql", "promises", "promises of sparks", "browser"]


def test_every_promise_is_run_whatever_has_changed(
    run: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("test", [], changed=[]) == ALWAYS
    told = capsys.readouterr().out
    assert "No area has changed" in told
    assert "`make test-all` runs all of their tests" in told


def test_an_area_that_has_changed_is_run_whole(
    run: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    ran = run("test", [], changed=["models", "kafka", "tables", "sparks"])
    assert ran == ["light", "postgresql", "promises kafka tables", "models", "sparks", "browser"]
    told = capsys.readouterr().out
    assert "so run whole: models, kafka, tables, sparks." in told
    assert "  kafka" not in told.partition("Not run whole:")[2]


def test_ci_runs_recent_areas_first_and_ends_in_time(
    run: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    others = ["kafka", "systems"]
    ran = run("ci", ["999700"], touched_by_recent_commits=["clusters"], rotated=others)
    always = ["light, covered", "postgresql", "promises", "promises of sparks", "browser"]
    assert ran == [*always, "clusters", *others]
    assert "Every area was run whole." in capsys.readouterr().out


def test_ci_leaves_out_what_would_not_end_in_time_and_prints_it(
    run: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    # An installation that took 35 minutes, on a machine that is half as fast as the table's.
    began = str(1_000_000 - 35 * 60)
    ran = run("ci", [began], slow=2.0, touched_by_recent_commits=["systems"], rotated=["clusters"])
    assert "systems" not in ran
    assert 'make test-all ARGS="systems' in capsys.readouterr().out
    ran = run("ci", ["0"], touched_by_recent_commits=["systems"], rotated=["clusters"])
    assert ran[-1] == "browser"


def test_ci_runs_every_area_in_turn_where_git_does_not_answer(
    run: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert run("ci", [])[5:8] == NAMES[:3]
