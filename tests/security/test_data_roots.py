"""An author of SQL reads and writes in the allowed paths, and nowhere else."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client

from queries.domain.errors import Invalid
from queries.models.definitions import Query
from queries.models.deploys import Deploy
from queries.models.grants import GivenRoot
from queries.models.history import Failure, Transition
from queries.runtime.allowed_paths import OutsideRoots, require_options, roots_of
from queries.services.definitions import catalog
from queries.services.secrets import give_root, take_root
from queries.services.supervision.application_operations import archive_application
from queries.services.supervision.assignments import driver_spec
from tests.launchers.test_contract import _spec
from tests.scenarios.stage import Stage

NOW = datetime(2026, 1, 5, 3, 0, tzinfo=UTC)
REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def home(tmp_path: Path, settings: Any) -> Path:
    """Return a folder with an allowed path, and the control plane's own folder beside it."""
    for name in ("data/flights", "own/secrets", "own/data", "elsewhere"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "own/secret_key").write_text("the-key\n")
    (tmp_path / "data/link").symlink_to(tmp_path / "own")
    settings.ALLOWED_PATHS = [str(tmp_path / "data"), str(tmp_path / "own/data"), "s3a://bucket/in"]
    settings.OWN_FOLDERS = [tmp_path / "own"]
    settings.CHECKPOINTS_DIR = tmp_path / "own/checkpoints"
    return tmp_path


def spec(home: Path, **changes: Any) -> dict[str, Any]:
    source = {"name": "ticks", "format": "rate", "options": {}}
    return {
        "kind": "sql",
        "sources": [source],
        "sql": "SELECT value FROM ticks",
        "sink": {"format": "parquet", "options": {"path": f"{home}/data/out"}},
        **changes,
    }


def files(path: str, kind: str = "json") -> dict[str, Any]:
    schema = {} if kind == "text" else {"schema": "value STRING"}
    return {"name": "f", "format": kind, "options": {"path": path}, **schema}


ATTACKS: list[tuple[str, Callable[[Path], dict[str, Any]]]] = [
    ("source", lambda home: {"sources": [files(f"{home}/own/secret_key", "text")]}),
    ("glob", lambda home: {"sources": [files(f"{home}/*/secret_key")]}),
    ("upwards", lambda home: {"sources": [files(f"{home}/data/{{x,..}}/own")]}),
    ("link", lambda home: {"sources": [files(f"{home}/data/link/secret_key")]}),
    ("elsewhere", lambda home: {"sources": [files("/etc")]}),
    ("bucket", lambda home: {"sources": [files("s3a://other/in")]}),
    ("table", lambda home: {"tables": [files(f"file://{home}/own", "text")]}),
    ("sql", lambda home: {"sql": f"SELECT * FROM ticks, text.`{home}/own/secret_key`"}),
    ("sink", lambda home: {"sink": {"format": "json", "options": {"path": f"{home}/own/out"}}}),
    ("conf", lambda home: {"conf": {"spark.sql.catalog.lake.warehouse": f"{home}/own/lake"}}),
]


@pytest.mark.guarantee("G-PATH-1", "G-PATH-2")
@pytest.mark.django_db
@pytest.mark.parametrize("attack", [one for _, one in ATTACKS], ids=[name for name, _ in ATTACKS])
def test_a_definition_that_leaves_the_roots_is_refused(
    stage: Stage, home: Path, attack: Callable[[Path], dict[str, Any]]
) -> None:
    changed = spec(home, **attack(home))
    if changed["sources"][0]["name"] == "f":
        changed["sql"] = "SELECT value FROM f"
    with pytest.raises(Invalid) as refused:
        catalog.create_query(name="x", spec=changed, actor="ana", now=stage.now)
    # One problem, and it is this one: without the guard the definition would be saved.
    [problem] = [one for one in refused.value.problems if not one.connector]
    assert "HEADGATE_ALLOWED_PATHS" in problem.way_out


