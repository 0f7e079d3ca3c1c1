"""Send one message by one channel: its references resolved, the result without secrets."""

import ipaddress
from collections.abc import Mapping
from typing import Any

from django.conf import settings

from queries.channels import kinds
from queries.channels.base import Message, SendFailed
from queries.channels.http import Network
from queries.channels.places import place_of
from queries.domain.errors import in_words
from queries.domain.masking import references as named_in
from queries.domain.secrets.bindings import PAGE, Bound, channel, unbound
from queries.domain.secrets.hosts import ANYWHERE
from queries.domain.secrets.uses import Use
from queries.secret_references import ReferenceMissing
from queries.services.local_references import local_references

#: For one message. Seconds.
LIMIT_S = 20.0


def send(kind: str, form: Mapping[str, Any], message: Message, *, name: str, bound: Bound) -> None:
    """Deliver a message; raise `SendFailed`, whose text may be shown and stored.

    `bound` are the secrets of the channel of that name, and the hosts that each may go to: one
    that is not bound is not even read.
    """
    references = local_references()
    told = place_of(kind, form)
    named = named_in(form)
    _require(named - bound.keys(), () if told == ANYWHERE else (told,), name, bound)
    try:
        values = references.resolve_in(dict(form))
        stripped = {
            key: value.strip() if isinstance(value, str) else value for key, value in values.items()
        }
        place = place_of(kind, stripped)
        if place == told:
            _require(named, (place,), name, bound)
        elif unbound(_uses(named, (place,)), bound, channel(name)):  # where stands in a secret
            raise SendFailed(f"Its address leads to a host that is not bound: {PAGE}.")
        kinds.send(kind, stripped, message, timeout_s=LIMIT_S, allowed=_allowed())
    except ReferenceMissing as error:
        raise SendFailed(str(error)) from None
    except SendFailed as error:
        raise SendFailed(references.mask(str(error)), lasting=error.lasting) from None
    except Exception as error:  # a channel's own bug is that channel's trouble
        raise SendFailed(f"It failed with {type(error).__name__}.") from None


def _require(secrets: set[str], places: tuple[str, ...], name: str, bound: Bound) -> None:
    if refused := in_words(unbound(_uses(secrets, places), bound, channel(name))):
        raise SendFailed(refused)


def _uses(secrets: set[str], places: tuple[str, ...]) -> list[Use]:
    return [Use(secret, "", places) for secret in sorted(secrets)]


def _allowed() -> list[Network]:
    return [ipaddress.ip_network(one, strict=False) for one in settings.ALERT_NETWORKS]
