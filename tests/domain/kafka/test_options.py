"""Kafka's options are checked by name and value before Spark passes a mistake over."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate_ground.masking import MASK
from queries.domain.errors import Problem
from queries.domain.kafka.options import (
    group_problems,
    sink_option_problems,
    source_option_problems,
)
from tests.domain.validation.test_query_rules import KAFKA, TO_KAFKA, found, said, sql

SERVERS = {"kafka.bootstrap.servers": "h:9092"}
BASE = {**SERVERS, "subscribe": "flights"}
ASSIGNED = {**SERVERS, "assign": '{"flights": [0, 1]}'}
SECURE = {**BASE, "kafka.security.protocol": "SASL_SSL"}


def source(options: dict[str, str]) -> dict[str, str]:
    return said(source_option_problems("o", options))


def sink(options: dict[str, str]) -> dict[str, str]:
    return said(sink_option_problems("o", options))


@pytest.mark.parametrize(
    "options",
    [
        BASE,
        ASSIGNED,
        {**SERVERS, "subscribePattern": "flights-.*"},
        {**BASE, "subscribe": "flights, more.flights"},
        {**BASE, "kafka.bootstrap.servers": "a:9092, [::1]:9093,SSL://b-1.example.org:9094"},
        {**BASE, "startingOffsets": "Earliest"},
        {**BASE, "startingOffsets": '{"flights": {"0": 23, "1": -2}}'},
        {**ASSIGNED, "startingOffsets": '{"flights": {"0": 23, "1": -1}}'},
        {**SERVERS, "subscribePattern": "f.*", "startingOffsets": '{"flights": {"0": 1}}'},
        {**BASE, "startingTimestamp": "1735689600000"},
        {**BASE, "startingOffsetsByTimestamp": '{"flights": {"0": 1735689600000}}'},
        {
            **BASE,
            "startingTimestamp": "0",
            "startingOffsetsByTimestampStrategy": "latest",
        },
        {
            **BASE,
            "startingOffsetsByTimestamp": '{"flights": {"0": 1}}',
            "startingOffsetsByTimestampStrategy": "ERROR",
        },
        {**BASE, "failOnDataLoss": "False", "includeHeaders": "true"},
        {**BASE, "maxOffsetsPerTrigger": "1000", "minOffsetsPerTrigger": "1000"},
        {**BASE, "minOffsetsPerTrigger": "10", "maxTriggerDelay": "5 min"},
        {**BASE, "minPartitions": "8", "maxRecordsPerPartition": "100"},
        {**BASE, "groupIdPrefix": "team-a", "kafkaConsumer.pollTimeoutMs": "500"},
        {**BASE, "fetchOffset.numRetries": "0", "fetchOffset.retryIntervalMs": "10"},
        {**BASE, "kafka.group.id": "fixed", "kafka.max.poll.records": "10"},
        {**BASE, "kafka.some.plugin.setting": "x"},
        {**SERVERS, "SUBSCRIBE": "flights", "MAXOFFSETSPERTRIGGER": "5"},
        {**SECURE, "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.jaas.config": "env:JAAS"},
        {**BASE, "kafka.security.protocol": "ssl", "kafka.ssl.truststore.location": "/t"},
    ],
)
def test_what_a_source_may_say_is_taken(options: dict[str, str]) -> None:
    assert source(options) == {}


@pytest.mark.parametrize(
    ("options", "name", "says"),
    [
        ({"subscribe": "t"}, "kafka.bootstrap.servers", "is missing. Set it to"),
        ({**BASE, "kafka.bootstrap.servers": "a:9092,b"}, "kafka.bootstrap.servers",
         "not a valid broker address"),
        ({**BASE, "kafka.bootstrap.servers": "a:9092,"}, "kafka.bootstrap.servers",
         "not a valid broker address"),
        (SERVERS, "subscribe", "is missing. Set exactly one of subscribe, subscribePattern and"),
        ({**BASE, "assign": '{"f": [0]}'}, "subscribe", "set in several ways"),
        ({**BASE, "subscribe": "a b"}, "subscribe", "not a valid topic name"),
        ({**BASE, "subscribe": "a,"}, "subscribe", "not a valid topic name"),
        ({**SERVERS, "subscribe": ""}, "subscribe", "not a valid topic name"),
        ({**SERVERS, "subscribePattern": " "}, "subscribePattern", "is empty"),
        ({**SERVERS, "assign": "flights"}, "assign", "is not JSON"),
        ({**SERVERS, "assign": "[]"}, "assign", "does not name a topic"),
        ({**SERVERS, "assign": "{}"}, "assign", "does not name a topic"),
        ({**SERVERS, "assign": '{"f": 0}'}, "assign", "does not list partitions for f"),
        ({**SERVERS, "assign": '{"f": []}'}, "assign", "does not list partitions for f"),
        ({**SERVERS, "assign": '{"f": ["0"]}'}, "assign", "that is not a number"),
        ({**SERVERS, "assign": '{"f": [true]}'}, "assign", "that is not a number"),
        ({**SERVERS, "assign": '{"f": [-1]}'}, "assign", "that is not a number"),
        ({**BASE, "startingOffsets": "begin"}, "startingOffsets", "is not JSON"),
        ({**BASE, "startingOffsets": '{"flights": 3}'}, "startingOffsets", "has no partitions"),
        ({**BASE, "startingOffsets": '{"flights": {}}'}, "startingOffsets", "has no partitions"),
        ({**BASE, "startingOffsets": '{"flights": {"a": 1}}'}, "startingOffsets", 'partition "a"'),
        ({**BASE, "startingOffsets": '{"flights": {"0": "1"}}'}, "startingOffsets", "whole num"),
        ({**BASE, "startingOffsets": '{"flights": {"0": true}}'}, "startingOffsets", "whole num"),
        ({**BASE, "startingOffsets": '{"flights": {"0": -3}}'}, "startingOffsets", "gives -3 for"),
        (
            {**BASE, "startingOffsets": '{"other": {"0": 3}}'},
            "startingOffsets",
            "does not list flights; Spark needs every partition that is read",
        ),
        (
            {**BASE, "startingOffsets": '{"flights": {"0": 3}, "other": {"0": 3}}'},
            "startingOffsets",
            "lists other, which is not read",
        ),
        (
            {**ASSIGNED, "startingOffsets": '{"flights": {"0": 3}}'},
            "startingOffsets",
            "does not list flights 1",
        ),
        (
            {**ASSIGNED, "startingOffsets": '{"flights": {"0": 3, "1": 3, "2": 3}}'},
            "startingOffsets",
            "lists flights 2",
        ),
        (
            {**SERVERS, "subscribe": "a,b,c,d,e", "startingOffsets": '{"a": {"0": 1}}'},
            "startingOffsets",
            "does not list b, c, d and 1 more",
        ),
        ({**BASE, "startingTimestamp": "now"}, "startingTimestamp", "not a whole number"),
        ({**BASE, "startingTimestamp": "-1"}, "startingTimestamp", "Use 0 or more"),
        (
            {**BASE, "startingOffsetsByTimestamp": '{"flights": {"0": -1}}'},
            "startingOffsetsByTimestamp",
            "gives -1 for flights 0, which is too small. Write milliseconds",
        ),
        (
            {**BASE, "startingTimestamp": "1", "startingOffsets": "latest"},
            "startingOffsets",
            "has no effect together with startingTimestamp",
        ),
        (
            {**BASE, "startingOffsetsByTimestampStrategy": "latest"},
            "startingOffsetsByTimestampStrategy",
            "Use it together with startingTimestamp or",
        ),
        (
            {
                **BASE,
                "startingOffsets": "latest",
                "startingOffsetsByTimestampStrategy": "latest",
            },
            "startingOffsetsByTimestampStrategy",
            "has no effect",
        ),
        (
            {**BASE, "startingTimestamp": "1", "startingOffsetsByTimestampStrategy": "earliest"},
            "startingOffsetsByTimestampStrategy",
            "not a Spark strategy",
        ),
        ({**BASE, "endingOffsets": "latest"}, "endingOffsets", "a stream has no end"),
        ({**BASE, "endingTimestamp": "1"}, "endingTimestamp", "availableNow"),
        ({**BASE, "failOnDataLoss": "no"}, "failOnDataLoss", "neither true nor false"),
        ({**BASE, "maxOffsetsPerTrigger": "10k"}, "maxOffsetsPerTrigger", "not a whole number"),
        ({**BASE, "maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger", "Use 1 or more"),
        ({**BASE, "maxOffsetsPerTrigger": "9" * 19}, "maxOffsetsPerTrigger", "not a whole number"),
        (
            {**BASE, "minOffsetsPerTrigger": "20", "maxOffsetsPerTrigger": "10"},
            "minOffsetsPerTrigger",
            "is more than maxOffsetsPerTrigger (10)",
        ),
        ({**BASE, "maxTriggerDelay": "15m"}, "maxTriggerDelay", "Set minOffsetsPerTrigger too"),
        (
            {**BASE, "minOffsetsPerTrigger": "1", "maxTriggerDelay": "soon"},
            "maxTriggerDelay",
            "not a valid duration",
        ),
        ({**BASE, "groupIdPrefix": "a b"}, "groupIdPrefix", "not a valid topic name"),
        ({**BASE, "kafka.auto.offset.reset": "latest"}, "kafka.auto.offset.reset", "startingOff"),
        ({**BASE, "kafka.Enable.Auto.Commit": "true"}, "kafka.Enable.Auto.Commit", "rejected"),
        ({**BASE, "kafka.key.deserializer": "x"}, "kafka.key.deserializer", "CAST(key AS STRING)"),
        ({**BASE, "kafka.value.deserializer": "x"}, "kafka.value.deserializer", "CAST(value"),
        ({**BASE, "kafka.interceptor.classes": "x"}, "kafka.interceptor.classes", "rejected"),
        ({**BASE, "maxOffsetPerTrigger": "10"}, "maxOffsetPerTrigger", "mean maxOffsetsPerTrigger"),
        ({**BASE, "failOnDataloss": "x", "a": "b"}, "a", "which would ignore it. Remove it."),
        ({**BASE, "bootstrap.servers": "h:1"}, "bootstrap.servers", "kafka.bootstrap.servers"),
        ({**BASE, "kafka.max.pol.records": "1"}, "kafka.max.pol.records", "kafka.max.poll.records"),
        ({**BASE, "Subscribe": "flights"}, "Subscribe", "set twice, also as subscribe"),
        (
            {**BASE, "kafka.sasl.mechanism": "PLAIN"},
            "kafka.security.protocol",
            "is PLAINTEXT, so kafka.sasl.mechanism has no effect. Use SASL_SSL",
        ),
        (
            {**BASE, "kafka.security.protocol": "SASL_PLAINTEXT", "kafka.ssl.truststore.type": ""},
            "kafka.security.protocol",
            "Use SSL or SASL_SSL",
        ),
        ({**BASE, "kafka.security.protocol": "TLS"}, "kafka.security.protocol",
         "not a supported protocol"),
    ],
)  # fmt: skip
def test_what_a_source_may_not_say_is_refused_by_name(
    options: dict[str, str], name: str, says: str
) -> None:
    problems = source(options)
    assert f"o.{name}" in problems, problems
    assert says in problems[f"o.{name}"]


@pytest.mark.parametrize(
    "options",
    [
        SERVERS,  # the topic is a column then
        {**SERVERS, "topic": "out", "includeHeaders": "true"},
        {**SERVERS, "topic": "out", "asyncProgressTrackingEnabled": "true"},
        {**SERVERS, "_asyncProgressTrackingOverrideSinkSupportCheck": "true"},
        {**SERVERS, "kafka.acks": "all", "kafka.compression.type": "zstd"},
    ],
)
def test_what_a_sink_may_say_is_taken(options: dict[str, str]) -> None:
    assert sink(options) == {}


@pytest.mark.parametrize(
    ("options", "name", "says"),
    [
        ({"topic": "out"}, "kafka.bootstrap.servers", "is missing"),
        ({**SERVERS, "topic": "a,b"}, "topic", "select a topic column"),
        ({**SERVERS, "includeHeaders": "1"}, "includeHeaders", "neither true nor false"),
        ({**SERVERS, "subscribe": "in"}, "subscribe", "is a source option"),
        ({**SERVERS, "topics": "out"}, "topics", "Did you mean topic?"),
        ({**SERVERS, "kafka.key.serializer": "x"}, "kafka.key.serializer", "is rejected by Spark"),
        ({**SERVERS, "kafka.value.serializer": "x"}, "kafka.value.serializer", "rejected"),
        ({**SERVERS, "acks": "all"}, "acks", "write kafka.acks"),
        ({**SERVERS, "kafka.ack": "all"}, "kafka.ack", "Did you mean kafka.acks?"),
        ({**SERVERS, "kafka.sasl.mechanism": "PLAIN"}, "kafka.security.protocol", "no effect"),
    ],
)
def test_what_a_sink_may_not_say_is_refused_by_name(
    options: dict[str, str], name: str, says: str
) -> None:
    problems = sink(options)
    assert f"o.{name}" in problems, problems
    assert says in problems[f"o.{name}"]


def test_a_query_is_refused_by_the_options_of_its_sources_and_sink() -> None:
    reading = {**KAFKA, "options": {**BASE, "startingOffset": "latest"}}
    writing = {**TO_KAFKA, "options": {**SERVERS, "topik": "out"}}
    problems = said(found(sql(sources=[reading], sink=writing)))
    assert "Did you mean startingOffsets?" in problems["sources.0.options.startingOffset"]
    assert "Did you mean topic?" in problems["sink.options.topik"]


@pytest.mark.parametrize(
    "name",
    [
        "kafka.sasl.jaas.config",
        "kafka.ssl.key.password",
        "kafka.ssl.keystore.password",
        "kafka.ssl.keystore.key",
        "kafka.ssl.truststore.password",
    ],
)
def test_a_secret_is_taken_by_reference_only_and_never_repeated(name: str) -> None:
    def problems(value: str) -> list[Problem]:
        options = {**SECURE, name: value}
        return found(sql(sources=[{**KAFKA, "options": options}]))

    (problem,) = problems('Login required password="hunter2";')
    assert (problem.field, problem.value) == (f"sources.0.options.{name}", MASK)
    assert '"file:NAME"' in problem.way_out
    assert problems("file:kafka-jaas") == []
    assert problems("env:DB_PASSWORD") == []
    assert "HEADGATE_SECRET_ENV" in said(problems("env:OTHER"))[f"sources.0.options.{name}"]


def test_a_secret_given_twice_is_masked_in_the_problem() -> None:
    options = {**SECURE, "kafka.sasl.jaas.config": "a", "KAFKA.sasl.jaas.config": "hunter2"}
    values = {one.value for one in source_option_problems("o", options)}
    assert MASK in values
    assert "hunter2" not in values


def test_one_group_for_two_sources_is_refused_for_each_would_miss_partitions() -> None:
    same = {**BASE, "kafka.group.id": "g"}
    (problem,) = group_problems({"sources.0.options": same, "sources.1.options": same})
    assert problem.field == "sources.1.options.kafka.group.id"
    assert "is also the group of sources.0" in problem.message
    assert group_problems({"a": same, "b": BASE, "c": {**BASE, "kafka.group.id": "h"}}) == []
    both = [{**KAFKA, "options": same}, {**KAFKA, "name": "more", "options": same}]
    assert "sources.1.options.kafka.group.id" in said(found(sql(sources=both)))


@given(
    st.dictionaries(
        st.text(max_size=30)
        | st.sampled_from(["subscribe", "assign", "startingOffsets", "topic", *BASE]),
        st.text(max_size=60)
        | st.sampled_from(["{}", '{"flights": {"0": -1}}', '{"flights": [0]}']),
        max_size=6,
    )
)
def test_whatever_is_given_is_answered_with_problems_at_its_fields(options: Any) -> None:
    for problem in source_option_problems("o", options) + sink_option_problems("o", options):
        assert problem.field.startswith("o.")
        assert problem.message
        assert problem.way_out
