"""Archives, repositories and requirements that want out: each attack is refused by one guard.

Where the guard can be taken out, the same attack is shown to get through without it.
"""

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone
from pytest_django.fixtures import Settings

from queries.domain.code import archives
from queries.domain.definitions.spec import Code
from queries.domain.errors import Invalid
from queries.services.code import git, uploads
from queries.services.code.git import FetchFailed, fetch, list_host
from queries.services.code.uploads import unpack
from tests.services.code.archives import member, packed, tar_of, zipped
from tests.services.code.git_server import GitServer


@pytest.fixture
def home(tmp_path: Path, settings: Settings) -> Path:
    settings.CODE_DIR = tmp_path / "code"
    return tmp_path


def _attack(data: bytes) -> None:
    unpack(io.BytesIO(data))


ESCAPE = packed({"job.py": "x = 1\n", "../../escaped.py": "stolen"})


@pytest.mark.guarantee("G-CODE-1")
def test_a_name_that_leads_out_writes_nothing_outside(home: Path) -> None:
    with pytest.raises(Invalid, match="points outside the folder"):
        _attack(ESCAPE)
    assert not list(home.rglob("escaped.py"))
    assert not list((home / "code").iterdir())


def test_without_the_look_at_names_the_same_archive_gets_out(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "_parts", lambda name: tuple(name.split("/")))
    _attack(ESCAPE)
    assert [path.read_text() for path in home.rglob("escaped.py")] == ["stolen"]


LINKED = tar_of(
    member("job.py", "x = 1\n"),
    member("theirs.py", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
)


def test_a_link_is_not_followed_and_not_made(home: Path) -> None:
    with pytest.raises(Invalid, match="is a symbolic link"):
        _attack(LINKED)
    assert not any(path.is_symlink() for path in home.rglob("*"))


BOMB = zipped(tar_of(member("zeros.bin", b"\0" * (52 * 1024 * 1024))))


@pytest.mark.guarantee("G-CODE-1")
def test_a_bomb_is_put_out_before_it_is_written(home: Path) -> None:
    assert len(BOMB) < 100_000
    with pytest.raises(Invalid, match="bytes for unpacked code"):
        _attack(BOMB)
    assert not list((home / "code").iterdir())


def test_without_the_limit_the_same_archive_fills_the_disk(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "LIMIT_BYTES", 2**40)
    _attack(BOMB)
    assert sum(path.stat().st_size for path in home.rglob("zeros.bin")) == 52 * 1024 * 1024


HIDDEN = zipped(packed({"job.py": "x = 1\n"}) + b"\0" * (140 * 1024 * 1024))


def test_a_bomb_behind_the_end_is_not_read_to_its_end(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Invalid, match="an unpacked code archive"):
        _attack(HIDDEN)
    monkeypatch.setattr(uploads, "_READ_MOST", 2**40)
    _attack(HIDDEN)  # without the limit all of it is read


@pytest.fixture
def servers(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return a listed host that sends on to another, which is not listed."""
    made = []
    for name in ("listed", "other"):
        (home / name).mkdir()
        made.append(GitServer(home / name))
    listed, other = made
    authorities = home / "authorities.pem"
    authorities.write_text(listed.ca.read_text() + other.ca.read_text())
    monkeypatch.setenv("GIT_SSL_CAINFO", str(authorities))
    listed.redirect = f"https://{other.host}"
    list_host({"host": listed.host}, actor="ada", now=timezone.now())
    yield listed, other
    for server in made:
        server.close()


@pytest.mark.guarantee("G-CODE-2")
@pytest.mark.django_db
def test_a_listed_host_sends_git_nowhere_else(servers: Any) -> None:
    listed, other = servers
    commit = other.commit("inner", {"job.py": "x = 1\n"})
    with pytest.raises(FetchFailed):
        fetch(Code(git=listed.url("inner"), commit=commit))
    assert other.asked == []


@pytest.mark.django_db
def test_without_the_ban_on_redirects_git_asks_a_host_that_nobody_listed(
    servers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed, other = servers
    commit = other.commit("inner", {"job.py": "x = 1\n"})
    kept = git._settings

    def without(scheme: str) -> dict[str, str]:
        return {**kept(scheme), "http.followRedirects": "true"}

    monkeypatch.setattr(git, "_settings", without)
    fetch(Code(git=listed.url("inner"), commit=commit))
    assert other.asked
