"""Secrets are masked wherever a definition, a message or a log is read."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate_ground.masking import (
    MASK,
    Mask,
    mask,
    mask_text,
    references,
    secrets_in,
    still_masked,
    unmask,
)
from queries.domain.definitions.configuration import secret_problems


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
    assert Mask.of(["tr0ub4dor"])("got tr0ub4dor from the vault") == f"got {MASK} from the vault"


@pytest.mark.parametrize(
    ("secret", "text", "shown"),
    [
        ("two\nlines", "first lines, then two\nlines", f"first {MASK}, then {MASK}"),
        ("p/w d", "at https://h/?key=p%2Fw%20d or p%2Fw+d", f"at https://h/?key={MASK} or {MASK}"),
        ('a"b\\', r"""json: "a\"b\\" python: 'a"b\\'""", f"json: \"{MASK}\" python: '{MASK}'"),
        ("naïveté", r'"na\u00efvet\u00e9" naïveté', f'"{MASK}" {MASK}'),
        ('Login required username="u" password="two words";', "two words", MASK),
        ('Login required password="quo\\"ted";', 'quo"ted', MASK),
        ("Login required password='single';", "single", MASK),
        ("jdbc:postgresql://u:long-one@db/x", "user u, long-one", f"user u, {MASK}"),
        ("user=u\npassword=from-a-file", "from-a-file of u", f"{MASK} of u"),
        ("abcd", "abcdef", f"{MASK}ef"),
    ],
)
def test_a_secret_is_found_in_every_form_it_is_written_in(
    secret: str, text: str, shown: str
) -> None:
    assert Mask.of([secret])(text) == shown


def test_a_longer_secret_is_masked_whole_before_a_shorter_one_within_it() -> None:
    assert Mask.of(["hunter", "hunter2-long"])("hunter2-long, hunter") == f"{MASK}, {MASK}"


def test_only_the_words_of_what_a_driver_says_are_masked() -> None:
    said = {
        "state": "FAILED",
        "pid": 4242,
        "endOffset": {"FAILED": {"0": 1}},
        "error": {"message": "it FAILED with password=other", "refused": "FAILED"},
        "warnings": ("FAILED",),
        "sources": [{"description": "topic FAILED", "numInputRows": None}],
        "sink": {"description": "FileSink[file:/out/FAILED]"},
        "sample": [{"key": '{"token":"kept"}', "value": "FAILED"}],
    }
    assert Mask.of(["FAILED", "4242"]).within(said) == {
        "state": "FAILED",
        "pid": 4242,
        "endOffset": {"FAILED": {"0": 1}},
        "error": {"message": f"it {MASK} with password={MASK}", "refused": "FAILED"},
        "warnings": [MASK],
        "sources": [{"description": f"topic {MASK}", "numInputRows": None}],
        "sink": {"description": "FileSink[file:/out/FAILED]"},
        "sample": [{"key": '{"token":"kept"}', "value": MASK}],
    }


def test_what_was_written_out_in_full_under_a_secrets_name_is_a_secret() -> None:
    spec = {
        "sink": {"options": {"kafka.password": "plain words", "url": "jdbc:x://u:in-a-url@h"}},
        "params": {"credentials": ["one", {"user": "two"}], "token": "env:TOKEN", "rows": 5},
        "sql": "SELECT 'password=shown'",
        "columns": "id: int, token: string",
        "options": "-Dtrust.password=in-an-option -Da=b",
        "conf": {
            "spark.hadoop.fs.s3a.aws.credentials.provider": "org.apache.Some$Provider",
            "spark.token.renewal": "60s",
            "spark.delegation.token.on": "true",
        },
    }
    assert secrets_in(spec) == {"plain words", "in-a-url", "one", "two", "in-an-option"}


def test_a_secret_too_short_to_tell_from_words_riddles_no_text() -> None:
    assert Mask.of(["a", "true"])("an apple a day is true") == "an apple a day is true"


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


def test_a_thread_dump_is_masked() -> None:
    dump = {"quiet_s": 3, "threads": '"pool of jdbc:x?password=hunter2"', "heap": "[hunter2"}
    said = Mask.of(["hunter2"]).within(dump)
    assert said == {
        "quiet_s": 3,
        "threads": f'"pool of jdbc:x?password={MASK}"',
        "heap": f"[{MASK}",
    }


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "options Map(password -> hunter2, user -> u)",
            f"options Map(password -> {MASK}, user -> u)",
        ),
        ("pwd=hunter2", f"pwd={MASK}"),
        ("PGPASSWORD: x, dbpass: hunter2", f"PGPASSWORD: {MASK}, dbpass: {MASK}"),
        ("Cookie: sid=1; csrf=2\nnext", f"Cookie: {MASK}\nnext"),
        ("authorization: Basic dTpw", f"authorization: Basic {MASK}"),
        ("Basic YTo= and Basic auth", f"Basic {MASK} and Basic auth"),
        ("OTOKEN_FILE=x pass by, a bypass=on", f"OTOKEN_FILE={MASK} pass by, a bypass=on"),
    ],
)
def test_forms_that_logs_show_secrets_in_are_masked(text: str, shown: str) -> None:
    assert mask_text(text) == shown


EKS = "/var/run/secrets/eks.amazonaws.com/serviceaccount/token"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AWS_WEB_IDENTITY_TOKEN_FILE", EKS),
        ("spark.hadoop.fs.azure.account.oauth2.token.file", EKS),
        ("tokenPath", f"file://{EKS}"),
        ("ssl.truststore.password.location", "/etc/pki/store.pass"),
    ],
)
def test_the_path_of_a_secrets_file_is_not_a_secret(name: str, value: str) -> None:
    assert mask({name: value}) == {name: value}
    assert secrets_in({name: value}) == set()
    assert secret_problems("env", {name: value}) == []


@pytest.mark.guarantee("G-SECRET-7")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AWS_WEB_IDENTITY_TOKEN_FILE", "hunter2hunter2"),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", "/hunter2hunter2"),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", "/a b/c+d=="),
        ("AWS_SESSION_TOKEN", EKS),
        ("token.profile", EKS),
    ],
)
def test_only_a_path_under_a_key_of_a_file_is_shown(name: str, value: str) -> None:
    assert mask({name: value}) == {name: MASK}
    assert secret_problems("env", {name: value}) != []
