"""The event stream: drawn once, shared by all who look, data only, and only for who may look."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.test import AsyncClient, Client

from listeners.models import Heartbeat
from queries.domain.states import Phase
from queries.models.definitions import Query
from queries.models.drivers import Run
from queries.views.console import fragments
from queries.views.console.hub import Hub, Message, Viewer
from queries.views.console.live import STREAMS_AT_MOST, TABS_AT_MOST, encode
from tests.scenarios.stage import Stage

REPOSITORY = Path(__file__).resolve().parents[3]
LIMIT_S = 60  # generous: the machine may be busy


def snapshot(client: Client, topics: str, cursor: str = "") -> Any:
    return client.get(
        "/live/", {"topics": topics, "cursor": cursor}, headers={"accept": "application/json"}
    )


@pytest.fixture
def vera(client: Client, viewer: User) -> Client:
    client.force_login(viewer)
    return client


def test_a_stream_is_shut_to_strangers_and_to_those_without_a_role(
    client: Client, outsider: User
) -> None:
    assert client.get("/live/?topics=system").status_code == 403
    client.force_login(outsider)
    assert client.get("/live/?topics=system").status_code == 403


@pytest.mark.parametrize(
    "topics", ["", "secrets", "system secrets:1", " ".join(f"query:{n}" for n in range(21))]
)
def test_topics_that_cannot_be_streamed_are_refused_with_the_way_out(
    vera: Client, topics: str
) -> None:
    answer = vera.get("/live/", {"topics": topics})
    assert answer.status_code == 400
    assert "Name 1 to 20 of" in answer.content.decode()


@pytest.mark.django_db(transaction=True)
def test_where_there_is_no_stream_the_fragments_come_as_json(vera: Client) -> None:
    stage = Stage()
    query = stage.query("delays")
    found = snapshot(vera, f"queries:{query.pk}").json()
    drawn = dict(found["fragments"])
    assert f"row-{query.pk}" in drawn
    assert 'data-name="delays"' in drawn[f"row-{query.pk}"]
    assert drawn["count-all"].count(">1<") == 1
    assert datetime.fromisoformat(found["tick"]["now"]) <= datetime.now(UTC)


@pytest.mark.django_db(transaction=True)
def test_a_fragment_holds_data_only_and_is_the_same_for_every_role(
    client: Client, viewer: User, admin: User
) -> None:
    stage = Stage()
    query = stage.query("delays")
    stage.up("delays")
    topics = f"system queries overview query:{query.pk}"
    client.force_login(viewer)
    seen = dict(snapshot(client, topics).json()["fragments"])
    client.force_login(admin)
    assert dict(snapshot(client, topics).json()["fragments"]).keys() == seen.keys()
    assert len(seen) > 10
    for event, html in seen.items():
        for forbidden in ("<form", "<button", "<input", "csrf", "/start/", "/edit/"):
            assert forbidden not in html, event


def test_a_message_becomes_an_event_of_the_stream() -> None:
    event = encode(Message("row-1", "<tr>\n<td>1</td>\n</tr>", 7), "hub").decode()
    assert event == "event: row-1\nid: hub.7\ndata: <tr>\ndata: <td>1</td>\ndata: </tr>\n\n"
    shared = encode(Message("row-1", "<tr>\n</tr>", 7, tab=3), "hub").decode()
    said = '{"tab": 3, "event": "row-1", "data": "<tr>\\n</tr>"}'
    assert shared == f"id: hub.7\ndata: {said}\n\n"


@pytest.mark.parametrize(
    ("topic", "message", "stale"),
    [
        ("query:42", "query:42", True),
        ("query:42", "query:43", False),
        ("query:42", "driver:7", True),
        ("queries", "query:43", True),
        ("queries", "nonsense", False),
        ("system", "query:43", False),
    ],
)
def test_a_message_makes_stale_what_it_is_about(topic: str, message: str, stale: bool) -> None:
    assert fragments.stales(topic, message) is stale


# --- the hub, in a loop of its own ------------------------------------------------------------


@pytest.fixture
def drawings(monkeypatch: pytest.MonkeyPatch) -> list[fragments.Changes]:
    """Register a topic that counts how often it is drawn, and with which changes."""
    drawn: list[fragments.Changes] = []

    def draw(key: str, changes: fragments.Changes, now: datetime) -> fragments.Drawn:
        drawn.append(changes)
        yield "same", "<p>same</p>"
        yield "count", f"<p>{len(drawn)}</p>"

    topic = fragments.Topic(draw, frozenset({"query"}), frozenset())
    monkeypatch.setitem(fragments.TOPICS, "counted", topic)
    return drawn


async def next_of(queue: "asyncio.Queue[Message | None]", event: str) -> Message:
    """Return the next message of that name."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            message = await queue.get()
            assert message is not None
            if message.event == event:
                return message