@pytest.mark.django_db
@pytest.mark.parametrize("attack", [one for _, one in ATTACKS], ids=[name for name, _ in ATTACKS])
@pytest.mark.parametrize("way", ["apply", "deploys"])
def test_no_manifest_leaves_them_either(
    client: Client, author: User, home: Path, way: str, attack: Callable[[Path], dict[str, Any]]
) -> None:
    changed = spec(home, **attack(home))
    if changed["sources"][0]["name"] == "f":
        changed["sql"] = "SELECT value FROM f"
    client.force_login(author)

    def send(form: dict[str, Any]) -> Any:
        body = {"apiVersion": "headgate/v1", "kind": "Query", "metadata": {"name": "x"}}
        found: dict[str, Any] = {
            "owner": "repo",
            "manifests": [{"manifest": body | {"spec": form}}],
        }
        sent = {"apply": found} if way == "deploys" else found
        return client.post(f"/api/v1/{way}/", sent, content_type="application/json")

    answer = send(changed)
    assert answer.status_code == 422
    assert "HEADGATE_ALLOWED_PATHS" in answer.content.decode()
    assert not Query.objects.exists()
    assert not Deploy.objects.exists()
    assert send(spec(home)).status_code in (200, 202)


@pytest.mark.django_db
@pytest.mark.parametrize("way", ["apply", "deploys"])
def test_no_manifests_checkpoint_lies_outside(
    client: Client, author: User, home: Path, way: str
) -> None:
    client.force_login(author)
    held = spec(home) | {"checkpoint": f"{home}/own/secrets"}
    one = {"apiVersion": "headgate/v1", "kind": "Query", "metadata": {"name": "x"}, "spec": held}
    found: dict[str, Any] = {"owner": "repo", "manifests": [{"manifest": one}]}
    sent = {"apply": found} if way == "deploys" else found
    answer = client.post(f"/api/v1/{way}/", sent, content_type="application/json")
    assert answer.status_code == 422
    assert "checkpoint" in answer.content.decode()
    assert not Query.objects.exists()


@pytest.mark.django_db
def test_a_definition_that_stays_in_the_roots_is_saved(stage: Stage, home: Path) -> None:
    sources = [files(f"{home}/data/flights/*.json")]
    inside = spec(home, sources=sources, sql="SELECT value FROM f")
    catalog.create_query(name="x", spec=inside, actor="ana", now=stage.now)


@pytest.mark.guarantee("G-PATH-1")
@pytest.mark.django_db
@pytest.mark.parametrize(
    "place", ["own/secrets", "elsewhere", "data/link/x", "own"], ids=lambda place: str(place)
)
def test_a_checkpoint_outside_of_the_roots_is_refused(stage: Stage, home: Path, place: str) -> None:
    with pytest.raises(Invalid) as refused:
        catalog.create_query(
            name="x", spec=spec(home), checkpoint=f"{home}/{place}", actor="ana", now=stage.now
        )
    assert [problem.field for problem in refused.value.problems] == ["checkpoint"]


@pytest.mark.django_db
@pytest.mark.parametrize(
    "place", ["/root/.ssh", "/etc/passwd", "/etc/cron.d/x", "s3a://other/c", "file:///root/.ssh"]
)
def test_a_checkpoint_in_a_place_of_the_systems_is_refused(
    stage: Stage, home: Path, place: str
) -> None:
    with pytest.raises(Invalid) as refused:
        catalog.create_query(
            name="x", spec=spec(home), checkpoint=place, actor="ana", now=stage.now
        )
    problems = [one for one in refused.value.problems if not one.connector]
    assert [problem.field for problem in problems] == ["checkpoint"]


@pytest.mark.django_db
@pytest.mark.parametrize("place", ["data/checkpoints/x", "own/checkpoints/x"])
def test_a_checkpoint_may_lie_in_a_root_or_in_headgates_own_folder_for_them(
    stage: Stage, home: Path, place: str
) -> None:
    catalog.create_query(
        name="x", spec=spec(home), checkpoint=f"{home}/{place}", actor="ana", now=stage.now
    )


@pytest.mark.django_db
def test_an_applications_folders_lie_in_the_roots_too(stage: Stage, home: Path) -> None:
    logs = {"conf": {"spark.eventLog.enabled": "true", "spark.eventLog.dir": f"{home}/own"}}
    with pytest.raises(Invalid) as refused:
        catalog.create_application(name="a", spec=logs, actor="ana", now=stage.now)
    assert refused.value.problems[0].field == "conf.spark.eventLog.dir"


