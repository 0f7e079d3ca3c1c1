"""`get` and `describe`: tables for people, JSON, YAML and names for scripts."""

import json
import subprocess
import time
from datetime import timedelta

import yaml
from django.utils import timezone

from queries.models.definitions import Query
from queries.models.schedules import ScheduleState
from queries.services.schedules import ticks
from tests.cli.conftest import COMMAND, LIMIT_S, Shell
from tests.scenarios.stage import Stage
from tests.web.batches import batches
from tests.web.test_lineage import flow, told


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


def test_a_kind_and_a_name_are_one_word_too_and_so_is_a_name_in_an_option(
    shell: Shell, stage: Stage
) -> None:
    stage.query("delays")
    assert "delays" in shell("get", "query/delays").out
    assert "phase:" in shell("describe", "query/delays").out
    for of, name in (("--query", "query/delays"), ("--application", "application/delays")):
        assert "kind: Query" in shell("export", of, name).out
    assert (
        "query/delays"
        in shell("get", "queries", "--application", "application/delays", "-o", "name").out
    )
    assert "There are no runs" in shell("get", "runs", "--query", "query/delays").err
    assert "stop of delays" in shell("stop", "--application", "application/delays").out
    assert "Exactly one query is required" in shell("describe", "query", code=64).err
    assert "No queries given" in shell("delete", "query", code=64).err


def test_an_empty_list_says_so_on_stderr(shell: Shell) -> None:
    empty = shell("get", "queries")
    assert (empty.out, empty.err) == ("", "There are no queries.\n")
    assert shell("get", "queries", "--phase", "FAILED").err == "No queries match.\n"
    assert shell("get", "queries", "-o", "json").out == "[]\n"
    assert shell("start", "-l", "team=data", "--dry-run").err == "No queries match.\n"
    assert "There are no manifests." in shell("export").err
    assert "There are no contexts." in shell("contexts").err


def test_a_wide_table_has_more_columns_and_a_wrong_phase_lists_the_phases(
    shell: Shell, stage: Stage
) -> None:
    stage.query("delays")
    narrow, wide = (shell("get", "queries", *form).out for form in ((), ("-o", "wide")))
    assert wide.splitlines()[0].startswith(narrow.splitlines()[0])
    assert {"DESIRED", "POOL", "CHECKPOINT"} <= set(wide.split()) - set(narrow.split())
    wrong = shell("get", "queries", "--phase", "FALED", code=1).err
    assert "phase = FALED" in wrong
    assert "ON_HOLD" in wrong
    assert "COMPLETED" in wrong


def test_a_table_shows_one_digit_of_a_fraction_and_json_all(shell: Shell, stage: Stage) -> None:
    stage.query("delays")
    stage.up("delays")
    batches(stage.run("delays"), 1, until=timezone.now(), rows=100, duration_ms=300)
    assert " 333.3 " in shell("get", "query", "delays").out
    assert "333.33333" in shell("get", "query", "delays", "-o", "json").out


def test_the_version_is_printed_without_an_installation(shell: Shell) -> None:
    shell.env.clear()
    assert shell("--version").out.split()[0] == "headgate"


def test_a_watched_list_prints_each_row_that_changes(shell: Shell, stage: Stage) -> None:
    for name in ("arrivals", "delays"):
        stage.query(name)
    command = [*COMMAND, "get", "queries", "-w", "--timeout", "1m"]
    env = {**shell.environment(), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            titles, *first = (process.stdout.readline().split() for _ in range(3))
            assert titles[:3] == ["NAME", "APPLICATION", "PHASE"]
            assert [row[::2][:2] for row in first] == [
                ["arrivals", "STOPPED"],
                ["delays", "STOPPED"],
            ]
            stage.start("delays")
            shell("wait", "delays", "--for", "running")
            ends, said = time.monotonic() + LIMIT_S, process.stdout.readline().split()
            while said[2] != "RUNNING" and time.monotonic() < ends:
                said = process.stdout.readline().split()
            assert (said[0], said[2]) == ("delays", "RUNNING")
        finally:
            process.kill()
    over = shell("get", "queries", "-w", "--timeout", "1s", "-o", "name", code=3)
    assert over.out == "query/arrivals\nquery/delays\n"
    assert "To wait longer, use --timeout." in over.err
    assert "in the background" not in over.err  # a list that was only read


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
    assert "Unknown kind quarries" in unknown.err
    assert "queries" in unknown.err
    assert "--query NAME" in shell("get", "runs", code=64).err
    assert (
        "cannot be filtered by --phase" in shell("get", "teams", "--phase", "RUNNING", code=64).err
    )
    assert "No such option" in shell("get", "queries", "--fast", code=64).err


def test_the_lineage_of_a_query_names_both_directions_and_the_data_between(
    shell: Shell, stage: Stage
) -> None:
    flow(stage)
    lines = shell("lineage", "late").out.splitlines()
    assert lines[:2] == ["Upstream:    raw", "Downstream:  daily"]
    told(stage, "code", "KafkaV2[Subscribe[flights]]", "ForeachBatchSink")
    lines = shell("lineage", "late").out.splitlines()
    unsure = "(may be incomplete: not all reads and writes are known of code)"
    assert lines[:2] == [f"Upstream:    raw {unsure}", "Downstream:  daily"]
    assert "late   reads   topic  flights" in "\n".join(lines)
    assert shell("lineage", "raw", "-o", "name").out == "query/code\nquery/late\nquery/daily\n"
    assert json.loads(shell("lineage", "raw", "-o", "json").out)["upstream"] == []
    code = shell("lineage", "code").out
    assert f"Spark, {stage.now:%Y-%m-%dT%H:%M}" in code
    assert "code: Writes by foreachBatch: unknown." in code


def test_a_schedule_shows_its_times_and_runs_and_is_paused_and_resumed(
    shell: Shell, stage: Stage
) -> None:
    query = stage.query("delays", trigger={"kind": "available_now"}, schedule={"cron": "* * * * *"})
    ticks.follow_schedule(query.revisions.get())
    ticks.run_schedules(now=stage.now + timedelta(minutes=1))
    lines = shell("schedule", "delays", "--pause").out
    assert "Schedule:  * * * * * in UTC" in lines
    assert "Paused:    since " in lines
    assert "STARTED" in lines
    assert json.loads(shell("schedule", "delays", "--resume", "-o", "json").out)["runs"]
    assert "exclude each other" in shell("schedule", "delays", "--pause", "--resume", code=64).err


def test_all_schedules_show_what_they_did_last_night(shell: Shell, stage: Stage) -> None:
    query = stage.query("delays", trigger={"kind": "available_now"}, schedule={"cron": "* * * * *"})
    ticks.follow_schedule(query.revisions.get())
    at = timezone.now().replace(second=0, microsecond=0)
    ScheduleState.objects.update(cursor=at - timedelta(minutes=3), next_at=at)
    ticks.run_schedules(now=at)
    titles, delays = shell("get", "schedules").out.splitlines()
    assert titles.split()[:6] == ["NAME", "WHEN", "DUE", "DONE", "FAILED", "SKIPPED"]
    assert "delays  * * * * * in UTC  3" in delays
    assert "missed 2" in delays
    assert "STARTED" in delays
    wide = json.loads(shell("get", "schedules", "--hours", "1", "-o", "json").out)
    assert wide[0]["tally"]["running"] == 1
    assert shell("get", "schedules", "-o", "name").out == "schedule/delays\n"
    assert "cannot be filtered by --hours" in shell("get", "queries", "--hours", "1", code=64).err
