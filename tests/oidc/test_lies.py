"""What an honest identity provider never sends lets nobody in; left honest, the same liar does."""

import base64
import hashlib
import hmac
import time
from collections.abc import Callable
from typing import Any

import pytest
import requests
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from queries.domain.access import Arrival
from queries.domain.errors import Conflict
from queries.roles import Role, role_of
from queries.services.access import sign_ins
from queries.services.access.identity_provider import BackChannel
from queries.services.access.sign_ins import let_in
from tests.oidc.conftest import give, trust
from tests.oidc.liar import FOREIGN_KEY, KEY, KID, Liar, liar, published, signed
from tests.oidc.real import CLIENT_ID, CLIENT_SECRET
from tests.oidc.traveller import Traveller, asked

NOW = int(time.time())
PUBLIC_PEM = KEY.public_key().public_bytes(
    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
)


def _refused(why: str, status: int = 403) -> None:
    nina = Traveller()
    answer = nina.sign_in()
    assert answer.status_code == status, answer.get("Location")
    assert why in answer.content.decode()
    assert not nina.is_in
    assert not User.objects.exists()


def test_left_honest_the_liar_lets_people_in(lying: Liar) -> None:
    nina = Traveller()
    assert nina.sign_in("/runs/")["Location"] == "/runs/"
    assert nina.is_in
    assert role_of(User.objects.get(username="nina")) is Role.OPERATOR


@pytest.mark.guarantee("G-SSO-2")
@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"iss": "https://elsewhere.example"}, "comes from another issuer"),
        ({"aud": "another-application"}, "issued for another application"),
        ({"aud": ["another-application", CLIENT_ID]}, "issued for another application"),
        ({"azp": "another-application"}, "issued for another application"),
        ({"exp": NOW - 600}, "has expired"),
        ({"nbf": NOW + 6000}, "is not valid yet"),
        ({"iat": NOW + 6000}, "is not valid yet"),
        ({"nonce": "of another sign-in"}, "belongs to another sign-in"),
        ({"nonce": None}, "belongs to another sign-in"),
        ({"exp": None}, "lacks a required claim"),
        ({"iss": None}, "lacks a required claim"),
        ({"aud": None}, "lacks a required claim"),
        ({"sub": None}, "lacks a required claim"),
        ({"sub": ""}, "Its subject"),
        ({"sub": "s" * 192}, "Its subject"),
        ({"sub": "s\x00"}, "Its subject"),
        ({"sub": 7}, "cannot be read"),
        ({"aud": [7]}, "issued for another application"),
        ({"nonce": ["n"]}, "belongs to another sign-in"),
    ],
)
def test_a_token_with_a_wrong_claim_lets_nobody_in(
    lying: Liar, claims: dict[str, Any], why: str
) -> None:
    lying.claims = claims
    _refused(why)


def _by_foreign_key(text: bytes) -> bytes:
    return FOREIGN_KEY.sign(text, PKCS1v15(), SHA256())


def _by_hmac(secret: bytes) -> Callable[[bytes], bytes]:
    return lambda text: hmac.digest(secret, text, "sha256")


@pytest.mark.guarantee("G-SSO-2")
@pytest.mark.parametrize(
    ("sign", "why"),
    [
        (lambda claims: signed(claims, by=_by_foreign_key), "The signature"),
        (lambda claims: signed(claims, by=_by_foreign_key, kid=None), "The signature"),
        (lambda claims: signed(claims, kid="not published"), "The signature"),
        (lambda claims: signed(claims, by=lambda _: b""), "The signature"),
        (
            lambda claims: signed(claims, by=lambda _: b"", alg="none"),
            "not signed with an accepted algorithm",
        ),
        (
            lambda claims: signed(claims, by=_by_hmac(PUBLIC_PEM), alg="HS256"),
            "not signed with an accepted algorithm",
        ),
        (
            lambda claims: signed(claims, by=_by_hmac(CLIENT_SECRET.encode()), alg="HS256"),
            "not signed with an accepted algorithm",
        ),
        (
            lambda claims: signed(
                claims, by=_by_hmac(CLIENT_SECRET.encode()), alg="HS256", kid=None
            ),
            "not signed with an accepted algorithm",
        ),
        (lambda claims: "a.b", "cannot be read"),
        (lambda claims: signed(claims, alg=None), "not signed with an accepted algorithm"),
    ],
)
def test_a_token_that_proves_no_origin_lets_nobody_in(
    lying: Liar, sign: Callable[[dict[str, Any]], str], why: str
) -> None:
    lying.sign = sign
    _refused(why)


