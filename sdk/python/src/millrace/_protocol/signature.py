"""Signatures of the server's requests: HMAC-SHA256 with the deployment's secret, or Ed25519 with the server's key."""

from __future__ import annotations

import hashlib
import hmac
from typing import Protocol

from . import ed25519

NO_ATTEMPT = "0" * 32
_SECRET_BYTES = 16


class Verifier(Protocol):
    """Says whether a signature is of the server."""

    def fits(self, signature: str, text: bytes) -> bool: ...


class Secret:
    """The deployment's secret, which the server knows too."""

    def __init__(self, secret: bytes) -> None:
        if len(secret) < _SECRET_BYTES:
            # One signed request is enough to try guesses on.
            raise ValueError(f"the worker's secret has {len(secret)} bytes: use {_SECRET_BYTES} bytes or more")
        self._secret = secret

    def fits(self, signature: str, text: bytes) -> bool:
        wanted = "v1=" + hmac.new(self._secret, text, hashlib.sha256).hexdigest()
        # In a time that does not tell where they differ.
        return hmac.compare_digest(signature.encode(), wanted.encode())


class ServerKey:
    """The public key of the server's private one: whoever has it can invoke nothing."""

    def __init__(self, digits: str) -> None:
        try:
            self._key = ed25519.PublicKey(bytes.fromhex(digits))
        except ValueError:
            raise ValueError("the worker's public key is not what `millrace apps worker-key APP` prints") from None

    def fits(self, signature: str, text: bytes) -> bool:
        kind, _, digits = signature.partition("=")
        try:
            return kind == "ed25519" and self._key.verifies(bytes.fromhex(digits), text)
        except ValueError:
            return False


def signed_text(method: str, path: str, expires: str, attempt: str, body: bytes) -> bytes:
    lines = (method, path, expires, attempt, hashlib.sha256(body).hexdigest())
    return "".join([f"{line}\n" for line in lines]).encode()


def refusal(verifier: Verifier, method: str, path: str, headers: dict[str, str], body: bytes, now: float) -> str | None:
    """Why a request is not from the server; ``None`` if it is. ``headers`` have lower-case names."""
    expires = headers.get("millrace-expires", "")
    attempt = headers.get("millrace-attempt", "")
    given = headers.get("millrace-signature", "")
    if not given:
        return "the request has no signature"
    # Before anything else is looked at.
    if not verifier.fits(given, signed_text(method, path, expires, attempt, body)):
        return "the signature does not fit"
    if not expires.isascii() or not expires.isdigit() or now > int(expires):
        return "the signature has expired"
    return None
