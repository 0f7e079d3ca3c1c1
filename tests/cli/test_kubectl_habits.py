"""What users of kubectl type works, or the message says what to type instead."""

import json
import subprocess
from pathlib import Path

import yaml

from tests.cli.conftest import COMMAND, LIMIT_S, Shell
from tests.scenarios.stage import Stage

MANIFEST = """\
apiVersion: headgate/v1
kind: Application
metadata: {name: flights}
spec: {code: {upload: jobs}}
"""


def test_a_template_takes_fields_of_an_object_and_of_a_list(shell: Shell, stage: Stage) -> None:
    for name in ("arrivals", "delays"):
        stage.query(name)
    one = shell("get", "query", "delays", "-o", "jsonpath={.name} {.phase}")
    assert (one.out, one.err) == ("delays STOPPED\n", "")
    rows = '{range .items[?(@.name!="arrivals")]}{.name}{"\\n"}{end}'
    assert shell("get", "queries", "-o", f"jsonpath={rows}").out == "delays\n"
    assert shell("describe", "query", "delays", "-o", "jsonpath={.name}").out == "delays\n"
    missing = shell("get", "query", "delays", "-o", "jsonpath={.metadata.name}")
    assert "nothing is at .metadata.name" in missing.err
    assert "cannot be read" in shell("get", "queries", "-o", "jsonpath={..name}", code=64).err
    wrong = shell("get", "queries", "-o", "custom-columns=NAME:.name", code=64).err
    assert (
        "'custom-columns=NAME:.name' is not one of table, wide, json, yaml, name or jsonpath"
        in (" ".join(wrong.split()))
    )


def test_rows_are_sorted_by_a_field(shell: Shell, stage: Stage) -> None:
    for name in ("arrivals", "delays", "planes"):
        stage.query(name)
    stage.start("delays")
    for path in (".phase", "{.phase}", "phase"):
        rows = shell("get", "queries", "--sort-by", path, "-o", "name").out.split()
        assert rows[0] == "query/delays"  # RUNNING or STARTING, before STOPPED
    assert "cannot be read" in shell("get", "queries", "--sort-by", "[x", code=64).err
    assert "--sort-by" in shell("get", "queries", "-w", "--sort-by", ".name", code=64).err


def test_several_kinds_are_listed_with_one_command(shell: Shell, stage: Stage) -> None:
    stage.application("flights")
    stage.query("delays", "flights")
    table = shell("get", "queries,Applications").out.splitlines()
    assert table[0] == "queries:"
    assert "applications:" in table
    names = shell("get", "queries,applications", "-o", "name").out
    assert names == "query/delays\napplication/flights\n"
    both = yaml.safe_load(shell("get", "queries,applications", "-o", "yaml").out)
    assert [both[kind][0]["name"] for kind in ("queries", "applications")] == ["delays", "flights"]
    assert "by name" in shell("get", "queries,applications", "delays", code=64).err
    assert "Unknown kind pods" in shell("get", "queries,pods", code=64).err
    assert "--query NAME" in shell("get", "queries,runs", code=64).err


def test_a_reader_that_leaves_is_no_error(shell: Shell, stage: Stage) -> None:
    for number in range(30):
        stage.query(f"q{number}")
    done = shell.script("headgate get queries --limit 30 | head -1")
    assert (done.out.split()[0], done.err) == ("NAME", "")
    for form in ("json", "yaml", "name", "wide", "jsonpath={.items[*].name}"):
        done = shell.script(f"headgate get queries -o '{form}' | true")
        assert (done.out, done.err) == ("", "")
    for closed in (">&-", "2>&-"):
        assert shell.script(f"headgate get queries -l team=data {closed}").out == ""
    full = shell.script("headgate get queries >/dev/full", code=1).err
    assert full == "Error: [Errno 28] No space left on device\n"
    # What it does and its exit code remain: the reader of the notes is gone, too.
    assert shell.script("headgate get query nowhere 2>&1 | true", code=1).out == ""
    shell.script("headgate start q1 q2 -o name --wait | true")
    assert stage.phase("q2") == "RUNNING"


def test_watching_ends_when_its_reader_leaves(shell: Shell, stage: Stage) -> None:
    stage.query("delays")
    command = [*COMMAND, "get", "queries", "-w", "--timeout", "2m"]
    with subprocess.Popen(
        command, env=shell.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.readline()
            process.stdout.close()
            stage.start("delays")
            assert process.wait(LIMIT_S) == 0
            assert process.stderr.read() == ""
        finally:
            process.kill()


def test_a_manifest_on_stdin_names_folders_below_the_current_one(
    shell: Shell, tmp_path: Path
) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "job.py").write_text("ONE = 1")
    for text in (
        MANIFEST,
        MANIFEST.replace("jobs", "./jobs"),
        json.dumps([yaml.safe_load(MANIFEST)]),
    ):
        done = shell("apply", "-f", "-", "--owner", "me", stdin=text)
        assert "1 file, 7 bytes" in done.err
    assert "1 unchanged" in done.out
    what = ("apply", "-f", "-", "--owner", "me")
    refused = shell(*what, stdin=MANIFEST.replace("jobs", "no"), code=1)
    assert "the code folder no does not exist" in refused.err
    empty = shell.script("headgate apply -f - --owner me <&-", code=1)
    assert "contains no manifest" in empty.out
    text = shell.script("printf '\\xff' | headgate apply -f - --owner me", code=1).err
    assert text == "Error: stdin is not valid UTF-8.\n"


def test_what_is_printed_can_be_applied(shell: Shell, stage: Stage) -> None:
    stage.query("delays")
    for form, outcome in (("yaml", "2 changed"), ("json", "2 unchanged")):  # first, by its owner
        found = shell("export", "--query", "delays", "-o", form).out
        assert outcome in shell("apply", "-f", "-", "--owner", "me", stdin=found).out
    found = shell("get", "query", "delays", "-o", "yaml").out
    refused = shell("apply", "-f", "-", "--owner", "me", stdin=found, code=1)
    assert "`headgate export` prints existing objects as manifests" in refused.out