def alone(story: Callable[[Hub], Awaitable[None]]) -> None:
    """Play a story with a hub in a loop of its own, and stop the hub."""

    async def play() -> None:
        hub = Hub()
        try:
            await story(hub)
        finally:
            for viewer in list(hub.viewers):
                hub.leave(viewer)
            hub._thread.shutdown()

    asyncio.run(play())


@pytest.mark.redis
@pytest.mark.django_db(transaction=True)
def test_a_change_is_drawn_once_and_told_to_everybody(
    drawings: list[fragments.Changes], redis_server: str, settings: Any
) -> None:
    settings.REDIS_URL = redis_server
    publisher = redis.Redis.from_url(redis_server)

    async def story(hub: Hub) -> None:
        viewers = [await hub.join(Viewer(frozenset({"counted"})), "") for _ in range(5)]
        while not await asyncio.to_thread(publisher.publish, settings.CHANGED_CHANNEL, "query:42"):
            await asyncio.sleep(0.05)  # until the hub's ear is open
        heard = [""] * len(viewers)
        async with asyncio.timeout(LIMIT_S):
            while len(drawings) < 2 or set(heard) != {f"<p>{len(drawings)}</p>"}:
                for index, viewer in enumerate(viewers):
                    while not viewer.queue.empty():
                        message = viewer.queue.get_nowait()
                        if message and message.event == "count":
                            heard[index] = message.data
                await asyncio.sleep(0.05)
        assert len(drawings) < len(viewers)  # fewer than one each, for two changes

    alone(story)


@pytest.mark.redis
@pytest.mark.django_db(transaction=True)
def test_a_hundred_changes_at_once_are_one_drawing(
    drawings: list[fragments.Changes], redis_server: str, settings: Any
) -> None:
    settings.REDIS_URL = redis_server
    publisher = redis.Redis.from_url(redis_server)

    async def story(hub: Hub) -> None:
        viewer = await hub.join(Viewer(frozenset({"counted"})), "")
        await next_of(viewer.queue, "tick")
        while not await asyncio.to_thread(publisher.publish, settings.CHANGED_CHANNEL, "x"):
            await asyncio.sleep(0.05)
        for number in range(100):
            publisher.publish(settings.CHANGED_CHANNEL, f"query:{number}")
        async with asyncio.timeout(LIMIT_S):
            while sum(len(changes or ()) for changes in drawings) < 100:
                if None in drawings[1:]:
                    break  # the ear opened in between: everything was drawn again
                await asyncio.sleep(0.05)
        assert len(drawings) < 8

    alone(story)


@pytest.mark.django_db(transaction=True)
def test_a_viewer_who_comes_back_is_told_only_what_it_missed(
    drawings: list[fragments.Changes],
) -> None:
    async def story(hub: Hub) -> None:
        first = await hub.join(Viewer(frozenset({"counted"})), "")
        cursor = json.loads((await next_of(first.queue, "tick")).data)["cursor"]
        again = await hub.join(Viewer(frozenset({"counted"})), cursor)
        assert again.queue.get_nowait().event == "tick"  # type: ignore[union-attr]
        stranger = await hub.join(Viewer(frozenset({"counted"})), "another.99")
        assert stranger.queue.get_nowait().event == "same"  # type: ignore[union-attr]

    alone(story)


