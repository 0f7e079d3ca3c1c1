"""Code beside a manifest: packed the same each time, without links, and named by its digest."""

import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from queries.models.applications import Application
from tests.cli.conftest import SOURCE, Shell

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
    from headgate_cli import packing

    return packing


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
    from headgate_cli.ends import Ended

    (code / "link").symlink_to(target)
    with pytest.raises(Ended, match="is a link"):
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
    from headgate_cli.ends import Ended
    from headgate_cli.files import File

    with pytest.raises(Ended, match=r"flights.yaml: ./code, the folder of the code, is not there"):
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