def test_a_published_shared_key_proves_no_origin(lying: Liar) -> None:
    shared = {"kty": "oct", "kid": "shared", "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"}
    lying.keys.append(shared)
    secret = b"secret" * 5
    lying.sign = lambda claims: signed(claims, by=_by_hmac(secret), alg="HS256", kid="shared")
    _refused("not signed with an accepted algorithm")


def test_a_weak_key_proves_no_origin(lying: Liar) -> None:
    weak = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    lying.keys = [published(weak)]
    lying.sign = lambda claims: signed(claims, by=lambda t: weak.sign(t, PKCS1v15(), SHA256()))
    _refused("cannot be read")


@pytest.mark.parametrize("keys", [[], [{"kty": "RSA", "kid": KID}], [{"kid": KID}], ["no object"]])
def test_without_a_key_that_can_be_used_nobody_gets_in(lying: Liar, keys: list[Any]) -> None:
    lying.keys = keys
    _refused("cannot be read")


@pytest.mark.parametrize("answer", [{"id_token": None}, {"id_token": 7}])
def test_without_an_id_token_nobody_gets_in(lying: Liar, answer: dict[str, Any]) -> None:
    lying.answer = answer
    _refused("It sent no ID token")


def test_the_code_is_exchanged_with_the_secret_behind_the_challenge(lying: Liar) -> None:
    nina = Traveller()
    nina.sign_in()
    begun = next(sent for path, sent in lying.asked if path == "/authorize")
    verifier = next(sent["code_verifier"] for path, sent in lying.asked if path == "/token")
    digest = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest())
    assert digest.rstrip(b"=").decode() == begun["code_challenge"]


def test_groups_are_asked_for_where_the_id_token_has_none(lying: Liar) -> None:
    lying.claims, lying.userinfo = {"groups": None}, {"groups": ["data"]}
    assert Traveller().sign_in().status_code == 302


def test_what_is_told_of_another_person_lets_nobody_in(lying: Liar) -> None:
    lying.claims = {"groups": None}
    lying.userinfo = {"groups": ["data"], "sub": "s-2"}
    _refused("returned a different user")


def test_groups_of_the_id_token_are_not_replaced_by_what_is_told(lying: Liar) -> None:
    lying.claims, lying.userinfo = {"groups": []}, {"groups": ["data"]}
    _refused("None of your groups has a role here")


def test_an_answer_that_names_another_issuer_lets_nobody_in(lying: Liar) -> None:
    nina = Traveller()
    address = nina.pass_through(nina.set_out())
    answer = nina.arrive(f"{address}&iss=https://elsewhere.example")
    assert answer.status_code == 403
    assert "another issuer" in answer.content.decode()
    assert not nina.is_in


@pytest.mark.parametrize(
    "document",
    [
        {"issuer": "https://elsewhere.example"},
        {"authorization_endpoint": None},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"authorization_endpoint": "http://elsewhere.example/authorize"},
        {"token_endpoint": "http://elsewhere.example/token"},
        {"jwks_uri": "http://elsewhere.example/jwks"},
        {"jwks_uri": "file:///etc/passwd"},
        {"jwks_uri": 7},
    ],
)
def test_a_document_that_leads_elsewhere_is_not_followed(
    lying: Liar, document: dict[str, Any]
) -> None:
    lying.document = document
    nina = Traveller()
    answer = nina.console.get("/sso/login/")
    if answer.status_code == 302:
        answer = nina.arrive(nina.pass_through(answer["Location"]))
    assert answer.status_code == 503
    assert "is not responding as expected" in answer.content.decode()
    assert not nina.is_in


@pytest.mark.guarantee("G-SSO-3")
@pytest.mark.parametrize("path", ["/.well-known/openid-configuration", "/token", "/jwks"])
def test_redirects_of_the_provider_are_not_followed(lying: Liar, path: str) -> None:
    lying.redirects = {path: f"{lying.issuer}/elsewhere"}
    nina = Traveller()
    answer = nina.console.get("/sso/login/")
    if answer.status_code == 302:
        answer = nina.arrive(nina.pass_through(answer["Location"]))
    assert answer.status_code == 503
    assert "/elsewhere" not in [path for path, _ in lying.asked]


