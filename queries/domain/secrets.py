"""The secrets in definitions, the grants by admins, and the hosts that secrets may be sent to.

A pattern is one of these:

==================  ==================================================================
host                that host, any port
host:port           that port on the host
*.example.org       every host below the domain, at any depth, but not the domain itself
*.example.org:port  that port on those hosts
*                   anywhere, including places that cannot be known beforehand
==================  ==================================================================

Names are compared as strings, ignoring case, and never resolved; an IP address matches only itself.

An unbound secret is rejected when a definition is saved, when its query starts, and when Headgate
itself would send it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field

from headgate_ground.masking import is_reference
from queries.domain.catalogs import CatalogSpec
from queries.domain.definitions.declarations import hadoop_keys_of
from queries.domain.definitions.parsing import parsed
from queries.domain.definitions.spec import StrictForm
from queries.domain.errors import Invalid, Problem
from queries.domain.kafka.options import SERVERS

#: A destination that cannot be known: code, Spark or a service may send the secret anywhere.
ANYWHERE = "*"

_NAME = r"[0-9a-z_](?:[0-9a-z._\-]*[0-9a-z_])?"
_IP6 = r"\[[0-9a-f:.]+\]"
_HOST_PORT = re.compile(rf"(?P<host>{_NAME}|{_IP6})(?::(?P<port>[0-9]{{1,5}}))?")
_PATTERN = re.compile(rf"\*|(?:(?:\*\.)?{_NAME}|{_IP6})(?::[0-9]{{1,5}})?")
#: "SASL_SSL://host:9092", a valid entry of Kafka's bootstrap.servers.
_SERVER = re.compile(r"(?:\w+://)?(?P<place>.+:[0-9]{1,5})")
_URL = re.compile(r"https?://(?P<place>[^/?#]+)(?:[/?#].*)?", re.IGNORECASE)


def is_pattern(text: str) -> bool:
    """Return whether a string is a host pattern; patterns are in lower case."""
    return _PATTERN.fullmatch(text) is not None


def allows(pattern: str, host_port: str) -> bool:
    """Return whether a pattern matches a place: "host", "host:port", or `ANYWHERE`."""
    if pattern == ANYWHERE:
        return True
    match = _HOST_PORT.fullmatch(host_port.lower())
    if match is None:
        return False
    host, port = match["host"], match["port"]
    bare, _, wanted = pattern.rpartition(":") if _has_port(pattern) else (pattern, "", "")
    if wanted and wanted != port:
        return False
    return host.endswith(bare[1:]) if bare.startswith("*.") else host == bare


def servers(text: str) -> tuple[str, ...]:
    """Return the places in bootstrap.servers; `ANYWHERE` for each that cannot be parsed."""
    return tuple(_server(server.strip()) for server in text.split(",") if server.strip()) or (
        ANYWHERE,
    )


def of_url(text: str) -> str:
    """Return the place in an http URL; `ANYWHERE` if it cannot be parsed."""
    match = _URL.fullmatch(text.strip())
    return _host_port(match["place"]) if match else ANYWHERE


def of_endpoint(text: str) -> str:
    """Return the place in a store's endpoint, with or without http://; see `of_url`."""
    return of_url(text) if "://" in text else _host_port(text.strip())


def _server(text: str) -> str:
    match = _SERVER.fullmatch(text)
    return _host_port(match["place"]) if match else ANYWHERE


def _host_port(text: str) -> str:
    """Return a place in lower case; anything that clients might parse differently is `ANYWHERE`."""
    return text.lower() if _HOST_PORT.fullmatch(text.lower()) else ANYWHERE


def _has_port(pattern: str) -> bool:
    return re.search(r":[0-9]{1,5}$", pattern) is not None and not pattern.endswith("]")


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
        if any(_S3_ENDPOINT.fullmatch(hadoop_key) for hadoop_key in hadoop_keys_of(key))
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


#: For one holder: secret -> patterns for the hosts it may be sent to.
Bound = Mapping[str, tuple[str, ...]]

