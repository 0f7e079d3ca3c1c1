"""Operations, probes, deploys and the like of one person, or one token, within a minute."""

import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import time_machine
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.utils import timezone

from queries.domain.errors import TooMany
from queries.models.applications import UploadedCode
from queries.models.definitions import Query
from queries.models.deploys import Deploy
from queries.models.history import Operation
from queries.services.access.audit import Asker, asked_by
from queries.services.access.tokens import create_token
from queries.services.deploys.advancing import advance_all
from queries.services.supervision.operations import request_restart, request_start
from tests.scenarios.deploys.way import NOTE
from tests.scenarios.stage import Stage
from tests.services.bulk import advance_many
from tests.services.code.archives import packed

pytestmark = pytest.mark.django_db


@pytest.fixture
def three(settings: Any, stage: Stage) -> Stage:
    """Allow three operations, two probes and one bulk action a minute."""
    settings.OPERATIONS_PER_MINUTE = 3
    settings.PROBES_PER_MINUTE = 2
    settings.BULK_PER_MINUTE = 1
    for name in ("delays", "ticks"):
        stage.query(name)
    return stage


def _token(user: User, name: str) -> Client:
    _, text = create_token(user=user, name=name, actor="ada", now=timezone.now())
    return Client(headers={"authorization": f"Token {text}"})


def _ask(robot: Client, verb: str = "restart", query: str = "delays") -> Any:
    return robot.post(f"/api/v1/queries/{query}/{verb}/", content_type="application/json")


@pytest.mark.guarantee("G-LIMIT-1")
def test_the_next_operation_is_answered_429_with_the_time_to_wait(
    operator: User, three: Stage
) -> None:
    robot = _token(operator, "deploy")
    verbs = ["start", "stop", "start"]
    assert [_ask(robot, verb).status_code for verb in verbs] == [202, 202, 202]
    answer = _ask(robot, "stop")
    assert answer.status_code == 429
    assert 1 <= int(answer["Retry-After"]) <= 60
    said = answer.json()
    assert said["type"] == "urn:headgate:problem:too-many-requests"
    assert said["detail"] == (
        "This token has requested 3 operations within a minute, which is the limit."
    )
    assert Operation.objects.count() == 3  # what was refused has changed nothing
    assert Query.objects.get(name="delays").desired == "RUNNING"


def test_each_token_and_each_person_has_a_count_of_its_own(
    client: Client, operator: User, author: User, three: Stage
) -> None:
    one, other = _token(operator, "deploy"), _token(operator, "nightly")
    for verb in ("start", "stop", "start"):
        _ask(one, verb)
    assert _ask(one, "stop").status_code == 429
    assert _ask(other, "stop").status_code == 202
    assert _ask(_token(author, "deploy"), "start").status_code == 202
    client.force_login(operator)
    client.post("/queries/ticks/start/")
    assert Query.objects.get(name="ticks").desired == "RUNNING"


def test_a_page_says_so_in_a_sentence(client: Client, operator: User, three: Stage) -> None:
    client.force_login(operator)
    for verb in ("start", "stop", "start"):
        client.post(f"/queries/delays/{verb}/")
    answer = client.post("/queries/delays/stop/", follow=True)
    text = answer.content.decode()
    assert "You have requested 3 operations within a minute, which is the limit." in text
    assert "Try again in" in text
    assert Query.objects.get(name="delays").desired == "RUNNING"
    scripted = client.post("/queries/delays/stop/", headers={"accept": "application/json"})
    assert scripted.status_code == 429
    assert int(scripted["Retry-After"]) >= 1


@pytest.mark.guarantee("G-LIMIT-1")
def test_probes_have_a_limit_of_their_own(operator: User, three: Stage) -> None:
    three.query("planes")
    robot = _token(operator, "deploy")
    found = [_ask(robot, "preflight", name) for name in ("delays", "ticks", "planes")]
    assert [answer.status_code for answer in found] == [202, 202, 429]
    assert (
        "2 preflights, state inspections, record look-ups, snapshots" in found[2].json()["detail"]
    )
    assert _ask(robot, "start").status_code == 202


def test_a_minute_later_there_is_room_again(operator: User, three: Stage) -> None:
    robot = _token(operator, "deploy")
    with time_machine.travel(timezone.now(), tick=False) as clock:
        for verb in ("start", "stop", "start"):
            assert _ask(robot, verb).status_code == 202
            clock.shift(timedelta(seconds=10))
        refused = _ask(robot, "stop")
        assert (refused.status_code, refused["Retry-After"]) == (429, "30")
        clock.shift(timedelta(seconds=30))
        assert _ask(robot, "stop").status_code == 202  # the first is a minute old
        assert _ask(robot, "start").status_code == 429


