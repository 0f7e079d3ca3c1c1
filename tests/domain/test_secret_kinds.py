"""Each row of the table of secrets is masked wherever one may be, and its near miss is shown."""

import re
import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate_ground.masking import (
    MASK,
    Mask,
    is_secret_name,
    mask,
    mask_text,
    secrets_in,
    still_masked,
)
from headgate_ground.secret_kinds import NAME, NAMES, VALUE, VALUES, SecretName, SecretValue
from queries.domain.definitions.configuration import secret_problems
from tests.examples import examples

PLAIN = "Zq9vT4"  # a secret that is one only by its name
#: What stands around a secret in a log, a query string, JSON, and a line of configuration.
AROUND = st.tuples(
    st.sampled_from(["", "ERROR at ", "\n", '{"a": 1, "b": "', "x;", "(", "[é] "]),
    st.sampled_from(["", "\n next", '"}', " and more", ";y", ")", ","]),
)
values = pytest.mark.parametrize("kind", VALUES, ids=lambda one: one.example[:24])
names = pytest.mark.parametrize("kind", NAMES, ids=lambda one: one.example)


def parts(kind: SecretValue) -> tuple[str, str, str]:
    before, _, rest = kind.example.partition("‹")
    secret, _, after = rest.partition("›")
    return before, secret, after


@pytest.mark.guarantee("G-SECRET-5")
@names
def test_a_secret_name_is_one_in_definitions_texts_and_saves(kind: SecretName) -> None:
    for name in (kind.example, kind.example.upper(), kind.example.replace(".", "_")):
        assert is_secret_name(name)
        assert mask({name: PLAIN}) == {name: MASK}
        assert secrets_in({name: PLAIN}) == {PLAIN}
    assert [one.field for one in secret_problems("env", {kind.example: PLAIN})] == [
        f"env.{kind.example}"
    ]


@names
def test_the_near_miss_of_a_name_is_shown(kind: SecretName) -> None:
    assert not is_secret_name(kind.near_miss)
    assert mask({kind.near_miss: PLAIN}) == {kind.near_miss: PLAIN}
    assert mask_text(f"{kind.near_miss}={PLAIN}") == f"{kind.near_miss}={PLAIN}"
    assert secret_problems("env", {kind.near_miss: PLAIN}) == []


@values
def test_the_near_miss_of_a_value_is_shown(kind: SecretValue) -> None:
    assert mask_text(kind.near_miss) == kind.near_miss
    assert secrets_in({"note": kind.near_miss}) == set()
    assert re.search(VALUE, kind.near_miss) is None


@pytest.mark.guarantee("G-SECRET-5")
@values
def test_a_secret_value_is_found_in_every_use(kind: SecretValue) -> None:
    before, secret, after = parts(kind)
    text = f"{before}{secret}{after}"
    assert mask({"note": text}) == {"note": f"{before}{MASK}{after}"}
    assert secrets_in({"note": text}) == {secret}
    assert Mask.of([text])(f"again {secret}") == f"again {MASK}"
    assert Mask().within({"message": text}) == {"message": f"{before}{MASK}{after}"}
    assert [one.field for one in secret_problems("env", {"NOTE": text})] == ["env.NOTE"]


@settings(max_examples=examples(100))
@given(AROUND, st.sampled_from(VALUES), st.sampled_from(VALUES))
def test_no_text_keeps_a_secret_value(
    around: tuple[str, str], kind: SecretValue, other: SecretValue
) -> None:
    shown = mask_text(
        around[0] + " ".join("".join(parts(one)) for one in (kind, other)) + around[1]
    )
    for one in (kind, other):
        assert parts(one)[1] not in shown
    assert mask_text(shown) == shown
    assert still_masked({"text": shown}) == ["text"]


@settings(max_examples=examples(100))
@given(
    AROUND,
    st.sampled_from(NAMES),
    st.sampled_from(["=", ": ", '": "', " = ", '="', "='"]),
    st.sampled_from([PLAIN, f"{PLAIN}/+=="]),
)
def test_no_text_keeps_what_follows_a_secret_name(
    around: tuple[str, str], kind: SecretName, joined: str, secret: str
) -> None:
    end = joined[-1] if joined[-1] in "\"'" else ""
    shown = mask_text(f"{around[0]}{kind.example}{joined}{secret}{end}{around[1]}")
    assert PLAIN not in shown
    assert mask_text(shown) == shown


@pytest.mark.parametrize("quote", ['"', "'"])
def test_a_quoted_secret_of_several_words_is_masked_whole(quote: str) -> None:
    text = f"password={quote}two words, and more{quote} user=u"
    assert mask_text(text) == f"password={quote}{MASK}{quote} user=u"


def test_the_browser_reads_the_names_as_python_does() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    told = [one for kind in NAMES for one in (kind.example, kind.near_miss)]
    code = (
        "const [p, ...t] = process.argv.slice(1);"
        "console.log(t.map((one) => Number(new RegExp(p, 'i').test(one))).join(''))"
    )
    found = subprocess.run(
        [node, "-e", code, NAME, *told], capture_output=True, text=True, check=True, timeout=30
    )
    assert found.stdout.strip() == "10" * len(NAMES)


def test_no_pattern_of_the_table_captures() -> None:
    for pattern in (NAME, VALUE):
        assert re.compile(pattern).groups == 0
