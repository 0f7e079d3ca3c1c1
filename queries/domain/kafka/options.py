"""Check the options of Kafka sources and sinks, by name and value, as Spark 4.3 accepts them.

Kafka only logs unknown names, so a typo could go unnoticed for months. Plug-ins have
their own option names, so an unknown name is reported only if it resembles one of these. Source:
the consumer and producer configuration of Kafka 3.9.

Spark reports most mistakes only when the stream starts, and some never: it silently ignores unknown
options. Names are compared case-insensitively, as in Spark.
"""

import difflib
import re
from collections.abc import Callable, Mapping

from headgate_ground.masking import MASK, is_secret_name
from headgate_ground.tolerant import whole as tolerant_whole
from queries.domain.errors import Problem
from queries.domain.kafka.offsets import (
    assign_problem,
    by_timestamp_problem,
    coverage_problem,
    offsets_problem,
    partitions_problem,
)

#: (path of the field, value) -> what is wrong with it, or None
Check = Callable[[str, str], Problem | None]

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_DURATION = re.compile(r"\d+\s*(us|ms|s|m|min|h|d)?", re.IGNORECASE)
_LONGEST = 2**63 - 1
_ENDS = "Remove it: a stream has no end. The availableNow trigger reads up to the current end."


def whole(least: int) -> Check:
    """Return a check for integers of at least `least`."""

    def check(field: str, value: str) -> Problem | None:
        if re.fullmatch(r"\d{1,19}", value) and least <= int(value) <= _LONGEST:
            return None
        return Problem(field, value[:200], "is not a whole number.", f"Use {least} or more.")

    return check


def flag(field: str, value: str) -> Problem | None:
    """Return what is wrong with a boolean, or None."""
    if value.lower() in ("true", "false"):
        return None
    return Problem(field, value[:200], "is neither true nor false.", 'Use "true" or "false".')


def topics(field: str, value: str) -> Problem | None:
    """Return what is wrong with a comma-separated list of topic names, or None."""
    wrong = [topic for topic in value.split(",") if not _TOPIC.fullmatch(topic.strip())]
    if not wrong:
        return None
    way_out = (
        "Use letters, digits and . _ -; separate several with commas. For a pattern, use "
        "subscribePattern."
    )
    return Problem(field, wrong[0][:200], "is not a valid topic name.", way_out)


def topic(field: str, value: str) -> Problem | None:
    """Return what is wrong with a topic's name, or None."""
    if _TOPIC.fullmatch(value):
        return None
    way_out = (
        "Use letters, digits and . _ -; to choose a topic per row, select a topic column instead."
    )
    return Problem(field, value[:200], "is not a valid topic name.", way_out)


def pattern(field: str, value: str) -> Problem | None:
    """Return what is wrong with a regular expression, or None; only Java can parse it fully."""
    if value.strip():
        return None
    return Problem(field, value, "is empty.", 'Write a regular expression: "flights-.*".')


def duration(field: str, value: str) -> Problem | None:
    """Return what is wrong with a duration in Spark's format, or None."""
    if _DURATION.fullmatch(value.strip()):
        return None
    return Problem(field, value[:200], "is not a valid duration.", 'Write "30s", "15m" or "1h".')


def time_strategy(field: str, value: str) -> Problem | None:
    """Return what is wrong with the strategy for a partition that has no record that late."""
    if value.lower() in ("error", "latest"):
        return None
    way_out = 'Use "error" or "latest": what to do when a partition has no record that late.'
    return Problem(field, value[:200], "is not a Spark strategy.", way_out)


def never(field: str, value: str) -> Problem | None:
    """Return the problem with an option that is only valid for batch reads."""
    return Problem(field, value[:200], "cannot be used by a stream.", _ENDS)


