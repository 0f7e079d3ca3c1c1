"""Spark 3.5 has no filter of its own for its UI: ours does what Spark's does in newer versions."""

import base64
import hmac
import json
import secrets
import socket
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from queries.domain.sparks import command
from queries.jvm.compiled import our_jar
from tests import pieces
from tests.security.drivers.guarded import PATHS, Guarded

pytestmark = pytest.mark.spark


def _folder() -> str:
    found = pieces.spark_folder("3.5")
    if not found:
        pytest.skip(f"Spark 3.5 is missing; get it with `{command('3.5')}`")
    return found


@pytest.fixture(scope="module")
def guarded(java_home: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    spark, home = _folder(), tmp_path_factory.mktemp("guarded")
    jar = our_jar(home / "classes", jars=pieces.jars_of_sparks()["3.5"])
    one = Guarded(home, spark=spark, jars=(str(jar),))
    yield one
    one.driver.end()


def _token(key: bytes, head: dict[str, Any], claims: dict[str, Any], *, by: str = "sha256") -> str:
    """Return a token with any header and claims, signed with HMAC."""
    parts = [_text(json.dumps(part).encode()) for part in (head, claims)]
    signature = hmac.digest(key, ".".join(parts).encode(), by)
    return ".".join([*parts, _text(signature)])


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@pytest.mark.guarantee("G-UI-6")
@pytest.mark.parametrize("path", PATHS)
def test_it_answers_nobody_without_its_key(guarded: Guarded, path: str) -> None:
    assert guarded.ask(path)[0] == 403
    assert guarded.ask(path, guarded.token(secrets.token_bytes(32)))[0] == 403, "another driver's"
    assert guarded.ask(path, guarded.token(age=timedelta(minutes=2)))[0] == 403, "an old one"
    assert guarded.ask(path, guarded.token())[0] in (200, 404)


@pytest.mark.guarantee("G-UI-6")
def test_a_token_must_be_signed_with_hs256_and_must_expire(guarded: Guarded) -> None:
    key, later = guarded.key, int(time.time()) + 600
    head, claims = {"alg": "HS256"}, {"exp": later}
    assert guarded.ask("/jobs/", _token(key, head, claims))[0] == 200
    unsigned = ".".join(_text(json.dumps(part).encode()) for part in ({"alg": "none"}, claims))
    rejected = {
        "no signature": f"{unsigned}.",
        "none": _token(key, {"alg": "none"}, claims),
        "another algorithm": _token(key, {"alg": "HS512"}, claims, by="sha512"),
        "another algorithm's name": _token(key, {"alg": "HS512"}, claims),
        "no algorithm": _token(key, {}, claims),
        "an unknown extension": _token(key, {**head, "crit": ["b64"], "b64": False}, claims),
        "no expiry": _token(key, head, {}),
        "not valid yet": _token(key, head, {"exp": later, "nbf": later}),
        "no object": f"{_text(b'1')}.{_text(b'2')}.{_text(b'3')}",
        "no base64": "?.?.?",
        "two parts": _token(key, head, claims).rpartition(".")[0],
        "four parts": f"{_token(key, head, claims)}.",
        "nothing": "",
        "not ASCII": "\xe9.\xe9.\xe9",
    }
    answers = {name: guarded.ask("/jobs/", token)[0] for name, token in rejected.items()}
    assert answers == dict.fromkeys(rejected, 403)


def test_what_the_ui_shows_of_its_key_is_masked(guarded: Guarded) -> None:
    conf = guarded.configuration()
    assert conf["spark.ui.filters"] == "headgate.UiFilter"
    assert conf["spark.headgate.UiFilter.param.secretKey"] == "*********(redacted)"


@pytest.mark.guarantee("G-UI-6")
def test_without_our_classes_there_is_no_ui(
    java_home: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    one = Guarded(tmp_path_factory.mktemp("without"), spark=_folder(), jars=())
    try:
        with socket.socket() as trial:
            assert trial.connect_ex(("127.0.0.1", one.port)) != 0
    finally:
        one.driver.end()
