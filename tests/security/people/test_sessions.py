"""Sessions end when nobody uses them, when they are old, and when somebody ends them."""

import asyncio
import re
from datetime import datetime, timedelta
from typing import Any

import pytest
import time_machine
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from queries.domain.access import Act
from queries.models.access.accounts import BrowserSession, SessionStore
from queries.models.access.audit import AuditEntry
from queries.services.access.accounts import forget_expired_sessions
from queries.views.console.fragments import Viewer
from queries.views.console.hub import hub
from tests.conftest import Browser
from tests.web.browserless import Page

pytestmark = pytest.mark.django_db

PASSWORD = "a password of the cast"
BEGUN = datetime.fromisoformat("2026-03-02T08:00:00+00:00")


def _signed_in(name: str = "vera", agent: str = "Mozilla/5.0 (X11; Linux) Firefox/150.0") -> Client:
    browser = Client(headers={"user-agent": agent}, REMOTE_ADDR="10.1.2.3")
    browser.post("/login/", {"username": name, "password": PASSWORD})
    return browser


def _is_in(browser: Client) -> bool:
    return browser.get("/queries/").status_code == 200


@pytest.mark.guarantee("G-SESSION-1")
def test_a_session_ends_when_it_is_not_used(viewer: User, settings: Any) -> None:
    with time_machine.travel(BEGUN, tick=False) as clock:
        browser = _signed_in()
        for _ in range(3):  # each use moves the limit
            clock.shift(timedelta(minutes=settings.SESSION_IDLE_MIN - 1))
            assert _is_in(browser)
        clock.shift(timedelta(minutes=settings.SESSION_IDLE_MIN, seconds=1))
        assert not _is_in(browser)


@pytest.mark.guarantee("G-SESSION-1")
def test_a_session_ends_though_it_is_used(viewer: User, settings: Any) -> None:
    with time_machine.travel(BEGUN, tick=False) as clock:
        browser = _signed_in()
        end = BEGUN + timedelta(seconds=settings.SESSION_COOKIE_AGE)
        while timezone.now() + timedelta(hours=7) < end:
            clock.shift(timedelta(hours=7))
            assert _is_in(browser)
            written = browser.session
            written["anything"] = "new"
            written.save()  # Django's own limit would begin again here
        clock.move_to(end + timedelta(seconds=1))
        assert not _is_in(browser)


def test_a_use_is_written_once_a_minute(viewer: User) -> None:
    with time_machine.travel(BEGUN, tick=False) as clock:
        browser = _signed_in()
        clock.shift(timedelta(seconds=59))
        browser.get("/settings/account/")
        assert BrowserSession.objects.get().seen_at == BEGUN
        clock.shift(timedelta(seconds=1))
        browser.get("/settings/account/")
        assert BrowserSession.objects.get().seen_at == BEGUN + timedelta(seconds=60)


def test_a_page_that_is_left_open_is_no_use(viewer: User, settings: Any) -> None:
    """Its live stream asks by itself, with nobody in front of it."""
    with time_machine.travel(BEGUN, tick=False) as clock:
        browser = _signed_in()
        for _ in range(4):
            clock.shift(timedelta(minutes=settings.SESSION_IDLE_MIN / 3))
            headers = {"accept": "application/json"}
            last = browser.get("/live/?topics=system", headers=headers).status_code
        assert last == 403


@pytest.mark.django_db(transaction=True)
def test_streams_look_at_the_same_limits(viewer: User, settings: Any) -> None:
    """The stream's view is asynchronous, and reads the session by another way."""

    async def read(key: str) -> dict[str, Any]:
        return dict(await SessionStore(key).aload())

    with time_machine.travel(BEGUN, tick=False) as clock:
        key = _signed_in().session.session_key
        assert key is not None
        assert asyncio.run(read(key)) != {}
        clock.shift(timedelta(minutes=settings.SESSION_IDLE_MIN, seconds=1))
        assert asyncio.run(read(key)) == {}
        assert forget_expired_sessions(now=timezone.now()) == 1
        assert not BrowserSession.objects.exists()


