"""Code and packages that nothing names go after some days; what is in use stays."""

import os
import threading
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone
from pytest_django.fixtures import Settings

from headgate_ground.files import lock_of, take_lock, use_folder
from queries.domain.code.archives import named
from queries.domain.definitions.spec import ApplicationSpec
from queries.launchers.base import LaunchRefused
from queries.models.applications import Application, UploadedCode
from queries.models.deploys import Deploy, DeployChange
from queries.models.drivers import Driver
from queries.models.history import Operation
from queries.selectors import code as places
from queries.services.code import preparing
from queries.services.code.preparing import prune_contents
from tests.scenarios.stage import Stage

pytestmark = pytest.mark.django_db

COMMIT = "0123456789" * 4
GIT = {"git": "https://git.example.org/streams", "commit": COMMIT, "folder": ""}


class Shelf:
    """The folders of a host, with things that were put there long ago."""

    def __init__(self, code: Path, packages: Path) -> None:
        self.code, self.packages = code, packages
        self.now = timezone.now()
        (code / "git").mkdir(parents=True)
        packages.mkdir()

    def content(self, letter: str, days: float = 30) -> str:
        """Put code there; return its SHA-256."""
        (self.code / (letter * 64) / "0").mkdir(parents=True)
        (self.code / (letter * 64) / "0" / "job.py").write_text("x = 1\n")
        return self.aged(self.code / (letter * 64), days).name

    def upload(self, letter: str) -> str:
        """Put code there as somebody uploads it; return its digest."""
        sha256, then = self.content(letter), self.now - timedelta(days=30)
        UploadedCode.objects.create(
            sha256=sha256, files=1, bytes=6, uploaded_at=then, uploaded_by="ada", host="vm"
        )
        return named(sha256)

    def commit(self, letter: str, **code: str) -> Path:
        """Put code there as git gives it; return the note of the commit."""
        note = places.note_of(*({**GIT, **code}[name] for name in ("git", "commit", "folder")))
        note.write_text(self.content(letter))
        return self.aged(note, 30)

    def installed(self, text: str, days: float = 30) -> Path:
        """Put packages there; return their folder."""
        folder = places.folder_of_packages(text)
        assert folder is not None
        folder.mkdir()
        return self.aged(folder, days)

    def left(self) -> set[str]:
        """Return the contents that are there, code by its letter."""
        return {one.name[0] for one in self.code.iterdir() if len(one.name) == 64}

    def aged(self, place: Path, days: float) -> Path:
        """Let a content have been used for the last time so many days ago."""
        at = (self.now - timedelta(days=days)).timestamp()
        os.utime(place, (at, at))
        return place


@pytest.fixture
def shelf(tmp_path: Path, settings: Settings) -> Shelf:
    settings.CODE_DIR, settings.PACKAGES_DIR = tmp_path / "code", tmp_path / "packages"
    settings.HEADGATE_HOST = "vm"
    return Shelf(tmp_path / "code", tmp_path / "packages")


def revised(application: Application, number: int, **spec: Any) -> None:
    now = timezone.now()
    application.revisions.create(number=number, spec=spec, author="ada", created_at=now)


def test_what_nothing_names_goes_and_what_a_revision_names_stays(
    shelf: Shelf, stage: Stage
) -> None:
    flights = stage.application("flights", code={"upload": shelf.upload("a")}, packages="one")
    revised(flights, 2, code=GIT, packages="two")
    note = shelf.commit("b")
    kept = [shelf.installed("one"), shelf.installed("two"), note]
    shelf.upload("c")
    gone = [shelf.installed("three"), shelf.commit("d", folder="old")]
    shelf.content("e", days=3)  # too young
    assert prune_contents(now=shelf.now) > 0
    assert shelf.left() == {"a", "b", "e"}
    assert [one.exists() for one in (*kept, *gone)] == [True, True, True, False, False]
    assert UploadedCode.objects.get().sha256[0] == "a"
    assert prune_contents(now=shelf.now) == 0


def test_a_deleted_application_keeps_nothing_once_its_history_is_over(
    shelf: Shelf, stage: Stage, settings: Settings
) -> None:
    stage.query("delays", "flights")
    flights = Application.objects.get()
    revised(flights, 2, code={"upload": shelf.upload("a")}, packages="one")
    folder = shelf.installed("one")
    stage.up("delays")
    driver = Driver.objects.get()
    assert driver.application_revision.number == 2
    Application.objects.update(archived_at=shelf.now)
    Driver.objects.update(ended_at=shelf.now - timedelta(days=1), state="ENDED")
    for place in (folder, shelf.code / ("a" * 64)):  # which the start has taken
        shelf.aged(place, 30)
    prune_contents(now=shelf.now)
    assert (shelf.left(), folder.exists()) == ({"a"}, True), "a run that is kept names it"
    over = timedelta(days=settings.HISTORY_RETENTION_DAYS + 1)
    Driver.objects.update(ended_at=shelf.now - over)
    prune_contents(now=shelf.now)
    assert (shelf.left(), folder.exists()) == (set(), False)


