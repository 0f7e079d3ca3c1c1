"""The commands of docs/cli.md and of the example for CI do what they say."""

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from django.conf import settings

from queries.models.applications import Application
from queries.models.definitions import Query
from tests.cli.conftest import SOURCE, Shell
from tests.scenarios.stage import Stage

BASE = Path(settings.BASE_DIR)
PAGE = (BASE / "docs" / "cli.md").read_text()
MOVING = (BASE / "docs" / "moving-in.md").read_text()
EXAMPLE = BASE / "examples" / "ci" / "github-actions.yml"


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the command line itself, read from this process."""
    monkeypatch.syspath_prepend(str(SOURCE))
    from headgate_cli.__main__ import app

    return typer.main.get_command(app)


def test_the_commands_of_the_page_work_one_after_the_other(
    shell: Shell, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queries.api.supervision.history.launcher", lambda: stage.launcher)
    commands = re.findall(r"^```sh run\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    done = shell.script("\n".join(commands))
    assert "2 created" in done.out
    assert "2 unchanged" in done.out
    assert stage.phase("delays") == "STOPPED"
    assert Query.objects.get().managed.owner == "payments"


def test_the_page_names_each_command_and_each_exit_code(cli: Any) -> None:
    from headgate_cli.kinds import KINDS
    from headgate_cli.output import ExitCode

    named = {int(code) for code in re.findall(r"^\| (\d+) \|", PAGE, re.M)}
    assert named == {int(code) for code in ExitCode}
    words = set(re.findall(r"[\w-]+", PAGE))
    assert set(cli.commands) - words == set()
    assert {kind.plural for kind in KINDS} - words == set()


def test_a_job_moves_in_by_the_commands_of_the_page(
    shell: Shell, stage: Stage, settings: Any
) -> None:
    settings.SPARKS_DIR = shell.folder / "sparks"
    settings.CONNECTORS_DIR = shell.folder / "connectors"
    (settings.SPARKS_DIR / "3.5" / "pyspark").mkdir(parents=True)
    for name in ("kafka", "delta"):
        connector = settings.CONNECTORS_DIR / "3.5" / name
        connector.mkdir(parents=True)
        shutil.copy(BASE / "connectors" / name / "connector.toml", connector)
        (connector / f"{name}.jar").touch()
    [script] = re.findall(r"^cat run.sh\n(.*?)^```$", MOVING, re.DOTALL | re.MULTILINE)
    (shell.folder / "run.sh").write_text(script)
    (shell.folder / "src").mkdir()
    (shell.folder / "src" / "orders.py").write_text("print('hello')\n")
    commands = re.findall(r"^ *```sh import\n(.*?)^ *```$", MOVING, re.DOTALL | re.MULTILINE)
    done = shell.script("\n".join(commands))
    assert "1 created" in done.out
    assert "parameter to fill in: BROKERS (default in the file: kafka-1:9092)" in done.err
    spec = Application.objects.get(name="orders").revisions.get().spec
    assert spec["spark"] == "3.5"
    assert spec["connectors"] == ["delta", "kafka"]
    assert spec["script"]["arguments"][:2] == ["--brokers", "kafka-1:9092"]


def test_each_option_that_is_written_down_is_there(cli: Any) -> None:
    """Of the page and of the example: command by command, with the options that stand after it."""
    texts = [PAGE, MOVING, *(step["run"] for step in steps())]
    lines = [line for text in texts for line in text.replace("\\\n", " ").splitlines()]
    seen = 0
    for line in lines:
        for name, rest in re.findall(r"headgate ([a-z]+) ([^`|>]*)", line):
            command = cli.commands[name]
            known = {one for param in command.params for one in param.opts + param.secondary_opts}
            asked = {word.partition("=")[0] for word in shlex.split(rest, comments=True)}
            asked = {word for word in asked if word.startswith("-") and word != "-"}
            assert asked - known == set(), line
            seen += len(asked)
    assert seen > 15


def steps() -> list[dict[str, str]]:
    """Return the shell steps of the example, but those that install."""
    jobs = yaml.safe_load(EXAMPLE.read_text())["jobs"].values()
    found = [step for job in jobs for step in job["steps"] if "run" in step]
    return [step for step in found if step["name"] != "Install headgate"]


def repository(folder: Path) -> None:
    """Write the repository that the example speaks of."""
    for name, text in {
        "jobs/flights.yaml": "kind: Application\nmetadata: {name: flights}\n"
        "spec: {memory: '${values.memory}'}",
        "jobs/delays.yaml": "kind: Query\nmetadata: {name: delays, application: flights}\n"
        "desired: RUNNING\nspec: {kind: sql, sources: [{name: t, format: rate}], "
        "sql: SELECT * FROM t, sink: {format: noop}, "
        "trigger: {kind: processing_time, interval: 5 seconds}}",
    }.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"apiVersion: headgate/v1\n{text}\n")
    (folder / "values").mkdir()
    (folder / "values" / "production.yaml").write_text("memory: 1g\n")


def test_the_example_says_on_a_pull_request_what_would_change(shell: Shell, stage: Stage) -> None:
    repository(shell.folder)
    shell.env |= {"HEADGATE_OWNER": "repo", "GITHUB_STEP_SUMMARY": str(shell.folder / "summary.md")}
    difference = next(step["run"] for step in steps() if step["name"] == "Show what would change")
    shell.script(difference)
    summary = (shell.folder / "summary.md").read_text()
    assert "created       Query delays" in summary
    assert not Query.objects.exists()
    broken = shell.folder / "jobs" / "delays.yaml"
    broken.write_text(broken.read_text().replace("5 seconds", "5 parsecs"))
    shell.script(difference, code=1)
    assert "5 parsecs" in (shell.folder / "summary.md").read_text()
