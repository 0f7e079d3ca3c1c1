"""What a definition may do with a secret: bound, bound elsewhere, not bound."""

from typing import Any

import pytest

from queries.domain.errors import Invalid, in_words
from queries.domain.secrets import (
    SecretUse,
    application,
    channel,
    parse_binding,
    unbound,
    uses_in,
    uses_of_brokers,
)

JAAS = "kafka.sasl.jaas.config"
SERVERS = "kafka.bootstrap.servers"


def kafka(**options: str) -> dict[str, Any]:
    return {"name": "in", "format": "kafka", "options": {SERVERS: "one:9092", **options}}


def places(spec: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    return {use.field: use.places for use in uses_in(spec)}


def test_kafkas_options_go_to_the_brokers_of_the_same_source_or_sink() -> None:
    spec = {
        "kind": "sql",
        "sources": [kafka(**{JAAS: "file:jaas"}), {"name": "rate", "format": "rate"}],
        "tables": [],
        "sink": kafka(**{SERVERS: "two:9092,three:9092", "kafka.ssl.key.password": "env:KEY"}),
        "sql": "SELECT 'env:NOT_ONE_OF_THEM' FROM in",
    }
    assert uses_in(spec) == [
        SecretUse("file:jaas", f"sources.0.options.{JAAS}", ("one:9092",)),
        SecretUse("env:KEY", "sink.options.kafka.ssl.key.password", ("two:9092", "three:9092")),
    ]


def test_whoever_gives_tokens_is_a_place_too() -> None:
    spec = {
        "sources": [
            kafka(
                **{
                    JAAS: "file:oauth",
                    "Kafka.SASL.OAuthBearer.token.endpoint.URL": "https://evil.example/token",
                }
            )
        ]
    }
    assert places(spec) == {f"sources.0.options.{JAAS}": ("one:9092", "evil.example")}


@pytest.mark.parametrize(
    "options",
    [
        {SERVERS: "env:BROKERS", JAAS: "file:jaas"},
        {SERVERS: "one:9092", SERVERS.upper(): "evil:9092/x", JAAS: "file:jaas"},
    ],
    ids=["brokers by reference", "brokers twice"],
)
def test_brokers_that_cannot_be_told_are_anywhere(options: dict[str, str]) -> None:
    for use in uses_in({"sources": [{"format": "kafka", "options": options}]}):
        assert "*" in use.places


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"env": {"TOKEN": "env:T"}}, "env.TOKEN"),
        ({"conf": {"spark.hadoop.fs.s3a.secret.key": "env:T"}}, None),
        ({"params": {"deep": [{"password": "env:T"}]}}, "params.deep.0.password"),
        ({"params": {"sources": [kafka(**{JAAS: "env:T"})]}}, None),
        ({"sink": {"format": "json", "options": {"key": "env:T"}}}, "sink.options.key"),
        ({"sources": [{"format": "kafka", "options": ["env:T"]}]}, "sources.0.options.0"),
        ({"sources": "env:T", "tables": [3]}, None),
        ({"sources": [{"format": "kafka", "options": {JAAS: "env:T"}}]}, None),
    ],
)
def test_what_code_or_spark_take_along_may_go_anywhere(
    spec: dict[str, Any], field: str | None
) -> None:
    found = places(spec)
    assert field is None or list(found) == [field]
    assert all(one == ("*",) for one in found.values())


S3 = "spark.hadoop.fs.s3a."
APPLICATION: dict[str, Any] = {"kind": "queries", "master": "local[2]", "listeners": []}
ENDPOINT = {f"{S3}endpoint": "http://Store:9000", f"{S3}secret.key": "env:T"}


@pytest.mark.parametrize(
    ("conf", "expected"),
    [
        (ENDPOINT, ("store:9000",)),
        (
            ENDPOINT | {f"{S3}endpoint": "s3.eu-west-1.amazonaws.com"},
            ("s3.eu-west-1.amazonaws.com",),
        ),
        (
            ENDPOINT | {f"{S3}bucket.raw.endpoint": "https://other"},
            ("store:9000", "other"),
        ),
        (ENDPOINT | {f"{S3}proxy.host": "proxy"}, ("store:9000", "proxy")),
        (ENDPOINT | {f"{S3}bucket.b.accesspoint.arn": "arn:aws:s3:eu:1:x"}, ("store:9000", "*")),
        (ENDPOINT | {f"{S3}endpoint": "env:ENDPOINT"}, ("*",)),
        (ENDPOINT | {f"{S3}endpoint": "http://store:9000@evil"}, ("*",)),
        ({f"{S3}secret.key": "env:T"}, ("*",)),
    ],
)
def test_the_keys_of_an_object_store_go_to_its_endpoint(
    conf: dict[str, str], expected: tuple[str, ...]
) -> None:
    found = {use.field: use.places for use in uses_in(APPLICATION | {"conf": conf})}
    assert found[f"conf.{S3}secret.key"] == expected
    if f"{S3}endpoint" in conf and conf[f"{S3}endpoint"].startswith("env:"):
        assert found[f"conf.{S3}endpoint"] == ("*",)