@pytest.mark.guarantee("G-SESSION-2")
def test_one_sees_where_one_is_signed_in_and_ends_one_of_them(viewer: User, operator: User) -> None:
    other = _signed_in(agent="Mozilla/5.0 (Windows NT 10.0) Chrome/150.0 Safari/537.36")
    stranger = _signed_in("otto")
    browser = _signed_in()
    page = Page(browser, "/settings/account/")
    for words in ("Firefox on Linux", "This browser", "Chrome on Windows", "10.1.2.3"):
        assert words in page.text
    keys = list(BrowserSession.objects.values_list("pk", flat=True))
    assert [key for key in keys if key in page.html] == []  # whoever reads a key is signed in
    [name] = _names(page.html)
    answer = browser.post("/settings/account/session/", {"session": name}, follow=True)
    assert "That browser was signed out." in answer.content.decode()
    assert (_is_in(browser), _is_in(other), _is_in(stranger)) == (True, False, True)


def _names(html: str) -> list[str]:
    return re.findall(r'name="session" value="([^"]+)"', html)


def test_nobody_ends_a_session_of_somebody_else(viewer: User, operator: User) -> None:
    stranger, _ = _signed_in("otto"), _signed_in("otto")
    [name] = _names(stranger.get("/settings/account/").content.decode())
    browser = _signed_in()
    browser.post("/settings/account/session/", {"session": name})
    assert BrowserSession.objects.filter(account=operator).count() == 2


@pytest.mark.guarantee("G-SESSION-3")
@pytest.mark.parametrize("act", ["sign-out", "password", "shut-out"])
def test_an_admin_ends_the_sessions_of_a_user(admin: User, viewer: User, act: str) -> None:
    browser, boss = _signed_in(), Browser()
    boss.force_login(admin)
    boss.post(f"/settings/users/{viewer.pk}/", {"do": act})
    assert not _is_in(browser)
    assert not BrowserSession.objects.filter(account=viewer).exists()
    assert AuditEntry.objects.get(kind=Act.SESSIONS_ENDED).actor == "ada"


def test_only_an_admin_does(author: User, viewer: User) -> None:
    browser, other = _signed_in(), Browser()
    other.force_login(author)
    assert other.post(f"/settings/users/{viewer.pk}/", {"do": "sign-out"}).status_code == 403
    assert _is_in(browser)


def test_a_new_password_ends_the_other_sessions_and_their_rows(viewer: User) -> None:
    other, browser = _signed_in(), _signed_in()
    new = "a longer one of my own"
    form = {"old_password": PASSWORD, "new_password1": new, "new_password2": new}
    browser.post("/settings/account/", form)
    assert (_is_in(browser), _is_in(other)) == (True, False)
    assert BrowserSession.objects.count() == 1
    said = {row.kind for row in AuditEntry.objects.exclude(kind=Act.SIGNED_IN)}
    assert said == {Act.PASSWORD_CHANGED, Act.SESSIONS_ENDED}


@pytest.mark.guarantee("G-SESSION-4")
@pytest.mark.django_db(transaction=True)
def test_streams_end_with_their_session_though_redis_is_away(viewer: User, operator: User) -> None:
    """A web process looks itself, at each tick: nothing tells it."""
    ended, goes_on = _signed_in().session.session_key, _signed_in("otto").session.session_key
    BrowserSession.objects.filter(pk=ended).delete()

    async def story() -> list[bool]:
        viewers = [Viewer(viewer.pk, str(ended)), Viewer(operator.pk, str(goes_on))]
        hub().viewers.update(viewers)
        await hub()._end_of_rights()
        hub().viewers.clear()
        return [one.ended for one in viewers]

    assert asyncio.run(story()) == [True, False]


@pytest.mark.django_db(transaction=True)
def test_a_message_ends_the_streams_of_one_person(viewer: User, operator: User) -> None:
    async def story() -> list[bool]:
        mine, other = (Viewer(one.pk) for one in (viewer, operator))
        hub().viewers.update((mine, other))
        hub()._stale(f"person:{viewer.pk}")
        hub()._stale("person:nobody")
        hub().viewers.clear()
        return [mine.ended, other.ended]

    assert asyncio.run(story()) == [True, False]
