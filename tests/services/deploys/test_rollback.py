"""Back to an earlier revision by hand."""

from typing import Any

import pytest

from queries.domain.errors import Conflict, Forbidden, Invalid, Missing, NotAllowed
from queries.domain.states import Desired, Verb
from queries.roles import AuthorRights
from queries.services.definitions import catalog
from queries.services.definitions.writing import one_at_a_time
from queries.services.deploys.rollback import rollback_query
from tests.scenarios.deploys.way import NOTE, Way
from tests.scenarios.stage import NO_SUCH_SOURCE, Stage

pytestmark = pytest.mark.django_db


def back(  # type: ignore[no-untyped-def]
    stage: Stage, revision: int, *, rights: AuthorRights = AuthorRights.ALL
):
    row = stage.row("delays")
    return rollback_query(query=row, revision=revision, actor="ada", now=stage.now, rights=rights)


def test_the_former_definition_is_a_revision_of_its_own_and_runs(stage: Stage) -> None:
    stage.query("delays")
    stage.up("delays")
    stage.revise("delays", conf={NOTE: "newer"})
    operation = back(stage, 1)
    newest = stage.row("delays").revisions.latest("number")
    assert (newest.number, newest.author) == (3, "ada")
    assert NOTE not in newest.spec.get("conf", {})
    assert operation.verb == Verb.RESTART
    assert stage.row("delays").target_revision == newest


def test_a_failed_query_starts_at_once(stage: Stage) -> None:
    stage.query("delays")
    stage.up("delays")
    stage.revise("delays", conf={NOTE: "newer"})
    stage.fail("delays", NO_SUCH_SOURCE)
    assert back(stage, 1).verb == Verb.START


def test_a_stopped_query_starts_on_it(stage: Stage) -> None:
    stage.query("delays")
    stage.revise("delays", conf={NOTE: "newer"})
    assert back(stage, 1).verb == Verb.START
    assert stage.row("delays").desired == Desired.RUNNING


@pytest.mark.parametrize(("revision", "error"), [(7, Missing), (2, NotAllowed)])
def test_what_is_known_to_be_wrong_is_refused_at_once(
    stage: Stage, revision: int, error: type[Exception]
) -> None:
    stage.query("delays")
    stage.revise("delays", conf={NOTE: "newer"})
    with pytest.raises(error):
        back(stage, revision)
    assert stage.row("delays").revisions.count() == 2


def test_a_revision_that_could_not_be_saved_today_is_refused(stage: Stage) -> None:
    stage.query("delays", pool="gone")
    spec = stage.row("delays").revisions.get().spec
    stage.row("delays").revisions.create(
        number=2, kind="sql", spec=spec | {"pool": ""}, author="ada", created_at=stage.now
    )
    with pytest.raises(Invalid, match="pool"):
        back(stage, 1)


def _saved_meanwhile(stage: Stage, monkeypatch: pytest.MonkeyPatch, **spec: Any) -> None:
    """Have somebody save a revision after the request was judged, before it takes the lock."""

    def late() -> None:
        stage.row("delays").revisions.create(
            number=3, kind=spec["kind"], spec=spec, author="ada", created_at=stage.now
        )
        one_at_a_time()

    monkeypatch.setattr("queries.services.deploys.rollback.one_at_a_time", late)


def test_code_that_was_taken_out_meanwhile_does_not_come_back(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.query("delays")
    sql = stage.row("delays").revisions.get().spec
    kafka = {"kafka.sasl.kerberos.kinit.cmd": "/opt/kinit", "kafka.bootstrap.servers": "b:9"}
    runs_a_program = sql | {"sink": {"format": "kafka", "options": kafka | {"topic": "t"}}}
    stage.row("delays").revisions.update(spec=runs_a_program)
    stage.row("delays").revisions.create(
        number=2, kind="sql", spec=runs_a_program, author="ada", created_at=stage.now
    )
    monkeypatch.setattr(catalog, "plan_query", lambda **_: None)  # its draft is another test's
    _saved_meanwhile(stage, monkeypatch, **sql)
    with pytest.raises(Forbidden, match="permission to write Python"):
        back(stage, 1, rights=AuthorRights.SQL)
    assert stage.row("delays").revisions.count() == 2  # the one that came is undone with it


def test_what_has_become_the_newest_meanwhile_is_refused(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.query("delays")
    stage.revise("delays", conf={NOTE: "newer"})

    def late() -> None:
        stage.row("delays").revisions.filter(number=2).delete()
        one_at_a_time()

    monkeypatch.setattr("queries.services.deploys.rollback.one_at_a_time", late)
    with pytest.raises(NotAllowed, match="Revision 1 is already the newest"):
        back(stage, 1)


def test_a_query_that_is_being_deployed_is_left_to_its_deploy(stage: Stage) -> None:
    way = Way(stage)
    stage.query("delays")
    stage.up("delays")
    way.change("delays")
    with pytest.raises(Conflict, match="being deployed"):
        back(stage, 1)
