"""The event stream: drawn once, shared by all who look, data only, and only for who may look."""

import asyncio
import contextlib
import json
import zlib
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from django.contrib.auth.models import User
from django.db import DatabaseError, connection
from django.test import Client

from listeners.models import Heartbeat
from queries.models.drivers import Run
from queries.views.console import fragments
from queries.views.console.fragments import Fragment, encode
from queries.views.console.hub import Hub
from queries.views.console.live import STREAMS_AT_MOST, TABS_AT_MOST
from tests.scenarios.stage import Stage
from tests.web.streams import LIMIT_S, Reader, events_of

REPOSITORY = Path(__file__).resolve().parents[3]


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


def test_a_fragment_becomes_an_event_for_a_tab() -> None:
    fragment = Fragment("row-1", "<tr>\n</tr>", 7)
    event = encode([fragment], "hub", 3, packed=False).decode()
    said = '{"event": "row-1", "data": "<tr>\\n</tr>"}'
    assert event == f"id: hub.7\ndata: 3\ndata: {said}\n\n"
    assert events_of(event) == [(3, "row-1", "<tr>\n</tr>")]


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


async def changed(publisher: "redis.Redis", settings: Any, message: str) -> None:
    """Publish a message, once the hub subscribes to them."""
    while not await asyncio.to_thread(publisher.publish, settings.CHANGED_CHANNEL, message):
        await asyncio.sleep(0.05)


@pytest.mark.redis
@pytest.mark.django_db(transaction=True)
def test_a_change_is_drawn_once_and_told_to_everybody_in_the_same_bytes(
    drawings: list[fragments.Changes], redis_server: str, settings: Any
) -> None:
    settings.REDIS_URL = redis_server
    publisher = redis.Redis.from_url(redis_server)

    async def story(hub: Hub) -> None:
        readers = [await Reader().join(hub, "counted") for _ in range(5)]
        await changed(publisher, settings, "query:42")
        newest = [""]
        for reader in readers:
            await reader.until(lambda of=reader: len(of.said("count")) > 1)  # type: ignore[misc]
        newest = [reader.bodies[-1] for reader in readers]  # type: ignore[misc]
        assert len({id(body) for body in newest}) == 1
        assert len(drawings) < len(readers)  # fewer than one each, for two changes

    alone(story)


@pytest.mark.redis
@pytest.mark.django_db(transaction=True)
def test_a_hundred_changes_at_once_are_few_drawings_and_none_is_left_out(
    drawings: list[fragments.Changes], redis_server: str, settings: Any
) -> None:
    settings.REDIS_URL = redis_server
    publisher = redis.Redis.from_url(redis_server)

    async def story(hub: Hub) -> None:
        reader = await Reader().join(hub, "counted")
        await changed(publisher, settings, "x")
        for number in range(100):
            publisher.publish(settings.CHANGED_CHANNEL, f"query:{number}")

        def told() -> bool:  # or, if the hub subscribed in between, everything was drawn again
            return None in drawings[1:] or sum(len(some or ()) for some in drawings) >= 100

        await reader.until(told)
        assert len(drawings) < 8
        await reader.until(lambda: reader.said("count")[-1] == f"<p>{len(drawings)}</p>")

    alone(story)


@pytest.mark.django_db(transaction=True)
def test_a_viewer_who_comes_back_is_told_only_what_it_missed(
    drawings: list[fragments.Changes],
) -> None:
    async def story(hub: Hub) -> None:
        first = await Reader().join(hub, "counted")
        cursor = json.loads(first.said("tick")[0])["cursor"]
        again = await Reader().join(hub, "counted", cursor=cursor)
        assert [event for _, event, _ in again.events] == ["tick"]
        stranger = await Reader().join(hub, "counted", cursor="another.99")
        assert [event for _, event, _ in stranger.events] == ["same", "count", "tick"]

    alone(story)


