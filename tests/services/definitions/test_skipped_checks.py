"""Each check that a save can go on without has a word, and a save that says it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone
from pytest_django.fixtures import Settings

from queries.domain.definitions import parsing
from queries.domain.definitions.spec import ApplicationSpec
from queries.domain.definitions.sql_verdict import SqlVerdict
from queries.domain.validation.skipped import Check, Skip, as_json, from_json
from queries.models.drivers import Host
from queries.services import local_roots
from queries.services.definitions import catalog, drafts
from queries.services.system.parts import allowed_paths_part
from tests.scenarios.stage import Stage

pytestmark = pytest.mark.django_db

TICKS = {"name": "ticks", "format": "rate"}
TOPIC = {
    "name": "orders",
    "format": "kafka",
    "options": {"kafka.bootstrap.servers": "broker.example:9092", "subscribe": "orders"},
}
SQL: dict[str, Any] = {
    "kind": "sql",
    "sources": [TICKS],
    "sql": "SELECT * FROM ticks",
    "sink": {"format": "noop"},
}


def _own_grammar(stage: Stage) -> dict[str, Any]:
    return {"spec": SQL | {"conf": {"spark.sql.ansi.enforceReservedKeywords": "true"}}}


def _no_parser(stage: Stage) -> dict[str, Any]:
    return {"spec": SQL}


@pytest.mark.parametrize("given", [_own_grammar, _no_parser])
def test_a_save_says_that_sql_was_not_checked(
    stage: Stage, given: Callable[[Stage], dict[str, Any]]
) -> None:
    asked = given(stage)
    tried = catalog.plan_query(name="one", **asked).item.checked
    query = catalog.create_query(name="one", actor="ada", now=stage.now, **asked)
    (kept,) = query.revisions.get().skipped
    assert kept == tried.skipped[0]
    assert kept.text.startswith("SQL not checked: ")


def test_brokers_that_do_not_answer_are_named() -> None:
    form = parsing.parse_query(
        SQL
        | {
            "sources": [TOPIC],
            "sql": "SELECT value FROM orders",
            "sink": {"format": "kafka", "options": {"topic": "out"}},
            "trigger": {"kind": "real_time", "interval": "5 seconds"},
        }
    )
    application = ApplicationSpec()
    known: dict[str, Any] = {"application": application, "sql_verdict": SqlVerdict(ok=True)}
    (skip,) = drafts.skips(form, partitions={}, **known)
    assert skip.check is Check.PARTITIONS
    assert "orders" in skip.why
    assert drafts.skips(form, partitions={"orders": 3}, **known) == []


def test_columns_that_only_spark_can_find_out_are_named() -> None:
    form = parsing.parse_query(SQL)
    told = SqlVerdict(ok=True, unjudged="only Spark can determine the columns of codes")
    (skip,) = drafts.skips(form, application=ApplicationSpec(), partitions={}, sql_verdict=told)
    assert skip.text == "Column names not checked: only Spark can determine the columns of codes."


def test_code_that_is_not_fetched_yet_is_named() -> None:
    form = parsing.parse_query(
        {"kind": "python", "function": "jobs:build", "sink": {"format": "noop"}}
    )
    code = {"git": "https://git.example/jobs", "commit": "a" * 40}
    application = parsing.parse_application({"code": code})
    (skip,) = drafts.skips(form, application=application, partitions={}, sql_verdict=None)
    assert skip.check is Check.CODE


def test_every_check_has_its_word_and_survives_its_revision() -> None:
    assert len({one.word for one in Check}) == len(Check)
    assert all(one.word.endswith(" not checked") for one in Check)
    kept = [Skip(one, "why", again=True) for one in Check]
    assert (
        from_json([*as_json(kept), {"check": "of a later release", "why": "", "again": False}])
        == kept
    )


def test_a_data_root_that_is_not_there_is_said_on_save(
    stage: Stage, tmp_path: Path, settings: Settings
) -> None:
    settings.HEADGATE_HOME = tmp_path / "home"
    ours, theirs = tmp_path / "home/data", tmp_path / "mount"
    settings.ALLOWED_PATHS = [str(ours), str(theirs), "s3a://bucket/in"]
    settings.OWN_FOLDERS = [tmp_path / "home"]
    settings.CHECKPOINTS_DIR = tmp_path / "home/checkpoints"
    sink = {"format": "parquet", "options": {"path": f"{theirs}/out"}}
    asked: dict[str, Any] = {"name": "one", "spec": SQL | {"sink": sink}}

    def said() -> list[str]:
        skipped = catalog.plan_query(**asked).item.checked.skipped
        return [one.text for one in skipped if one.check is Check.PLACE]

    assert said() == []  # no worker starts drivers here
    Host.objects.create(name=settings.HEADGATE_HOST, seen_at=timezone.now())
    (text,) = said()
    assert text.startswith(
        f"Location not checked: the allowed path {theirs} does not exist. Create it"
    )
    part = allowed_paths_part()
    assert not part.ok
    assert f"{ours}" in part.sentence
    assert f"{theirs}" in part.sentence
    local_roots.make_ours()
    assert (ours.is_dir(), theirs.exists()) == (True, False)
    theirs.mkdir()
    assert said() == []
    assert allowed_paths_part().ok
