"""Which secrets a definition names, and where their values go from there."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from queries.domain.kafka.options import SERVERS
from queries.domain.masking import is_reference
from queries.domain.secrets.hosts import ANYWHERE, of_url, servers

_PARTS = ("sources", "tables")


@dataclass(frozen=True, slots=True)
class Use:
    """One place of a definition that names a secret."""

    secret: str  # "env:NAME" | "file:NAME"
    field: str  # dotted path in the JSON form
    places: tuple[str, ...]  # "host:port" each; `ANYWHERE` where nobody can tell; (): told later


def uses_in(spec: Mapping[str, Any]) -> list[Use]:
    """Return the uses of secrets in a definition of a query or an application, as JSON.

    Kafka's options take a secret to the brokers that they name. From configuration, environment,
    parameters and options of other formats, Spark and users' code take it anywhere.
    """
    return list(_query_parts(spec)) + [
        use
        for name, held in spec.items()
        if name not in (*_PARTS, "sink")
        for use in _within(held, name, (ANYWHERE,))
    ]


def uses_of_brokers(options: Mapping[str, str]) -> list[Use]:
    """Return the uses in the options of a broker set, as Spark's Kafka source takes them."""
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
    """Return where Kafka's client connects to: its brokers, and who gives it tokens."""
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
