"""What was saved while Spark's parser did not answer is said, asked again, and told."""

from collections.abc import Sequence
from typing import Any

import pytest

from queries.domain.alerts.forms import IncidentKind
from queries.domain.definitions.sql_verdict import SqlQuestion, SqlVerdict
from queries.domain.system import SystemHealth
from queries.domain.validation.skipped import Check
from queries.models.alerts import Incident
from queries.models.definitions import Query, QueryRevision
from queries.models.history import Transition
from queries.selectors.lineage import lineage
from queries.services.alerts import incidents
from queries.services.definitions import catalog, sql_recheck
from queries.services.definitions.sql_check import LONGEST
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
    reads = {"relations": [["ticks"]], "unknown": []}
    _answer(monkeypatch, SqlVerdict(ok=True, state=state, reads=reads))
    assert sql_recheck.recheck_sql(now=saved.now) == 1
    revision = saved.row("typo").revisions.get()
    assert (revision.skipped, revision.refusal, revision.state) == ([], "", state)
    assert revision.reads == reads
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


READ = {"relations": [["ticks"]], "unknown": []}


def _unread(stage: Stage, *texts: Any) -> None:
    for at, text in enumerate(texts):
        stage.query(f"old{at}").revisions.update(spec={"kind": "sql", "sql": text}, reads=None)


def test_what_an_earlier_release_did_not_read_is_read_a_few_at_a_time(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    _unread(stage, "SELECT 1", "SELECT 2", "SELECT FORM", " ", 7, "x" * (LONGEST + 1))
    asked: list[SqlQuestion] = []

    def ask(questions: Sequence[SqlQuestion], *, limit_s: float) -> list[SqlVerdict | None]:
        asked.extend(questions)
        return [
            SqlVerdict(ok=False) if "FORM" in one.text else SqlVerdict(ok=True, reads=READ)
            for one in questions
        ]

    monkeypatch.setattr(sql_recheck, "ask", ask)
    assert sql_recheck.read_unread_sql() == 3
    assert sorted(one.text for one in asked) == ["SELECT 1", "SELECT 2", "SELECT FORM"]
    assert all(one.unknown for one in asked)  # nothing is analyzed
    found = {row.name: row.revisions.get().reads for row in Query.objects.all()}
    assert found["old0"] == found["old1"] == READ
    assert found["old2"] == {"relations": [], "unknown": ["Spark's parser rejects it"]}
    not_asked = {"relations": [], "unknown": ["it is empty or too long to be parsed"]}
    assert found["old3"] == found["old4"] == found["old5"] == not_asked
    assert sql_recheck.read_unread_sql() == 0

    monkeypatch.setattr(sql_recheck, "_READ_AT_ONCE", 2)
    QueryRevision.objects.update(reads=None)
    assert sql_recheck.read_unread_sql() <= 2


def test_where_there_is_no_parser_one_question_finds_out(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    _unread(stage, "SELECT 1", "SELECT 2", "SELECT 3")
    asked: list[int] = []

    def ask(questions: Sequence[SqlQuestion], *, limit_s: float) -> list[SqlVerdict | None]:
        asked.append(len(questions))
        return [None for _ in questions]

    monkeypatch.setattr(sql_recheck, "ask", ask)
    assert sql_recheck.read_unread_sql() == 0
    assert asked == [1]
    assert QueryRevision.objects.filter(reads__isnull=True).count() == 3


def test_a_revision_that_cannot_be_read_keeps_no_other_from_being_read(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    _unread(stage, "SELECT 1", "SELECT 2", "SELECT 3", "SELECT 4")
    stage.row("old0").revisions.update(spec=[])
    old = SqlVerdict(ok=True)  # a worker of an earlier release

    def ask(questions: Sequence[SqlQuestion], *, limit_s: float) -> list[SqlVerdict | None]:
        answers = {"SELECT 2": SqlVerdict(ok=True, reads=READ), "SELECT 3": old}
        broken = SqlVerdict(ok=True, reads={"relations": 7, "unknown": []})
        return [answers.get(one.text, broken) for one in questions]

    monkeypatch.setattr(sql_recheck, "ask", ask)
    for _ in range(60):  # the first question is any of them
        sql_recheck.read_unread_sql()
    found = {row.name: row.revisions.get().reads for row in Query.objects.all()}
    assert found == {"old0": None, "old1": READ, "old2": None, "old3": None}


def test_lineage_is_unknown_until_the_text_was_read(stage: Stage) -> None:
    """The same text is read once, wherever it stands."""
    _unread(stage, "SELECT * FROM lake.a.b")
    assert lineage().unread == {"old0"}
    stage.query("same").revisions.update(
        spec={"kind": "sql", "sql": "SELECT * FROM lake.a.b"},
        reads={"relations": [["lake", "a", "b"]], "unknown": []},
    )
    found = lineage()
    assert found.unread == frozenset()
    assert {(edge.query, edge.dataset.name) for edge in found.edges} == {
        ("old0", "lake.a.b"),
        ("same", "lake.a.b"),
    }
