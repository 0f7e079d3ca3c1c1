"""Packages: wheels that are missing, once per content, by uv; its "no" in its own words."""

import shutil
import tarfile
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy
import pytest
from pytest_django.fixtures import Settings

from queries.domain.code.shipping import ARCHIVE, DAEMON_MODULE, INSIDE, SHIPPED
from queries.domain.definitions.spec import ApplicationSpec
from queries.selectors.code import environment, packages_folder
from queries.services.code import packages
from queries.services.code.packages import INSTALLED, InstallFailed, install
from tests.services.code.wheels import source_distribution, wheel


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Settings) -> Path:
    """Return a folder of wheels: the only index that there is."""
    settings.PACKAGES_DIR = tmp_path / "home" / "packages"
    folder = tmp_path / "shelf"
    folder.mkdir()
    packages._of_pip.cache_clear()
    for name in ("UV_INDEX", "UV_DEFAULT_INDEX", "PIP_INDEX_URL", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(folder))
    return folder


def _spec(text: str) -> ApplicationSpec:
    return ApplicationSpec(packages=text)


def _folder(text: str) -> Path:
    folder = packages_folder(_spec(text))
    assert folder is not None
    return folder


def test_what_is_missing_is_installed_and_what_is_there_stays_as_it_is(shelf: Path) -> None:
    wheel(shelf, "hgshades", "1.0", {"hgshades.py": "DARK = 1\n"})
    wheel(
        shelf,
        "hgcolours",
        "2.1",
        {"hgcolours/__init__.py": "RED = 1\n"},
        ["hgshades", "numpy", "packaging>=20"],
    )
    install(_spec("hgcolours>=2  # the newest\n"))
    folder = _folder("hgcolours>=2")
    assert (folder / "hgcolours" / "__init__.py").is_file()
    assert (folder / "hgshades.py").is_file()
    assert not (folder / "numpy").exists()
    assert sorted((folder / INSTALLED).read_text().split()) == [
        "hgcolours==2.1",
        "hgshades==1.0",
    ]
    assert {path.name for path in folder.parent.iterdir()} <= {folder.name, "cache"}


def test_the_same_wishes_have_one_folder_and_others_another(shelf: Path) -> None:
    assert _folder("b==1\na==2") == _folder("# two\na == 2\n\nb==1\n")
    assert _folder("a==1") != _folder("a==2")
    assert packages_folder(_spec("  # nothing\n")) is None


def test_on_a_cluster_the_folder_has_the_archive_for_its_executors(shelf: Path) -> None:
    wheel(shelf, "hgshades", "1.0", {"hgshades.py": "DARK = 1\n"})
    local, cluster = _spec("hgshades"), ApplicationSpec(packages="hgshades", master="yarn")
    for spec in (local, cluster):
        install(spec)
    assert not (_folder("hgshades") / SHIPPED).exists()
    folder = packages_folder(cluster)
    assert folder is not None
    with tarfile.open(folder / SHIPPED / ARCHIVE) as archive:
        names = {one.name for one in archive if one.isfile()}
    assert {f"{INSIDE}/hgshades.py", f"{DAEMON_MODULE}.py"} <= names
    assert not any(SHIPPED in name for name in names)
    made = (folder / SHIPPED / ARCHIVE).stat().st_mtime_ns
    install(cluster)
    assert (folder / SHIPPED / ARCHIVE).stat().st_mtime_ns == made


def test_a_version_that_headgate_does_not_run_with_is_refused_in_uvs_words(shelf: Path) -> None:
    text = f"numpy!={numpy.__version__}"
    with pytest.raises(InstallFailed, match=r"(?s)uv says: error.*numpy==.*unsatisfiable"):
        install(_spec(text))
    assert not _folder(text).exists()


def test_a_package_that_contradicts_what_is_there_is_refused(shelf: Path) -> None:
    wheel(shelf, "hgold", "1.0", {"hgold.py": ""}, ["django<2"])
    with pytest.raises(InstallFailed, match="hgold"):
        install(_spec("hgold"))


