"""Bindings of secrets, as an admin gives them before anything names one."""

from datetime import UTC, datetime

from queries.models.grants import SecretBinding
from queries.services import secrets

AT = datetime(2026, 1, 5, 3, 0, tzinfo=UTC)


def bind(secret: str, holder: str, *hosts: str, kind: str = "application") -> SecretBinding:
    """Bind a secret to an application, or to a channel; without hosts for anywhere."""
    form = {"secret": secret, "holder_kind": kind, "holder": holder, "hosts": hosts or ("*",)}
    return secrets.bind({**form, "hosts": list(form["hosts"])}, actor="ada", now=AT)
