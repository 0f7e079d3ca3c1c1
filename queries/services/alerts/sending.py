"""Send one message by one channel: its references resolved, the result without secrets."""

import ipaddress
from collections.abc import Mapping
from typing import Any

from django.conf import settings

from queries.channels import kinds
from queries.channels.base import Message, SendFailed
from queries.channels.http import Network
from queries.secret_references import ReferenceMissing, References

#: For one message. Seconds.
LIMIT_S = 20.0


def send(kind: str, form: Mapping[str, Any], message: Message) -> None:
    """Deliver a message; raise `SendFailed`, whose text may be shown and stored."""
    references = References(
        env_allowlist=tuple(settings.SECRET_ENV_ALLOWLIST), secrets_dir=str(settings.SECRETS_DIR)
    )
    try:
        values = references.resolve_in(dict(form))
        stripped = {
            name: value.strip() if isinstance(value, str) else value
            for name, value in values.items()
        }
        kinds.send(kind, stripped, message, timeout_s=LIMIT_S, allowed=_allowed())
    except ReferenceMissing as error:
        raise SendFailed(str(error)) from None
    except SendFailed as error:
        raise SendFailed(references.mask(str(error)), lasting=error.lasting) from None
    except Exception as error:  # a channel's own bug is that channel's trouble
        raise SendFailed(f"It failed with {type(error).__name__}.") from None


def _allowed() -> list[Network]:
    return [ipaddress.ip_network(one, strict=False) for one in settings.ALERT_NETWORKS]
