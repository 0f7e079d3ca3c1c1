"""The secrets that a definition uses, and where their values are sent."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headgate_ground.masking import is_reference
from queries.domain.kafka.options import SERVERS
from queries.domain.secrets.hosts import ANYWHERE, of_endpoint, of_url, servers

_PARTS = ("sources", "tables")
#: The keys that S3A signs requests with (hadoop-aws, "Authenticating with S3"), and the settings
#: that name where it sends them.
_S3_KEY = re.compile(
    r"spark\.hadoop\.fs\.s3a\.(bucket\..+\.)?(access\.key|secret\.key|session\.token)"
)
_S3_ENDPOINT = re.compile(r"spark\.hadoop\.fs\.s3a\..*(endpoint|proxy\.host|accesspoint\.arn)")
#: Fields by which an application runs users' code, which can read its configuration.
_CODE = ("script", "python_path", "code", "packages", "listeners")


@dataclass(frozen=True, slots=True)
class Use:
    """One place in a definition that uses a secret."""

    secret: str  # "env:NAME" | "file:NAME"
    field: str  # dotted path in the JSON form
    places: tuple[str, ...]  # "host:port" each; `ANYWHERE` if it cannot be known; (): known later


def uses_in(spec: Mapping[str, Any]) -> list[Use]:
    """Return the uses of secrets in a query's or application's definition, as JSON.

    Kafka's options send a secret to the brokers that they specify, and S3's keys are used at the
    endpoint in the same configuration if no code of users can read them there. Spark and users'
    code may send secrets in other configuration, environment, parameters and options of other
    formats anywhere.
    """
    # The code beside a query is not known here, that of an application is.
    has_code = "master" not in spec or any(spec.get(one) for one in _CODE)
    return list(_query_parts(spec)) + [
        use
        for name, held in spec.items()
        if name not in (*_PARTS, "sink")
        for use in _other_part(name, held, has_code=has_code)
    ]


def _other_part(name: str, held: Any, *, has_code: bool) -> Iterator[Use]:
    if name != "conf" or has_code or not isinstance(held, Mapping):
        yield from _within(held, name, (ANYWHERE,))
        return
    stores = [of_endpoint(str(at)) for key, at in held.items() if _S3_ENDPOINT.fullmatch(key)]
    places = tuple(dict.fromkeys(stores)) or (ANYWHERE,)
    for key, value in held.items():
        there = places if _S3_KEY.fullmatch(key) else (ANYWHERE,)
        yield from _within(value, f"conf.{key}", there)


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