_SHARED = """
    bootstrap.servers client.dns.lookup client.id client.rack connections.max.idle.ms
    default.api.timeout.ms enable.metrics.push metadata.max.age.ms
    metadata.recovery.strategy metric.reporters metrics.num.samples metrics.recording.level
    metrics.sample.window.ms receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms
    request.timeout.ms retry.backoff.max.ms retry.backoff.ms security.protocol security.providers
    send.buffer.bytes socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms
    sasl.client.callback.handler.class sasl.jaas.config sasl.kerberos.kinit.cmd
    sasl.kerberos.min.time.before.relogin sasl.kerberos.service.name
    sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
    sasl.login.callback.handler.class sasl.login.class sasl.login.connect.timeout.ms
    sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
    sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor
    sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms
    sasl.mechanism sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience
    sasl.oauthbearer.expected.issuer sasl.oauthbearer.header.urlencode
    sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url
    sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name
    sasl.oauthbearer.token.endpoint.url ssl.cipher.suites ssl.enabled.protocols
    ssl.endpoint.identification.algorithm ssl.engine.factory.class ssl.key.password
    ssl.keymanager.algorithm ssl.keystore.certificate.chain ssl.keystore.key
    ssl.keystore.location ssl.keystore.password ssl.keystore.type ssl.protocol ssl.provider
    ssl.secure.random.implementation ssl.trustmanager.algorithm ssl.truststore.certificates
    ssl.truststore.location ssl.truststore.password ssl.truststore.type
"""
_CONSUMER = """
    allow.auto.create.topics auto.commit.interval.ms auto.include.jmx.reporter check.crcs
    exclude.internal.topics fetch.max.bytes fetch.max.wait.ms fetch.min.bytes group.id
    group.instance.id group.protocol group.remote.assignor heartbeat.interval.ms isolation.level
    max.partition.fetch.bytes max.poll.interval.ms max.poll.records
    partition.assignment.strategy session.timeout.ms
"""
_PRODUCER = """
    acks auto.include.jmx.reporter batch.size buffer.memory compression.gzip.level
    compression.lz4.level compression.type compression.zstd.level delivery.timeout.ms
    enable.idempotence linger.ms max.block.ms max.in.flight.requests.per.connection
    max.request.size metadata.max.idle.ms partitioner.adaptive.partitioning.enable
    partitioner.availability.timeout.ms partitioner.class partitioner.ignore.keys retries
    transaction.timeout.ms transactional.id
"""

CONSUMER = frozenset(_SHARED.split()) | frozenset(_CONSUMER.split())
PRODUCER = frozenset(_SHARED.split()) | frozenset(_PRODUCER.split())


SERVERS = "kafka.bootstrap.servers"
PROTOCOL = "kafka.security.protocol"
STRATEGIES = ("subscribe", "subscribePattern", "assign")
#: Where a stream begins; Spark uses the first of these that is set.
STARTS = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
#: Options that list partitions: Spark requires every partition that is read.
BY_PARTITION = ("startingOffsets", "startingOffsetsByTimestamp")
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_SERVER = re.compile(r"(?:\w+://)?\[?[0-9A-Za-z\-%._:]+\]?:\d{1,5}")
#: How similar a name must be to a known one to be reported as a typo.
CLOSE = 0.8

#: Options that Spark rejects because it sets them itself, with the reason.
_REFUSED_BY_SOURCES = {
    "kafka.auto.offset.reset": (
        "Set startingOffsets: the offsets are stored by Spark, not by Kafka."
    ),
    "kafka.key.deserializer": "Keys are bytes: use CAST(key AS STRING) in the query.",
    "kafka.value.deserializer": "Values are bytes: use CAST(value AS STRING) in the query.",
    "kafka.enable.auto.commit": (
        "Spark stores the offsets in the checkpoint and commits none to Kafka."
    ),
    "kafka.interceptor.classes": "Spark reads complete records, which an interceptor may break.",
}
_REFUSED_BY_SINKS = {
    "kafka.key.serializer": "Keys are written as bytes or text, depending on the key column.",
    "kafka.value.serializer": "Values are written as bytes or text, depending on the value column.",
}


def source_option_problems(field: str, options: Mapping[str, str]) -> list[Problem]:
    """Return what is wrong with a source's options; `field` is the path of the options."""
    parsed_options = _ParsedOptions(field, options)
    problems = parsed_options.twice + _servers(parsed_options) + _strategy(parsed_options)
    for name, written, value in parsed_options.all():
        problems += _named(
            parsed_options, name, written, value, _SOURCE_CHECKS, CONSUMER, _REFUSED_BY_SOURCES
        )
    return problems + _starts(parsed_options) + _limits(parsed_options) + _protocol(parsed_options)


def sink_option_problems(field: str, options: Mapping[str, str]) -> list[Problem]:
    """Return what is wrong with a sink's options; `field` is the path of the options."""
    parsed_options = _ParsedOptions(field, options)
    problems = parsed_options.twice + _servers(parsed_options)
    for name, written, value in parsed_options.all():
        problems += _named(
            parsed_options, name, written, value, _SINK_CHECKS, PRODUCER, _REFUSED_BY_SINKS
        )
    return problems + _protocol(parsed_options)


def group_problems(sources: Mapping[str, Mapping[str, str]]) -> list[Problem]:
    """Return a problem for each source that uses the consumer group of an earlier one.

    `sources` maps the path of a source's options to the options. Kafka would split the partitions
    between the two sources, and each would read only some.
    """
    first_fields: dict[str, str] = {}
    problems = []
    for field, options in sources.items():
        group = _ParsedOptions(field, options).value("kafka.group.id")
        if group and (first := first_fields.setdefault(group, field)) != field:
            message = (
                f"is also the group of {first.removesuffix('.options')}: Kafka would split "
                "the partitions between them."
            )
            way_out = "Remove it, or give each source its own group."
            problems.append(Problem(f"{field}.kafka.group.id", group[:200], message, way_out))
    return problems


