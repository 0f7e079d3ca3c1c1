"""Signing in by a real identity provider: the whole code flow with PKCE."""

from datetime import timedelta
from typing import Any

import pytest
from allauth.socialaccount.models import SocialAccount
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from queries.models.access.accounts import GroupRole
from queries.roles import Role, role_of
from queries.services.access.accounts import forget_expired_sessions
from tests.oidc.conftest import give, trust
from tests.oidc.real import HERE, RealProvider, real_provider
from tests.oidc.traveller import Traveller, asked

pytestmark = pytest.mark.oidc


def _role(name: str) -> Role | None:
    return role_of(User.objects.get(username=name))


def test_a_person_gets_in_with_the_role_of_their_groups(real: RealProvider) -> None:
    give(data="author", everybody="viewer")
    real.has(nina=["everybody", "data", "not in the table"])
    nina = Traveller("nina")
    answer = nina.sign_in("/runs/")
    assert (answer.status_code, answer["Location"]) == (302, "/runs/")
    assert nina.is_in
    assert _role("nina") is Role.AUTHOR
    user = User.objects.get()
    assert not user.has_usable_password()
    account = SocialAccount.objects.get()
    assert (account.provider, account.uid, account.user) == (real.issuer, "nina", user)


def test_the_same_person_comes_back_to_the_same_account(real: RealProvider) -> None:
    give(data="viewer")
    real.has(nina=["data"])
    for _ in range(2):
        assert Traveller("nina").sign_in().status_code == 302
    assert User.objects.count() == 1


def test_groups_that_changed_between_two_sign_ins_change_the_role(real: RealProvider) -> None:
    give(admins="admin", data="viewer")
    real.has(nina=["admins"])
    Traveller("nina").sign_in()
    assert _role("nina") is Role.ADMIN
    real.has(nina=["data"])
    Traveller("nina").sign_in()
    assert _role("nina") is Role.VIEWER


@pytest.mark.guarantee("G-SSO-5")
def test_who_has_left_all_groups_is_out_in_every_browser(real: RealProvider) -> None:
    give(data="admin")
    real.has(nina=["data"])
    first = Traveller("nina")
    first.sign_in()
    assert first.is_in
    real.has(nina=[])
    assert Traveller("nina").sign_in().status_code == 403
    assert _role("nina") is None
    assert not first.is_in


def test_without_a_group_of_the_table_a_page_says_which_there_were_and_whom_to_ask(
    real: RealProvider,
) -> None:
    give(data="viewer")
    real.has(olaf=["sales", "<b>bold</b>", "Data"])
    olaf = Traveller("olaf")
    answer = olaf.sign_in()
    page = answer.content.decode()
    assert answer.status_code == 403
    assert "<code>sales</code>" in page
    assert "&lt;b&gt;bold&lt;/b&gt;" in page
    assert "data-platform@example.org" in page
    assert not olaf.is_in
    assert not User.objects.exists()


def test_a_table_without_lines_lets_nobody_in(real: RealProvider) -> None:
    real.has(nina=["data"])
    assert Traveller("nina").sign_in().status_code == 403
    assert not GroupRole.objects.exists()


@pytest.mark.guarantee("G-SSO-4")
def test_a_local_account_of_the_same_name_and_address_is_not_taken_over(
    real: RealProvider, admin: User
) -> None:
    admin.email = "ada@example.org"
    admin.save()
    give(data="viewer")
    real.people.write_text('{"ada": {"groups": ["data"], "email": "ada@example.org"}}')
    ada = Traveller("ada")
    ada.sign_in()
    assert ada.is_in
    assert ada.console.get("/settings/users/").status_code == 403
    assert "Signed in as <strong>ada-2</strong>" in ada.console.get("/queries/").content.decode()
    admin.refresh_from_db()
    assert (role_of(admin), admin.has_usable_password()) == (Role.ADMIN, True)


def test_a_deactivated_account_stays_outside(real: RealProvider) -> None:
    give(data="viewer")
    real.has(nina=["data"])
    Traveller("nina").sign_in()
    User.objects.update(is_active=False)
    nina = Traveller("nina")
    answer = nina.sign_in()
    assert answer.status_code == 403
    assert "is deactivated" in answer.content.decode()
    assert not nina.is_in


@pytest.mark.guarantee("G-SSO-1")
def test_the_way_there_carries_state_nonce_and_challenge_and_no_secret(real: RealProvider) -> None:
    nina = Traveller()
    sent, again = asked(nina.set_out()), asked(nina.set_out())
    assert sent["response_type"] == "code"
    assert sent["redirect_uri"] == f"{HERE}/sso/callback/"
    assert sent["code_challenge_method"] == "S256"
    assert set(sent["scope"].split()) == {"openid", "profile", "groups"}
    for name in ("state", "nonce", "code_challenge"):
        assert len(sent[name]) >= 16
        assert sent[name] != again[name]
    assert "verifier" not in str(sent)


def test_the_provider_takes_no_sign_in_without_a_challenge(real: RealProvider) -> None:
    nina = Traveller()
    address = nina.set_out().replace("code_challenge=", "nothing=")
    assert "error=invalid_request" in nina.pass_through(address)