@pytest.mark.django_db(transaction=True)
def test_twenty_tabs_share_a_stream_and_each_is_told_what_it_shows(
    drawings: list[fragments.Changes],
) -> None:
    async def story(hub: Hub) -> None:
        queue: asyncio.Queue[Message | None] = asyncio.Queue()
        for tab in range(20):
            topics = frozenset({"counted" if tab % 2 else "system"})
            await hub.join(Viewer(topics, 7, "", queue, tab), "")
        await hub.join(Viewer(frozenset({"counted"}), 7), "")
        assert hub.streams_of(7) == 2
        told = [queue.get_nowait() for _ in range(queue.qsize())]
        counted = [one.tab for one in told if one and one.event == "count"]
        assert set(counted) == set(range(1, 20, 2))
        assert {one.tab for one in told if one and one.event == "tick"} == set(range(20))

    alone(story)


def test_more_tabs_than_a_stream_has_are_refused(vera: Client) -> None:
    answer = vera.get("/live/", {"shared": "1", "topics": ["system"] * (TABS_AT_MOST + 1)})
    assert answer.status_code == 400
    assert f"the limit is {TABS_AT_MOST}" in answer.content.decode()
    assert STREAMS_AT_MOST >= 20  # a person with twenty tabs, none of them shared
    script = (REPOSITORY / "static/js/stream.js").read_text()
    assert f"TABS_AT_MOST = {TABS_AT_MOST};" in script


@pytest.mark.django_db(transaction=True)
def test_what_has_not_changed_is_not_told_again(drawings: list[fragments.Changes]) -> None:
    async def story(hub: Hub) -> None:
        viewer = await hub.join(Viewer(frozenset({"counted"})), "")
        await next_of(viewer.queue, "tick")
        await hub._draw("counted")
        told = [viewer.queue.get_nowait() for _ in range(viewer.queue.qsize())]
        assert [message.event for message in told if message] == ["count"]

    alone(story)