def uncovered(field: str, options: Mapping[str, str], read: set[tuple[str, int]]) -> list[Problem]:
    """Return where a new query's starting partitions differ from those that it would read."""
    parsed_options = _ParsedOptions(field, options)
    problems = (
        partitions_problem(f"{field}.{name}", parsed_options.value(name), read=read)
        for name in BY_PARTITION
    )
    return [problem for problem in problems if problem is not None]


class _ParsedOptions:
    """Options by lower-case name, with the names as written."""

    def __init__(self, field: str, options: Mapping[str, str]) -> None:
        self.field = field
        self.twice: list[Problem] = []
        self._by_name: dict[str, tuple[str, str]] = {}
        for written, value in options.items():
            first = self._by_name.setdefault(written.lower(), (written, value))
            if first[0] != written:
                message = f"is set twice, also as {first[0]}."
                self.twice.append(self.problem(written, value, message, "Keep one of them."))

    def all(self) -> list[tuple[str, str, str]]:
        """Return (lower-case name, name as written, value)."""
        return [(name, written, value) for name, (written, value) in self._by_name.items()]

    def value(self, name: str) -> str:
        """Return an option's value, "" if it is not set."""
        return self._by_name.get(name.lower(), ("", ""))[1]

    def has(self, name: str) -> bool:
        """Return whether an option is set."""
        return name.lower() in self._by_name

    def problem(self, name: str, value: str, message: str, way_out: str) -> Problem:
        """Return a problem with an option; a secret's value is masked."""
        shown = MASK if is_secret_name(name) else value[:200]
        return Problem(f"{self.field}.{name}", shown, message, way_out)


def _named(
    options: _ParsedOptions,
    name: str,
    written: str,
    value: str,
    checks: Mapping[str, Check | None],
    client: frozenset[str],
    refused: Mapping[str, str],
) -> list[Problem]:
    """Return what is wrong with one option's name or value."""
    if name in refused:
        return [options.problem(written, value, "is rejected by Spark.", refused[name])]
    if name in checks:
        check = checks[name]
        problem = check(f"{options.field}.{written}", value) if check else None
        return [problem] if problem else []
    if name.startswith("kafka."):
        return _unknown_to_kafka(options, name, written, value, client)
    if name in client:
        way_out = f"Spark passes on only options with the kafka. prefix: write kafka.{name}."
        return [options.problem(written, value, "is ignored by Spark.", way_out)]
    if name in _SOURCE_CHECKS:
        way_out = "It is a source option. Remove it."
        return [options.problem(written, value, "is not an option of a Kafka sink.", way_out)]
    if name in ("checkpointlocation", "queryname", *_ELSEWHERE):
        return []  # reported by the general rules for options, or by the trigger's
    near = difflib.get_close_matches(name, sorted(checks), n=1, cutoff=CLOSE - 0.2)
    way_out = f"Did you mean {_SPELLED[near[0]]}?" if near else "Remove it."
    message = "is not a Kafka option known to Spark, which would ignore it."
    return [options.problem(written, value, message, way_out)]


def _unknown_to_kafka(
    options: _ParsedOptions, name: str, written: str, value: str, client: frozenset[str]
) -> list[Problem]:
    option = name.removeprefix("kafka.")
    near = difflib.get_close_matches(option, sorted(client), n=1, cutoff=CLOSE)
    if option in client or not near:
        return []  # a plug-in may have its own option names
    message = "is not known to the Kafka client, which would ignore it."
    return [options.problem(written, value, message, f"Did you mean kafka.{near[0]}?")]


def _servers(options: _ParsedOptions) -> list[Problem]:
    value = options.value(SERVERS)
    way_out = 'Set it to "host:9092"; separate several with commas.'
    if not value:
        return [options.problem(SERVERS, "", "is missing.", way_out)]
    wrong = [server for server in value.split(",") if not _SERVER.fullmatch(server.strip())]
    if not wrong:
        return []
    return [options.problem(SERVERS, wrong[0], "is not a valid broker address.", way_out)]


def _strategy(options: _ParsedOptions) -> list[Problem]:
    ways = [name for name in STRATEGIES if options.has(name)]
    if len(ways) == 1:
        return []
    message = "is set in several ways." if ways else "is missing."
    way_out = f"Set exactly one of {STRATEGIES[0]}, {STRATEGIES[1]} and {STRATEGIES[2]}."
    return [options.problem("subscribe", ", ".join(ways), message, way_out)]


