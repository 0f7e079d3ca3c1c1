"""Translate a source's options, as Spark accepts them, to librdkafka's.

Spark passes `kafka.*` to Java's client; Headgate uses a different library, which has its own option
names and does not support Java key stores. Options that cannot be translated are rejected, because
a wrong guess would look like a broker that does not respond.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

import regex

PREFIX = "kafka."

#: Options with the same meaning in both clients.
_SAME = (
    *("bootstrap.servers", "security.protocol", "client.dns.lookup", "isolation.level"),
    *("ssl.cipher.suites", "ssl.key.password"),
)
_JAAS = re.compile(r"(username|password)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|'([^']*)')")
_PASSWORD_MECHANISMS = frozenset({"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"})


class Unusable(Exception):
    """This client cannot use these options; the message contains the option and the remedy."""


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """The topics and partitions that a source reads; exactly one of the three fields is set."""

    topics: tuple[str, ...] = ()  # subscribe
    pattern: str = ""  # subscribePattern; must match the whole name
    partitions: tuple[tuple[str, tuple[int, ...]], ...] = ()  # assign

    @property
    def names(self) -> tuple[str, ...]:
        """Return the listed topics; empty if the source uses a pattern."""
        return (*self.topics, *(topic for topic, _ in self.partitions))

    def matches(self, topic: str) -> bool:
        """Return whether the source reads a topic."""
        if self.pattern:
            return matches(self.pattern, topic)
        return topic in self.topics or topic in dict(self.partitions)

    def of(self, topic: str, numbers: tuple[int, ...]) -> tuple[int, ...]:
        """Return the partitions of a topic that the source reads."""
        assigned = dict(self.partitions).get(topic)
        return numbers if assigned is None else tuple(n for n in numbers if n in assigned)


#: Seconds for matching one topic's name. A pattern that takes longer backtracks endlessly.
MATCH_LIMIT_S = 0.05
_TOO_SLOW: set[str] = set()


def matches(pattern: str, topic: str) -> bool:
    """Return whether a pattern matches.

    One that once took too long never matches again, and one that only Java can parse never matches.
    """
    if pattern in _TOO_SLOW:
        return False
    try:
        return regex.fullmatch(pattern, topic, timeout=MATCH_LIMIT_S) is not None
    except TimeoutError:
        _TOO_SLOW.add(pattern)
        return False
    except regex.error:
        return False


def parses(pattern: str) -> bool:
    """Return whether a pattern, which is written for Java, can be parsed here."""
    try:
        regex.compile(pattern)
    except regex.error:
        return False
    return True


def require_quick(pattern: str, *, late: bool = False) -> None:
    """Raise `Unusable` if a pattern takes too long for one name or, if `late`, for all of them."""
    if late or pattern in _TOO_SLOW:
        raise Unusable(
            "subscribePattern takes too long to match. Avoid nested repetitions such as (a+)+, "
            "or list the topics in subscribe."
        )


def wanted(options: Mapping[str, str]) -> TopicSelection:
    """Return a source's topics and partitions; raise `Unusable` if they cannot be parsed."""
    lowered_options = {name.lower(): value for name, value in options.items()}
    if names := lowered_options.get("subscribe"):
        return TopicSelection(
            topics=tuple(name.strip() for name in names.split(",") if name.strip())
        )
    if pattern := lowered_options.get("subscribepattern"):
        try:
            regex.compile(pattern)
        except regex.error as error:
            raise Unusable(f"subscribePattern cannot be parsed: {error}.") from error
        return TopicSelection(pattern=pattern)
    try:
        assigned = json.loads(lowered_options.get("assign", ""))
        pairs = sorted((str(t), tuple(int(n) for n in ns)) for t, ns in assigned.items())
    except (ValueError, TypeError, AttributeError) as error:
        raise Unusable("None of subscribe, subscribePattern and assign can be read.") from error
    return TopicSelection(partitions=tuple(pairs))


def broker_set(options: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the options that identify a broker set and its login: those that begin with `kafka.`.

    References to secrets are not resolved: the result serves as a key and may appear in logs.
    """
    return tuple(
        sorted(
            (name[len(PREFIX) :], value)
            for name, value in options.items()
            if name.lower().startswith(PREFIX) and _matters(name[len(PREFIX) :])
        )
    )


def client_options(java: Mapping[str, str]) -> dict[str, str]:
    """Convert Java options to librdkafka's, with secrets resolved; raise `Unusable` on errors."""
    settings = {name: value for name, value in java.items() if name in _SAME}
    if not settings.get("bootstrap.servers"):
        raise Unusable("kafka.bootstrap.servers is missing.")
    protocol = settings.get("security.protocol", "PLAINTEXT").upper()
    if "SASL" in protocol:
        settings |= _sasl(java)
    if "SSL" in protocol:
        settings |= _trust(java) | _own_key(java)
        if java.get("ssl.endpoint.identification.algorithm") == "":
            settings["ssl.endpoint.identification.algorithm"] = "none"
    return settings


def _matters(name: str) -> bool:
    return name in _SAME or name.startswith(("sasl.", "ssl."))


def _sasl(java: Mapping[str, str]) -> dict[str, str]:
    mechanism = java.get("sasl.mechanism", "GSSAPI").upper()
    if mechanism not in _PASSWORD_MECHANISMS:
        raise Unusable(
            f"kafka.sasl.mechanism {mechanism} cannot be used to read lag; use "
            f"{', '.join(sorted(_PASSWORD_MECHANISMS))}."
        )
    named = {
        match[1]: re.sub(r"\\(.)", r"\1", match[2]) if match[2] is not None else match[3]
        for match in _JAAS.finditer(java.get("sasl.jaas.config", ""))
    }
    if not named.get("username") or "password" not in named:
        raise Unusable('kafka.sasl.jaas.config does not contain username="…" and password="…".')
    return {
        "sasl.mechanisms": mechanism,
        "sasl.username": named["username"],
        "sasl.password": named["password"],
    }


def _trust(java: Mapping[str, str]) -> dict[str, str]:
    """Return the authorities that the client trusts; the system's authorities if none are given."""
    if pem := java.get("ssl.truststore.certificates"):
        return {"ssl.ca.pem": pem}
    path = java.get("ssl.truststore.location")
    if not path:
        return {}
    _only_pem("ssl.truststore", java.get("ssl.truststore.type", "JKS"))
    return {"ssl.ca.location": path}


def _own_key(java: Mapping[str, str]) -> dict[str, str]:
    """Return the client's own certificate and key, if any."""
    if chain := java.get("ssl.keystore.certificate.chain"):
        return {"ssl.certificate.pem": chain, "ssl.key.pem": java.get("ssl.keystore.key", "")}
    path = java.get("ssl.keystore.location")
    if not path:
        return {}
    kind = java.get("ssl.keystore.type", "JKS").upper()
    if kind == "PKCS12":
        return {
            "ssl.keystore.location": path,
            "ssl.keystore.password": java.get("ssl.keystore.password", ""),
        }
    _only_pem("ssl.keystore", kind)
    return {"ssl.certificate.location": path, "ssl.key.location": path}


def _only_pem(what: str, kind: str) -> None:
    if kind.upper() != "PEM":
        raise Unusable(
            f"kafka.{what}.location is a {kind} store, which only Java can read. Use PEM files "
            f"(kafka.{what}.type = PEM), which Spark can read too."
        )
