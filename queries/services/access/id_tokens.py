"""Believe an ID token, or say why not.

allauth trusts the connection that the token came by, and so checks neither its signature nor, as
it sends none, a nonce; it takes the issuer from what the provider says of itself. Here all of
OpenID Connect Core 3.1.3.7 is checked, whatever way the token came.
"""

import hmac
from collections.abc import Mapping
from typing import Any

import jwt

from queries.domain.access.single_sign_on import LONGEST_SUBJECT
from queries.domain.errors import SignInRefused

#: Signatures by a key that the provider publishes. Never "none", and no HMAC: its key would be
#: our secret, or the public key taken for one.
ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
#: Two clocks may differ so much, seconds.
LEEWAY_S = 60
_NEEDED = ["iss", "sub", "aud", "exp", "iat"]
#: The first that fits says what is wrong.
_SENTENCES: tuple[tuple[type[jwt.PyJWTError], str], ...] = (
    (jwt.ExpiredSignatureError, "Its ID token has expired."),
    (jwt.ImmatureSignatureError, "Its ID token is not valid yet."),
    (jwt.InvalidIssuerError, "Its ID token comes from another issuer."),
    (jwt.InvalidAudienceError, "Its ID token was made for another application."),
    (jwt.InvalidAlgorithmError, "Its ID token is not signed by a method that proves its origin."),
    (jwt.InvalidSignatureError, "The signature of its ID token does not fit."),
    (jwt.MissingRequiredClaimError, "Its ID token lacks a part that it must have."),
)


def claims_of(
    id_token: Any, *, keys: Mapping[str, Any], issuer: str, client_id: str, nonce: str
) -> dict[str, Any]:
    """Return what an ID token says; raise `SignInRefused` where it is not to be believed.

    `keys` is the provider's JWK set, `nonce` what this sign-in was begun with.
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
        raise SignInRefused(f"Its name for the person is not of 1 to {LONGEST_SUBJECT} characters.")
    return claims


def _key(keys: Mapping[str, Any], header: Mapping[str, Any]) -> jwt.PyJWK:
    """Return the published key that a token names; where it names none, one of its algorithm.

    The key brings its algorithm: PyJWT refuses a token that asks for another one.
    """
    named, algorithm = header.get("kid"), header.get("alg")
    for one in jwt.PyJWKSet.from_dict(dict(keys)).keys:
        if one.key_id == named if named is not None else one.algorithm_name == algorithm:
            return one
    if algorithm not in ALGORITHMS:
        raise jwt.InvalidAlgorithmError("not one of ALGORITHMS")
    raise jwt.InvalidSignatureError("by a key that the provider does not publish")


def _meant_for_us(claims: Mapping[str, Any], client_id: str) -> None:
    """Refuse a token for several applications, or for another party, that merely names us too."""
    audience = claims["aud"]
    several = isinstance(audience, list) and len(audience) > 1
    party = claims.get("azp", None if several else client_id)
    if party != client_id:
        raise SignInRefused("Its ID token was made for another application.")
