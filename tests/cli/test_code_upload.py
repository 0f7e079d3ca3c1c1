"""The folder beside a manifest is uploaded, and its digest is what is applied."""

import json
from pathlib import Path

import pytest
from django.urls import resolve

from queries.models.applications import Application
from tests.cli.conftest import Shell

MANIFEST = """\
apiVersion: headgate/v1
kind: Application
metadata: {name: flights}
spec: {code: {upload: code}}
"""


@pytest.fixture
def folder(shell: Shell) -> Path:
    (shell.folder / "jobs" / "code").mkdir(parents=True)
    (shell.folder / "jobs" / "code" / "flights.py").write_text("answer = 42\n")
    (shell.folder / "jobs" / "flights.yaml").write_text(MANIFEST)
    shell.env["HEADGATE_OWNER"] = "repo"
    return shell.folder / "jobs"


@pytest.mark.skipif(
    resolve("/api/v1/code/").url_name == "nothing", reason="uploads of code are not there yet"
)
def test_the_digest_of_the_folder_is_applied_and_new_with_its_content(
    shell: Shell, folder: Path
) -> None:
    first = shell("apply", "-f", "jobs")
    assert "1 files" in first.err
    code = Application.objects.get(name="flights").revisions.latest("number").spec["code"]
    assert code["upload"].startswith("sha256:")
    assert code["upload"] in first.err
    assert "1 unchanged" in shell("diff", "-f", "jobs").out
    (folder / "code" / "flights.py").write_text("answer = 43\n")
    answer = json.loads(shell("diff", "-f", "jobs", "-o", "json", code=4).out)
    assert [one["field"] for one in answer["objects"][0]["changes"]] == ["spec.code.upload"]