def give(application: str, root: Path | str) -> GivenRoot:
    return give_root({"application": application, "path": str(root)}, actor="ada", now=NOW)


@pytest.mark.guarantee("G-PATH-8")
@pytest.mark.django_db
def test_a_root_that_was_given_to_one_application_is_its_alone(stage: Stage, home: Path) -> None:
    give("orders", home / "elsewhere")
    for name in ("orders", "payments"):
        stage.application(name)
    outside = spec(home, sources=[files(f"{home}/elsewhere/in")], sql="SELECT value FROM f")
    catalog.plan_query(name="x", spec=outside, application="orders")
    with pytest.raises(Invalid, match="is outside the allowed paths"):
        catalog.plan_query(name="x", spec=outside, application="payments")
    with pytest.raises(Invalid, match="is outside the allowed paths"):
        catalog.plan_query(name="x", spec=outside)


@pytest.mark.django_db
def test_checkpoints_and_configuration_may_lie_in_it(stage: Stage, home: Path) -> None:
    give("orders", home / "elsewhere")
    logs = {"conf": {"spark.eventLog.enabled": "true", "spark.eventLog.dir": f"{home}/elsewhere"}}
    catalog.create_application(name="orders", spec=logs, actor="ana", now=stage.now)
    at = f"{home}/elsewhere/c"
    about: dict[str, Any] = {"name": "x", "spec": spec(home), "actor": "ana", "now": stage.now}
    catalog.create_query(application="orders", checkpoint=at, **about)


@pytest.mark.django_db
def test_a_bucket_that_was_given_is_read(stage: Stage, home: Path) -> None:
    give("x", "s3a://other")
    bucket = spec(home, sources=[files("s3a://other/in")], sql="SELECT value FROM f")
    stage.application("x", connectors=["s3"])
    catalog.create_query(name="x", spec=bucket, application="x", actor="ana", now=stage.now)


@pytest.mark.guarantee("G-PATH-3")
@pytest.mark.django_db
@pytest.mark.parametrize("place", ["own", "own/secrets", "own/new", "data/link"])
def test_headgates_own_folders_are_given_to_nobody(home: Path, place: str) -> None:
    with pytest.raises(Invalid, match="belongs to Headgate itself"):
        give("orders", home / place)


@pytest.mark.guarantee("G-PATH-8")
@pytest.mark.django_db
def test_a_given_root_that_is_replaced_by_a_link_leads_into_no_folder_of_headgates(
    stage: Stage, home: Path
) -> None:
    (home / "mine").mkdir()
    give("x", home / "mine")
    (home / "mine").rmdir()
    (home / "mine").symlink_to(home / "own/secrets")
    attack = spec(home, sources=[files(f"{home}/mine/key", "text")], sql="SELECT value FROM f")
    with pytest.raises(Invalid, match=r"belongs to Headgate itself|outside the allowed paths"):
        catalog.create_query(name="x", spec=attack, actor="ana", now=stage.now)


@pytest.mark.guarantee("G-PATH-8")
@pytest.mark.django_db
def test_a_root_that_was_taken_away_refuses_the_next_start(home: Path) -> None:
    row = give("orders", home / "elsewhere")
    stage = Stage(obliging=True)
    stage.application("orders")
    inside = spec(home, sources=[files(f"{home}/elsewhere")], sql="SELECT value FROM f")
    stage.query("delays", "orders", **inside)
    stage.start("delays")
    stage.ready("orders")
    assert f"file://{home}/elsewhere" in stage.launcher.spec("orders").data_roots
    take_root(row, actor="ada", now=stage.now)
    stage.look("orders")
    assert stage.phase("delays") == "RUNNING"
    stage.restart("delays")
    stage.wait(5)
    stage.ready("orders")
    assert stage.phase("delays") == "FAILED"
    assert "outside the allowed paths" in Failure.objects.latest("pk").root_cause
    assert f"file://{home}/elsewhere" not in stage.launcher.spec("orders").data_roots


