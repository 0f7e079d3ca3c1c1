"""Which pattern holds which host, as an admin writes it and a definition names it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.secrets import ANYWHERE, allows, is_pattern, of_url, servers


@pytest.mark.parametrize(
    ("pattern", "place"),
    [
        ("broker", "broker:9092"),
        ("broker", "broker"),
        ("broker:9092", "broker:9092"),
        ("broker:9092", "BROKER:9092"),
        ("*.example.org", "a.example.org:9092"),
        ("*.example.org", "b.a.example.org"),
        ("*.example.org:443", "a.example.org:443"),
        ("10.0.0.7", "10.0.0.7:9092"),
        ("[::1]", "[::1]:9092"),
        ("[::1]:9092", "[::1]:9092"),
        ("slack", "slack"),
        ("*", "anything.at:1"),
        ("*", ANYWHERE),
    ],
)
def test_a_pattern_holds_these(pattern: str, place: str) -> None:
    assert is_pattern(pattern)
    assert allows(pattern, place)


@pytest.mark.parametrize(
    ("pattern", "place"),
    [
        ("broker", "broker.evil.example:9092"),
        ("broker", "xbroker:9092"),
        ("broker:9092", "broker:9093"),
        ("broker:9092", "broker"),
        ("broker:9092", "broker:90920"),
        ("*.example.org", "example.org:9092"),
        ("*.example.org", "evilexample.org"),
        ("*.example.org", "a.example.org.evil.example"),
        ("*.example.org:443", "a.example.org:8443"),
        ("[::1]", "[::2]:9092"),
        ("broker", ANYWHERE),
        ("*.example.org", ANYWHERE),
        ("broker", "evil@broker"),
        ("broker", "broker/..:9092"),
    ],
)
def test_a_pattern_does_not_hold_these(pattern: str, place: str) -> None:
    assert not allows(pattern, place)


@pytest.mark.parametrize(
    "text", ["", "*.", "**", "a.*.org", "*example.org", "a b", "a/b", "http://a", "a:", "A", "-a"]
)
def test_these_are_no_patterns(text: str) -> None:
    assert not is_pattern(text)


def test_the_places_of_a_bootstrap_servers() -> None:
    assert servers("One:9092, SASL_SSL://two:9093,,[::1]:9") == ("one:9092", "two:9093", "[::1]:9")
    assert servers("") == (ANYWHERE,)


@pytest.mark.parametrize(
    "text", ["one", "env:BROKERS", "a:b:9092", "a@b:9092", "a/b:9092", "a%b:9092", "a.:9092"]
)
def test_what_clients_might_read_in_several_ways_is_anywhere(text: str) -> None:
    assert servers(text) == (ANYWHERE,)


def test_the_place_of_an_address() -> None:
    assert of_url("https://Login.example.org/token?a=b") == "login.example.org"
    assert of_url("http://login:8080") == "login:8080"
    for odd in ("file:///etc/passwd", "https://a@b/", "https://", "https://a\\b/", "login"):
        assert of_url(odd) == ANYWHERE


_names = st.text(alphabet="ab.-*:[]@/\\0 ", max_size=12)


@given(_names, _names)
def test_only_a_star_holds_what_is_not_below_it(pattern: str, place: str) -> None:
    if pattern == ANYWHERE or not is_pattern(pattern) or not allows(pattern, place):
        return
    core = pattern.removeprefix("*")
    assert place.lower() == core or place.lower().endswith(core) or f"{core}:" in place.lower()
