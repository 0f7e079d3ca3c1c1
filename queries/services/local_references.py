"""Secret references as this host resolves them, for querying brokers and for masking."""

from django.conf import settings

from queries.domain.errors import Problem
from queries.secret_references import ReferenceMissing, References, SecretTooShort


def local_references() -> References:
    """Return the resolver of the references that this installation's drivers may read."""
    return References(
        env_allowlist=tuple(settings.SECRET_ENV_ALLOWLIST), secrets_dir=str(settings.SECRETS_DIR)
    )


def length_problem(field: str, secret: str) -> Problem | None:
    """Return a problem if a referenced secret is too short; None also if it is not visible here."""
    try:
        local_references().resolve(secret)
    except SecretTooShort as error:
        where = "the secrets folder" if secret.startswith("file:") else "the worker's environment"
        way_out = (
            "Give the system that the secret is for a longer one, store it in "
            f"{where} under the same name, then try again."
        )
        return Problem(field, secret, f"{error.wrong}.", way_out)
    except ReferenceMissing:  # on another host, or not set yet
        return None
    return None
