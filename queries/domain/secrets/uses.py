"""The secrets that a definition uses, and where their values are sent."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headgate_ground.masking import is_reference
from queries.domain.definitions.hadoop import keys_of
from queries.domain.kafka.options import SERVERS
from queries.domain.secrets.hosts import ANYWHERE, of_endpoint, of_url, servers

_PARTS = ("sources", "tables")
#: The keys that S3A signs requests with (hadoop-aws, "Authenticating with S3"), and the settings
#: that name where it sends them. A catalog's Hadoop keys are laid over those of the application, so
#: they are destinations of its S3 keys, too.
_S3_KEY = re.compile(
    r"spark\.hadoop\.fs\.s3a\.(bucket\..+\.)?(access\.key|secret\.key|session\.token)"
)
_S3_ENDPOINT = re.compile(r"fs\.s3a\..*(endpoint|proxy\.host|accesspoint\.arn)", re.IGNORECASE)
#: Variables with which the AWS SDK replaces the address of S3, and of the service for its tokens.
_ENDPOINT_VARIABLE = re.compile(r"AWS_ENDPOINT_URL(_\w+)?", re.IGNORECASE)
#: Fields by which an application runs users' code, which can read its configuration.
_CODE = ("script", "python_path", "code", "packages", "listeners")


@dataclass(frozen=True, slots=True)
class SecretUse:
    """One place in a definition that uses a secret."""

    secret: str  # "env:NAME" | "file:NAME"
    field: str  # dotted path in the JSON form
    places: tuple[str, ...]  # "host:port" each; `ANYWHERE` if it cannot be known; (): known later


def uses_in(
    spec: Mapping[str, Any], application: Mapping[str, Any] | None = None
) -> list[SecretUse]:
    """Return the uses of secrets in a query's or application's definition, as JSON.

    Kafka's options send a secret to the brokers that they specify, and S3's keys are used at the
    endpoint in the same configuration if no code of users can read them there. Spark and users'
    code may send secrets in other configuration, environment, parameters and options of other
    formats anywhere.

    `application` is the definition of a query's application: where the query's own configuration
    names an S3 endpoint, the application's S3 keys are used there.
    """
    # The code beside a query is not known here, that of an application is.
    has_code = "master" not in spec or any(spec.get(field) for field in _CODE)
    stores = tuple(dict.fromkeys((*s3_endpoints(spec.get("conf")).values(), *_variables(spec))))
    return [
        *_query_parts(spec),
        *(
            use
            for name, part in spec.items()
            if name not in (*_PARTS, "sink")
            for use in _other_part(name, part, stores, has_code=has_code)
        ),
        *_uses_of_application(spec, application or {}),
    ]


def s3_endpoints(conf: Any) -> dict[str, str]:
    """Return the places that a configuration has S3's client connect to, by key."""
    return {
        key: of_endpoint(str(at))
        for key, at in (conf.items() if isinstance(conf, Mapping) else ())
        if any(_S3_ENDPOINT.fullmatch(hadoop_key) for hadoop_key in keys_of(key))
    }


def _variables(spec: Mapping[str, Any]) -> list[str]:
    env = spec.get("env")
    variables = env.items() if isinstance(env, Mapping) else ()
    return [of_endpoint(str(at)) for name, at in variables if _ENDPOINT_VARIABLE.fullmatch(name)]


def _uses_of_application(
    spec: Mapping[str, Any], application: Mapping[str, Any]
) -> Iterator[SecretUse]:
    """Yield the uses of an application's S3 keys at the endpoints in a query's configuration."""
    conf = application.get("conf")
    keys = conf.items() if isinstance(conf, Mapping) else ()
    references = [
        reference
        for key, reference in keys
        if _S3_KEY.fullmatch(key) and is_reference(str(reference))
    ]
    for key, endpoint in s3_endpoints(spec.get("conf")).items():
        yield from (
            SecretUse(str(reference), f"conf.{key}", (endpoint,)) for reference in references
        )


def _other_part(
    name: str, part: Any, stores: tuple[str, ...], *, has_code: bool
) -> Iterator[SecretUse]:
    if name != "conf" or has_code or not isinstance(part, Mapping):
        yield from _within(part, name, (ANYWHERE,))
        return
    places = stores or (ANYWHERE,)
    for key, value in part.items():
        endpoints = places if _S3_KEY.fullmatch(key) else (ANYWHERE,)
        yield from _within(value, f"conf.{key}", endpoints)


def uses_of_brokers(options: Mapping[str, str]) -> list[SecretUse]:
    """Return the uses in a broker set's options, which are those of Spark's Kafka source."""
    return list(_within(options, "options", _places(options)))


def _query_parts(spec: Mapping[str, Any]) -> Iterator[SecretUse]:
    for name in _PARTS:
        parts = spec.get(name)
        for index, part in enumerate(parts if isinstance(parts, list | tuple) else ()):
            yield from _part(part, f"{name}.{index}")
    yield from _part(spec.get("sink"), "sink")


def _part(part: Any, field: str) -> Iterator[SecretUse]:
    if not isinstance(part, Mapping):
        return
    options = part.get("options")
    if part.get("format") == "kafka" and isinstance(options, Mapping):
        yield from _within(part, field, _places(options))
    else:
        yield from _within(part, field, (ANYWHERE,))


def _places(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the places that Kafka's client connects to: its brokers, and its token endpoint."""
    hosts: list[str] = []
    for name, value in options.items():
        if name.lower() == SERVERS:
            hosts += servers(str(value))
        elif name.lower().startswith("kafka.") and name.lower().endswith(".url"):
            hosts.append(of_url(str(value)))
    return tuple(dict.fromkeys(hosts)) or (ANYWHERE,)


def _within(value: Any, field: str, places: tuple[str, ...]) -> Iterator[SecretUse]:
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield from _within(part, f"{field}.{name}", places)
    elif isinstance(value, list | tuple):
        for index, part in enumerate(value):
            yield from _within(part, f"{field}.{index}", places)
    elif isinstance(value, str) and is_reference(value):
        yield SecretUse(value, field, places)
