"""What was saved while Spark's parser did not answer is said, asked again, and told."""

from collections.abc import Sequence
from typing import Any

import pytest

from queries.domain.alerts.kinds import IncidentKind
from queries.domain.definitions.sql_verdict import SqlVerdict
from queries.domain.system import SystemHealth
from queries.domain.validation.skipped import Check
from queries.models.alerts import Incident
from queries.models.history import Transition
from queries.services.alerts import incidents
from queries.services.definitions import catalog, sql_recheck
from tests.scenarios.stage import Stage

pytestmark = pytest.mark.django_db

SPEC: dict[str, Any] = {
    "kind": "sql",
    "sources": [{"name": "ticks", "format": "rate"}],
    "sql": "SELECT * FORM ticks",
    "sink": {"format": "noop"},
}


@pytest.fixture
def saved(stage: Stage) -> Stage:
    """A text with a typo that was saved while nobody answered."""
    catalog.create_query(name="typo", spec=SPEC, actor="ada", now=stage.now)
    return stage


def _answer(monkeypatch: pytest.MonkeyPatch, verdict: SqlVerdict | None) -> None:
    def ask(asked: Sequence[Any], *, limit_s: float) -> list[SqlVerdict | None]:
        return [verdict for _ in asked]

    monkeypatch.setattr(sql_recheck, "ask_spark_of_many", ask)


def test_a_text_that_nobody_checked_says_so(saved: Stage) -> None:
    revision = saved.row("typo").revisions.get()
    (skip,) = revision.skipped
    assert (skip.check, skip.again) == (Check.SQL, True)
    assert skip.text.startswith("SQL not checked: Spark's parser did not respond.")


def test_a_parser_that_is_back_refuses_it_and_its_author_is_told(
    saved: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    _answer(monkeypatch, None)  # still away
    assert sql_recheck.recheck_sql(now=saved.now) == 0
    assert saved.row("typo").revisions.get().unasked
    _answer(monkeypatch, SqlVerdict(False, "[PARSE_SYNTAX_ERROR] Syntax error at 'ticks'", 1, 15))
    assert sql_recheck.recheck_sql(now=saved.now) == 1
    revision = saved.row("typo").revisions.get()
    assert not revision.unasked
    assert not revision.skipped
    assert "Syntax error at 'ticks' (line 1, column 15)" in revision.refusal
    line = Transition.objects.filter(query=saved.row("typo")).latest("pk")
    assert str(line.detail).startswith(
        "SQL of revision 1, saved unchecked by ada, is not valid Spark SQL"
    )
    monkeypatch.setattr(incidents, "system_health", lambda now: SystemHealth(now, ()))
    incidents.watch_incidents(now=saved.now)
    incident = Incident.objects.get()
    assert incident.kind == IncidentKind.SQL_REFUSED
    assert "saved by ada unchecked" in incident.detail

    saved.revise("typo", sql="SELECT * FROM ticks")  # nothing is wrong with what is newest
    _answer(monkeypatch, SqlVerdict(ok=True))
    sql_recheck.recheck_sql(now=saved.now)
    assert saved.row("typo").revisions.latest("number").refusal == ""


def test_a_parser_that_is_back_and_finds_nothing_ends_the_note(
    saved: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = {"operators": [], "output_mode": "append"}
    _answer(monkeypatch, SqlVerdict(ok=True, state=state))
    assert sql_recheck.recheck_sql(now=saved.now) == 1
    revision = saved.row("typo").revisions.get()
    assert (revision.skipped, revision.refusal, revision.state) == ([], "", state)
    assert sql_recheck.recheck_sql(now=saved.now) == 0


@pytest.mark.parametrize("where", ["spec", "application"])
def test_a_definition_that_cannot_be_read_keeps_no_other_from_being_asked_about(
    saved: Stage, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    for name in ("first", "last"):
        catalog.create_query(name=name, spec=SPEC, actor="ada", now=saved.now)
    rotten = saved.row("first")
    if where == "spec":
        rotten.revisions.update(spec={"kind": 7})
    else:
        rotten.application.revisions.update(spec=[7])
    _answer(monkeypatch, SqlVerdict(ok=True))
    assert sql_recheck.recheck_sql(now=saved.now) == 2
    for name in ("typo", "last"):
        assert not saved.row(name).revisions.get().unasked


def test_only_the_newest_revision_is_asked_about(
    saved: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved.revise("typo", sql="SELECT value FROM ticks")
    asked: list[str] = []

    def ask(specs: Sequence[Any], *, limit_s: float) -> list[SqlVerdict | None]:
        asked.extend(spec["sql"] for spec, *_ in specs)
        return [SqlVerdict(ok=True) for _ in specs]

    monkeypatch.setattr(sql_recheck, "ask_spark_of_many", ask)
    sql_recheck.recheck_sql(now=saved.now)
    assert asked == ["SELECT value FROM ticks"]
    assert not saved.row("typo").revisions.filter(unasked=True).exists()
