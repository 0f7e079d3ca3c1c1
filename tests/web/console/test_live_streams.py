"""A whole stream: opened through Django, served below it, and ended with the right to view."""

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import redis
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group, User
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone

from queries.domain.states import Phase
from queries.models.access.accounts import BrowserSession, Team
from queries.models.definitions import Query
from queries.services.access.accounts import end_sessions
from queries.views.console.hub import hub
from queries.views.console.live import STREAMS_AT_MOST
from tests.scenarios.stage import Stage
from tests.web.streams import LIMIT_S, Stream

pytestmark = pytest.mark.django_db(transaction=True)


def play(story: Callable[[], Awaitable[None]]) -> None:
    """Play a story in a loop of its own; no stream, page or loop of the hub may be left."""

    async def whole() -> None:
        await story()
        assert (hub().viewers, hub().pages, hub()._tasks) == (set(), {}, [])
        hub()._thread.shutdown()

    asyncio.run(asyncio.wait_for(whole(), 2 * LIMIT_S))


@pytest.fixture
def vera(client: Client, viewer: User) -> Client:
    client.force_login(viewer)
    return client


@pytest.mark.redis
def test_a_change_of_phase_reaches_the_open_stream(
    vera: Client, redis_server: str, settings: Any
) -> None:
    settings.REDIS_URL = redis_server
    query = Stage().query("delays")
    publisher = redis.Redis.from_url(redis_server)

    async def story() -> None:
        stream = await Stream(vera, [f"queries:{query.pk}"]).open()
        assert stream.headers["content-type"] == "text/event-stream"
        assert (await stream.until("\n\n")).startswith("retry: ")
        await stream.until('data-phase=\\"STOPPED\\"')
        await stream.until('"event": "tick"')
        rows = Query.objects.filter(pk=query.pk)
        await sync_to_async(rows.update)(phase=Phase.PENDING)
        while not await asyncio.to_thread(
            publisher.publish, settings.CHANGED_CHANNEL, f"query:{query.pk}"
        ):
            await asyncio.sleep(0.05)
        await stream.until('data-phase=\\"PENDING\\"')
        await stream.leave()

    play(story)


def test_an_open_stream_has_the_headers_of_any_page_and_nothing_of_django(vera: Client) -> None:
    page = vera.get("/healthz")

    async def story() -> None:
        stream = await Stream(vera, ["system"], accept_encoding="gzip, br").open()
        assert stream.status == 200
        assert stream.headers["content-encoding"] == "gzip"
        assert stream.headers["cache-control"] == "no-store"
        assert "content-length" not in stream.headers
        for name in ("Content-Security-Policy", "X-Content-Type-Options", "Referrer-Policy"):
            assert bool(stream.headers.get(name.lower())) == bool(page.headers.get(name))
        assert "frame-ancestors" in stream.headers["content-security-policy"]
        await stream.until('"event": "tick"')
        gc.collect()
        kinds = (ASGIRequest, HttpResponse)
        left = [one for one in gc.get_objects() if issubclass(type(one), kinds)]
        assert [one for one in left if getattr(one, "path", "") == "/live/"] == []
        assert [one for one in left if "event-stream" in str(getattr(one, "headers", ""))] == []
        await stream.leave()

    play(story)


@pytest.mark.parametrize(
    ("topics", "headers", "status"),
    [
        (["secrets"], {}, 400),
        (["system"], {"host": "elsewhere.example"}, 400),
        (["system"], {"cookie": ""}, 403),
    ],
)
def test_what_django_refuses_is_its_own_answer(
    vera: Client, topics: list[str], headers: dict[str, str], status: int
) -> None:
    async def story() -> None:
        stream = await Stream(vera, topics, **headers).open()
        assert stream.status == status
        assert "event:" not in await stream.rest()

    play(story)


def test_a_stream_is_counted_from_its_admission_and_no_longer_when_it_is_left(
    vera: Client, operator: User
) -> None:
    other = Client()
    other.force_login(operator)

    async def story() -> None:
        asked = [Stream(vera, ["system"]) for _ in range(STREAMS_AT_MOST + 3)]
        streams = await asyncio.gather(
            *(one.open() for one in asked), Stream(other, ["system"]).open()
        )
        found = sorted(one.status for one in streams[:-1])
        assert found == [200] * STREAMS_AT_MOST + [429] * 3
        assert streams[-1].status == 200
        for one in streams:
            await (one.leave() if one.status == 200 else one.rest())

    play(story)


def test_of_foreign_teams_a_viewer_is_shown_what_pages_show_and_no_act(
    vera: Client, outsider: User
) -> None:
    """Every role can view every team's queries; without a role, nothing is streamed."""
    stage = Stage()
    query = stage.query("foreign")
    team = Team.objects.create(name="others", created_at=stage.now)
    query.application.team = team
    query.application.save()
    nobody = Client()
    nobody.force_login(outsider)
    topic = f"query:{query.pk} queries:{query.pk}"

    async def story() -> None:
        refused = await Stream(nobody, [topic]).open()
        assert refused.status == 403
        assert "foreign" not in await refused.rest()
        stream = await Stream(vera, [topic]).open()
        text = await stream.until('"event": "tick"')
        assert "foreign" in text
        for act in ("<form", "<button", "csrf", "/start/"):
            assert act not in text
        await stream.leave()

    play(story)


def _signs_out(client: Client, viewer: User) -> None:
    client.logout()


def _is_signed_out_by_an_admin(client: Client, viewer: User) -> None:
    end_sessions(user=viewer, actor="ada", now=timezone.now())


def _expires(client: Client, viewer: User) -> None:
    BrowserSession.objects.update(expire_date=timezone.now())


def _is_deactivated(client: Client, viewer: User) -> None:
    User.objects.filter(pk=viewer.pk).update(is_active=False)


def _loses_the_role(client: Client, viewer: User) -> None:
    viewer.groups.remove(Group.objects.get(name="viewer"))


@pytest.mark.parametrize(
    "happens",
    [_signs_out, _is_signed_out_by_an_admin, _expires, _is_deactivated, _loses_the_role],
)
def test_an_open_stream_ends_with_the_right_to_view_though_redis_is_away(
    vera: Client, viewer: User, operator: User, happens: Callable[[Client, User], None]
) -> None:
    query = Stage().query("delays")
    other = Client()
    other.force_login(operator)

    async def story() -> None:
        stream = await Stream(vera, [f"queries:{query.pk}"]).open()
        kept = await Stream(other, [f"queries:{query.pk}"]).open()
        for one in (stream, kept):
            await one.until('"event": "tick"')
        await sync_to_async(happens)(vera, viewer)
        await hub()._end_of_rights()
        before = stream.text
        hub()._stale_all()
        assert "row-" not in (await stream.rest()).removeprefix(before)
        assert len(hub().viewers) == 1
        await kept.leave()

    play(story)


def test_a_stream_ends_after_its_time_and_when_the_server_leaves(
    vera: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queries.views.console.live.LIFE_S", 0)
    monkeypatch.setattr("queries.views.console.hub.TICK_S", 0.1)

    async def story() -> None:
        stream = await Stream(vera, ["system"]).open()
        await stream.rest()
        monkeypatch.setattr("queries.views.console.live.LIFE_S", 1800)
        stream = await Stream(vera, ["system"]).open()
        await stream.until('"event": "tick"')
        hub().close()
        await stream.rest()

    play(story)
