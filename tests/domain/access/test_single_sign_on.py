"""What is believed of addresses, groups and names that an identity provider sends."""

from typing import Any

import pytest

from headgate_ground.providers import is_allowed_address
from queries.domain.access import groups_in, name_in, read_group
from queries.domain.errors import Invalid


@pytest.mark.guarantee("G-SSO-3")
@pytest.mark.parametrize(
    ("address", "allowed"),
    [
        ("https://id.example.org/realms/a", True),
        ("https://[2001:db8::1]:8443", True),
        ("http://id.example.org", False),
        ("http://127.0.0.1:9000", True),
        ("http://127.8.8.8", True),
        ("http://[::1]:9000/x", True),
        ("http://localhost:9000", True),
        ("http://localhost.example.org", False),
        ("http://127.0.0.1.example.org", False),
        ("https://somebody@id.example.org", False),
        ("http://127.0.0.1@id.example.org", False),
        ("ftp://127.0.0.1", False),
        ("file:///etc/passwd", False),
        ("javascript:alert(1)", False),
        ("https://", False),
        ("https://[not-an-address", False),
        ("", False),
    ],
)
def test_a_provider_is_asked_by_https_or_on_this_machine(address: str, allowed: bool) -> None:
    assert is_allowed_address(address, http_allowed=False) is allowed


def test_plain_http_elsewhere_needs_the_setting() -> None:
    assert is_allowed_address("http://id.example.org", http_allowed=True)
    assert not is_allowed_address("ftp://id.example.org", http_allowed=True)


@pytest.mark.parametrize(
    ("said", "groups"),
    [
        (["a", "b", "a"], ("a", "b")),
        ("a", ("a",)),
        (["a", 7, None, "", ["b"]], ("a",)),
        ([], ()),
        ("", ()),
        (None, ()),
        ({"a": True}, ()),
        (True, ()),
    ],
)
def test_groups_are_a_list_of_texts_or_one_text(said: Any, groups: tuple[str, ...]) -> None:
    assert groups_in({"groups": said}, "groups") == groups
    assert groups_in({"groups": said}, "roles") == ()


@pytest.mark.parametrize(
    ("claims", "name"),
    [
        ({"preferred_username": "nina", "email": "n@example.org"}, "nina"),
        ({"email": "nina@example.org", "name": "Nina"}, "nina@example.org"),
        ({"name": "Nina van der Berg"}, "NinavanderBerg"),
        ({"preferred_username": "\u0430da"}, "da"),  # the first letter is Cyrillic
        ({"preferred_username": "日本", "name": "nina"}, "nina"),
        ({"preferred_username": "<b>\n"}, "b"),
        ({"preferred_username": 7, "email": None}, "user"),
        ({"preferred_username": "x" * 500}, "x" * 140),
        ({}, "user"),
    ],
)
def test_a_new_account_is_called_as_the_provider_says_in_plain_letters(
    claims: dict[str, Any], name: str
) -> None:
    assert name_in(claims) == name


def test_a_group_is_kept_as_it_is_written() -> None:
    assert read_group(" /Team A/admins ") == "/Team A/admins"


@pytest.mark.parametrize("text", ["", "   ", "a\x00b", "a\nb", "x" * 256])
def test_what_is_no_groups_name_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="group"):
        read_group(text)
