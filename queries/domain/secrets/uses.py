"""The secrets that a definition uses, and where their values are sent."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headgate_ground.masking import is_reference
from queries.domain.kafka.options import SERVERS
from queries.domain.secrets.hosts import ANYWHERE, of_url, servers

_PARTS = ("sources", "tables")


@dataclass(frozen=True, slots=True)
class Use:
    """One place in a definition that uses a secret."""

    secret: str  # "env:NAME" | "file:NAME"
    field: str  # dotted path in the JSON form
    places: tuple[str, ...]  # "host:port" each; `ANYWHERE` if it cannot be known; (): known later


def uses_in(spec: Mapping[str, Any]) -> list[Use]:
    """Return the uses of secrets in a query's or application's definition, as JSON.

    Kafka's options send a secret to the brokers that they specify. Spark and users' code may send
    secrets in configuration, environment, parameters and options of other formats anywhere.
    """
    return list(_query_parts(spec)) + [
        use
        for name, held in spec.items()
        if name not in (*_PARTS, "sink")
        for use in _within(held, name, (ANYWHERE,))
    ]


def uses_of_brokers(options: Mapping[str, str]) -> list[Use]:
    """Return the uses in a broker set's options, which are those of Spark's Kafka source."""
    return list(_within(options, "options", _places(options)))


def _query_parts(spec: Mapping[str, Any]) -> Iterator[Use]:
    for name in _PARTS:
        parts = spec.get(name)
        for index, part in enumerate(parts if isinstance(parts, list | tuple) else ()):
            yield from _part(part, f"{name}.{index}")
    yield from _part(spec.get("sink"), "sink")


def _part(part: Any, field: str) -> Iterator[Use]:
    if not isinstance(part, Mapping):
        return
    options = part.get("options")
    if part.get("format") == "kafka" and isinstance(options, Mapping):
        yield from _within(part, field, _places(options))
    else:
        yield from _within(part, field, (ANYWHERE,))


def _places(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the places that Kafka's client connects to: its brokers, and its token endpoint."""
    found: list[str] = []
    for name, value in options.items():
        if name.lower() == SERVERS:
            found += servers(str(value))
        elif name.lower().startswith("kafka.") and name.lower().endswith(".url"):
            found.append(of_url(str(value)))
    return tuple(dict.fromkeys(found)) or (ANYWHERE,)


def _within(value: Any, field: str, places: tuple[str, ...]) -> Iterator[Use]:
    if isinstance(value, Mapping):
        for name, held in value.items():
            yield from _within(held, f"{field}.{name}", places)
    elif isinstance(value, list | tuple):
        for index, held in enumerate(value):
            yield from _within(held, f"{field}.{index}", places)
    elif isinstance(value, str) and is_reference(value):
        yield Use(value, field, places)