def test_what_is_on_no_index_is_refused_in_uvs_words(shelf: Path) -> None:
    with pytest.raises(InstallFailed, match="hgnowhere"):
        install(_spec("hgnowhere==1.0"))


@pytest.mark.guarantee("G-CODE-3")
def test_nothing_is_built(shelf: Path, tmp_path: Path) -> None:
    mark = tmp_path / "it-ran"
    source_distribution(shelf, "hgsource", "1.0", f"open({str(mark)!r}, 'w')\n")
    with pytest.raises(InstallFailed, match="hgsource"):
        install(_spec("hgsource"))
    assert not mark.exists()


def test_what_is_there_already_needs_nothing(shelf: Path) -> None:
    install(_spec("numpy\ndjango"))
    assert [path.name for path in _folder("numpy\ndjango").iterdir()] == [INSTALLED]
    assert "numpy" in environment()


def test_packages_fit_what_the_folder_of_a_spark_contains(shelf: Path) -> None:
    """Spark 3.5 comes with its own NumPy and PySpark, which no index has to offer for that."""
    wheel(shelf, "hgold", "1.0", {"hgold.py": ""}, ["numpy<2", "pyspark<3.6"])
    with pytest.raises(InstallFailed, match="hgold"):
        install(_spec("hgold"))
    old = ApplicationSpec(packages="hgold", spark="3.5")
    install(old)
    folder = packages_folder(old)
    assert folder is not None
    assert folder != _folder("hgold")
    assert {path.name for path in folder.iterdir()} >= {"hgold.py", INSTALLED}
    assert (folder / INSTALLED).read_text() == "hgold==1.0\n"
    assert not list(folder.glob("numpy*"))
    with pytest.raises(InstallFailed, match=r"numpy==1\."):
        install(ApplicationSpec(packages="numpy>=2", spark="3.5"))


def test_a_bad_line_that_an_earlier_release_let_through_is_not_installed(shelf: Path) -> None:
    with pytest.raises(InstallFailed, match="is a URL"):
        install(_spec("hgcolours\nhttps://example.org/x.whl"))


@pytest.fixture
def index(shelf: Path) -> Iterator[ThreadingHTTPServer]:
    """Serve the shelf as an index of one page a package; closing it takes it away."""

    class Pages(SimpleHTTPRequestHandler):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(shelf))

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def test_what_the_cache_holds_is_installed_while_the_index_is_away(
    shelf: Path, monkeypatch: pytest.MonkeyPatch, index: ThreadingHTTPServer
) -> None:
    wheel(shelf / "hgcolours", "hgcolours", "2.1", {"hgcolours.py": "RED = 1\n"})
    monkeypatch.delenv("UV_NO_INDEX")
    monkeypatch.delenv("UV_FIND_LINKS")
    address = f"http://user:hunter2@127.0.0.1:{index.server_address[1]}"
    monkeypatch.setenv("UV_DEFAULT_INDEX", address)
    install(_spec("hgcolours==2.1"))
    shutil.rmtree(_folder("hgcolours==2.1"))
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    index.shutdown()
    index.server_close()
    install(_spec("hgcolours==2.1"))
    assert (_folder("hgcolours==2.1") / "hgcolours.py").is_file()
    with pytest.raises(InstallFailed) as away:
        install(_spec("hgother"))
    assert "127.0.0.1" in str(away.value)
    assert "hunter2" not in str(away.value)


def test_pips_own_settings_are_heeded_where_uv_has_none(
    shelf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel(shelf, "hgcolours", "2.1", {"hgcolours.py": "RED = 1\n"})
    monkeypatch.delenv("UV_NO_INDEX")
    monkeypatch.delenv("UV_FIND_LINKS")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", f"{shelf.parent} {shelf}")
    packages._of_pip.cache_clear()
    try:
        install(_spec("hgcolours"))
    finally:
        packages._of_pip.cache_clear()
    assert (_folder("hgcolours") / "hgcolours.py").is_file()
