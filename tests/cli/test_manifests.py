"""diff, apply and export: from a checkout to definitions, and back."""

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml

from queries.models.definitions import Managed, Query
from tests.cli.conftest import SOURCE, Shell
from tests.cli.test_terminal import in_a_terminal
from tests.scenarios.stage import Stage

APPLICATION = """\
apiVersion: headgate/v1
kind: Application
metadata: {name: flights, labels: {team: data}}
spec:
  memory: ${values.memory}
  pools: [{name: light, min_share: 1}]
"""
QUERY = """\
apiVersion: headgate/v1
kind: Query
metadata: {name: NAME, application: flights}
spec:
  kind: sql
  sources: [{name: ticks, format: rate}]
  sql: SELECT * FROM ticks
  sink: {format: noop}
  trigger: {kind: processing_time, interval: 10 seconds}
"""


def git(folder: Path, *arguments: str) -> str:
    name = ("-c", "user.name=ci", "-c", "user.email=ci@example.org")
    command = ["git", *name, *arguments]
    env = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    done = subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def jobs(shell: Shell) -> Path:
    """Return a folder of manifests in a checkout, whose remote's address holds a password."""
    top = shell.folder / "payments-repo"
    jobs = top / "jobs"
    (jobs / "queries").mkdir(parents=True)
    (jobs / "flights.yaml").write_text(APPLICATION)
    for name in ("arrivals", "delays"):
        (jobs / "queries" / f"{name}.yaml").write_text(QUERY.replace("NAME", name))
    (jobs / "README.md").write_text("Not a manifest.")
    (shell.folder / "prod.yaml").write_text("memory: 1g\n")
    git(top, "init", "-q")
    git(top, "remote", "add", "origin", "https://ci:hunter2@git.example.org/team/payments-repo.git")
    git(top, "add", ".")
    git(top, "commit", "-qm", "jobs")
    return jobs


def test_a_folder_is_compared_applied_changed_and_pruned(shell: Shell, jobs: Path) -> None:
    what = ("-f", str(jobs), "--values", "prod.yaml")
    first = shell("diff", *what, code=4)
    assert "created       Query delays  (jobs/queries/delays.yaml)" in first.out
    assert "3 created" in first.out
    assert not Query.objects.exists()
    applied = shell("apply", *what)
    assert "3 created" in applied.out
    row = Managed.objects.get(query__name="delays")
    assert (row.owner, row.path) == ("payments-repo", "jobs/queries/delays.yaml")
    assert row.repository == "https://git.example.org/team/payments-repo.git"
    assert row.commit == git(jobs, "rev-parse", "HEAD")
    assert "3 unchanged" in shell("diff", *what).out
    # One query is changed, the other is gone. A terminal shows it in colours.
    edited = jobs / "queries" / "delays.yaml"
    edited.write_text(edited.read_text().replace("10 seconds", "5 seconds"))
    (jobs / "queries" / "arrivals.yaml").unlink()
    second = shell("diff", *what, "--prune", code=4)
    assert "  - spec.trigger.interval: 10 seconds\n" in second.out
    assert "  + spec.trigger.interval: 5 seconds\n" in second.out
    assert "to-be-pruned  Query arrivals" in second.out
    coloured = in_a_terminal(shell, "diff", *what)
    assert "\x1b[31m  - spec.trigger.interval: 10 seconds\x1b[0m" in coloured
    assert "\x1b[32m  + spec.trigger.interval: 5 seconds\x1b[0m" in coloured
    assert "uncommitted changes" in second.err
    assert "hunter2" not in first.err + second.err
    answer = json.loads(shell("apply", *what, "--prune", "-o", "json").out)
    outcomes = {one["name"]: one["outcome"] for one in answer["objects"]}
    assert outcomes == {"flights": "unchanged", "delays": "changed", "arrivals": "pruned"}
    assert [row.name for row in Query.objects.filter(archived_at=None)] == ["delays"]