@pytest.mark.django_db(transaction=True)
def test_a_topic_that_cannot_be_drawn_leaves_the_others_alive(
    drawings: list[fragments.Changes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(key: str, changes: fragments.Changes, now: datetime) -> fragments.Drawn:
        raise RuntimeError("a bug in a fragment")

    monkeypatch.setitem(
        fragments.TOPICS, "broken", fragments.Topic(broken, frozenset(), frozenset())
    )

    async def story(hub: Hub) -> None:
        viewer = await hub.join(Viewer(frozenset({"broken", "counted"})), "")
        assert (await next_of(viewer.queue, "count")).data == "<p>1</p>"

    alone(story)


@pytest.mark.django_db(transaction=True)
def test_when_the_server_leaves_every_stream_ends(drawings: list[fragments.Changes]) -> None:
    async def story(hub: Hub) -> None:
        viewer = await hub.join(Viewer(frozenset({"counted"})), "")
        hub.close()
        async with asyncio.timeout(LIMIT_S):
            while await viewer.queue.get() is not None:
                pass
        assert hub.closing

    alone(story)


# --- the whole stream -------------------------------------------------------------------------


async def until(stream: AsyncIterator[bytes], needle: str) -> str:
    """Read the stream until the text has come."""
    said = ""
    async with asyncio.timeout(LIMIT_S):
        async for chunk in stream:
            said += chunk.decode()
            if needle in said:
                return said
    raise AssertionError(f"the stream ended without {needle!r}")


@pytest.mark.redis
@pytest.mark.django_db(transaction=True)
def test_a_change_of_phase_reaches_the_open_stream(
    viewer: User, redis_server: str, settings: Any
) -> None:
    settings.REDIS_URL = redis_server
    query = Stage().query("delays")
    publisher = redis.Redis.from_url(redis_server)

    async def story() -> None:
        client = AsyncClient()
        await client.aforce_login(viewer)
        answer: Any = await client.get("/live/", {"topics": f"queries:{query.pk}"})
        assert answer["Content-Type"] == "text/event-stream"
        stream = aiter(answer.streaming_content)
        assert (await anext(stream)).startswith(b"retry: ")
        await until(stream, 'data-phase="STOPPED"')
        await until(stream, "event: tick")
        rows = Query.objects.filter(pk=query.pk)
        await sync_to_async(rows.update)(phase=Phase.PENDING)
        while not await asyncio.to_thread(
            publisher.publish, settings.CHANGED_CHANNEL, f"query:{query.pk}"
        ):
            await asyncio.sleep(0.05)
        await until(stream, 'data-phase="PENDING"')
        await stream.aclose()

    asyncio.run(story())


def beat(run: Run, *, at: datetime) -> None:
    """The newest heartbeat of a run's driver was taken in then."""
    Heartbeat.objects.update_or_create(
        driver=run.driver_id,
        defaults={"epoch": 1, "seq": 1, "at": at, "received_at": at, "body": {}},
    )


@pytest.mark.sql(
    "queries.selectors.console.badges.newest_event_at",
    "queries.views.console.hub.silent_since",
)
@pytest.mark.django_db(transaction=True)
def test_the_tick_tells_since_when_the_driver_of_what_is_shown_is_silent(vera: Client) -> None:
    stage = Stage()
    frozen, well = stage.query("delays"), stage.query("arrivals")
    for name in ("delays", "arrivals"):
        stage.up(name)
    stage.query("stopped")
    now = datetime.now(UTC)
    beat(stage.run("arrivals"), at=now)
    last = now - timedelta(seconds=40)
    beat(stage.run("delays"), at=last)

    def silent(topics: str) -> str:
        return str(snapshot(vera, topics).json()["tick"]["silent"])

    run = stage.run("delays").pk
    for topics in (
        "system queries",
        f"system query:{frozen.pk} lag:{frozen.pk}",
        f"system run:{run}",
        f"system application:{frozen.application_id}",
    ):
        assert silent(topics) == last.isoformat(), topics
    assert silent(f"system query:{well.pk}") == ""
    assert silent(f"system query:{stage.row('stopped').pk}") == ""
    beat(stage.run("delays"), at=now)
    assert silent("system queries") == ""


@pytest.mark.django_db(transaction=True)
def test_a_driver_that_never_sent_a_heartbeat_is_silent_since_its_launch(vera: Client) -> None:
    stage = Stage()
    stage.query("delays")
    stage.up("delays")
    tick = snapshot(vera, "queries").json()["tick"]
    assert tick["silent"] == stage.driver("delays").created_at.isoformat()


@pytest.mark.django_db(transaction=True)
def test_a_topic_that_cannot_be_drawn_keeps_the_others_from_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    drawn: list[str] = []

    def draw(topic: str, *_: Any) -> list[tuple[str, str]]:
        if topic == "query:1":
            raise KeyError("durationMs")
        drawn.append(topic)
        return [("queries", "<div></div>")]

    async def watch() -> None:
        hub = Hub()
        viewer = await hub.join(Viewer(frozenset({"query:1", "queries"})), "")
        try:
            for _ in range(3):
                hub._stale_all()
                for topic in ("query:1", "queries"):
                    await hub._draw(topic)
        finally:
            hub.leave(viewer)

    monkeypatch.setattr(fragments, "draw", draw)
    asyncio.run(watch())
    assert drawn.count("queries") >= 4
    assert len([one for one in caplog.records if "query:1" in one.getMessage()]) == 1


@pytest.mark.redis
@pytest.mark.django_db(transaction=True)
def test_an_odd_message_does_not_end_the_listening(
    monkeypatch: pytest.MonkeyPatch, settings: Any, redis_server: str
) -> None:
    settings.REDIS_URL = redis_server
    heard: list[str] = []

    def stales(topic: str, message: str) -> bool:
        heard.append(message)
        if message == "odd":
            raise ValueError("not a topic")
        return False

    async def listen() -> None:
        hub = Hub()
        viewer = await hub.join(Viewer(frozenset({"queries"})), "")
        try:
            async with asyncio.timeout(LIMIT_S):
                with redis.Redis.from_url(redis_server) as client:
                    for message in ("odd", "fine"):
                        while message not in heard:
                            client.publish(settings.CHANGED_CHANNEL, message)
                            await asyncio.sleep(0.05)
        finally:
            hub.leave(viewer)

    monkeypatch.setattr(fragments, "stales", stales)
    monkeypatch.setattr(fragments, "draw", lambda *_: [])
    asyncio.run(listen())
    assert "fine" in heard


@pytest.mark.django_db(transaction=True)
def test_only_the_rows_that_a_page_shows_are_drawn(vera: Client) -> None:
    stage = Stage()
    shown, other = stage.query("delays"), stage.query("other")
    drawn = dict(snapshot(vera, f"queries:{shown.pk}").json()["fragments"])
    assert f"row-{shown.pk}" in drawn
    assert f"row-{other.pk}" not in drawn
    assert drawn["count-all"].count(">2<") == 1
