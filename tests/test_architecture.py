"""docs/architecture.md is compared with the tree, with the import contracts and with the models."""

import re
import subprocess
import tomllib
from pathlib import Path

import grimp
import pytest
from django.apps import apps

from headgate_ground.packages import OURS

REPOSITORY = Path(__file__).resolve().parents[1]
TEXT = (REPOSITORY / "docs" / "architecture.md").read_text()
CONTRACTS = {
    contract["name"]: contract
    for contract in tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"][
        "importlinter"
    ]["contracts"]
}
#: The floors on which a topic's room has the same name.
FLOORS = ("domain", "selectors", "services", "views", "api")


def section(title: str) -> str:
    """Return the text below a heading, up to the next heading of any level."""
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#+ |\Z)", TEXT, re.S | re.M)
    assert found, f"docs/architecture.md has no section {title!r}"
    return found[1]


def first_column(title: str) -> list[str]:
    """Return the code words in the first column of a section's table."""
    rows = re.findall(r"^\| *(`.*?) *\|", section(title), re.M)
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row)]


def python_files() -> list[Path]:
    """Return the Python files that git knows or would add, as paths below the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "*.py"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout.split()
    return [Path(name) for name in listed if (REPOSITORY / name).exists()]


def test_every_path_of_the_map_exists() -> None:
    paths = first_column("The map")
    assert len(paths) > 15
    assert [path for path in paths if not (REPOSITORY / path).exists()] == []


def test_every_folder_of_code_is_on_the_map() -> None:
    rooms = set(first_column("Rooms by topic"))
    on_map = {path.rstrip("/") for path in first_column("The map")}
    missing = set()
    for folder in {path.parent.as_posix() for path in python_files()}:
        name = folder.rpartition("/")[2]
        covered = {folder, *(parent.as_posix() for parent in Path(folder).parents)} & on_map
        is_room = re.match(rf"queries/({'|'.join(FLOORS)})/", folder) and name in rooms
        floor = folder in {"queries", "."} or is_room or folder in on_map
        if not floor and not (covered - {"queries", "."}):
            missing.add(folder)
    assert missing == set()


def test_a_floor_has_no_room_that_the_table_does_not_name() -> None:
    rooms = {*first_column("Rooms by topic"), "procedures"}
    unnamed = {
        path.parent.as_posix()
        for path in python_files()
        if re.match(rf"queries/({'|'.join(FLOORS)})/\w+/", path.as_posix())
        and path.parent.name not in rooms
    }
    assert unnamed == set()


def test_every_module_that_the_page_names_exists() -> None:
    named = set(re.findall(r"`((?:queries|listeners|controlplane|tests)/[\w/]+\.py)`", TEXT))
    assert len(named) > 15
    assert [name for name in named if not (REPOSITORY / name).exists()] == []


def as_layers(lines: list[str]) -> list[set[str]]:
    """Return layers, top to bottom, each as the names of its modules."""
    return [{name.strip(" ()") for name in re.split(r"[|,]", line)} for line in lines]


@pytest.mark.parametrize("root", ["queries", "listeners"])
def test_the_floors_are_those_of_the_import_contract(root: str) -> None:
    [line] = re.findall(rf"^{root} +(.*)$", section("The floors"), re.M)
    assert as_layers(line.split("→")) == as_layers(CONTRACTS[f"{root}: floors"]["layers"])


def test_the_packages_are_those_of_the_import_contract() -> None:
    [line] = re.findall(r"^packages +(.*)$", section("The floors"), re.M)
    drawn = as_layers(line.split("→"))
    assert drawn == as_layers(CONTRACTS["packages: no arrow runs up"]["layers"])
    assert set().union(*drawn) == {*OURS} - {"headgate_async"}  # which stands alone


def test_the_layers_of_domain_are_those_of_the_import_contract() -> None:
    block = re.search(r"```\n(.*?)```", section("The layers of `queries/domain`"), re.S)
    assert block
    drawn = as_layers(block[1].strip().splitlines())
    assert drawn == as_layers(CONTRACTS["rooms of domain"]["layers"])


def test_no_modules_import_each_other_in_a_circle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(REPOSITORY / "cli"))
    graph = grimp.build_graph(*OURS, "headgate_cli")
    modules = set(graph.modules)
    # What is left when each module at an end, above or below, has been taken away is in a circle.
    while ends := {
        module
        for module in modules
        if not graph.find_modules_directly_imported_by(module) & modules
        or not graph.find_modules_that_directly_import(module) & modules
    }:
        modules -= ends
    assert modules == set()


def test_every_table_has_its_writers() -> None:
    described = set(re.findall(r"^\| (\w+) \|", section("The data model"), re.M)) - {"table"}
    assert described == {model.__name__ for model in apps.get_app_config("queries").get_models()}


@pytest.mark.parametrize("app", ["queries", "listeners"])
def test_every_table_is_described(app: str) -> None:
    models = list(apps.get_app_config(app).get_models())
    # Django writes the name and the fields into the docstring of a model that has none.
    assert [model for model in models if (model.__doc__ or "").startswith(model.__name__)] == []


def test_every_writer_of_a_table_is_in_the_legend() -> None:
    text = section("The data model")
    writers = re.findall(r"^\| \w+ \| ([^|]+) \|$", text, re.M)
    named = {part for writer in writers for part in writer.split(", ") if re.match(r"[A-Z]$", part)}
    assert len(named) > 4
    assert named - set(re.findall(r"`\[([A-Z])\]`", text)) == set()