PAGE = "Settings → Secrets"
_MOST_HOSTS = 100


class HolderKind(StrEnum):
    """What a secret is granted to."""

    APPLICATION = "application"
    CHANNEL = "channel"
    CATALOG = "catalog"


@dataclass(frozen=True, slots=True)
class SecretHolder:
    """An application, a channel or a catalog: a secret may be granted to it before it exists."""

    kind: HolderKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def application(name: str) -> SecretHolder:
    """Return an application as a holder."""
    return SecretHolder(HolderKind.APPLICATION, name)


def channel(name: str) -> SecretHolder:
    """Return a channel as a holder."""
    return SecretHolder(HolderKind.CHANNEL, name)


def catalog(name: str) -> SecretHolder:
    """Return a catalog as a holder."""
    return SecretHolder(HolderKind.CATALOG, name)


def uses_of_catalog(spec: CatalogSpec) -> list[SecretUse]:
    """Return the use of a catalog's secret: sent to its address, and to its OAuth2 server."""
    addresses = filter(None, (spec.address, spec.properties.get("oauth2-server-uri")))
    places = tuple(dict.fromkeys(map(of_url, addresses)))
    return [SecretUse(spec.secret, "secret", places)] if spec.secret else []


class BindingForm(StrictForm):
    """A complete binding.

    secret: env:NAME or file:NAME.
    holder: The name of the application, channel or catalog.
    hosts: host:port, host, *.domain, a chat service by name, or * for any host.
    """

    secret: Annotated[str, Field(max_length=200)]
    holder_kind: HolderKind = HolderKind.APPLICATION
    holder: Annotated[str, Field(max_length=80)]
    hosts: list[str]


def parse_binding(raw: Mapping[str, Any]) -> BindingForm:
    """Return a binding with lower-case hosts; raise `Invalid` with every error by field."""
    form = parsed(BindingForm.model_validate, raw)
    hosts = list(dict.fromkeys(host.strip().lower() for host in form.hosts if host.strip()))
    problems = []
    if not is_reference(form.secret):
        way_out = "Write env:NAME or file:NAME; the value itself is never stored."
        problems.append(Problem("secret", "", "is not a valid secret reference.", way_out))
    if not form.holder:
        problems.append(
            Problem(
                "holder", "", "is missing.", "Enter what can use it: application, channel, catalog."
            )
        )
    if not 0 < len(hosts) <= _MOST_HOSTS:
        way_out = "Write host:port, host or *.domain, one per line; * means any host."
        problems.append(Problem("hosts", "", f"must list 1 to {_MOST_HOSTS} hosts.", way_out))
    problems += [
        Problem(
            "hosts", host[:200], "is not a valid host.", "Write host:port, host, *.domain or *."
        )
        for host in hosts
        if not is_pattern(host)
    ]
    if problems:
        raise Invalid(problems)
    return form.model_copy(update={"hosts": hosts})


def unbound(uses: Iterable[SecretUse], bound: Bound, holder: SecretHolder) -> list[Problem]:
    """Return a problem for each use of a secret that is not granted, or not for its destination."""
    return [problem for use in uses if (problem := _problem(use, bound, holder))]


def _problem(use: SecretUse, bound: Bound, holder: SecretHolder) -> Problem | None:
    patterns = bound.get(use.secret)
    if patterns is None:
        message = f"is not granted to {holder}."
        way_out = f"Ask an admin to grant {use.secret} to {holder}{_where(use.places)}: {PAGE}."
        return Problem(use.field, use.secret, message, way_out)
    out = [host for host in use.places if not any(allows(pattern, host) for pattern in patterns)]
    if not out:
        return None
    message = f"is granted to {holder}, but not{_where(out)}."
    way_out = f"Ask an admin to add {', '.join(out)} to the hosts of {use.secret}: {PAGE}."
    return Problem(use.field, use.secret, message, way_out)


def _where(places: Iterable[str]) -> str:
    hosts = ["any host (*)" if host == ANYWHERE else host for host in places]
    return f" for {', '.join(hosts)}" if hosts else ""
