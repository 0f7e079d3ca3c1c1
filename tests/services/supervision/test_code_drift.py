"""Code that was edited on disk after its driver began is said to need an application restart."""

import os
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from queries import code_roots
from queries.code_roots import digest_on_disk
from queries.launchers.process import code_copies
from queries.models.drivers import Driver
from queries.selectors.query_lines import query_line
from queries.selectors.supervision.applications import application_detail
from tests.scenarios.stage import Stage
from tests.web.browserless import Page


@pytest.fixture(autouse=True)
def _no_memory_of_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_roots, "LOOK_EVERY_S", 0.0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a code root with one module."""
    folder = tmp_path / "code"
    (folder / "package").mkdir(parents=True)
    (folder / "package/query.py").write_text("ONE = 1\n")
    return folder


@pytest.fixture
def running(stage: Stage, root: Path, tmp_path: Path, settings: Any) -> Stage:
    """Return a stage on which a query runs the code of `root`, on this host."""
    stage.application("flights", python_path=[str(root)])
    stage.query("delays", "flights")
    stage.up("delays", "flights")
    _, digest = code_copies.freeze((str(root),), tmp_path / "copies")
    Driver.objects.update(code_sha256=digest, host=settings.HEADGATE_HOST)
    return stage


def _needs(stage: Stage) -> tuple[tuple[str, ...], tuple[str, ...]]:
    line = query_line("delays", now=stage.now)
    return line.needs_application_restart, application_detail("flights").needs_restart


def test_an_edited_file_needs_a_restart_and_its_old_content_none(
    running: Stage, root: Path
) -> None:
    assert _needs(running) == ((), ())
    (root / "package/query.py").write_text("ONE = 2\n")
    assert _needs(running) == (("code",), ("code",))
    (root / "package/query.py").write_text("ONE = 1\n")
    assert _needs(running) == ((), ())


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("/queries/delays/", "The application's code changed since its driver started"),
        (
            "/applications/flights/",
            "Changed since the driver started: code. Restart the application to apply the change; "
            "affects delays",
        ),
        ("/applications/", "restart for code"),
        (
            "/applications/flights/restart/",
            "It picks up changes since the driver started: code.",
        ),
    ],
)
def test_the_pages_say_so(
    running: Stage, root: Path, client: Client, operator: User, address: str, sentence: str
) -> None:
    client.force_login(operator)
    assert sentence not in Page(client, address).html
    (root / "package/new.py").write_text("")
    page = Page(client, address)
    assert sentence in page.html or sentence in page.text


def test_nothing_is_said_where_nobody_can_tell(running: Stage, root: Path, tmp_path: Path) -> None:
    (root / "package/query.py").write_text("ONE = 2\n")
    Driver.objects.update(host="another-host")
    assert _needs(running) == ((), ())
    root.rename(tmp_path / "elsewhere")
    assert digest_on_disk((str(root),)) is None


def test_what_is_compiled_or_versioned_is_no_code(running: Stage, root: Path) -> None:
    (root / "package/__pycache__").mkdir()
    (root / "package/__pycache__/query.cpython-311.pyc").write_text("junk")
    (root / ".git").mkdir()
    (root / ".git/HEAD").write_text("ref")
    assert _needs(running) == ((), ())


def test_a_second_look_reads_no_file(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = digest_on_disk((str(root),))
    assert first is not None

    def unread(path: Path) -> str:
        raise AssertionError(f"{path} is read again")

    monkeypatch.setattr(code_roots, "read_digest", unread)
    assert digest_on_disk((str(root),)) == first


def test_an_edit_that_keeps_size_and_time_is_seen(root: Path) -> None:
    path = root / "package/query.py"
    before, at = digest_on_disk((str(root),)), path.stat()
    path.write_text("ONE = 2\n")
    os.utime(path, ns=(at.st_atime_ns, at.st_mtime_ns))
    assert digest_on_disk((str(root),)) != before


def test_too_many_or_too_large_files_are_not_looked_at(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code_roots, "FILES_AT_MOST", 0)
    assert digest_on_disk((str(root),)) is None
    monkeypatch.setattr(code_roots, "FILES_AT_MOST", 10)
    monkeypatch.setattr(code_roots, "LIMIT_BYTES", 3)
    assert digest_on_disk((str(root),)) is None


def test_many_queries_of_a_page_cost_one_look(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_roots, "LOOK_EVERY_S", 3600.0)
    first = digest_on_disk((str(root),))
    (root / "package/query.py").write_text("ONE = 2\n")
    assert digest_on_disk((str(root),)) == first
    monkeypatch.setattr(code_roots, "LOOK_EVERY_S", 0.0)
    assert digest_on_disk((str(root),)) != first
