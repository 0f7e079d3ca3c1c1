"""Secret references as this host resolves them, for querying brokers and for masking."""

from django.conf import settings

from queries.secret_references import References


def local_references() -> References:
    """Return the resolver of the references that this installation's drivers may read."""
    return References(
        env_allowlist=tuple(settings.SECRET_ENV_ALLOWLIST), secrets_dir=str(settings.SECRETS_DIR)
    )