@pytest.mark.guarantee("G-LIMIT-2")
def test_a_bulk_action_counts_once_however_many_it_starts(
    client: Client, operator: User, three: Stage, settings: Any
) -> None:
    settings.OPERATIONS_PER_MINUTE = 1
    client.force_login(operator)
    form = {"name": ["delays", "ticks"], "verb": "start"}
    client.post("/bulk/queries/", form)
    advance_many(Operation.objects.get().pk, now=timezone.now())
    assert set(Query.objects.values_list("desired", flat=True)) == {"RUNNING"}
    answer = client.post("/bulk/queries/", {**form, "verb": "stop"}, follow=True)
    assert "You have requested 1 bulk actions within a minute" in answer.content.decode()
    assert set(Query.objects.values_list("desired", flat=True)) == {"RUNNING"}
    client.post("/queries/delays/stop/")  # the single one that is allowed
    assert Query.objects.get(name="delays").desired == "STOPPED"


# --- deploys and uploads --------------------------------------------------------------------


def _deploy(robot: Client, query: str, note: str) -> Any:
    row = Query.objects.get(name=query)
    about = {"name": query, "application": row.application.name}
    spec = row.revisions.latest("number").spec | {"conf": {NOTE: note}}
    one = {"apiVersion": "headgate/v1", "kind": "Query", "metadata": about, "spec": spec}
    body = {"apply": {"owner": "repo", "manifests": [{"manifest": one}]}}
    return robot.post("/api/v1/deploys/", body, content_type="application/json")


@pytest.mark.guarantee("G-LIMIT-3")
def test_deploys_have_a_limit_of_their_own(author: User, three: Stage, settings: Any) -> None:
    settings.DEPLOYS_PER_MINUTE = 2
    robot = _token(author, "ci")
    for text in ("first", "second"):
        assert _deploy(robot, "delays", text).status_code == 202
        advance_all(now=timezone.now())  # its end is in the audit log too, and no request
    refused = _deploy(robot, "delays", "third")
    assert refused.status_code == 429
    assert 1 <= int(refused["Retry-After"]) <= 60
    assert "This token has requested 2 deploys within a minute" in refused.json()["detail"]
    assert Deploy.objects.count() == 2
    assert _deploy(_token(author, "nightly"), "delays", "third").status_code == 202


def test_what_a_deploy_does_by_itself_is_not_counted(
    author: User, three: Stage, settings: Any
) -> None:
    settings.OPERATIONS_PER_MINUTE = settings.BULK_PER_MINUTE = 1
    for name in ("delays", "ticks"):
        three.up(name)
    robot = _token(author, "ci")
    for name in ("delays", "ticks"):
        assert _deploy(robot, name, "new").status_code == 202
    advance_all(now=timezone.now())
    assert Operation.objects.filter(verb="restart", actor="aude").count() == 2
    assert _ask(robot, "stop").status_code == 202
    assert _ask(robot, "start").status_code == 429


@pytest.mark.guarantee("G-LIMIT-3")
def test_uploads_have_a_limit_of_their_own(author: User, settings: Any, tmp_path: Path) -> None:
    settings.CODE_DIR = tmp_path / "code"
    settings.UPLOADS_PER_MINUTE = 2
    robot = _token(author, "ci")

    def upload(name: str) -> Any:
        data = packed({name: "x = 1\n"})
        return robot.generic("POST", "/api/v1/code/", data, content_type="application/x-tar")

    assert [upload(f"{name}.py").status_code for name in "abc"] == [201, 201, 429]
    assert UploadedCode.objects.count() == 2


def test_commands_and_tasks_have_no_limit(three: Stage, settings: Any) -> None:
    settings.OPERATIONS_PER_MINUTE = 1
    query = Query.objects.get(name="delays")
    for _ in range(3):
        request_start(query=query, actor="demo", now=timezone.now())
        request_restart(query=query, actor="demo", now=timezone.now())


def test_0_is_no_limit(operator: User, three: Stage, settings: Any) -> None:
    settings.OPERATIONS_PER_MINUTE = 0
    robot = _token(operator, "deploy")
    assert {_ask(robot, verb).status_code for verb in ["start", "stop"] * 4} == {202}


@pytest.mark.guarantee("G-LIMIT-4")
@pytest.mark.django_db(transaction=True)
def test_requests_at_the_same_moment_do_not_pass_together(operator: User, three: Stage) -> None:
    """Each would see the count of before; the person's row makes them take turns."""
    names = [f"query-{number}" for number in range(8)]
    queries = [three.query(name) for name in names]
    answers: list[str] = []

    def ask(query: Query) -> None:
        try:
            with asked_by(Asker(address="10.1.2.3")):
                request_start(query=query, actor="otto", now=timezone.now())
            answers.append("done")
        except TooMany:
            answers.append("refused")
        finally:
            connection.close()

    threads = [threading.Thread(target=ask, args=(query,)) for query in queries]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(answers) == ["done"] * 3 + ["refused"] * 5
    assert Operation.objects.count() == 3
