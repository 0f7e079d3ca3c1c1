"""Code and packages are put into place while queries wait; a failure is told, and tried again."""

from pathlib import Path
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from queries.code_roots import stored_root
from queries.domain.definitions.spec import ApplicationSpec, Code
from queries.domain.states import Phase, Reason
from queries.models.applications import Application
from queries.models.drivers import Driver
from queries.selectors import code as places
from queries.services.code import preparing
from queries.services.code.git import FetchFailed
from queries.services.code.packages import InstallFailed
from tests.scenarios.stage import Stage

COMMIT = "0123456789" * 4
GIT = {"git": "https://git.example.org/streams", "commit": COMMIT}


class Outside:
    """What a real fetch and a real install would do, told by the story."""

    def __init__(self) -> None:
        self.fetched: list[str] = []
        self.installed: list[str] = []
        self.fault = ""

    def fetch(self, code: Code) -> None:
        self.fetched.append(code.commit)
        if self.fault:
            raise FetchFailed(self.fault)
        root = stored_root(places.git_note(code).parents[1], "a" * 64)
        root.mkdir(parents=True)
        note = places.git_note(code)
        note.parent.mkdir(exist_ok=True)
        note.write_text("a" * 64)

    def install(self, spec: ApplicationSpec) -> None:
        self.installed.append(spec.packages)
        if self.fault:
            raise InstallFailed(self.fault)
        folder = places.packages_folder(spec)
        assert folder is not None
        folder.mkdir(parents=True)


@pytest.fixture
def outside(monkeypatch: pytest.MonkeyPatch, settings: Settings, tmp_path: Path) -> Outside:
    settings.CODE_DIR, settings.PACKAGES_DIR = tmp_path / "code", tmp_path / "packages"
    outside = Outside()
    monkeypatch.setattr(preparing, "fetch", outside.fetch)
    monkeypatch.setattr(preparing, "install", outside.install)
    return outside


def _defined(stage: Stage, **spec: Any) -> None:
    stage.application("flights", **spec)
    stage.query("delays", "flights")


def _done(stage: Stage) -> None:
    """Let what is being put into place come to its end, then look again."""
    preparing.wait(30)
    stage.look("flights")


def test_a_query_waits_for_its_code_and_starts_with_it(stage: Stage, outside: Outside) -> None:
    _defined(stage, code=GIT)
    stage.start("delays")
    row = stage.row("delays")
    assert (row.phase, row.phase_reason) == (Phase.PENDING, Reason.WAITS_CODE)
    assert "fetched from git" in str(row.phase_detail)
    assert not Driver.objects.exists()
    _done(stage)
    assert stage.row("delays").phase == Phase.STARTING
    assert outside.fetched == [COMMIT]
    assert places.root_of(Code(**GIT)) is not None


def test_packages_are_installed_once_and_the_next_start_finds_them(
    stage: Stage, outside: Outside
) -> None:
    _defined(stage, packages="requests==2")
    stage.start("delays")
    assert stage.row("delays").phase_reason == Reason.WAITS_CODE
    _done(stage)
    assert stage.row("delays").phase == Phase.STARTING
    stage.application("shops", packages="# the same\nrequests == 2")
    stage.query("sales", "shops")
    stage.start("sales")
    assert stage.row("sales").phase_reason != Reason.WAITS_CODE
    assert outside.installed == ["requests==2"]


@pytest.mark.parametrize("spec", [{"code": GIT}, {"packages": "requests==2"}])
def test_a_failure_is_the_applications_in_its_own_words_and_is_not_tried_in_a_loop(
    stage: Stage, outside: Outside, spec: dict[str, Any]
) -> None:
    outside.fault = "uv says: there is no version of requests==2."
    _defined(stage, **spec)
    stage.start("delays")
    _done(stage)
    row = stage.row("delays")
    assert (row.phase, row.phase_reason) == (Phase.FAILED, Reason.FAILED_FATAL)
    assert "no version of requests==2" in str(row.phase_detail)
    assert Application.objects.get(name="flights").restart_block == "FAILED"
    stage.wait(600)
    preparing.wait(30)
    assert len(outside.fetched + outside.installed) == 1
    outside.fault = ""
    stage.start("delays")  # somebody has put it right, and starts it again
    assert stage.row("delays").phase_reason == Reason.WAITS_CODE
    _done(stage)
    assert stage.row("delays").phase == Phase.STARTING
    assert len(outside.fetched + outside.installed) == 2


def test_an_upload_whose_files_are_gone_from_this_host_is_told(
    stage: Stage, outside: Outside
) -> None:
    _defined(stage, code={"upload": f"sha256:{'b' * 64}"})
    stage.start("delays")
    row = stage.row("delays")
    assert row.phase == Phase.FAILED
    assert "is not on host" in str(row.phase_detail)


def test_an_error_of_headgates_own_ends_the_wait_too(
    stage: Stage, outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: Code) -> None:
        raise RuntimeError("secret words")

    monkeypatch.setattr(preparing, "fetch", broken)
    _defined(stage, code=GIT)
    stage.start("delays")
    _done(stage)
    row = stage.row("delays")
    assert row.phase == Phase.FAILED
    assert "An error in Headgate: RuntimeError" in str(row.phase_detail)
    assert "secret words" not in str(row.phase_detail)


def test_going_back_to_a_revision_finds_its_code_and_packages(
    stage: Stage, outside: Outside
) -> None:
    _defined(stage, code=GIT, packages="requests==1")
    stage.start("delays")
    _done(stage)
    first = Application.objects.get(name="flights").revisions.get(number=1).spec
    form = ApplicationSpec.model_validate(first)
    before = preparing.take(form)
    later = form.model_copy(update={"packages": "requests==2"})
    preparing.begin(later)
    preparing.wait(30)
    assert preparing.take(later).packages != before.packages
    assert preparing.take(form) == before
    assert (outside.fetched, outside.installed) == ([COMMIT], ["requests==1", "requests==2"])


def test_one_place_is_filled_by_one_at_a_time(stage: Stage, outside: Outside) -> None:
    spec = ApplicationSpec(packages="requests==2")
    for _ in range(3):
        preparing.begin(spec)
    preparing.wait(30)
    preparing.begin(spec)
    preparing.wait(30)
    assert outside.installed == ["requests==2"]
