"""The SQL editor that browsers get is what its source and its lockfile build."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from django.conf import settings

from tests.pieces import EDITOR

COMMITTED = Path(settings.BASE_DIR) / "static" / "vendor" / "codemirror"


@pytest.mark.guarantee("G-SUPPLY-2")
@pytest.mark.editor
def test_a_build_from_the_lockfile_gives_the_committed_bytes(tmp_path: Path) -> None:
    command = ["node", "build.js", str(tmp_path)]
    built = subprocess.run(
        command, cwd=EDITOR, capture_output=True, text=True, timeout=600, check=False
    )
    assert built.returncode == 0, built.stderr
    for name in ("sql-editor.min.js", "LICENSE"):
        assert (tmp_path / name).read_bytes() == (COMMITTED / name).read_bytes(), (
            f"{name} is not what bootstrap/editor builds: run `npm run build --prefix "
            "bootstrap/editor`, and commit what it writes"
        )


def test_the_lockfile_pins_each_package_by_its_digest_and_names_no_host() -> None:
    text = (EDITOR / "package-lock.json").read_text()
    packages = {name: one for name, one in json.loads(text)["packages"].items() if name}
    assert len(packages) > 10
    assert [name for name, one in packages.items() if "sha512-" not in one["integrity"]] == []
    assert re.findall(r"https?://", text) == []


def test_the_licence_of_each_package_in_the_script_stands_beside_it() -> None:
    packages = json.loads((EDITOR / "package-lock.json").read_text())["packages"]
    locked = {
        f"{name.removeprefix('node_modules/')} {one['version']} ({one['license']})"
        for name, one in packages.items()
        if name and not one.get("dev")
    }
    named = set(re.findall(r"^\S+ \d[\w.]* \(.+\)$", (COMMITTED / "LICENSE").read_text(), re.M))
    assert any(one.startswith("@codemirror/view ") for one in named)
    assert named <= locked
