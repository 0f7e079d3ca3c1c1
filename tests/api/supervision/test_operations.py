"""Start, stop and restart over REST, and the long poll that follows them to their end."""

import asyncio
import json
import time
from typing import Any
from uuid import uuid4

import pytest
import redis
from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from django.contrib.auth.models import User
from django.core.handlers.asgi import ASGIHandler
from django.db import connections
from django.utils import timezone
from rest_framework.test import APIClient

from queries.api.supervision import operations
from queries.domain.states import OperationOutcome
from queries.models.history import Operation
from queries.services.access.tokens import create_token
from tests.scenarios.stage import BROKEN_PIPE, NO_SUCH_SOURCE, Stage

BODY = {
    "id",
    "verb",
    "query",
    "application",
    "outcome",
    "detail",
    "detail_code",
    "actor",
    "created_at",
    "deadline",
    "ended_at",
    "failure",
    "steps",
    "arguments",
    "result",
    "parent",
    "cancellable",
    "links",
}


@pytest.mark.parametrize("verb", ["start", "stop", "restart"])
def test_a_verb_is_accepted_with_an_operation_to_follow(
    as_operator: APIClient, stage: Stage, verb: str
) -> None:
    stage.query("delays")
    if verb != "start":  # a start of what runs is the operation that started it
        stage.up("delays")
    answer = as_operator.post(f"/api/v1/queries/delays/{verb}/")
    assert answer.status_code == 202, answer.json()
    body = answer.json()
    assert set(body) == BODY
    assert (body["verb"], body["query"], body["actor"]) == (verb, "delays", "otto")
    assert answer["Location"] == f"/api/v1/operations/{body['id']}/"
    assert as_operator.get(answer["Location"]).json() == {**body, "completion": None}


def test_a_start_is_done_when_the_query_runs(as_operator: APIClient, stage: Stage) -> None:
    stage.query("delays")
    answer = as_operator.post("/api/v1/queries/delays/start/", {}, format="json")
    assert answer.json()["outcome"] is None
    stage.look()
    stage.ready("delays")
    stage.commit("delays")
    body = as_operator.get(answer["Location"]).json()
    assert body["outcome"] == "DONE"
    assert body["ended_at"] is not None


@pytest.mark.parametrize("as_written", [False, True])
@pytest.mark.parametrize("given", ["NaN", "Infinity", "1e999"])
def test_a_number_that_json_does_not_have_is_refused_by_name(
    as_operator: APIClient, stage: Stage, given: str, as_written: bool
) -> None:
    sql = "SELECT timestamp, value FROM flights WHERE value > :share"
    stage.query("delays", sql=sql, params={"share": 0.5})
    value = given if as_written else f'"{given}"'
    body = f'{{"params": {{"share": {value}}}, "read_text": true}}'
    path = "/api/v1/queries/delays/start/"
    answer = as_operator.post(path, body, content_type="application/json")
    assert answer.status_code == 422
    [problem] = answer.json()["problems"]
    assert problem["field"] == "params.share"
    assert "which JSON does not have" in problem["message"]


@pytest.mark.parametrize("mode", ["graceful", "now"])
def test_a_stop_takes_its_mode(as_operator: APIClient, stage: Stage, mode: str) -> None:
    stage.query("delays")
    stage.up("delays")
    answer = as_operator.post("/api/v1/queries/delays/stop/", {"mode": mode}, format="json")
    assert answer.status_code == 202
    assert stage.row("delays").stop_mode == mode
    assert stage.row("delays").desired == "STOPPED"


@pytest.mark.parametrize("body", [{"mode": "softly"}, {"made": "now"}, {"mode": None}])
def test_a_stop_that_cannot_be_read_changes_nothing(
    as_operator: APIClient, stage: Stage, body: dict[str, Any]
) -> None:
    stage.query("delays")
    stage.up("delays")
    answer = as_operator.post("/api/v1/queries/delays/stop/", body, format="json")
    assert answer.status_code == 422
    assert answer.json()["problems"][0]["field"] in body
    assert stage.row("delays").desired == "RUNNING"


def test_a_second_start_returns_the_operation_of_the_first(
    as_operator: APIClient, stage: Stage
) -> None:
    stage.query("delays")
    first = as_operator.post("/api/v1/queries/delays/start/")
    second = as_operator.post("/api/v1/queries/delays/start/")
    assert first["Location"] == second["Location"]