def test_copies_of_folders_stay_while_a_driver_of_theirs_is_known(
    shelf: Shelf, stage: Stage
) -> None:
    stage.query("delays")
    stage.up("delays")
    Driver.objects.update(code_sha256=shelf.content("a"))
    shelf.content("b")
    prune_contents(now=shelf.now)
    assert shelf.left() == {"a"}


def test_what_unfinished_deploys_and_preflights_name_stays(shelf: Shelf, stage: Stage) -> None:
    query, then = stage.query("delays"), shelf.now
    upload, changed, tried = shelf.upload("a"), shelf.upload("b"), shelf.upload("c")
    packages = shelf.installed("one")
    asked = {"manifests": [{"text": "code: {upload: ${values.code}}"}], "values": {"code": upload}}
    deploy = Deploy.objects.create(actor="ada", created_at=then, asked=asked)
    spec = {"code": {"upload": changed}, "packages": "one"}
    about: dict[str, Any] = {"kind": "Application", "name": "flights", "spec": spec}
    DeployChange.objects.create(deploy=deploy, wave=1, **about)
    trial = Operation.objects.create(
        verb="preflight",
        query=query,
        generation=0,
        actor="ada",
        created_at=then,
        deadline=then,
        arguments={"application_spec": {"code": {"upload": tried}}},
    )
    prune_contents(now=shelf.now)
    assert shelf.left() == {"a", "b", "c"}
    assert packages.exists()
    Deploy.objects.update(ended_at=then)
    Operation.objects.filter(pk=trial.pk).update(outcome="DONE")
    prune_contents(now=shelf.now)
    assert shelf.left() == set()
    assert not packages.exists()


def test_packages_of_before_an_upgrade_stay_until_the_drivers_of_then_have_ended(
    shelf: Shelf, stage: Stage
) -> None:
    old = shelf.packages / ("f" * 64)  # no wish of today has this name
    old.mkdir()
    os.utime(old, ((shelf.now - timedelta(days=20)).timestamp(),) * 2)
    stage.query("delays")
    stage.up("delays")
    Driver.objects.update(created_at=shelf.now - timedelta(days=21))
    prune_contents(now=shelf.now)
    assert old.exists()
    Driver.objects.update(created_at=shelf.now - timedelta(days=1))
    prune_contents(now=shelf.now)
    assert not old.exists()


def test_what_cannot_be_deleted_keeps_no_other(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf.content("a")
    shelf.content("b")
    remove = preparing._remove_unless_used

    def rotten(place: Path, before: datetime) -> bool:
        if place.name.startswith("a"):
            raise OSError("the disk does not answer")
        return remove(place, before)

    monkeypatch.setattr(preparing, "_remove_unless_used", rotten)
    assert prune_contents(now=shelf.now) == 1
    assert shelf.left() == {"a"}


def test_a_start_takes_its_folders_and_keeps_them(shelf: Shelf) -> None:
    spec = ApplicationSpec.model_validate({"code": GIT, "packages": "one"})
    note, folder = shelf.commit("a"), shelf.installed("one")
    preparing.take(spec)
    prune_contents(now=shelf.now)
    assert (shelf.left(), folder.exists()) == ({"a"}, True)
    assert not note.exists(), "the next start fetches the commit again: nothing names it"


def test_a_folder_that_is_being_deleted_is_waited_for_and_put_into_place_again(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = ApplicationSpec.model_validate({"packages": "one"})
    folder = shelf.installed("one")
    monkeypatch.setattr("headgate_ground.files.WRITERS_LOCK_S", 0.05)
    held = take_lock(lock_of(folder))
    assert held is not None
    assert not preparing._remove_unless_used(folder, shelf.now), "whoever has the lock keeps it"
    with pytest.raises(LaunchRefused) as caught:
        preparing.take(spec)
    assert caught.value.passing
    os.close(held)
    assert preparing.take(spec).packages == str(folder)


def test_no_start_meets_a_folder_that_goes(shelf: Shelf) -> None:
    """Whoever is first: what was taken is there, what has gone was not taken."""
    before, taken_at_all = shelf.now - timedelta(days=7), set()
    for _ in range(200):
        place = shelf.code / shelf.content("a")
        taken: list[bool] = []
        barrier = threading.Barrier(2)

        def take(place: Path = place, taken: list[bool] = taken, both: Any = barrier) -> None:
            both.wait()
            taken.append(use_folder(place))

        thread = threading.Thread(target=take)
        thread.start()
        barrier.wait()
        removed = preparing._remove_unless_used(place, before)
        thread.join()
        assert taken == [place.is_dir()]
        assert not (removed and place.is_dir())
        taken_at_all.add(taken[0])
        if place.is_dir():
            (place / "0" / "job.py").unlink()
            (place / "0").rmdir()
            place.rmdir()
    assert taken_at_all <= {True, False}
