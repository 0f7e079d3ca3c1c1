"""Stories of a script in which one query goes and another comes: an author says what it is."""

from typing import Any

import pytest

from queries.domain.errors import Conflict, Invalid, NotAllowed
from queries.domain.protocol import ScriptJob
from queries.domain.states import Reason
from queries.models.access.audit import AuditEntry
from queries.models.applications import Script
from queries.models.definitions import Query
from queries.models.history import Transition
from queries.selectors.alerts.troubles import _driver_deaths
from queries.services.supervision import application_operations as verbs
from tests.scenarios.scripts.stage import ScriptStage

pytestmark = pytest.mark.django_db


class Asked(ScriptStage):
    """A script that ran `old` and `other`; in its next driver `new` comes first."""

    def __init__(self, **question: Any) -> None:
        super().__init__()
        self.running("old", "other")
        self.old, self.other = self.row("job/old"), self.row("job/other")
        self.place = self.run("job/old").checkpoint.location
        verbs.request_application_restart(application=self.job, actor="olga", now=self.now)
        self.settle()
        self.launcher.leave("job")
        self.look("job")
        self.ready("job")
        self.find("other")
        self.ask(**question)

    def ask(self, name: str = "new", asked: str = "") -> None:
        self.launcher.asks("job", name, self.old.pk, asked=asked)
        self.look("job")

    def answer(self, same_as: str, identity: str = "name:new") -> None:
        self.wait(1)
        verbs.answer_script(
            application=self.job, identity=identity, same_as=same_as, actor="ada", now=self.now
        )
        self.settle()

    @property
    def told(self) -> ScriptJob:
        """What the newest driver is told."""
        script = self.launcher.spec("job").script
        assert script is not None
        return script


def test_the_script_is_held_and_starting_it_asks_again() -> None:
    stage = Asked()
    assert (stage.script.phase, stage.script.desired) == ("FAILED", "RUNNING")
    assert stage.script.question["missing"] == [stage.old.pk]
    assert Query.objects.count() == 2
    stage.wait(86400)
    assert not stage.launcher.living()
    [trouble] = _driver_deaths()
    assert trouble.title == "job: the script is waiting for an author's answer"

    stage.start_script()
    assert stage.script.question == {}
    stage.ready("job")
    stage.ask()
    assert stage.script.phase == "FAILED"
    assert stage.script.question["identity"] == "name:new"
    stage.check_history()


def test_what_a_question_stops_is_not_called_stopped_by_the_script() -> None:
    stage = ScriptStage()
    stage.running("old", "other")
    stage.launcher.asks_while_ending("job", "new", stage.row("job/old").pk)
    stage.launcher.end_run(stage.run("job/other").pk)
    stage.look("job")
    assert stage.phase("job/other") == "PENDING"
    assert stage.script.question["identity"] == "name:new"
    stage.launcher.asks("job", "new", stage.row("job/old").pk)
    stage.look("job")
    assert [stage.phase(name) for name in ("job/old", "job/other")] == ["FAILED", "FAILED"]
    assert stage.row("job/other").desired == "RUNNING"


def test_the_same_takes_over_row_history_and_checkpoint() -> None:
    stage = Asked()
    stage.answer("job/old")
    assert stage.script.question == {}
    assert stage.script.phase == "STARTING"
    known = {one.identity: (one.query, one.location) for one in stage.told.known}
    assert known["name:new"] == (stage.old.pk, stage.place)
    assert "name:old" not in known
    stage.ready("job")
    stage.find("other")
    query = stage.find("new")
    assert query.pk == stage.old.pk
    assert query.runs.count() == 2
    assert [row.location for row in query.checkpoints.all()] == [stage.place]
    assert Query.objects.count() == 2
    entry = AuditEntry.objects.get(kind="query-identity")
    assert (entry.actor, entry.subject) == ("ada", "job")
    assert entry.details["same_as"] == "job/old"
    row = Transition.objects.get(subject="identity")
    assert (row.before, row.after, row.actor) == ("job/old", "job/new", "ada")
    assert row.reason == Reason.SAME_QUERY
    stage.check_history()


def test_another_gets_a_row_of_its_own_and_the_old_one_is_kept_as_gone() -> None:
    stage = Asked()
    stage.answer("")
    assert stage.told.accepted == ("name:new",)
    assert [one.gone for one in stage.told.known] == [False, False]  # not proven yet
    stage.ready("job")
    stage.find("other")
    query = stage.find("new")
    assert query.pk != stage.old.pk
    assert stage.run("job/new").checkpoint.location.endswith("/new")
    assert stage.script.accepted == []
    assert Transition.objects.get(subject="identity").reason == Reason.OTHER_QUERY
    old = stage.row("job/old")
    assert (old.phase, old.phase_reason, old.desired) == ("STOPPED", "SCRIPT_DROPPED", "STOPPED")
    assert AuditEntry.objects.get(kind="query-identity").details["same_as"] == ""

    stage.stop_script()
    stage.launcher.leave("job")
    stage.look("job")
    stage.start_script()
    gone = {one.identity: one.gone for one in stage.told.known}
    assert gone == {"name:old": True, "name:other": False, "name:new": False}
    stage.ready("job")
    stage.find("old")  # it is back
    assert stage.row("job/old").gone_at is None
    stage.check_history()


def test_the_checkpoint_of_a_missing_query_is_not_given_to_another() -> None:
    stage = Asked()
    place = stage.place
    stage.start_script()
    stage.ready("job")
    stage.ask(asked=place)
    with pytest.raises(Invalid, match="job/old") as refused:
        stage.answer("")
    assert "it is the same as job/old" in refused.value.problems[0].way_out
    assert stage.script.question


def test_an_answer_is_to_the_question_that_is_asked() -> None:
    stage = Asked()
    with pytest.raises(Invalid) as refused:
        stage.answer("job/other")
    assert refused.value.problems[0].way_out == "Choose one of job/old."
    with pytest.raises(Conflict, match="name:new"):
        stage.answer("job/old", identity="name:else")
    stage.answer("job/old")
    with pytest.raises(NotAllowed, match="not waiting for an answer"):
        stage.answer("job/old")


def test_it_is_not_answered_while_the_driver_is_still_ending() -> None:
    stage = Asked()
    stage.start_script()
    Script.objects.update(question=stage.script.question or {"identity": "name:new"})
    with pytest.raises(Conflict, match="still ending"):
        stage.answer("")


def test_a_script_that_was_stopped_meanwhile_stays_so() -> None:
    stage = Asked()
    stage.stop_script()
    stage.answer("job/old")
    assert stage.script.phase == "STOPPED"
    assert not stage.launcher.living()
    assert stage.row("job/new").pk == stage.old.pk