def _starts(options: _ParsedOptions) -> list[Problem]:
    """Report options that a stronger option overrides, and offsets for topics that are not read."""
    ways = [name for name in STARTS if options.has(name)]
    problems = [
        options.problem(
            name,
            options.value(name),
            f"has no effect together with {ways[0]}.",
            "Keep one of them.",
        )
        for name in ways[1:]
    ]
    topics = {topic.strip() for topic in options.value("subscribe").split(",") if topic.strip()}
    for name in BY_PARTITION:
        problem = coverage_problem(
            f"{options.field}.{name}",
            options.value(name),
            topics=topics,
            assign=options.value("assign"),
        )
        problems += [problem] if problem else []
    strategy = "startingOffsetsByTimestampStrategy"
    if options.has(strategy) and ways[:1] not in ([STARTS[0]], [STARTS[1]]):
        way_out = f"Use it together with {STARTS[0]} or {STARTS[1]}."
        problems.append(
            options.problem(strategy, options.value(strategy), "has no effect.", way_out)
        )
    return problems


def _limits(options: _ParsedOptions) -> list[Problem]:
    least, most = options.value("minOffsetsPerTrigger"), options.value("maxOffsetsPerTrigger")
    low, high = tolerant_whole(least), tolerant_whole(most)
    problems = []
    if low is not None and high is not None and low > high:
        message = f"is more than maxOffsetsPerTrigger ({most})."
        way_out = "Set it to that value or less."
        problems.append(options.problem("minOffsetsPerTrigger", least, message, way_out))
    if options.has("maxTriggerDelay") and not options.has("minOffsetsPerTrigger"):
        way_out = "Set minOffsetsPerTrigger too, or remove it."
        delay = options.value("maxTriggerDelay")
        problems.append(options.problem("maxTriggerDelay", delay, "has no effect.", way_out))
    return problems


def _protocol(options: _ParsedOptions) -> list[Problem]:
    """Report a login or certificate that the chosen protocol does not use."""
    protocol = options.value(PROTOCOL).upper() or _PROTOCOLS[0]
    if protocol not in _PROTOCOLS:
        way_out = f"Use one of {', '.join(_PROTOCOLS)}."
        message = "is not a supported protocol."
        return [options.problem(PROTOCOL, options.value(PROTOCOL), message, way_out)]
    for prefix, way_out in (("sasl", "SASL_SSL (or SASL_PLAINTEXT)"), ("ssl", "SSL or SASL_SSL")):
        unused_names = [
            written for name, written, _ in options.all() if name.startswith(f"kafka.{prefix}.")
        ]
        if unused_names and prefix.upper() not in protocol.split("_"):
            message = f"is {protocol}, so {unused_names[0]} has no effect."
            return [options.problem(PROTOCOL, options.value(PROTOCOL), message, f"Use {way_out}.")]
    return []


_SPELLED_CHECKS: dict[str, Check | None] = {
    SERVERS: None,  # reported by `_servers`
    PROTOCOL: None,  # reported by `_protocol`
    "subscribe": topics,
    "subscribePattern": pattern,
    "assign": assign_problem,
    "startingOffsets": offsets_problem,
    "startingOffsetsByTimestamp": by_timestamp_problem,
    "startingTimestamp": whole(0),
    "startingOffsetsByTimestampStrategy": time_strategy,
    "endingOffsets": never,
    "endingOffsetsByTimestamp": never,
    "endingTimestamp": never,
    "failOnDataLoss": flag,
    "includeHeaders": flag,
    "maxOffsetsPerTrigger": whole(1),
    "minOffsetsPerTrigger": whole(1),
    "maxTriggerDelay": duration,
    "minPartitions": whole(1),
    "maxRecordsPerPartition": whole(1),
    "groupIdPrefix": topic,
    "kafkaConsumer.pollTimeoutMs": whole(1),
    "fetchOffset.numRetries": whole(0),
    "fetchOffset.retryIntervalMs": whole(0),
}
_SPELLED_SINK_CHECKS: dict[str, Check | None] = {
    SERVERS: None,
    PROTOCOL: None,
    "topic": topic,
    "includeHeaders": flag,
    "asyncProgressTrackingEnabled": None,  # reported by the trigger's rules
    "asyncProgressTrackingCheckpointIntervalMs": None,
}
#: An option for testing Spark itself; the trigger's rules check it.
_ELSEWHERE = ("_asyncprogresstrackingoverridesinksupportcheck",)
_SOURCE_CHECKS = {name.lower(): check for name, check in _SPELLED_CHECKS.items()}
_SINK_CHECKS = {name.lower(): check for name, check in _SPELLED_SINK_CHECKS.items()}
_SPELLED = {name.lower(): name for name in (*_SPELLED_CHECKS, *_SPELLED_SINK_CHECKS)}