def test_a_provider_that_is_away_is_told_and_local_accounts_still_get_in(
    client: Client, admin: User, settings: Any
) -> None:
    trust(settings, "http://127.0.0.1:9")  # the discard port: refused at once
    answer = client.get("/sso/login/")
    assert answer.status_code == 503
    assert "Acme ID is not responding" in answer.content.decode()
    door = {"username": "ada", "password": "a password of the cast"}
    assert client.post("/login/", door).status_code == 302


def test_another_provider_of_the_same_subject_is_another_person(lying: Liar, settings: Any) -> None:
    Traveller().sign_in()
    with liar() as other:
        trust(settings, other.issuer)
        assert Traveller().sign_in().status_code == 302
    assert sorted(user.username for user in User.objects.all()) == ["nina", "nina-2"]


@pytest.mark.parametrize(
    ("place", "what"),
    [
        ("jwks", []),
        ("jwks", {"keys": {"a": 1}}),
        ("jwks", "text"),
        ("token", []),
        ("token", "text"),
        ("userinfo", []),
        ("userinfo", {"groups": {"data": True}}),
        (".well-known/openid-configuration", []),
        (".well-known/openid-configuration", None),
    ],
)
def test_an_answer_of_another_form_lets_nobody_in(lying: Liar, place: str, what: Any) -> None:
    lying.claims = {"groups": None}
    lying.instead = {f"/{place}": what}
    nina = Traveller()
    answer = nina.console.get("/sso/login/")
    if answer.status_code == 302:
        answer = nina.arrive(nina.pass_through(answer["Location"]))
    assert answer.status_code in {403, 503}
    assert not nina.is_in


def test_of_two_first_sign_ins_at_once_one_makes_the_account(
    db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(data="viewer")
    nina = Arrival(issuer="https://id.example.org", subject="s-1", name="nina", groups=("data",))
    let_in(nina, now=timezone.now())
    monkeypatch.setattr(sign_ins, "_known", lambda _: None)  # as the other sees it
    with pytest.raises(Conflict, match="twice at the same time"):
        let_in(nina, now=timezone.now())
    assert [user.username for user in User.objects.all()] == ["nina"]


def test_the_address_that_is_led_back_to_is_that_of_the_setting(lying: Liar, settings: Any) -> None:
    settings.PUBLIC_URL = "https://headgate.example.org"
    sent = asked(Traveller().set_out())
    assert sent["redirect_uri"] == "https://headgate.example.org/sso/callback/"


def test_a_group_counts_only_as_it_is_written(lying: Liar) -> None:
    lying.claims = {"groups": ["DATA", "data ", "dat"]}
    _refused("None of your groups has a role here")


def test_who_is_signed_in_already_goes_on(lying: Liar) -> None:
    nina = Traveller()
    nina.sign_in()
    assert nina.console.get("/sso/login/", {"next": "/runs/"})["Location"] == "/runs/"


@pytest.mark.guarantee("G-SSO-8")
def test_nothing_of_a_token_or_a_secret_is_logged(
    lying: Liar, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    lying.claims = {"aud": "another-application"}
    _refused("issued for another application")
    lying.claims, lying.answer = {}, {"access_token": ""}
    Traveller().sign_in()
    assert "issued for another application" in caplog.text
    verifier = next(sent["code_verifier"] for path, sent in lying.asked if path == "/token")
    for secret in (CLIENT_SECRET, verifier, "eyJ"):
        assert secret not in caplog.text


@pytest.mark.parametrize("address", ["http://elsewhere.example/", "ftp://127.0.0.1/", "file:///a"])
def test_nothing_is_asked_by_plain_http_of_another_machine(address: str, settings: Any) -> None:
    session = BackChannel().get_requests_session()
    with (
        session,
        pytest.raises(requests.exceptions.InvalidURL, match="must not be contacted there"),
    ):
        session.get(address)


def test_what_the_id_token_says_is_not_replaced_by_what_is_told(lying: Liar) -> None:
    lying.claims = {"groups": None}
    lying.userinfo = {"groups": ["data"], "preferred_username": "somebody-else"}
    assert Traveller().sign_in().status_code == 302
    assert User.objects.get().username == "nina"