@pytest.mark.django_db(transaction=True)
def test_one_that_reads_slowly_is_told_the_newest_and_not_each_one(
    drawings: list[fragments.Changes],
) -> None:
    async def story(hub: Hub) -> None:
        reader = await Reader().join(hub, "counted")
        reader.takes.clear()
        for _ in range(5):
            hub._stale_all()
            await hub._draw("counted")
            hub._release(hub.pages[frozenset({"counted"})])
            await asyncio.sleep(0)  # the first of these is on its way, and waits
        reader.takes.set()
        await reader.until(lambda: reader.said("count")[-1] == "<p>6</p>")
        assert len(reader.said("count")) < 6
        cursors = [json.loads(tick)["cursor"] for tick in reader.said("tick")]
        assert reader.said("same") == ["<p>same</p>"]
        assert cursors == [f"{hub.name}.2"]  # a tick never names what has not been sent

    alone(story)


@pytest.mark.django_db(transaction=True)
def test_a_compressed_stream_is_the_same_stream(drawings: list[fragments.Changes]) -> None:
    async def story(hub: Hub) -> None:
        plain, packed = Reader(), Reader(packed=True)
        for reader in (plain, packed):
            await hub.join(reader.viewer, [(frozenset({"counted"}), "")])
        await hub._draw("counted")
        hub._release(hub.pages[frozenset({"counted"})])
        await plain.until(lambda: plain.said("count")[-1] == "<p>2</p>")
        await packed.until(lambda: len(packed.bodies) > 1)
        text = zlib.decompressobj(wbits=31).decompress(b"".join(packed.bodies)).decode()
        wanted = [each for each in plain.events if each[1] != "tick"]
        assert [each for each in events_of(text) if each[1] != "tick"] == wanted

    alone(story)


@pytest.mark.django_db(transaction=True)
def test_twenty_tabs_share_a_stream_and_each_is_told_what_it_shows(
    drawings: list[fragments.Changes],
) -> None:
    async def story(hub: Hub) -> None:
        shared = Reader()
        pages = [frozenset({"counted" if tab % 2 else "system"}) for tab in range(20)]
        await hub.join(shared.viewer, [(page, "") for page in pages])
        await Reader().join(hub, "counted")
        assert hub.streams_of(7) == 2
        await shared.until(lambda: len(shared.said("tick")) == 20)
        told = shared.events
        assert {tab for tab, event, _ in told if event == "count"} == set(range(1, 20, 2))
        assert {tab for tab, event, _ in told if event == "tick"} == set(range(20))

    alone(story)


def test_more_tabs_than_a_stream_has_are_refused(vera: Client) -> None:
    answer = vera.get("/live/", {"topics": ["system"] * (TABS_AT_MOST + 1)})
    assert answer.status_code == 400
    assert f"the limit is {TABS_AT_MOST}" in answer.content.decode()
    assert STREAMS_AT_MOST >= 20  # a person with twenty tabs, none of them shared
    script = (REPOSITORY / "static/js/stream.js").read_text()
    assert f"TABS_AT_MOST = {TABS_AT_MOST};" in script


@pytest.mark.django_db(transaction=True)
def test_what_has_not_changed_is_not_told_again(drawings: list[fragments.Changes]) -> None:
    async def story(hub: Hub) -> None:
        reader = await Reader().join(hub, "counted")
        await hub._draw("counted")
        await reader.until(lambda: len(reader.said("count")) == 2)
        assert reader.said("same") == ["<p>same</p>"]

    alone(story)


@pytest.mark.django_db(transaction=True)
def test_pages_that_share_a_topic_and_open_at_once_are_told_all_of_it(
    drawings: list[fragments.Changes],
) -> None:
    async def story(hub: Hub) -> None:
        one, two = Reader(), Reader()
        await asyncio.gather(
            hub.join(one.viewer, [(frozenset({"counted"}), "")]),
            hub.join(two.viewer, [(frozenset({"counted", "system"}), "")]),
        )
        for reader in (one, two):
            await reader.until(lambda of=reader: bool(of.said("count")))  # type: ignore[misc]

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
        reader = await Reader().join(hub, "broken", "counted")
        assert reader.said("count") == ["<p>1</p>"]

    alone(story)


