"""The secrets that an admin has bound to an application or channel, and their allowed hosts.

An unbound secret is rejected when a definition is saved, when its query starts, and when Headgate
itself would send it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field

from headgate_ground.masking import is_reference
from queries.domain.definitions.parsing import parsed
from queries.domain.definitions.spec import StrictForm
from queries.domain.errors import Invalid, Problem
from queries.domain.secrets.hosts import ANYWHERE, allows, is_pattern
from queries.domain.secrets.uses import SecretUse

#: For one application or channel: secret -> patterns for the hosts it may be sent to.
Bound = Mapping[str, tuple[str, ...]]

PAGE = "Settings → Secrets"
_MOST_HOSTS = 100


class HolderKind(StrEnum):
    """What a secret is bound to."""

    APPLICATION = "application"
    CHANNEL = "channel"


@dataclass(frozen=True, slots=True)
class SecretHolder:
    """An application or a channel, by name: a secret may be bound to it before it exists."""

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


class BindingInput(StrictForm):
    """A complete binding.

    secret: env:NAME or file:NAME.
    holder: The name of the application or channel.
    hosts: host:port, host, *.domain, a chat service by name, or * for any host.
    """

    secret: Annotated[str, Field(max_length=200)]
    holder_kind: HolderKind = HolderKind.APPLICATION
    holder: Annotated[str, Field(max_length=80)]
    hosts: list[str]


def parse_binding(raw: Mapping[str, Any]) -> BindingInput:
    """Return a binding with lower-case hosts; raise `Invalid` with every error by field."""
    form = parsed(BindingInput.model_validate, raw)
    hosts = list(dict.fromkeys(host.strip().lower() for host in form.hosts if host.strip()))
    problems = []
    if not is_reference(form.secret):
        way_out = "Write env:NAME or file:NAME; the value itself is never stored."
        problems.append(Problem("secret", "", "is not a valid secret reference.", way_out))
    if not form.holder:
        problems.append(
            Problem(
                "holder", "", "is missing.", "Enter the application or channel that can use it."
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
    """Return a problem for each use of a secret that is not bound, or not for its destination."""
    return [problem for use in uses if (problem := _problem(use, bound, holder))]


def _problem(use: SecretUse, bound: Bound, holder: SecretHolder) -> Problem | None:
    patterns = bound.get(use.secret)
    if patterns is None:
        message = f"is not bound to {holder}."
        way_out = f"Ask an admin to bind {use.secret} to {holder}{_where(use.places)}: {PAGE}."
        return Problem(use.field, use.secret, message, way_out)
    out = [host for host in use.places if not any(allows(pattern, host) for pattern in patterns)]
    if not out:
        return None
    message = f"is bound to {holder}, but not{_where(out)}."
    way_out = f"Ask an admin to add {', '.join(out)} to the hosts of {use.secret}: {PAGE}."
    return Problem(use.field, use.secret, message, way_out)


def _where(places: Iterable[str]) -> str:
    hosts = ["any host (*)" if host == ANYWHERE else host for host in places]
    return f" for {', '.join(hosts)}" if hosts else ""
