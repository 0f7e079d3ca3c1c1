"""Derive the key of a driver's Spark UI, and sign tokens with it.

A filter checks the token on every path of the UI: requests without one get 403. It is Spark's own
(`org.apache.spark.ui.JWSFilter`), or, before 4.0, Headgate's (`queries/jvm/UiFilter.java`).
"""

import base64
import hashlib
import hmac
import json
from datetime import datetime, timedelta

from django.utils.crypto import salted_hmac

#: A leaked request is useless a minute later; both clocks are the same host's.
GOOD_FOR = timedelta(minutes=1)

_HEADER = b'{"alg":"HS256","typ":"JWT"}'


def key(driver: int, epoch: int) -> bytes:
    """Return the 32-byte key of a driver's Spark UI; derived from SECRET_KEY, never stored."""
    purpose = "headgate.driver.spark-ui"
    return salted_hmac(purpose, f"{driver}:{epoch}", algorithm="sha256").digest()


def token(key: bytes, *, now: datetime) -> str:
    """Return the token for a request to the Spark UI with this key (RFC 7515, HS256)."""
    claims = json.dumps({"exp": int((now + GOOD_FOR).timestamp())}).encode()
    signing_input = b".".join((_encoded(_HEADER), _encoded(claims)))
    return b".".join(
        (signing_input, _encoded(hmac.digest(key, signing_input, hashlib.sha256)))
    ).decode()


def _encoded(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")
