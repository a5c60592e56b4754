"""Signatures of the server's requests: HMAC-SHA256 with the deployment's secret."""

from __future__ import annotations

import hashlib
import hmac

VERSION_PREFIX = "v1="
NO_ATTEMPT = "0" * 32


def sign(secret: bytes, method: str, path: str, expires: str, attempt: str, body: bytes) -> str:
    """The value of the header ``millrace-signature``."""
    lines = (method, path, expires, attempt, hashlib.sha256(body).hexdigest())
    text = "".join([f"{line}\n" for line in lines])
    return VERSION_PREFIX + hmac.new(secret, text.encode(), hashlib.sha256).hexdigest()


def refusal(secret: bytes, method: str, path: str, headers: dict[str, str], body: bytes, now: float) -> str | None:
    """Why a request is not from the server; ``None`` if it is. ``headers`` have lower-case names."""
    expires = headers.get("millrace-expires", "")
    attempt = headers.get("millrace-attempt", "")
    given = headers.get("millrace-signature", "")
    if not given:
        return "the request has no signature"
    wanted = sign(secret, method, path, expires, attempt, body)
    # Compared before anything else is looked at, in a time that does not tell where they differ.
    if not hmac.compare_digest(given.encode(), wanted.encode()):
        return "the signature does not fit"
    if not expires.isascii() or not expires.isdigit() or now > int(expires):
        return "the signature has expired"
    return None