def test_an_application_is_restarted_and_its_queries_stopped(
    as_operator: APIClient, stage: Stage
) -> None:
    stage.application("flights")
    for name in ("delays", "alarms"):
        stage.query(name, "flights")
        stage.start(name)
    restart = as_operator.post("/api/v1/applications/flights/restart/")
    assert restart.status_code == 202
    assert restart.json()["application"] == "flights"
    assert restart.json()["query"] is None
    stop = as_operator.post("/api/v1/applications/flights/stop/", {"mode": "now"}, format="json")
    assert stop.status_code == 202
    assert {row["query"] for row in stop.json()["results"]} == {"delays", "alarms"}


def test_operations_are_listed_and_filtered(as_operator: APIClient, stage: Stage) -> None:
    for name in ("delays", "alarms"):
        stage.query(name)
        as_operator.post(f"/api/v1/queries/{name}/start/")
    rows = as_operator.get("/api/v1/operations/").json()["results"]
    assert [row["query"] for row in rows] == ["alarms", "delays"]
    rows = as_operator.get("/api/v1/operations/?query=delays&open=true").json()["results"]
    assert [row["query"] for row in rows] == ["delays"]
    assert as_operator.get("/api/v1/operations/?open=false").json()["results"] == []


@pytest.mark.parametrize("wait", ["61", "-1", "long", "1.5"])
def test_a_wait_beyond_a_minute_is_refused(as_operator: APIClient, stage: Stage, wait: str) -> None:
    stage.query("delays")
    location = as_operator.post("/api/v1/queries/delays/start/")["Location"]
    answer = as_operator.get(f"{location}?wait={wait}")
    assert answer.status_code == 422
    assert answer.json()["problems"][0]["field"] == "wait"


def test_an_operation_that_nobody_asked_for_is_missing(as_viewer: APIClient) -> None:
    answer = as_viewer.get(f"/api/v1/operations/{uuid4()}/?wait=60")
    assert answer.status_code == 404


def test_a_wait_for_an_ended_operation_is_no_wait(as_operator: APIClient, stage: Stage) -> None:
    stage.query("delays")
    stage.up("delays")
    operation = Operation.objects.get(verb="start")
    assert operation.outcome == OperationOutcome.DONE
    answer = as_operator.get(f"/api/v1/operations/{operation.uuid}/?wait=60")
    assert answer.json()["outcome"] == "DONE"


def test_a_start_says_how_the_work_that_it_requested_has_ended(
    as_operator: APIClient, stage: Stage
) -> None:
    stage.query("backfill", trigger={"kind": "available_now"})
    stage.now = timezone.now()
    location = as_operator.post("/api/v1/queries/backfill/start/")["Location"]

    def found() -> tuple[str | None, str | None]:
        body = as_operator.get(f"{location}?completed=true").json()
        return body["outcome"], body["completion"]

    stage.look("backfill")
    stage.ready("backfill")
    stage.commit("backfill")
    assert found() == ("DONE", None)
    stage.fail("backfill", BROKEN_PIPE)
    assert found() == ("DONE", None)  # it is started again
    stage.launcher.end_run(stage.run("backfill").pk)
    stage.look()
    assert found() == ("DONE", "COMPLETED")
    later = as_operator.post("/api/v1/queries/backfill/start/")["Location"]
    stage.settle()
    assert found() == ("DONE", "COMPLETED")
    location = later
    as_operator.post("/api/v1/queries/backfill/stop/")
    assert found()[1] == "SUPERSEDED"


def test_a_start_that_cannot_succeed_is_not_waited_for(
    as_operator: APIClient, stage: Stage
) -> None:
    stage.query("backfill", trigger={"kind": "available_now"})
    stage.now = timezone.now()
    location = as_operator.post("/api/v1/queries/backfill/start/")["Location"]
    stage.look("backfill")
    stage.ready("backfill")
    stage.fail("backfill", NO_SUCH_SOURCE)
    body = as_operator.get(f"{location}?wait=60&completed=true").json()
    assert (body["outcome"], body["completion"]) == ("FAILED", "FAILED")


# --- the long poll itself, through the real ASGI handler --------------------------------


class Answer:
    """What came back from the ASGI application."""

    def __init__(self, status: int, body: bytes) -> None:
        self.status = status
        self.json = json.loads(body)