@pytest.mark.guarantee("G-PATH-8")
@pytest.mark.django_db
def test_another_application_of_a_deleted_ones_name_has_none_of_its_roots(
    stage: Stage, home: Path
) -> None:
    give("orders", home / "elsewhere")
    first = stage.application("orders")
    archive_application(application=first, actor="olga", now=stage.now)
    stage.application("orders")
    outside = spec(home, sources=[files(f"{home}/elsewhere")], sql="SELECT value FROM f")
    with pytest.raises(Invalid, match="is outside the allowed paths"):
        catalog.plan_query(name="x", spec=outside, application="orders")


@pytest.mark.django_db
def test_giving_and_taking_is_recorded_with_who_did_it(stage: Stage, home: Path) -> None:
    stage.application("orders")
    row = give("orders", home / "elsewhere")
    assert give("orders", home / "elsewhere") == row
    take_root(row, actor="olga", now=stage.now)
    told = Transition.objects.filter(subject="grant").order_by("pk")
    assert [(one.after, one.actor) for one in told] == [("GIVEN", "ada"), ("TAKEN", "olga")]
    assert f"{home}/elsewhere" in str(told[0].detail)


@pytest.mark.django_db
def test_the_driver_is_told_the_roots(home: Path) -> None:
    stage = Stage()
    stage.query("delays")
    stage.up("delays")
    told = driver_spec(stage.driver("delays"))
    assert f"file://{home}/data" in told.data_roots
    assert told.own_folders == (f"file://{home}/own",)


