"""A whole download has a limit in time and in bytes, whatever the server sends."""

import random
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from queries.selectors.code import folder_of_packages
from queries.services.code.git import FetchFailed, fetch
from queries.services.code.packages import InstallFailed, install
from tests.services.code.git_server import GitServer, drip
from tests.services.code.test_git import FILES, _code, _kept, server
from tests.services.code.test_packages import _spec, shelf
from tests.services.code.wheels import wheel

pytestmark = pytest.mark.django_db

__all__ = ["server", "shelf"]

#: Text that no compression makes small.
LARGE = random.Random(7).randbytes(3 * 2**20).hex()


def _left(folder: Path) -> list[str]:
    """Return what is below a folder, without locks."""
    return [one.name for one in folder.glob("*") if not one.name.endswith(".lock")]


def test_a_git_server_that_drips_is_ended_and_the_setting_named(
    server: GitServer, settings: Settings
) -> None:
    commit = server.commit("streams", FILES)
    server.drips.set()
    settings.DOWNLOAD_S = 2
    with pytest.raises(FetchFailed, match=r"longer than 2 s and was stopped \(HEADGATE_DOWNLOAD_S"):
        fetch(_code(server, commit))
    assert _kept(settings) == set()


def test_a_commit_that_is_too_large_is_ended_and_the_setting_named(
    server: GitServer, settings: Settings
) -> None:
    commit = server.commit("streams", {"data.txt": LARGE})
    settings.DOWNLOAD_MB = 1
    with pytest.raises(FetchFailed, match=r"more than 1 MB and was stopped \(HEADGATE_DOWNLOAD_MB"):
        fetch(_code(server, commit))
    assert _kept(settings) == set()
    settings.DOWNLOAD_MB = 100
    fetch(_code(server, commit))


def test_packages_that_are_too_large_are_ended_and_the_setting_named(
    shelf: Path, settings: Settings
) -> None:
    wheel(shelf, "hgcolours", "2.1", {"hgcolours.py": f"X = '{LARGE}'\n"})
    settings.DOWNLOAD_MB = 1
    with pytest.raises(
        InstallFailed, match=r"more than 1 MB and was stopped \(HEADGATE_DOWNLOAD_MB"
    ):
        install(_spec("hgcolours"))
    folder = folder_of_packages("hgcolours")
    assert folder is not None
    assert not folder.exists()


@pytest.fixture
def dripping() -> Iterator[str]:
    """Return the address of an index whose pages never end."""
    going_on = threading.Event()
    going_on.set()

    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            drip(self.wfile, going_on)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    index = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    threading.Thread(target=index.serve_forever, args=(0.05,), daemon=True).start()
    yield f"http://127.0.0.1:{index.server_address[1]}"
    going_on.clear()
    index.shutdown()
    index.server_close()


def test_an_index_that_drips_is_ended_and_the_setting_named(
    shelf: Path, dripping: str, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    monkeypatch.delenv("UV_NO_INDEX")
    monkeypatch.delenv("UV_FIND_LINKS")
    monkeypatch.setenv("UV_DEFAULT_INDEX", dripping)
    settings.DOWNLOAD_S = 2
    with pytest.raises(
        InstallFailed, match=r"longer than 2 s and was stopped \(HEADGATE_DOWNLOAD_S"
    ):
        install(_spec("hgcolours"))
    assert _left(Path(settings.PACKAGES_DIR)) in ([], ["cache"])
