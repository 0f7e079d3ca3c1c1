"""One's own account: the password, where one is signed in, and the zone of times."""

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tests.conftest import Browser
from tests.web.browserless import Page

OLD, NEW = "a password of the cast", "a longer one of my own"


def _change(client: Client, old: str, new: str, again: str = "") -> str:
    form = {"old_password": old, "new_password1": new, "new_password2": again or new}
    return client.post("/settings/account/", form, follow=True).content.decode()


@pytest.mark.guarantee("G-SESSION-2")
def test_a_new_password_signs_the_other_browsers_out(client: Client, viewer: User) -> None:
    other = Browser()
    other.force_login(viewer)
    client.force_login(viewer)
    assert "Your password was changed" in _change(client, OLD, NEW)
    assert client.get("/queries/").status_code == 200
    assert other.get("/queries/").status_code == 302
    viewer.refresh_from_db()
    assert viewer.check_password(NEW)


@pytest.mark.parametrize(
    ("old", "new", "again"),
    [("wrong", NEW, ""), (OLD, "short", ""), (OLD, NEW, "another"), (OLD, "1234567890123", "")],
)
def test_a_password_that_will_not_do_changes_nothing(
    client: Client, viewer: User, old: str, new: str, again: str
) -> None:
    client.force_login(viewer)
    assert "field-error" in _change(client, old, new, again)
    viewer.refresh_from_db()
    assert viewer.check_password(OLD)


def test_other_sessions_can_be_ended_and_those_of_others_go_on(
    client: Client, viewer: User, operator: User
) -> None:
    other, stranger = Browser(), Browser()
    other.force_login(viewer)
    stranger.force_login(operator)
    client.force_login(viewer)
    assert "In 2 browsers, including this one." in Page(client, "/settings/account/").text
    answer = client.post("/settings/account/elsewhere/", follow=True).content.decode()
    assert "Signed out of 1 other browser." in answer
    assert "In this browser only." in answer
    assert other.get("/queries/").status_code == 302
    assert stranger.get("/queries/").status_code == 200


@pytest.mark.parametrize(
    ("chosen", "kept"),
    [("Europe/Berlin", "Europe/Berlin"), ("browser", "browser"), ("UTC", ""), ("Mars/Base", "")],
)
def test_the_zone_is_kept_in_a_cookie_where_there_is_such_a_zone(
    client: Client, viewer: User, chosen: str, kept: str
) -> None:
    client.force_login(viewer)
    client.post("/settings/account/zone/", {"zone": chosen})
    cookie = client.cookies.get("zone")
    assert (cookie.value if cookie else "") == kept
    page = Page(client, "/settings/account/").html
    if kept == "Europe/Berlin":
        assert "<option selected>Europe/Berlin</option>" in page


def test_the_menu_leads_there(client: Client, viewer: User) -> None:
    client.force_login(viewer)
    assert 'href="/settings/account/"' in client.get("/queries/").content.decode()
