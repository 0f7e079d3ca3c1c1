"""A source's options as Spark takes them, told to a client that speaks otherwise."""

from typing import Any

import pytest

from queries.brokers.options import TopicSelection, Unusable, broker_set, client_options, wanted

SERVERS = {"bootstrap.servers": "one:9092"}
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" '


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"subscribe": "a, b"}, TopicSelection(topics=("a", "b"))),
        ({"Subscribe": "a"}, TopicSelection(topics=("a",))),
        ({"subscribePattern": "flights-.*"}, TopicSelection(pattern="flights-.*")),
        ({"assign": '{"a":[0,2]}'}, TopicSelection(partitions=(("a", (0, 2)),))),
    ],
)
def test_what_is_subscribed_to_is_read_as_spark_reads_it(
    options: dict[str, str], expected: TopicSelection
) -> None:
    assert wanted(options) == expected


@pytest.mark.parametrize("options", [{}, {"assign": "all"}, {"subscribePattern": "("}])
def test_what_cannot_be_read_is_said(options: dict[str, str]) -> None:
    with pytest.raises(Unusable):
        wanted(options)


def test_a_pattern_matches_whole_names_and_an_assignment_its_partitions() -> None:
    assert TopicSelection(pattern="a.c").matches("abc")
    assert not TopicSelection(pattern="a.c").matches("abcd")
    assigned = TopicSelection(partitions=(("a", (0, 2)),))
    assert assigned.matches("a")
    assert assigned.of("a", (0, 1, 2)) == (0, 2)
    assert TopicSelection(topics=("a",)).of("a", (0, 1)) == (0, 1)


def test_what_only_tunes_a_client_makes_no_broker_set_of_its_own() -> None:
    one = broker_set({"kafka.bootstrap.servers": "one:9092", "kafka.max.poll.records": "5"})
    other = broker_set({"kafka.bootstrap.servers": "one:9092", "subscribe": "a"})
    assert one == other == (("bootstrap.servers", "one:9092"),)


@pytest.mark.parametrize(
    ("java", "expected"),
    [
        ({}, {}),
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.jaas.config": JAAS + 'password="p\\"q";',
                "ssl.endpoint.identification.algorithm": "",
            },
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanisms": "SCRAM-SHA-512",
                "sasl.username": "u",
                "sasl.password": 'p"q',
                "ssl.endpoint.identification.algorithm": "none",
            },
        ),
        (
            {
                "security.protocol": "SSL",
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": "/ca.pem",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": "/me.pem",
            },
            {
                "security.protocol": "SSL",
                "ssl.ca.location": "/ca.pem",
                "ssl.certificate.location": "/me.pem",
                "ssl.key.location": "/me.pem",
            },
        ),
        (
            {
                "security.protocol": "SSL",
                "ssl.truststore.certificates": "CA",
                "ssl.keystore.certificate.chain": "CHAIN",
                "ssl.keystore.key": "KEY",
            },
            {
                "security.protocol": "SSL",
                "ssl.ca.pem": "CA",
                "ssl.certificate.pem": "CHAIN",
                "ssl.key.pem": "KEY",
            },
        ),
        (
            {
                "security.protocol": "SSL",
                "ssl.keystore.type": "PKCS12",
                "ssl.keystore.location": "/me.p12",
                "ssl.keystore.password": "pw",
            },
            {
                "security.protocol": "SSL",
                "ssl.keystore.location": "/me.p12",
                "ssl.keystore.password": "pw",
            },
        ),
    ],
)
def test_javas_words_are_told_in_librdkafkas(java: dict[str, str], expected: Any) -> None:
    assert client_options({**SERVERS, **java}) == {**SERVERS, **expected}


@pytest.mark.parametrize(
    ("java", "says"),
    [
        ({"bootstrap.servers": ""}, "bootstrap.servers is missing"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "GSSAPI cannot be used"),
        ({"security.protocol": "SASL_SSL"}, "GSSAPI cannot be used"),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": JAAS},
            "does not contain username",
        ),
        ({"security.protocol": "SSL", "ssl.truststore.location": "/s.jks"}, "JKS store"),
        ({"security.protocol": "SSL", "ssl.keystore.location": "/s.jks"}, "JKS store"),
    ],
)
def test_what_cannot_be_told_names_the_option_and_the_way_out(
    java: dict[str, str], says: str
) -> None:
    with pytest.raises(Unusable, match=says):
        client_options({**SERVERS, **java})