@pytest.mark.parametrize(
    "spec",
    [
        APPLICATION | {"script": {"file": "x"}},
        APPLICATION | {"listeners": ["a:B"]},
        {"kind": "sql", "sql": "SELECT 1"},  # in an application that may have code
        {"kind": "python", "function": "a:b"},
    ],
)
def test_the_keys_of_an_object_store_may_go_anywhere_where_code_reads_them(
    spec: dict[str, Any],
) -> None:
    (use,) = uses_in({"conf": ENDPOINT, **spec})
    assert use.places == ("*",)


CATALOG_S3 = "spark.sql.catalog.lake.hadoop.fs.s3a."


@pytest.mark.guarantee("G-SECRET-9")
@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"conf": ENDPOINT | {f"{CATALOG_S3}endpoint": "evil:9000"}}, ("store:9000", "evil:9000")),
        ({"conf": ENDPOINT | {f"{CATALOG_S3}bucket.b.endpoint": "evil"}}, ("store:9000", "evil")),
        ({"conf": ENDPOINT | {f"{CATALOG_S3}proxy.host": "evil"}}, ("store:9000", "evil")),
        ({"conf": ENDPOINT | {f"{CATALOG_S3}ENDPOINT": "evil"}}, ("store:9000", "evil")),
        (
            {
                "conf": {f"{S3}secret.key": "env:T", f"{CATALOG_S3}endpoint": "evil"},
            },
            ("evil",),
        ),
        (
            {"conf": ENDPOINT, "env": {"AWS_ENDPOINT_URL_S3": "https://evil/x"}},
            ("store:9000", "evil"),
        ),
        ({"conf": ENDPOINT, "env": {"AWS_REGION": "eu"}}, ("store:9000",)),
    ],
)
def test_every_way_to_name_an_endpoint_is_a_destination_of_the_keys(
    more: dict[str, Any], expected: tuple[str, ...]
) -> None:
    found = {use.field: use.places for use in uses_in(APPLICATION | more)}
    assert found[f"conf.{S3}secret.key"] == expected


def test_an_applications_keys_are_used_at_the_endpoints_of_its_queries() -> None:
    query = {"kind": "sql", "conf": {f"{CATALOG_S3}endpoint": "http://evil:9000"}}
    conf = ENDPOINT | {f"{S3}access.key": "plain", "spark.hadoop.fs.azure.key": "env:OTHER"}
    assert uses_in(query, APPLICATION | {"conf": conf}) == [
        SecretUse("env:T", f"conf.{CATALOG_S3}endpoint", ("evil:9000",))
    ]
    assert uses_in(query, APPLICATION) == uses_in(query) == []
    assert uses_in({"conf": "x"}, {"conf": conf}) == []


def test_the_uses_of_a_broker_set() -> None:
    assert uses_of_brokers({SERVERS: "one:9092", JAAS: "file:jaas"}) == [
        SecretUse("file:jaas", f"options.{JAAS}", ("one:9092",))
    ]


USES = [SecretUse("file:jaas", "sources.0.options.x", ("one:9092", "two:9092"))]


def test_what_is_bound_for_where_it_goes_is_no_problem() -> None:
    for hosts in (("one:9092", "two"), ("*",)):
        assert unbound(USES, {"file:jaas": hosts}, application("a")) == []


def test_what_is_not_bound_is_refused_with_the_sentence_that_mends_it() -> None:
    (problem,) = unbound(USES, {"file:other": ("*",)}, application("orders"))
    assert problem.field == "sources.0.options.x"
    assert in_words([problem]) == (
        "file:jaas is not granted to application orders. Ask an admin to grant file:jaas to "
        "application orders for one:9092, two:9092: Settings → Secrets."
    )


def test_what_is_bound_for_other_hosts_is_refused_with_those_that_are_missing() -> None:
    (problem,) = unbound(USES, {"file:jaas": ("one", "*.example.org")}, channel("ops"))
    assert in_words([problem]) == (
        "file:jaas is granted to channel ops, but not for two:9092. "
        "Ask an admin to add two:9092 to the hosts of file:jaas: Settings → Secrets."
    )
    (problem,) = unbound([SecretUse("file:jaas", "settings.url", ())], {}, channel("ops"))
    assert problem.way_out == "Ask an admin to grant file:jaas to channel ops: Settings → Secrets."
    anywhere = [SecretUse("file:jaas", "env.X", ("*",))]
    (problem,) = unbound(anywhere, {"file:jaas": ("one",)}, application("a"))
    assert "but not for any host (*)." in problem.message


FORM = {"secret": "env:KEY", "holder": "orders", "hosts": ["One:9092", " one:9092 ", ""]}


def test_a_binding_is_read_with_its_hosts_in_small_letters_once() -> None:
    form = parse_binding(FORM)
    assert (form.secret, form.holder_kind, form.holder) == ("env:KEY", "application", "orders")
    assert form.hosts == ["one:9092"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"secret": "hunter2-in-clear"}, "secret"),
        ({"holder": " "}, "holder"),
        ({"hosts": []}, "hosts"),
        ({"hosts": [f"h{n}" for n in range(101)]}, "hosts"),
        ({"hosts": ["one", "https://two"]}, "hosts"),
        ({"holder_kind": "user"}, "holder_kind"),
        ({"value": "anything"}, "value"),
    ],
)
def test_a_binding_with_a_fault_is_refused_by_its_field(change: Any, field: str) -> None:
    with pytest.raises(Invalid) as refused:
        parse_binding({**FORM, **change})
    assert [one.field for one in refused.value.problems] == [field]
    assert "hunter2" not in str([one.value for one in refused.value.problems])
