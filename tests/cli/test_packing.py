"""Code beside a manifest: packed the same each time, without links, and named by its digest."""

import io
import json
import os
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.utils import timezone
from pytest_django.fixtures import Settings

from queries.models.applications import Application
from queries.services.code.git import list_host
from tests.cli.conftest import SOURCE, Shell
from tests.services.code.git_server import GitServer

MANIFEST = """\
# What flies.
apiVersion: headgate/v1
kind: Application
metadata: {name: flights}
spec:
  memory: ${values.memory}
  code:
    upload: ./code  # beside this file
---
apiVersion: headgate/v1
kind: Query
metadata: {name: delays, application: flights}
spec: {kind: python, module: jobs, sql: "upload"}
"""


@pytest.fixture
def packing(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the module, read from this process."""
    monkeypatch.syspath_prepend(str(SOURCE))
    from headgate_cli import files

    return files


@pytest.fixture
def code(tmp_path: Path) -> Path:
    code = tmp_path / "code"
    for name in ("jobs.py", "deep/er.py", "__pycache__/jobs.pyc", ".git/config", "old.pyc"):
        path = code / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return code


def names(packed: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        assert all(member.isfile() and member.mtime == 0 for member in archive)
        return archive.getnames()


def test_a_folder_is_packed_the_same_each_time_without_what_python_makes(
    packing: Any, code: Path
) -> None:
    first = packing.packed(code)
    assert names(first) == ["deep/er.py", "jobs.py"]
    os.utime(code / "jobs.py", (1, 1))
    (code / "jobs.py").chmod(0o600)
    assert packing.packed(code) == first


@pytest.mark.parametrize("target", ["/etc/passwd", "jobs.py", "nowhere"])
def test_a_link_is_refused(packing: Any, code: Path, target: str) -> None:
    from headgate_cli.output import CommandEnded

    (code / "link").symlink_to(target)
    with pytest.raises(CommandEnded, match="is a link"):
        packing.packed(code)


def test_the_digest_takes_the_folders_place_and_nothing_else_changes(
    packing: Any, code: Path
) -> None:
    from headgate_cli.files import File

    asked: list[Path] = []

    def digest(folder: Path) -> str:
        asked.append(folder)
        return "sha256:" + "0" * 64

    text = packing.with_digests(File("flights.yaml", MANIFEST, code.parent), digest)
    assert asked == [code]
    expected = MANIFEST.replace("./code", "sha256:" + "0" * 64)
    assert list(yaml.safe_load_all(text)) == list(yaml.safe_load_all(expected))
    assert text.startswith("# What flies.\n")
    again = packing.with_digests(File("flights.yaml", text, code.parent), digest)
    assert (again, asked) == (text, [code])


@pytest.mark.parametrize(
    "text", ["upload: [", "upload: 1", "- upload", "kind: Application\nspec: upload"]
)
def test_a_text_that_names_no_folder_is_sent_as_it_is(
    packing: Any, tmp_path: Path, text: str
) -> None:
    from headgate_cli.files import File

    assert packing.with_digests(File("x.yaml", text, tmp_path), lambda folder: "no") == text


def test_a_folder_that_is_not_there_is_told_with_its_file(packing: Any, tmp_path: Path) -> None:
    from headgate_cli.files import File
    from headgate_cli.output import CommandEnded

    with pytest.raises(CommandEnded, match=r"flights.yaml: the code folder ./code does not exist"):
        packing.with_digests(File("flights.yaml", MANIFEST, tmp_path), lambda folder: "no")


def test_the_digest_of_the_folder_is_applied_and_new_with_its_content(shell: Shell) -> None:
    code = shell.folder / "jobs" / "code"
    code.mkdir(parents=True)
    (code / "flights.py").write_text("answer = 42\n")
    (shell.folder / "jobs" / "flights.yaml").write_text(
        "apiVersion: headgate/v1\nkind: Application\nmetadata: {name: flights}\n"
        "spec: {code: {upload: code}}\n"
    )
    shell.env["HEADGATE_OWNER"] = "repo"
    first = shell("apply", "-f", "jobs")
    assert "1 file, " in first.err
    spec = Application.objects.get(name="flights").revisions.latest("number").spec
    assert spec["code"]["upload"].startswith("sha256:")
    assert spec["code"]["upload"] in first.err
    assert "1 unchanged" in shell("diff", "-f", "jobs").out
    (code / "flights.py").write_text("answer = 43\n")
    answer = json.loads(shell("diff", "-f", "jobs", "-o", "json", code=4).out)
    assert [one["field"] for one in answer["objects"][0]["changes"]] == ["spec.code.upload"]


def test_code_is_uploaded_by_itself_from_a_folder_a_module_a_zip_or_a_wheel(shell: Shell) -> None:
    code = shell.folder / "code"
    code.mkdir()
    (code / "flights.py").write_text("answer = 42\n")
    for name in ("flights.zip", "flights-1-py3-none-any.whl"):
        with zipfile.ZipFile(shell.folder / name, "w") as archive:
            archive.write(code / "flights.py", "flights.py")
            archive.writestr("__pycache__/flights.pyc", "no")
    digests = {
        shell("upload", name).out
        for name in ("code", "code/flights.py", "flights.zip", "flights-1-py3-none-any.whl")
    }
    assert len(digests) == 1
    assert digests.pop().startswith("sha256:")
    assert json.loads(shell("upload", "code", "-o", "json").out)["files"] == 1
    (shell.folder / "bad.zip").write_text("no zip")
    assert "cannot be read" in shell("upload", "bad.zip", code=1).err
    (shell.folder / "flights.txt").write_text("answer = 42")
    assert "Use a folder" in shell("upload", "flights.txt", code=1).err
    assert "does not exist" in shell("upload", "nowhere", code=64).err


# --- branches ---------------------------------------------------------------------------
@pytest.fixture
def server(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> Iterator[GitServer]:
    settings.CODE_DIR = tmp_path / "kept"
    (tmp_path / "repositories").mkdir()
    server = GitServer(tmp_path / "repositories")
    monkeypatch.setenv("GIT_SSL_CAINFO", str(server.ca))
    list_host({"host": server.host}, actor="ada", now=timezone.now())
    yield server
    server.close()


def test_an_apply_takes_the_commits_of_its_plan(shell: Shell, server: GitServer) -> None:
    first = server.commit("streams", {"job.py": "x = 1"})
    shell.env["HEADGATE_OWNER"] = "repo"
    (shell.folder / "jobs.yaml").write_text(
        "apiVersion: headgate/v1\nkind: Application\nmetadata: {name: jobs}\n"
        f"spec: {{code: {{git: '{server.url('streams')}', ref: main}}}}\n"
    )
    (shell.folder / "plan.json").write_text(
        shell("diff", "-f", "jobs.yaml", "-o", "json", code=4).out
    )
    second = server.commit("streams", {"job.py": "x = 2"})
    shell("apply", "-f", "jobs.yaml", "--plan", "plan.json")
    code = Application.objects.get(name="jobs").revisions.get().spec["code"]
    assert (code["commit"], code["ref"]) == (first, "main")
    moved = shell("diff", "-f", "jobs.yaml", code=4).out
    assert f"main of {server.url('streams')}: {second[:12]}" in moved
    assert first in moved
    assert (
        "is not a valid plan"
        in shell("apply", "-f", "jobs.yaml", "--plan", "jobs.yaml", code=1).err
    )
