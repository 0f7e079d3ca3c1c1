"""Validate an ID token.

allauth trusts the connection that delivered the token, so it does not check the signature; it
neither sends nor checks a nonce, and it takes the issuer from the provider's own document. This
module performs all checks of OpenID Connect Core 3.1.3.7, whichever way the token arrived.
"""

import hmac
from collections.abc import Mapping
from typing import Any

import jwt

from queries.domain.access import LONGEST_SUBJECT
from queries.domain.errors import SignInRefused

#: Signature algorithms whose keys the provider publishes. Never "none", and never HMAC, whose key
#: would be our client secret or a public key misused as one.
ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
#: Accepted clock difference, in seconds.
LEEWAY_S = 60
_NEEDED = ["iss", "sub", "aud", "exp", "iat"]
#: The first match gives the message.
_SENTENCES: tuple[tuple[type[jwt.PyJWTError], str], ...] = (
    (jwt.ExpiredSignatureError, "Its ID token has expired."),
    (jwt.ImmatureSignatureError, "Its ID token is not valid yet."),
    (jwt.InvalidIssuerError, "Its ID token comes from another issuer."),
    (jwt.InvalidAudienceError, "Its ID token was issued for another application."),
    (jwt.InvalidAlgorithmError, "Its ID token is not signed with an accepted algorithm."),
    (jwt.InvalidSignatureError, "The signature of its ID token is invalid."),
    (jwt.MissingRequiredClaimError, "Its ID token lacks a required claim."),
)


def claims_of(
    id_token: Any, *, keys: Mapping[str, Any], issuer: str, client_id: str, nonce: str
) -> dict[str, Any]:
    """Return an ID token's claims; raise `SignInRefused` if the token is not valid.

    `keys` is the provider's JWK set, and `nonce` is the nonce with which this sign-in started.
    """
    if not isinstance(id_token, str):
        raise SignInRefused("It sent no ID token.")
    try:
        claims: dict[str, Any] = jwt.decode(
            id_token,
            _key(keys, jwt.get_unverified_header(id_token)),
            algorithms=list(ALGORITHMS),
            issuer=issuer,
            audience=client_id,
            leeway=LEEWAY_S,
            options={"require": _NEEDED, "enforce_minimum_key_length": True},
        )
    except jwt.PyJWTError as error:
        said = (sentence for kind, sentence in _SENTENCES if isinstance(error, kind))
        raise SignInRefused(next(said, "Its ID token cannot be read.")) from error
    _meant_for_us(claims, client_id)
    if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
        raise SignInRefused("Its ID token belongs to another sign-in.")
    subject = claims["sub"]
    if not (0 < len(subject) <= LONGEST_SUBJECT and subject.isascii() and subject.isprintable()):
        raise SignInRefused(f"Its subject does not have 1 to {LONGEST_SUBJECT} characters.")
    return claims


def _key(keys: Mapping[str, Any], header: Mapping[str, Any]) -> jwt.PyJWK:
    """Return the published key that a token names or, if it names none, one for its algorithm.

    The key determines the algorithm: PyJWT rejects a token that specifies another.
    """
    named, algorithm = header.get("kid"), header.get("alg")
    for one in jwt.PyJWKSet.from_dict(dict(keys)).keys:
        if one.key_id == named if named is not None else one.algorithm_name == algorithm:
            return one
    if algorithm not in ALGORITHMS:
        raise jwt.InvalidAlgorithmError("not one of ALGORITHMS")
    raise jwt.InvalidSignatureError("by a key that the provider does not publish")


def _meant_for_us(claims: Mapping[str, Any], client_id: str) -> None:
    """Reject a token with several audiences, or one issued to another party."""
    audience = claims["aud"]
    several = isinstance(audience, list) and len(audience) > 1
    party = claims.get("azp", None if several else client_id)
    if party != client_id:
        raise SignInRefused("Its ID token was issued for another application.")
