"""The recipes of CONTRIBUTING.md: their files exist, and each add-on is in all of its files."""

import ast
import re
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import pytest
from django.urls import resolve

from queries.channels.base import DeclaredKind
from queries.channels.kinds import KINDS as CHANNELS
from queries.channels.kinds import ChannelKind
from queries.domain.definitions.declarations import Declared, read
from queries.domain.definitions.spec import (
    TRIGGERS,
    ApplicationSpec,
    QuerySpec,
    Trigger,
    TriggerKind,
)
from queries.domain.failures.categories import FailureRule
from queries.domain.failures.rules import CONDITION_RULES, MESSAGE_RULES, TYPE_RULES
from queries.domain.protocol import AssignmentEntry, DriverSpec
from queries.domain.sparks import SPARKS
from queries.domain.tables.places import TABLES
from queries.domain.triggers.kinds import KINDS as TRIGGER_ROWS
from queries.domain.validation.tables import SPARKS as SPARKS_OF_TABLES
from queries.selectors.definitions.definitions import recipes
from queries.services.access.admin_objects import AdminObject
from queries.views.definitions.spec_form import leaves

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = (REPOSITORY / "CONTRIBUTING.md").read_text()
TITLES = (
    "An alert channel",
    "A connector",
    "A failure rule",
    "A trigger kind",
    "A field of a definition",
    "A field of a driver",
    "A field of a driver's status",
    "A kind of incident",
    "A table format",
    "An admin object",
)
#: Recipes for more than three files: most steps.
LONG = {"A table format": 9}
#: Queries' rows of sources and tables have a template of their own.
FORMS: list[tuple[Any, str, str]] = [
    (QuerySpec, "main", "templates/definitions/_query_fields.html"),
    (ApplicationSpec, "form", "templates/definitions/_application_spec.html"),
]
#: Drawn within both.
SCHEDULE = "templates/definitions/_schedule_fields.html"


def recipe(title: str) -> str:
    """Return the text of a recipe."""
    section = PAGE.split("## Recipes\n", 1)[1].split("\n## ", 1)[0]
    return section.split(f"### {title}\n", 1)[1].split("\n### ", 1)[0]


def files(title: str) -> list[str]:
    """Return the first file of each step of a recipe, in order."""
    return re.findall(r"^\d\. `([^`]+)`", recipe(title), re.M)


def text_of(name: str) -> str:
    return (REPOSITORY / name).read_text()


def table_under(heading: str, page: str) -> str:
    """Return the first table below a heading of a page."""
    return text_of(page).split(f"{heading}\n", 1)[1].split("\n|", 1)[1].split("\n\n", 1)[0]


def test_every_recipe_is_known_here() -> None:
    section = PAGE.split("## Recipes\n", 1)[1].split("\n## ", 1)[0]
    assert tuple(re.findall(r"^### (.*)$", section, re.M)) == TITLES


@pytest.mark.parametrize("title", TITLES)
def test_a_recipe_names_few_files_and_a_test_and_they_exist(title: str) -> None:
    steps = re.findall(r"^\d\. ", recipe(title), re.M)
    assert 1 <= len(steps) <= LONG.get(title, 3)
    assert len(files(title)) == len(steps)
    named = [*files(title), *re.findall(r"`(tests/[\w/]+\.py)`", recipe(title))]
    assert re.search(r"^Tests?: ", recipe(title), re.M) or " Test: " in recipe(title)
    assert [name for name in named if not (REPOSITORY / name).is_file()] == []


# --- an alert channel ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", ChannelKind)
def test_a_channel_is_in_each_file_of_its_recipe(kind: ChannelKind) -> None:
    module, registered, page = files("An alert channel")
    own = module.replace("pagerduty", kind)
    assert import_module(own.removesuffix(".py").replace("/", ".")).KIND is CHANNELS[kind]
    assert registered.endswith("kinds.py")
    assert f"| `{kind}` |" in table_under("## Channels", page)


def test_every_module_that_declares_a_channel_is_registered() -> None:
    modules = (REPOSITORY / "queries" / "channels").glob("*.py")
    declared = [import_module(f"queries.channels.{file.stem}") for file in modules]
    kinds = {
        id(one.KIND) for one in declared if isinstance(getattr(one, "KIND", None), DeclaredKind)
    }
    assert kinds == {id(kind) for kind in CHANNELS.values()}


def test_no_other_file_names_a_channel() -> None:
    """A table of channels elsewhere would be a fourth file."""
    names = {ChannelKind.PAGERDUTY.value}  # the others are also words
    members = {kind.name for kind in ChannelKind} - {ChannelKind.MAIL.name}  # the page's default
    found = {
        file.relative_to(REPOSITORY).as_posix()
        for file in (REPOSITORY / "queries").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if (isinstance(node, ast.Constant) and node.value in names)
        or (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and (node.value.id, node.attr) in {("ChannelKind", name) for name in members}
        )
    }
    assert found == {"queries/channels/kinds.py"}


# --- a connector --------------------------------------------------------------------------


