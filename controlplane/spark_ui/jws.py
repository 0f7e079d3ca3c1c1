"""The key of a driver's Spark UI, and what is signed with it.

Spark's own `org.apache.spark.ui.JWSFilter` checks it on every path of the UI: whoever reaches the
port without it is answered 403.
"""

import base64
import hashlib
import hmac
import json
from datetime import datetime, timedelta

from django.utils.crypto import salted_hmac

#: A signed request that leaks is of no use a minute later; clocks are those of one host.
GOOD_FOR = timedelta(minutes=1)

_HEADER = b'{"alg":"HS256","typ":"JWT"}'


def key(driver: int, epoch: int) -> bytes:
    """Return the key of a driver's Spark UI, 32 bytes; made from SECRET_KEY, kept in no row."""
    purpose = "headgate.driver.spark-ui"
    return salted_hmac(purpose, f"{driver}:{epoch}", algorithm="sha256").digest()


def token(key: bytes, *, now: datetime) -> str:
    """Return what a request to the Spark UI of this key carries (RFC 7515, HS256)."""
    claims = json.dumps({"exp": int((now + GOOD_FOR).timestamp())}).encode()
    said = b".".join((_encoded(_HEADER), _encoded(claims)))
    return b".".join((said, _encoded(hmac.digest(key, said, hashlib.sha256)))).decode()


def _encoded(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")