def test_a_code_without_the_secret_of_pkce_is_worth_nothing(real: RealProvider) -> None:
    give(data="viewer")
    real.has(nina=["data"])
    nina = Traveller("nina")
    address = nina.pass_through(nina.set_out())
    session = nina.console.session
    [kept] = session["socialaccount_states"].values()
    kept[0]["pkce_code_verifier"] = "w" * 64
    session.save()
    answer = nina.arrive(address)
    assert answer.status_code == 403
    assert "did not accept the code" in answer.content.decode()
    assert not nina.is_in


@pytest.mark.guarantee("G-SSO-1")
def test_an_answer_counts_once(real: RealProvider) -> None:
    give(data="viewer")
    real.has(nina=["data"])
    nina = Traveller("nina")
    address = nina.pass_through(nina.set_out())
    assert nina.arrive(address).status_code == 302
    answer = nina.arrive(address)
    assert answer.status_code == 403
    assert "was already used" in answer.content.decode()


def test_an_answer_counts_only_in_the_browser_that_was_sent_there(real: RealProvider) -> None:
    give(data="viewer")
    real.has(mallory=["data"])
    mallory, nina = Traveller("mallory"), Traveller("nina")
    address = mallory.pass_through(mallory.set_out())
    nina.set_out()
    assert nina.arrive(address).status_code == 403
    assert not nina.is_in


def test_a_code_of_somebody_else_does_not_fit_into_ones_own_sign_in(real: RealProvider) -> None:
    give(data="viewer")
    real.has(mallory=["data"], nina=["data"])
    mallory, nina = Traveller("mallory"), Traveller("nina")
    code = asked(mallory.pass_through(mallory.set_out()))["code"]
    own = nina.pass_through(nina.set_out())
    assert nina.arrive(own.replace(asked(own)["code"], code)).status_code == 403
    assert not nina.is_in


@pytest.mark.guarantee("G-SSO-6")
@pytest.mark.parametrize("away", ["https://evil.example/", "//evil.example/x", "javascript:1"])
def test_next_never_leads_away(real: RealProvider, away: str) -> None:
    give(data="viewer")
    real.has(nina=["data"])
    nina = Traveller("nina")
    assert nina.sign_in(away)["Location"] == "/"
    assert nina.console.get("/sso/login/", {"next": away})["Location"] == "/"


def test_who_cancels_is_told(real: RealProvider) -> None:
    nina = Traveller()
    state = asked(nina.set_out())["state"]
    answer = nina.arrive(f"/sso/callback/?state={state}&error=access_denied&error_description=<b>")
    assert answer.status_code == 403
    assert "“access_denied”" in answer.content.decode()
    assert "<b>" not in answer.content.decode()


def test_the_session_ends_by_itself_after_the_hours_of_the_setting(
    real: RealProvider, settings: Any
) -> None:
    settings.OIDC_SESSION_HOURS = 1
    give(data="viewer")
    real.has(nina=["data"])
    nina = Traveller("nina")
    nina.sign_in()
    nina.console.get("/queries/")
    assert 3500 < nina.console.session.get_expiry_age() <= 3600


def test_signing_out_ends_the_session_here(real: RealProvider) -> None:
    give(data="viewer")
    real.has(nina=["data"])
    nina = Traveller("nina")
    nina.sign_in()
    assert nina.console.post("/logout/")["Location"] == "/login/"
    assert not nina.is_in


def test_a_client_that_posts_its_secret_is_let_in_too(
    settings: Any, db: None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("provider")
    with real_provider(folder, auth="client_secret_post") as provider:
        trust(settings, provider.issuer)
        settings.OIDC_CLIENT_AUTH = "client_secret_post"
        give(data="viewer")
        provider.has(nina=["data"])
        assert Traveller("nina").sign_in().status_code == 302


@pytest.mark.guarantee("G-SSO-4")
def test_an_account_of_a_provider_gets_no_password_and_no_other_role(
    real: RealProvider, client: Client, admin: User
) -> None:
    give(data="viewer")
    real.has(nina=["data"])
    Traveller("nina").sign_in()
    nina = User.objects.get(username="nina")
    client.force_login(admin)
    for sent in ({"do": "password"}, {"do": "role", "role": "admin"}):
        page = client.post(f"/settings/users/{nina.pk}/", sent, follow=True).content.decode()
        assert "signs in through SSO" in page
    nina.refresh_from_db()
    assert (nina.has_usable_password(), role_of(nina)) == (False, Role.VIEWER)


def test_a_password_set_by_command_does_not_open_the_local_door(
    real: RealProvider, client: Client
) -> None:
    give(data="viewer")
    real.has(nina=["data"])
    Traveller("nina").sign_in()
    nina = User.objects.get(username="nina")
    nina.set_password("a password of the cast")
    nina.save()
    door = {"username": "nina", "password": "a password of the cast"}
    page = client.post("/login/", door).content.decode()
    assert "This account signs in with Acme ID." in page
    assert client.get("/queries/").status_code == 302


def test_a_sign_in_that_is_begun_leaves_nothing_behind(real: RealProvider) -> None:
    nina = Traveller()
    nina.set_out()
    assert nina.console.session.get_expiry_age() <= 600
    later = timezone.now() + timedelta(minutes=11)
    assert forget_expired_sessions(now=later) == 1


def test_a_password_after_a_sign_in_that_was_begun_lasts_as_long_as_ever(
    real: RealProvider, viewer: User
) -> None:
    vera = Traveller()
    vera.set_out()
    vera.console.post("/login/", {"username": "vera", "password": "a password of the cast"})
    assert vera.is_in
    assert vera.console.session.get_expiry_age() > 86400
