"""Send one message through one channel: resolve its secrets, and mask them in errors."""

import ipaddress
from collections.abc import Mapping
from typing import Any

from django.conf import settings

from headgate_ground.masking import references as named_in
from queries.channels import kinds
from queries.channels.base import Message, SendFailed
from queries.channels.door import Network
from queries.channels.kinds import destination_of
from queries.domain.errors import in_words
from queries.domain.secrets.bindings import PAGE, Bound, channel, unbound
from queries.domain.secrets.hosts import ANYWHERE
from queries.domain.secrets.uses import SecretUse
from queries.secret_references import ReferenceMissing
from queries.services.local_references import local_references

#: Time limit per message, in seconds.
LIMIT_S = 20.0


def send(kind: str, form: Mapping[str, Any], message: Message, *, name: str, bound: Bound) -> None:
    """Deliver a message; raise `SendFailed`, whose text is safe to show and store.

    `bound` contains the channel's secrets and the hosts to which each can be sent; a secret that is
    not bound is not read.
    """
    references = local_references()
    told = destination_of(kind, form)
    named = named_in(form)
    _require(named - bound.keys(), () if told == ANYWHERE else (told,), name, bound)
    try:
        values = references.resolve_in(dict(form))
        stripped = {
            key: value.strip() if isinstance(value, str) else value for key, value in values.items()
        }
        place = destination_of(kind, stripped)
        if place == told:
            _require(named, (place,), name, bound)
        elif unbound(_uses(named, (place,)), bound, channel(name)):  # the host is part of a secret
            raise SendFailed(f"Its URL leads to a host that is not bound: {PAGE}.")
        kinds.send(kind, stripped, message, timeout_s=LIMIT_S, allowed=allowed_networks())
    except ReferenceMissing as error:
        raise SendFailed(str(error)) from None
    except SendFailed as error:
        raise SendFailed(references.mask(str(error)), lasting=error.lasting) from None
    except Exception as error:  # a bug in a channel affects that channel only
        raise SendFailed(f"It failed with {type(error).__name__}.") from None


def _require(secrets: set[str], places: tuple[str, ...], name: str, bound: Bound) -> None:
    if refused := in_words(unbound(_uses(secrets, places), bound, channel(name))):
        raise SendFailed(refused)


def _uses(secrets: set[str], places: tuple[str, ...]) -> list[SecretUse]:
    return [SecretUse(secret, "", places) for secret in sorted(secrets)]


def allowed_networks() -> list[Network]:
    """Return the private networks to which alerts can be sent."""
    return [ipaddress.ip_network(one, strict=False) for one in settings.ALERT_NETWORKS]