class Asgi:
    """A caller of the ASGI application, each request in a context of its own, as served."""

    def __init__(self, user: User) -> None:
        _, text = create_token(user=user, name="tests", actor="tests", now=timezone.now())
        self.headers = [(b"authorization", f"Token {text}".encode()), (b"host", b"localhost")]
        self.application: Any = ASGIHandler()

    async def get(self, path: str, query: str = "") -> Answer:
        """Return the answer to a get."""
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "GET",
            "path": path,
            "query_string": query.encode(),
            "headers": self.headers,
        }
        asking: Any = ApplicationCommunicator(self.application, scope)  # type: ignore[no-untyped-call]
        await asking.send_input({"type": "http.request", "body": b""})
        start = await asking.receive_output(timeout=90)
        body = (await asking.receive_output(timeout=90)).get("body", b"")
        await asking.wait(timeout=90)
        return Answer(start["status"], body)


@pytest.fixture
def asgi(transactional_db: None, operator: User) -> Asgi:
    """Return Otto as a caller of the ASGI application."""
    return Asgi(operator)


@pytest.fixture
def address(transactional_db: None, stage: Stage) -> str:
    """Return the address of an operation under way."""
    stage.query("delays")
    return f"/api/v1/operations/{stage.start('delays').uuid}/"


def _end() -> None:
    Operation.objects.update(outcome=OperationOutcome.DONE)
    connections.close_all()


def test_a_wait_ends_with_its_time(asgi: Asgi, address: str) -> None:
    began = time.monotonic()
    answer = asyncio.run(asgi.get(address, "wait=1"))
    assert time.monotonic() - began >= 1
    assert (answer.status, answer.json["outcome"]) == (200, None)


def test_without_redis_the_end_is_found_by_reading_anew(
    asgi: Asgi, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "READ_EVERY_S", 0.2)

    async def story() -> Answer:
        polling = asyncio.create_task(asgi.get(address, "wait=60"))
        await asyncio.wait([polling], timeout=0.3)
        assert not polling.done()
        await sync_to_async(_end)()
        return await polling

    began = time.monotonic()
    assert asyncio.run(story()).json["outcome"] == "DONE"
    assert time.monotonic() - began < 60  # it did not wait for its time to be over


@pytest.mark.redis
def test_a_change_that_is_published_ends_the_wait(
    asgi: Asgi,
    address: str,
    redis_server: str,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings.REDIS_URL = redis_server
    monkeypatch.setattr(operations, "READ_EVERY_S", 3600)  # only the word can wake it
    uuid = address.rstrip("/").rpartition("/")[2]

    async def story() -> Answer:
        polling = asyncio.create_task(asgi.get(address, "wait=60"))
        with redis.Redis.from_url(redis_server) as server:
            while not dict(server.pubsub_numsub(settings.CHANGED_CHANNEL)).get(
                settings.CHANGED_CHANNEL.encode()
            ):
                await asyncio.sleep(0.02)
            await sync_to_async(_end)()
            while not polling.done():  # a word can come before the poll's second read
                server.publish(settings.CHANGED_CHANNEL, f"operation:{uuid}")
                await asyncio.wait([polling], timeout=0.1)
        return polling.result()

    began = time.monotonic()
    assert asyncio.run(asyncio.wait_for(story(), 50)).json["outcome"] == "DONE"
    assert time.monotonic() - began < 60


def test_many_waits_keep_nobody_else_waiting(
    asgi: Asgi, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "READ_EVERY_S", 0.5)

    async def story() -> tuple[bool, list[Answer]]:
        polls = [asyncio.create_task(asgi.get(address, "wait=60")) for _ in range(30)]
        await asyncio.wait(polls, timeout=1)
        await asgi.get("/api/v1/queries/")
        others_wait = not any(poll.done() for poll in polls)
        await sync_to_async(_end)()
        return others_wait, list(await asyncio.gather(*polls))

    others_wait, answers = asyncio.run(story())
    assert others_wait  # the list was served while all of them waited
    assert {(answer.status, answer.json["outcome"]) for answer in answers} == {(200, "DONE")}


def test_state_of_another_meaning_is_409_with_the_flag_that_accepts_it(
    as_operator: APIClient, stage: Stage
) -> None:
    by_key = "SELECT value % 3 AS k, count(*) AS n FROM flights GROUP BY value % 3"
    stage.query("delays", sql=by_key, sink={"format": "noop", "output_mode": "update"})
    stage.up("delays")
    stage.revise("delays", sql=by_key.replace("3", "5"))
    refused = as_operator.post("/api/v1/queries/delays/restart/")
    assert refused.status_code == 409
    assert refused.json()["type"] == "urn:headgate:problem:state-changes"
    assert "grouping key" in refused.json()["detail"]
    assert "accept_state_change" in refused.json()["way_out"]
    accepted = {"accept_state_change": True}
    answer = as_operator.post("/api/v1/queries/delays/restart/", accepted, format="json")
    assert answer.status_code == 202, answer.json()
