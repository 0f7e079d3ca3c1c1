"""Use TLS for requests to this host's web process, whose certificate is for another name."""

import ssl

from django.conf import settings


def own_certificate(url: str) -> ssl.SSLContext | None:
    """Return a context that trusts only HEADGATE_TLS_CERT, for a URL of this machine.

    Returns None for every other URL; those are verified as usual, by name.
    """
    if not settings.TLS_CERT or not url.startswith("https://127.0.0.1:"):
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # trusted itself, whoever issued it
    context.load_verify_locations(settings.TLS_CERT)
    return context
