"""Code from git: a folder of a commit, fetched once, with nothing of the repository being run."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone
from pytest_django.fixtures import Settings

from queries.domain.definitions.spec import Code
from queries.models.grants import CodeHost
from queries.selectors.code import git_note, root_of
from queries.services.code.git import FetchFailed, fetch, take_host
from tests.services.code.git_server import GitServer, listed_server

pytestmark = pytest.mark.django_db

FILES: dict[str, Any] = {"jobs/job.py": "x = 1\n", "jobs/a/b.py": "y = 2\n", "README": "hello"}


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Settings) -> Iterator[Any]:
    with listed_server(tmp_path, monkeypatch, settings) as server:
        yield server


def _code(server: GitServer, commit: str, folder: str = "", name: str = "streams") -> Code:
    return Code(git=server.url(name), commit=commit, folder=folder)


def _files(root: Path | None) -> dict[str, str]:
    assert root is not None
    found = sorted(path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.read_text() for path in found}


def _kept(settings: Settings) -> set[str]:
    folder = Path(settings.CODE_DIR)
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


def test_a_folder_of_a_commit_is_fetched(server: GitServer) -> None:
    commit = server.commit("streams", FILES)
    server.commit("streams", {"jobs/job.py": "x = 'later'\n"})
    fetch(_code(server, commit, "jobs"))
    assert _files(root_of(_code(server, commit, "jobs"))) == {
        "a/b.py": "y = 2\n",
        "job.py": "x = 1\n",
    }
    fetch(_code(server, commit))
    assert "README" in _files(root_of(_code(server, commit)))


@pytest.mark.guarantee("G-CODE-2")
def test_nothing_of_a_repository_is_run_and_nothing_else_is_fetched(
    server: GitServer, tmp_path: Path, settings: Settings
) -> None:
    mark = tmp_path / "it-ran"
    config = f'[core]\n\tfsmonitor = "touch {mark}"\n[filter "lfs"]\n\tsmudge = "touch {mark}"\n'
    (tmp_path / ".gitconfig").write_text(
        f'{config}[url "ext::sh -c touch% {mark}"]\n\tinsteadOf = {server.url("streams")}\n'
    )
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
    commit = server.commit(
        "streams",
        {
            **FILES,
            ".gitattributes": "*.bin filter=lfs diff=lfs\n*.py filter=lfs\n",
            ".gitmodules": f'[submodule "m"]\n\tpath = m\n\turl = ext::sh -c touch% {mark}\n',
            "big.bin": pointer,
        },
    )
    fetch(_code(server, commit))
    found = _files(root_of(_code(server, commit)))
    assert found["big.bin"] == pointer
    assert found["jobs/job.py"] == "x = 1\n"
    assert not mark.exists()
    assert all("streams.git/" in path for path in server.asked)


def test_a_link_in_a_repository_is_refused_like_one_in_an_upload(
    server: GitServer, settings: Settings
) -> None:
    commit = server.commit("streams", {**FILES, "secrets": Path("/etc/passwd")})
    with pytest.raises(FetchFailed, match=r"secrets is a symbolic link\. Include only plain files"):
        fetch(_code(server, commit))
    assert _kept(settings) == set()


@pytest.mark.parametrize(
    ("commit", "folder", "said"),
    [
        ("0" * 40, "", "0000000"),
        (None, "nowhere", "nowhere"),
        (None, "README", "not a tree object"),
    ],
)
def test_gits_own_words_say_what_is_wrong(
    server: GitServer, settings: Settings, commit: str | None, folder: str, said: str
) -> None:
    made = server.commit("streams", FILES)
    with pytest.raises(FetchFailed, match=said):
        fetch(_code(server, commit or made, folder))
    assert _kept(settings) == set()


def test_a_repository_that_is_not_there_or_asks_for_a_password_fails_without_a_prompt(
    server: GitServer,
) -> None:
    commit = server.commit("streams", FILES)
    with pytest.raises(FetchFailed, match="not found"):
        fetch(_code(server, commit, name="other"))
    server.locked = True
    with pytest.raises(FetchFailed, match=r"terminal prompts disabled|could not read Username"):
        fetch(_code(server, commit))


def test_a_listed_host_cannot_send_on_to_another(server: GitServer, tmp_path: Path) -> None:
    commit = server.commit("streams", FILES)
    (tmp_path / "other").mkdir()
    other = GitServer(tmp_path / "other")
    server.redirect = f"https://{other.host}"
    try:
        with pytest.raises(FetchFailed):
            fetch(_code(server, commit))
        assert other.asked == []
    finally:
        other.close()


@pytest.mark.guarantee("G-CODE-2")
def test_a_host_that_was_taken_off_the_list_is_not_asked(server: GitServer) -> None:
    commit = server.commit("streams", FILES)
    take_host(CodeHost.objects.get(), actor="ada", now=timezone.now())
    with pytest.raises(FetchFailed, match=f"is on {server.host}, which is not an allowed git host"):
        fetch(_code(server, commit))
    assert server.asked == []


def test_the_same_files_of_another_commit_are_kept_once(
    server: GitServer, settings: Settings
) -> None:
    first = server.commit("streams", FILES)
    second = server.commit("streams", {})
    fetch(_code(server, first))
    fetch(_code(server, second))
    assert root_of(_code(server, first)) == root_of(_code(server, second))
    assert git_note(_code(server, first)) != git_note(_code(server, second))
    kept = {name for name in _kept(settings) if not name.endswith(".lock")}
    assert len(kept) == 2  # the files, and the notes
