"""Signatures of Ed25519: those of RFC 8032 fit, and nothing else does."""

from __future__ import annotations

import pytest

from millrace import Service, asgi
from millrace._protocol.ed25519 import PublicKey
from millrace._protocol.signature import Secret, ServerKey, refusal

# Public key, message and signature: section 7.1.
VECTORS = {
    "1": (
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
    ),
    "2": (
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
    ),
    "3": (
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
    ),
    "SHA(abc)": (
        "ec172b93ad5e563bf4932c70e1245034c35467ef2efd4d64ebf819683467e2bf",
        "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
        "dc2a4459e7369633a52b1bf277839a00201009a3efbf3ecb69bea2186c26b58909351fc9ac90b3ecfdfbc7c66431e0303dca179c138ac17ad9bef1177331a704",
    ),
}
PUBLIC_KEY = VECTORS["1"][0]
# Twice the order of the base point is no scalar, and neither is the order.
ORDER = 2**252 + 27742317777372353535851937790883648493

# The examples of docs/internals/worker-protocol.md.
HEADERS = {"millrace-expires": "1700000000", "millrace-attempt": "01" * 16}
BY_SECRET = "v1=e8948cda396ea5fa358572ec88f6c0f5a88cac76691da674697d685e411b574a"
BY_KEY = (
    "ed25519=efb779b083c0d6213290f57f70bfc850020f8381cc339fcc6c8ee6b196465593"
    "be85208ad00c988687dc2df68b7232b702f42120951dc1e55e296060769e9104"
)


@pytest.mark.parametrize("name", VECTORS)
def test_signatures_of_the_standard_fit(name: str) -> None:
    key, message, signature = map(bytes.fromhex, VECTORS[name])
    public = PublicKey(key)
    assert public.verifies(signature, message)
    assert not public.verifies(signature, message + b"x")
    assert not public.verifies(signature + b"\0", message)
    # The same number modulo the order: a second signature of one message would be a forgery.
    scalar = int.from_bytes(signature[32:], "little") + ORDER
    assert not public.verifies(signature[:32] + scalar.to_bytes(32, "little"), message)
    for bit in range(0, 512, 7):
        changed = bytearray(signature)
        changed[bit // 8] ^= 1 << bit % 8
        assert not public.verifies(bytes(changed), message), bit


@pytest.mark.parametrize(
    "key",
    ["", "xx", PUBLIC_KEY[:-2], PUBLIC_KEY + "00", "ff" * 32, "02" + "00" * 31, "01" + "00" * 30 + "80"],
    ids=["empty", "no-digits", "short", "long", "no-coordinate", "on-no-curve", "no-sign"],
)
def test_what_is_no_public_key_is_refused(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="millrace apps worker-key APP"):
        ServerKey(key)
    if key:
        monkeypatch.setenv("MILLRACE_WORKER_PUBLIC_KEY", key)
        with pytest.raises(ValueError, match="millrace apps worker-key APP"):
            asgi(Service)


def refused(verifier: Secret | ServerKey, signature: str, now: float = 1, **changes: str) -> str | None:
    method, path = changes.pop("method", "POST"), changes.pop("path", "/invoke")
    body = changes.pop("body", "body").encode()
    headers = {
        **HEADERS,
        "millrace-signature": signature,
        **{f"millrace-{name}": text for name, text in changes.items()},
    }
    return refusal(verifier, method, path, headers, body, now)


@pytest.mark.parametrize(
    ("verifier", "signature", "others"),
    [
        (Secret(b"0123456789abcdef"), BY_SECRET, Secret(b"0123456789abcdeF")),
        (ServerKey(PUBLIC_KEY), BY_KEY, ServerKey(VECTORS["2"][0])),
    ],
    ids=["secret", "key"],
)
def test_a_request_is_the_servers_and_no_other(
    verifier: Secret | ServerKey, signature: str, others: Secret | ServerKey
) -> None:
    assert refused(verifier, signature) is None
    assert refused(verifier, signature, now=1_700_000_001) == "the signature has expired"
    assert refused(verifier, "") == "the request has no signature"
    assert refused(others, signature) == "the signature does not fit"
    for changes in (
        {"method": "GET"},
        {"path": "/discovery"},
        {"body": "bodY"},
        {"attempt": "02" * 16},
        {"expires": "1700000001"},
    ):
        assert refused(verifier, signature, **changes) == "the signature does not fit", changes
    kind, digits = signature.split("=")
    for text in (digits, f"{kind}={digits[:-1]}", f"{kind}={digits[:-2]}", f"{kind}=é", f"v2={digits}", f"{kind}="):
        assert refused(verifier, text) == "the signature does not fit", text


def test_a_public_key_is_no_secret() -> None:
    assert refused(ServerKey(PUBLIC_KEY), BY_SECRET) == "the signature does not fit"
    assert refused(Secret(PUBLIC_KEY.encode()), BY_KEY) == "the signature does not fit"


def test_a_worker_has_one_of_both(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="not both"):
        asgi(Service, secret="0123456789abcdef", public_key=PUBLIC_KEY)
    monkeypatch.setenv("MILLRACE_WORKER_PUBLIC_KEY", PUBLIC_KEY)
    asgi(Service, secret="0123456789abcdef")
    monkeypatch.setenv("MILLRACE_WORKER_SECRET", "0123456789abcdef")
    with pytest.raises(ValueError, match="not both"):
        asgi(Service)