def test_a_connector_is_in_each_file_of_its_recipe() -> None:
    declaration, pom, page = files("A connector")
    # Trial servers and Sparks are downloaded in the same way, and are not connectors.
    folders = {file.parent.name for file in (REPOSITORY / "connectors").glob("*/*")} - {
        *("broker", "hadoop", "kubernetes", "rest-catalog", "sparks")
    }
    assert {name for spark in SPARKS for name in recipes(spark)} == folders
    for name in folders:
        declared = read(text_of(declaration.replace("avro", name)))
        assert declared != Declared()
        assert (REPOSITORY / pom.replace("avro", name)).is_file()  # tests/machine/test_recipes.py
        command = "make kafka" if name == "kafka" else f"make connector ARGS={name}"
        if not declared.packages:  # for another Spark than ours alone
            command = f'make connector ARGS="{name} --spark {max(declared.versions)}"'
        assert f"| `{command}` | the `{name}` connector" in text_of(page)


# --- a failure rule -----------------------------------------------------------------------


def test_every_failure_rule_is_in_a_list_that_is_used() -> None:
    (main,) = files("A failure rule")
    folder = (REPOSITORY / main).parent
    used = {id(rule) for rule in (*CONDITION_RULES, *MESSAGE_RULES, *TYPE_RULES)}
    named = {
        Path(one).name for one in re.findall(r"`([\w/]+_?rules\.py)`", recipe("A failure rule"))
    }
    assert {file.name for file in folder.glob("*rules.py")} == named
    for file in folder.glob("*rules.py"):
        module = import_module(f"queries.domain.failures.{file.stem}")
        lists = [held for held in vars(module).values() if isinstance(held, tuple)]
        rules = [one for held in lists for one in held if isinstance(one, FailureRule)]
        assert rules
        assert {id(rule) for rule in rules} <= used


# --- a trigger kind -----------------------------------------------------------------------


def test_a_trigger_is_in_each_file_of_its_recipe() -> None:
    _, _, page = files("A trigger kind")
    models = get_args(get_args(Trigger)[0])
    literals = [get_args(model.model_fields["kind"].annotation) for model in models]
    assert [kind for (kind,) in literals] == list(TriggerKind)
    assert set(TRIGGERS) == set(TRIGGER_ROWS) == set(TriggerKind)
    assert len({model.spark for model in models}) == len(models)
    for kind, row in TRIGGER_ROWS.items():
        assert isinstance(row.example, TRIGGERS[kind])
        assert f"**{row.name.lower()}**" in table_under("## Which one", page)
        assert bool(row.without_cores) == TRIGGERS[kind].holds
        assert bool(row.unmeasured) == (kind != TriggerKind.PROCESSING_TIME)
        assert ("{interval}" in row.words) == ("interval" in TRIGGERS[kind].model_fields)


# --- a field of a definition --------------------------------------------------------------


@pytest.mark.parametrize(("shape", "form", "template"), FORMS, ids=["query", "application"])
def test_every_field_of_a_definition_is_on_its_form(shape: Any, form: str, template: str) -> None:
    drawn = set(re.findall(rf"{{% field {form}\.(\w+)", text_of(template)))
    assert "definitions/_schedule_fields.html" in text_of(template)
    drawn |= set(re.findall(r"{% field form\.(\w+)", text_of(SCHEDULE)))
    assert leaves(shape).keys() - drawn == set()
    assert Path(template).name in recipe("A field of a definition")


# --- a field of a driver, a table format --------------------------------------------------

#: Set by the launcher or for probes alone, or constants of a release.
NOT_ASSIGNED = {"walls", "ended_hosts", "stop_timeout_s", "storage_idle_s", "probe", "protocol"}


def test_every_field_of_a_driver_is_filled_in() -> None:
    protocol, assignments, _ = files("A field of a driver")
    assert "_NEW = " in text_of(protocol)
    names = {one.name for kind in (DriverSpec, AssignmentEntry) for one in fields(kind)}
    filled = set(re.findall(r"\b(\w+)=", text_of(assignments)))
    assert names - filled == NOT_ASSIGNED


def test_every_table_format_has_its_versions_of_spark_and_errors() -> None:
    places, options, *_, errors = files("A table format")
    assert SPARKS_OF_TABLES.keys() == TABLES
    assert "TABLES = " in text_of(places)
    assert "SPARKS: " in text_of(options)
    assert all(name in text_of(errors).lower() for name in TABLES)


# --- an admin object ----------------------------------------------------------------------


def test_every_declared_admin_object_has_its_endpoints() -> None:
    declaring = [
        ".".join(file.relative_to(REPOSITORY).with_suffix("").parts)
        for file in (REPOSITORY / "queries" / "services").rglob("*.py")
        if "= AdminObject(" in file.read_text()
    ]
    members = [value for name in declaring for value in vars(import_module(name)).values()]
    kinds = [value for value in members if isinstance(value, AdminObject)]
    assert kinds
    for kind in kinds:
        assert resolve(f"/api/v1/{kind.root}/").url_name == f"{kind.name}s"
        assert resolve(f"/api/v1/{kind.root}/1/").url_name in (kind.name, "nothing")  # by UUID