STORY = """
import json, os, sys
from pyspark.sql import SparkSession
from queries.domain.definitions.allowed_paths import AllowedPaths
from queries.runtime import build
from queries.runtime.failures.error_capture import StepFailed
from queries.runtime.spark_session import _BY_SCHEMA
from queries.secret_references import References

home, guarded = sys.argv[1], sys.argv[2] == "guarded"
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.local.dir", home + "/tmp")
    .config("spark.sql.reflect.allowList", sys.argv[3])
    .getOrCreate()
)
roots = AllowedPaths((f"file://{home}/data",), (f"file://{home}/own",)) if guarded else None
ticks = [{"name": "ticks", "format": "rate", "options": {}}]
for name, value in _BY_SCHEMA.items() if guarded else ():
    spark.conf.set(name, value)
secret = f"{home}/own/secret_key"
by_schema = {
    "type": "struct",
    "fields": [{"name": "v", "nullable": True, "metadata": {}, "type": {
        "type": "udt", "class": "org.apache.spark.mllib.linalg.VectorUDT", "pyClass": None,
        "sqlType": "string",
    }}],
}
texts = {
    "path": f"SELECT s.value FROM ticks, text.`{secret}` s",
    "glob": f"SELECT s.value FROM ticks, text.`{home}/o*/secret_key` s",
    "url": f"SELECT s.value FROM ticks, text.`file:{secret}` s",
    "identifier": f"SELECT s.value FROM ticks, IDENTIFIER('text.`{secret}`') s",
    "binary": f"SELECT length(content) FROM ticks, binaryFile.`{secret}`",
    "with": f"WITH w AS (SELECT value FROM text.`{secret}`) SELECT w.value FROM ticks, w",
    "subquery": f"SELECT (SELECT max(value) FROM text.`{secret}`) FROM ticks",
    "exists": f"SELECT * FROM ticks WHERE EXISTS (SELECT 1 FROM text.`{secret}`)",
    "link": f"SELECT s.value FROM ticks, text.`{home}/data/link/secret_key` s",
    "reflect": "SELECT reflect('java.lang.System', 'getProperty', 'user.home') FROM ticks",
    "java_method": "SELECT java_method('java.lang.System', 'getenv', 'HOME') FROM ticks",
    "schema": f"SELECT from_json('{{}}', '{json.dumps(by_schema)}') FROM ticks",
    "in a root": f"SELECT s.value FROM ticks, text.`{home}/data/flights/*` s",
}
found = {}
for name, text in texts.items():
    raw = {"kind": "sql", "sources": ticks, "sql": text, "sink": {"format": "noop"}}
    try:
        build.writer(
            spark, raw, name="x", checkpoint=f"file://{home}/c",
            references=References(env_allowlist=(), secrets_dir=""), roots=roots,
        )
        found[name] = ""
    except StepFailed as error:
        found[name] = str(error.__cause__ or error)[:300]
sys.stdout.write(json.dumps(found) + "\\n")
sys.stdout.flush()
spark.sparkContext._gateway.proc.kill()
os._exit(0)
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory, java_home: str) -> dict[str, dict[str, str]]:
    """Return what Spark says to each attack, with the guards and without them."""
    home = tmp_path_factory.mktemp("roots")
    for name in ("data/flights", "own"):
        (home / name).mkdir(parents=True)
    (home / "own/secret_key").write_text("the-key\n")
    (home / "data/flights/one.txt").write_text("a flight\n")
    (home / "data/link").symlink_to(home / "own")
    (home / "story.py").write_text(STORY)
    found = {}
    for mode, allowed in (("guarded", r"java\.util\.UUID\.randomUUID"), ("open", "")):
        done = subprocess.run(
            [sys.executable, str(home / "story.py"), str(home), mode, allowed],
            cwd=REPOSITORY,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(REPOSITORY)},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        found[mode] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.guarantee("G-PATH-1")
@pytest.mark.spark
@pytest.mark.parametrize(
    "attack", ["path", "glob", "url", "identifier", "binary", "with", "subquery", "exists", "link"]
)
def test_what_spark_would_read_outside_of_the_roots_does_not_start(
    told: dict[str, dict[str, str]], attack: str
) -> None:
    assert told["open"][attack] == ""  # without the guard it would
    assert "HEADGATE_ALLOWED_PATHS" in told["guarded"][attack]


@pytest.mark.guarantee("G-CONFIG-4")
@pytest.mark.spark
@pytest.mark.parametrize("attack", ["reflect", "java_method"])
def test_sql_calls_no_methods_of_java(told: dict[str, dict[str, str]], attack: str) -> None:
    assert told["open"][attack] == ""
    assert "METHOD_NOT_ALLOWED" in told["guarded"][attack]


@pytest.mark.guarantee("G-CONFIG-4")
@pytest.mark.spark
def test_a_schema_in_sql_makes_no_object_of_a_class_that_it_names(
    told: dict[str, dict[str, str]],
) -> None:
    assert told["open"]["schema"] == ""
    assert told["guarded"]["schema"]


@pytest.mark.spark
def test_a_path_in_a_root_is_read(told: dict[str, dict[str, str]]) -> None:
    assert told["guarded"]["in a root"] == ""


@pytest.mark.guarantee("G-PATH-9")
@pytest.mark.django_db
def test_an_upgrade_is_told_what_lies_outside_and_what_would_allow_it(
    stage: Stage, home: Path, settings: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    settings.ALLOWED_PATHS = ["/"]
    sources = [files(f"{home}/elsewhere/flights/*.json")]
    before = spec(home, sources=sources, sql="SELECT value FROM f")
    catalog.create_query(name="delays", spec=before, actor="ana", now=stage.now)
    settings.ALLOWED_PATHS = [f"{home}/data"]
    call_command("allowed_paths")
    said = capsys.readouterr().out
    assert f"query delays: sources.0.options.path {home}/elsewhere/flights/*.json" in said
    assert f"HEADGATE_ALLOWED_PATHS={home}/data,{home}/elsewhere\n" in said
    settings.ALLOWED_PATHS = [f"{home}/data", f"{home}/elsewhere"]
    call_command("allowed_paths")
    assert "All definitions stay within the allowed paths." in capsys.readouterr().out


@pytest.mark.guarantee("G-PATH-10")
@pytest.mark.parametrize("roots", [(), ("file:///data",)])
def test_a_driver_without_any_root_may_read_nothing(roots: tuple[str, ...]) -> None:
    given = roots_of(replace(_spec(1), data_roots=roots, own_folders=("file:///var/headgate",)))
    require_options(given, "json", {"path": "/data/in"} if roots else {})
    with pytest.raises(OutsideRoots, match=r"[aA]sk an admin"):
        require_options(given, "json", {"path": "/etc"})
