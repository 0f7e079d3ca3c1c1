"""`make dist` builds two wheels that hold all they run on, with one version."""

import re
import shlex
import subprocess
import tomllib
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from headgate_ground import packages
from headgate_server import __version__, places
from queries.jvm import compiled
from tests.machine import wheels
from tests.machine.wheels import REPOSITORY, Environment

LOCKED = dict(
    re.findall(
        r"^([\w.-]+)(?:\[.*?\])?==([\w.]+)", (REPOSITORY / "requirements.txt").read_text(), re.M
    )
)


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    wheels.built(folder)
    return folder


@pytest.fixture(scope="module")
def server(dist: Path) -> zipfile.ZipFile:
    return zipfile.ZipFile(dist / f"headgate_server-{__version__}-py3-none-any.whl")


@pytest.fixture(scope="module")
def environment(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment.made(tmp_path_factory.mktemp("env"), *dist.glob("*.whl"))


def metadata(wheel: zipfile.ZipFile) -> Message:
    [name] = [each for each in wheel.namelist() if each.endswith(".dist-info/METADATA")]
    return Parser().parsestr(wheel.read(name).decode())


def shell(environment: Environment, command: str, home: Path) -> str:
    """Return what a command says in a shell of somebody who has installed us."""
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=home,
        env=environment.variables(home),
        capture_output=True,
        text=True,
        timeout=wheels.LIMIT_S,
        check=False,
    )
    return done.stdout + done.stderr


def test_a_release_is_two_wheels_the_exact_versions_and_the_bill_of_materials(dist: Path) -> None:
    assert sorted(each.name for each in dist.iterdir()) == [
        f"headgate_cli-{__version__}-py3-none-any.whl",
        f"headgate_server-{__version__}-constraints.txt",
        f"headgate_server-{__version__}-py3-none-any.whl",
        f"headgate_server-{__version__}.cdx.json",
    ]


def test_the_wheel_holds_our_packages_and_the_data_that_they_read_and_no_other_file(
    server: zipfile.ZipFile,
) -> None:
    data = ("templates", "static", "docs", "examples", "connectors")
    below = "headgate_server/data"
    wanted = {
        *wheels.git_files(*packages.OURS),
        *(f"{below}/{name}" for name in wheels.git_files(*data)),
        *(
            f"{below}/{name}"
            for name in ("bootstrap/fetch.py", "bootstrap/run.py", "constraints.txt")
        ),
        f"queries/jvm/{compiled.jar_name()}",
    }
    held = {name for name in server.namelist() if ".dist-info/" not in name}
    assert held == {name for name in wanted if not name.endswith("README.md")} | {
        name for name in wanted if name.startswith(below)
    }
    assert {Path(name).parts[0] for name in held} == {*packages.OURS}


def test_the_list_of_our_packages_is_that_of_the_import_contracts() -> None:
    contracts = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["importlinter"]
    assert {*packages.OURS} == {one for one in contracts["root_packages"] if "." not in one}


def test_the_wheel_asks_for_each_package_in_ranges_that_hold_the_locked_version(
    server: zipfile.ZipFile,
) -> None:
    asked = [Requirement(one) for one in metadata(server).get_all("Requires-Dist", [])]
    named = re.findall(r"^[\w.-]+", (REPOSITORY / "requirements.in").read_text(), re.M)
    assert {one.name for one in asked} == {*named}
    unfit = [
        one
        for one in asked
        if LOCKED[re.sub(r"[-_.]+", "-", one.name).lower()] not in one.specifier
    ]
    assert unfit == []
    unbounded = [one for one in asked if not re.search("<|==", str(one.specifier))]
    assert unbounded == []


def test_the_constraints_are_the_locked_versions(dist: Path, server: zipfile.ZipFile) -> None:
    text = (dist / f"headgate_server-{__version__}-constraints.txt").read_text()
    assert dict(re.findall(r"^([\w.-]+)==(\S+)", text, re.M)) == LOCKED
    assert "[" not in text, "pip takes no extras in constraints"
    assert server.read("headgate_server/data/constraints.txt").decode() == text


def test_there_is_one_version(dist: Path, environment: Environment, tmp_path: Path) -> None:
    said = shell(environment, "headgate-server --version; headgate --version", tmp_path)
    assert said == f"headgate-server {__version__}\nheadgate {__version__}\n"
    compose = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text())
    assert compose["x-headgate"]["image"] == f"headgate:{__version__}"
    assert f"\n## {__version__} (" in (REPOSITORY / "CHANGELOG.md").read_text()


def test_its_home_is_where_the_users_data_is(environment: Environment, tmp_path: Path) -> None:
    ask = "from django.conf import settings; print(settings.HEADGATE_HOME)"
    show = f"headgate-server manage shell -v0 -c '{ask}'"
    assert shell(environment, show, tmp_path) == f"{tmp_path}/.local/share/headgate\n"
    assert shell(environment, f"XDG_DATA_HOME=/x {show}", tmp_path) == "/x/headgate\n"
    assert shell(environment, f"XDG_DATA_HOME=x HEADGATE_HOME=/y {show}", tmp_path) == "/y\n"


def test_its_own_folders_are_our_packages_and_not_what_is_installed_beside_them(
    environment: Environment, tmp_path: Path
) -> None:
    show = "from headgate_server import places as p; print(*p.own(), *p.import_path(), sep=chr(10))"
    said = shell(environment, f"python -c '{show}'", tmp_path).split()
    assert said == [str(environment.packages / name) for name in packages.OURS]


def test_what_it_says_names_its_own_commands(environment: Environment, tmp_path: Path) -> None:
    said = shell(environment, "headgate-server stop; headgate-server connector nonsense", tmp_path)
    assert said.startswith("Nothing is running.\nThere is no recipe for nonsense.\n  Choose avro, ")
    said = shell(environment, "headgate-server connector add kafka --spark 4.2", tmp_path)
    assert "Install it first: `headgate-server spark 4.2`." in said
    said = shell(environment, "headgate-server connector list", tmp_path)
    assert said == "No connectors are installed.\n"
    text = 'make run, manage.py x, make connector ARGS="avro --spark 4.2"'
    show = f"from headgate_server import places; print(places.with_local_commands({text!r}))"
    said = shell(environment, f"python -c {shlex.quote(show)}", tmp_path)
    assert said == (
        "headgate-server up, headgate-server manage x, headgate-server connector avro --spark 4.2\n"
    )
    assert places.with_local_commands(text) == text


def test_an_unknown_command_is_refused_with_those_that_there_are(
    environment: Environment, tmp_path: Path
) -> None:
    said = shell(environment, "headgate-server run || exit 1", tmp_path)
    assert said.startswith("There is no command 'run'.")
    assert "  up " in said