def test_a_set_with_a_fault_is_refused_whole_with_file_field_and_way_out(
    shell: Shell, jobs: Path
) -> None:
    bad = jobs / "queries" / "delays.yaml"
    bad.write_text(bad.read_text().replace("10 seconds", "5 parsecs"))
    for verb in ("apply", "diff"):
        done = shell(verb, "-f", str(jobs), "--set", "memory=1g", code=1)
        assert "refused       Query delays  (jobs/queries/delays.yaml)" in done.out
        assert "5 parsecs" in done.out
        assert "What to do: " in done.out
    assert not Query.objects.exists()
    unnamed = shell("apply", "-f", str(jobs / "flights.yaml"), code=1)
    assert "${values.memory}" in unnamed.out + unnamed.err


def test_an_owner_is_named_or_the_repositorys_and_holds_what_it_applied(
    shell: Shell, jobs: Path
) -> None:
    loose = shell.folder / "loose.yaml"
    loose.write_text(APPLICATION.replace("${values.memory}", "1g"))
    assert "--owner NAME" in shell("apply", "-f", "loose.yaml", code=1).err
    shell("apply", "-f", "-", "--owner", "somebody", stdin=loose.read_text())
    other = shell("apply", "-f", str(jobs / "flights.yaml"), "--set", "memory=1g", code=1)
    assert "somebody" in other.out
    assert "does not exist" in shell("apply", "-f", "nowhere", code=1).err
    (shell.folder / "hollow").mkdir()
    assert "contains no manifest" in shell("apply", "-f", "hollow", code=1).err


def test_what_is_there_is_exported_and_unchanged_when_it_is_applied(
    shell: Shell, stage: Stage
) -> None:
    stage.application("flights")
    stage.query("delays", "flights")
    printed = list(yaml.safe_load_all(shell("export").out))
    assert {one["kind"] for one in printed} == {"Application", "Query"}
    written = shell("export", "--application", "flights", "--to", "out").out.split()
    assert all((shell.folder / name).is_file() for name in written)
    shell("apply", "-f", "out", "--owner", "ci")
    assert "2 unchanged" in shell("diff", "-f", "out", "--owner", "ci").out


def test_one_query_is_exported_with_its_application(shell: Shell, stage: Stage) -> None:
    stage.application("flights")
    for name in ("arrivals", "delays"):
        stage.query(name, "flights")
    printed = list(yaml.safe_load_all(shell("export", "--query", "delays").out))
    assert [one["metadata"]["name"] for one in printed] == ["flights", "delays"]


def test_what_is_applied_is_released_from_its_owner(shell: Shell, stage: Stage) -> None:
    stage.application("flights")
    stage.query("delays", "flights")
    shell("export", "--to", "out")
    shell("apply", "-f", "out", "--owner", "ci")
    assert Managed.objects.count() == 2
    assert shell("release", "query", "delays").out == "query/delays released\n"
    assert shell("release", "application", "application/flights").out
    assert not Managed.objects.exists()
    assert "has no owner" in shell("release", "query", "delays", code=1).err
    assert "have no owner" in shell("release", "team", "data", code=64).err


@pytest.mark.parametrize("path", ["/etc/passwd", "../up.yaml", "a/../../up.yaml", ""])
def test_no_file_is_written_outside_of_the_folder(
    monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.syspath_prepend(str(SOURCE))
    from headgate_cli.commands.manifests import _inside
    from headgate_cli.output import CommandEnded

    with pytest.raises(CommandEnded, match="which is outside the folder"):
        _inside(path)


def test_sql_that_cannot_be_checked_is_refused_on_request(shell: Shell, jobs: Path) -> None:
    what = ("-f", str(jobs), "--values", "prod.yaml")
    for verb in ("apply", "deploy"):
        refused = shell(verb, *what, "--require-checked", code=1)
        said = f"{refused.out}{refused.err}"
        assert "was not checked, and the request requires the check. Spark's parser" in said
        assert not Query.objects.exists()
    assert "SQL not checked: " in shell("apply", *what).out
