"""Secrets are masked wherever a definition, a message or a log is read."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.masking import MASK, mask, mask_text, references, still_masked, unmask


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("kafka.ssl.truststore.password", "hunter2", MASK),
        ("DB_PASSWORD", "env:DB_PASSWORD", "env:DB_PASSWORD"),
        ("fs.s3a.access.key", "AKIA", MASK),
        ("fs.azure.account.key.store", "abc=", MASK),
        ("kafka.sasl.jaas.config", 'Login required username="u" password="p";', MASK),
        ("url", "jdbc:postgresql://u:pw@host/db", f"jdbc:postgresql://u:{MASK}@host/db"),
        (
            "url",
            "jdbc:postgresql://host/db?password=pw&x=1",
            f"jdbc:postgresql://host/db?password={MASK}&x=1",
        ),
        ("path", "/data/in", "/data/in"),
        ("maxFilesPerTrigger", "20", "20"),
        ("SECRET", "", ""),
    ],
)
def test_a_value_is_masked_by_its_key_or_its_form(name: str, value: str, shown: str) -> None:
    assert mask({"options": {name: value}}) == {"options": {name: shown}}


def test_a_sql_text_is_shown_as_it_was_written() -> None:
    spec = {"sql": "SELECT * FROM t WHERE token = 'x'"}
    assert mask(spec) == spec


def test_everything_below_a_secret_key_is_masked() -> None:
    assert mask({"credentials": {"user": "a", "keys": ["b", "c"]}}) == {
        "credentials": {"user": MASK, "keys": [MASK, MASK]}
    }


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("password=hunter2 next", f"password={MASK} next"),
        ('"secret": "s3cr3t", "a": 1', f'"secret": "{MASK}", "a": 1'),
        ("Authorization: Bearer abcdefghijklmnop", f"Authorization: Bearer {MASK}"),
        ("redis://:pw@127.0.0.1:6379/0", f"redis://:{MASK}@127.0.0.1:6379/0"),
        ("password=env:NAME", "password=env:NAME"),
        ("batch 7 failed at /data/in", "batch 7 failed at /data/in"),
    ],
)
def test_a_log_line_loses_what_looks_like_a_secret(text: str, shown: str) -> None:
    assert mask_text(text) == shown


def test_a_known_secret_is_masked_wherever_it_stands() -> None:
    assert mask_text("got tr0ub4dor from the vault", secrets=["tr0ub4dor"]) == (
        f"got {MASK} from the vault"
    )


def test_a_secret_too_short_to_tell_from_words_riddles_no_text() -> None:
    assert mask_text("an apple a day", secrets=["a"]) == "an apple a day"


def test_a_masked_form_sent_in_again_keeps_its_secrets() -> None:
    stored = {"options": {"password": "pw", "url": "x://u:p@h", "a": "1"}, "list": [{"token": "t"}]}
    sent = mask(stored)
    sent["options"]["a"] = "2"
    assert unmask(sent, before=stored) == {
        "options": {"password": "pw", "url": "x://u:p@h", "a": "2"},
        "list": [{"token": "t"}],
    }


def test_a_mask_without_a_counterpart_is_found() -> None:
    sent = unmask({"options": {"password": MASK}, "env": [MASK]}, before={"options": {}})
    assert still_masked(sent) == ["options.password", "env.0"]


def test_references_are_gathered_from_anywhere() -> None:
    assert references({"env": {"A": "env:A"}, "x": [{"b": "file:b.txt"}], "c": "environment"}) == {
        "env:A",
        "file:b.txt",
    }


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(_json)
def test_masking_twice_is_masking_once_and_unmasking_undoes_it(value: Any) -> None:
    shown = mask(value)
    assert unmask(shown, before=value) == value
    assert mask(shown) == shown