@pytest.mark.django_db(transaction=True)
def test_a_connection_that_broke_is_opened_again_though_a_part_was_left_out(
    drawings: list[fragments.Changes], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Any] = []

    def breaks(key: str, changes: fragments.Changes, now: datetime) -> fragments.Drawn:
        connection.ensure_connection()
        opened.append(connection.connection)
        with contextlib.suppress(DatabaseError), connection.cursor() as cursor:
            cursor.execute("SELECT nothing FROM nowhere" if len(opened) == 2 else "SELECT 1")
        yield "same", "<p>same</p>"

    monkeypatch.setitem(
        fragments.TOPICS, "breaks", fragments.Topic(breaks, frozenset(), frozenset())
    )

    async def story(hub: Hub) -> None:
        await Reader().join(hub, "breaks")
        for _ in range(2):
            await hub._draw("breaks")
        assert opened[0] is opened[1] is not opened[2]

    alone(story)


@pytest.mark.django_db(transaction=True)
def test_a_busy_topic_is_drawn_as_a_whole_all_the_same(
    drawings: list[fragments.Changes],
) -> None:
    """What changes merely with time is in none of the messages."""

    async def story(hub: Hub) -> None:
        reader = await Reader().join(hub, "counted")
        drawn = hub._drawn["counted"]
        for number in range(3):
            hub._stale(f"query:{number}")
            await reader.until(lambda: drawn.changes == set())
        drawn.whole_at = float("-inf")  # ten seconds pass
        hub._stale("query:4")
        await reader.until(lambda: drawings[-1] is None)

    alone(story)


@pytest.mark.django_db(transaction=True)
def test_when_the_server_leaves_every_stream_ends(drawings: list[fragments.Changes]) -> None:
    async def story(hub: Hub) -> None:
        reader = await Reader().join(hub, "counted")
        hub.close()
        late = Reader()
        await hub.join(late.viewer, [(frozenset({"counted"}), "")])
        for each in (reader, late):
            await each.until(lambda of=each: of.bodies[-1] == b"")  # type: ignore[misc]
            assert each.viewer.ended

    alone(story)


@pytest.mark.django_db(transaction=True)
def test_a_silent_stream_is_kept_open_by_comments(
    drawings: list[fragments.Changes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queries.views.console.hub.COMMENT_EVERY_S", 0.1)

    async def story(hub: Hub) -> None:
        reader = await Reader().join(hub, "counted")
        await reader.until(lambda: reader.bodies[-1] == b": still here\n\n")

    alone(story)


def beat(run: Run, *, at: datetime) -> None:
    """The newest heartbeat of a run's driver was taken in then."""
    Heartbeat.objects.update_or_create(
        driver=run.driver_id,
        defaults={"epoch": 1, "seq": 1, "at": at, "received_at": at, "body": {}},
    )


@pytest.mark.sql(
    "queries.selectors.console.newest_event_at",
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

    async def story(hub: Hub) -> None:
        await Reader().join(hub, "query:1", "queries")
        for _ in range(3):
            hub._stale_all()
            for topic in ("query:1", "queries"):
                await hub._draw(topic)

    monkeypatch.setattr(fragments, "draw", draw)
    alone(story)
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

    async def story(hub: Hub) -> None:
        await Reader().join(hub, "queries")
        async with asyncio.timeout(LIMIT_S):
            with redis.Redis.from_url(redis_server) as client:
                for message in ("odd", "fine"):
                    while message not in heard:
                        client.publish(settings.CHANGED_CHANNEL, message)
                        await asyncio.sleep(0.05)

    monkeypatch.setattr(fragments, "stales", stales)
    monkeypatch.setattr(fragments, "draw", lambda *_: [])
    alone(story)
    assert "fine" in heard


@pytest.mark.django_db(transaction=True)
def test_only_the_rows_that_a_page_shows_are_drawn(vera: Client) -> None:
    stage = Stage()
    shown, other = stage.query("delays"), stage.query("other")
    drawn = dict(snapshot(vera, f"queries:{shown.pk}").json()["fragments"])
    assert f"row-{shown.pk}" in drawn
    assert f"row-{other.pk}" not in drawn
    assert drawn["count-all"].count(">2<") == 1
