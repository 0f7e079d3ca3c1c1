"""CONTRIBUTING.md names commands, marks and files that are there."""

import re
import subprocess
from pathlib import Path
from typing import get_args

import pytest
from django.conf import settings

from queries.channels.base import ChannelKind
from queries.channels.kinds import KINDS
from queries.domain.definitions.spec import (
    ApplicationSpec,
    PythonQuery,
    SqlQuery,
    Trigger,
    TriggerKind,
)

REPOSITORY = Path(settings.BASE_DIR)
PAGE = (REPOSITORY / "CONTRIBUTING.md").read_text()
RUN = re.findall(r"<!-- run -->\n *```sh\n *(.*?)\n *```", PAGE, re.DOTALL)
COMMANDS = sorted({*RUN, *re.findall(r"`(make [^`]+)`", PAGE)} - {"make bench NAME"})


def test_the_page_has_commands_to_run() -> None:
    assert len(RUN) == 2
    assert len(COMMANDS) > 8


@pytest.mark.parametrize("command", COMMANDS)
def test_make_knows_each_command(command: str) -> None:
    told = subprocess.run(
        ["bash", "-c", command.replace("make ", "make -n ", 1)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    assert "bootstrap/run.py" in told.stdout


def test_the_first_change_is_seen_to_fail_by_the_command_that_the_page_gives() -> None:
    folder, words = re.findall(r'ARGS="(\S+) -q -k (\w+)"', PAGE)[0]
    sources = [file.read_text() for file in (REPOSITORY / folder).rglob("test_*.py")]
    assert any(f"def test_{words}" in text for text in sources)
    known = (REPOSITORY / "queries").rglob("*rules.py")
    assert not any("INVALID_BUCKET_FILE" in file.read_text() for file in known)


def test_every_mark_that_it_names_is_there(request: pytest.FixtureRequest) -> None:
    marks = {line.partition(":")[0] for line in request.config.getini("markers")}
    named = re.findall(r"by mark: ((?:`\w+`,? ?)+)", PAGE)[0]
    assert set(re.findall(r"\w+", named)) <= marks


def test_every_path_that_it_names_is_there() -> None:
    roots = [REPOSITORY / folder for folder in ("", "tests", "queries", "queries/domain")]
    paths = set(re.findall(r"`(\w[\w./]*/[\w./]*)`", PAGE))
    assert len(paths) > 10
    missing = [path for path in paths if not any((root / path).exists() for root in roots)]
    assert missing == []


def test_every_channel_is_where_its_recipe_says() -> None:
    for kind, made in KINDS.items():
        module = made.send.__module__
        assert module.rpartition(".")[0] == "queries.channels", kind
    assert set(KINDS) == set(ChannelKind)


def test_every_connector_is_a_folder_with_its_declaration() -> None:
    folders = {file.parent.name for file in (REPOSITORY / "connectors").glob("*/connector.toml")}
    poms = {file.parent.name for file in (REPOSITORY / "connectors").glob("*/pom.xml")}
    assert folders
    assert poms - folders == {"broker"}, "the trial broker is no connector"


def test_every_trigger_kind_is_where_its_recipe_says() -> None:
    kinds = {one.model_fields["kind"].default for one in get_args(get_args(Trigger)[0])}
    template = (REPOSITORY / "templates/definitions/_query_fields.html").read_text()
    forgotten = {kind for kind in kinds if f"{kind}=" not in template}
    assert forgotten == set(), "the form of a query has no words for it"
    assert kinds == set(TriggerKind)


def test_every_field_of_a_definition_has_a_place_in_a_form() -> None:
    pages = "".join(
        file.read_text() for file in (REPOSITORY / "templates/definitions").glob("*.html")
    )
    missing = [
        f"{shape.__name__}.{name}"
        for shape in (SqlQuery, PythonQuery, ApplicationSpec)
        for name in shape.model_fields
        if not re.search(rf"\b{name}", pages)
    ]
    assert missing == []
