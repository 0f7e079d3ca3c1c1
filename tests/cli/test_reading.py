"""`get` and `describe`: tables for people, JSON, YAML and names for scripts."""

import json

import yaml

from queries.models.definitions import Query
from tests.cli.conftest import Shell
from tests.scenarios.stage import Stage


def test_a_list_is_a_table_json_yaml_or_names(shell: Shell, stage: Stage) -> None:
    for name in ("arrivals", "delays"):
        stage.query(name)
    stage.start("delays")
    shell("wait", "delays", "--for", "running")
    table = shell("get", "queries").out.splitlines()
    assert table[0].split()[:3] == ["NAME", "APPLICATION", "PHASE"]
    assert [line.split()[:3] for line in table[1:]] == [
        ["arrivals", "arrivals", "STOPPED"],
        ["delays", "delays", "RUNNING"],
    ]
    rows = json.loads(shell("get", "queries", "--phase", "RUNNING", "-o", "json").out)
    assert [row["name"] for row in rows] == ["delays"]
    one = yaml.safe_load(shell("get", "query", "delays", "-o", "yaml").out)
    assert one["spec"]["trigger"]["interval"] == "5 seconds"
    assert shell("get", "queries", "-o", "name").out == "query/arrivals\nquery/delays\n"
    assert shell("get", "applications", "-o", "name", "--limit", "1").out.count("\n") == 1
    runs = json.loads(shell("get", "runs", "--query", "delays", "-o", "json").out)
    assert len(runs) == 1


def test_a_cell_of_a_table_names_several_things_side_by_side(shell: Shell, stage: Stage) -> None:
    stage.application("flights")
    for name in ("arrivals", "delays"):
        stage.query(name, "flights")
    stage.application("idle")
    flights, idle = shell("get", "applications").out.splitlines()[1:]
    assert "arrivals, delays" in flights
    assert "[" not in flights + idle


def test_what_is_printed_as_a_name_can_be_given_to_other_commands(
    shell: Shell, stage: Stage
) -> None:
    stage.query("delays")
    shell.script("headgate start $(headgate get queries -o name) --wait")
    shell.script("headgate wait $(headgate get queries -o name) --for running")
    shell("logs", "query/delays", "--tail", "1")
    assert "delays" in shell("get", "query", "query/delays").out
    shell("stop", "query/delays", "--wait")
    assert shell("delete", "query", "query/delays").out == "query/delays deleted\n"


def test_a_query_that_a_script_starts_is_found_by_its_name(shell: Shell, stage: Stage) -> None:
    row = stage.query("counts")
    Query.objects.filter(pk=row.pk).update(name="jobs/counts", identity="name:counts")
    assert "jobs/counts" in shell("describe", "query", "jobs/counts").out


def test_a_list_of_several_pages_is_whole(shell: Shell, stage: Stage) -> None:
    owner = stage.application("many")
    now = stage.now
    names = [f"q{number:04d}" for number in range(230)]
    Query.objects.bulk_create(Query(name=name, application=owner, created_at=now) for name in names)
    assert shell("get", "queries", "-o", "name").out.split() == [f"query/{name}" for name in names]


def test_all_that_is_known_of_a_query_is_described(shell: Shell, stage: Stage) -> None:
    stage.query("delays")
    stage.start("delays")
    said = shell("describe", "query", "delays").out
    assert "phase:" in said
    assert "SELECT * FROM flights" in said
    for title in ("spec:", "Operations:", "Runs:"):
        assert f"\n{title}\n" in said
    assert "application/delays" in shell("describe", "application", "delays", "-o", "name").out


def test_what_the_command_line_lacks_is_said_with_the_way_out(shell: Shell) -> None:
    unknown = shell("get", "quarries", code=64)
    assert "There is no kind quarries" in unknown.err
    assert "queries" in unknown.err
    assert "--query NAME" in shell("get", "runs", code=64).err
    assert "are not filtered by --phase" in shell("get", "teams", "--phase", "RUNNING", code=64).err
    assert "No such option" in shell("get", "queries", "--fast", code=64).err
