//! Who may invoke a worker: whoever knows its deployment's secret, or has the private key of its app.

use std::fmt;

use millrace_base::hex;
use millrace_func::{AttemptToken, RequestSigning, hmac_sha256, sha256};
use ring::signature::{Ed25519KeyPair, KeyPair};

/// What a signature is for.
#[derive(Clone, Copy, Debug)]
pub struct Signed<'a> {
    /// Upper-case method.
    pub method: &'a str,
    /// The path, as it is sent.
    pub path: &'a str,
    /// Seconds since 1970, after which it is not taken any more.
    pub expires: u64,
    /// The attempt; zeros where there is none.
    pub attempt: AttemptToken,
    /// The body; on a stream, its START frame.
    pub body: &'a [u8],
}

impl Signed<'_> {
    /// The text that is signed.
    fn text(&self) -> String {
        let Self { method, path, expires, attempt, body } = *self;
        let (attempt, body) = (hex(&attempt), hex(&sha256(body)));
        format!("{method}\n{path}\n{expires}\n{attempt}\n{body}\n")
    }
}

/// What requests to the workers of one app are signed with.
pub enum Signer {
    /// HMAC-SHA256 with a secret that workers know too.
    Secret(String),
    /// Ed25519 with a private key. Workers have the public one, which signs nothing.
    Key(Box<Ed25519KeyPair>),
}

impl Signer {
    /// A signer with the private key that follows from 32 bytes, as RFC 8032 has it.
    #[must_use]
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self::Key(Box::new(Ed25519KeyPair::from_seed_unchecked(seed).expect("every 32 bytes are a private key")))
    }

    /// The header `millrace-signature`.
    #[must_use]
    pub fn sign(&self, signed: &Signed<'_>) -> String {
        let text = signed.text();
        match self {
            Self::Secret(secret) => format!("v1={}", hex(&hmac_sha256(secret.as_bytes(), text.as_bytes()))),
            Self::Key(key) => format!("ed25519={}", hex(key.sign(text.as_bytes()).as_ref())),
        }
    }

    /// The public key, in hex digits, if there is one.
    #[must_use]
    pub fn public_key(&self) -> Option<String> {
        match self {
            Self::Secret(_) => None,
            Self::Key(key) => Some(hex(key.public_key().as_ref())),
        }
    }
}

/// Neither secrets nor keys get into logs.
impl fmt::Debug for Signer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Secret(_) => "Secret",
            Self::Key(_) => "Key",
        })
    }
}

/// The private keys of all apps. They follow from the secret of the data directory, which all nodes of a cluster have. So they
/// are the same on all nodes, and none is stored or sent.
#[derive(Clone)]
pub struct SigningKeys {
    secret: [u8; 32],
}

/// What separates these keys from others that follow from the same secret.
const PURPOSE: &str = "millrace requests to workers 1\n";

impl SigningKeys {
    /// Those that follow from a secret.
    #[must_use]
    pub fn derived_from(secret: [u8; 32]) -> Self {
        Self { secret }
    }

    /// The signer of an app with its private key.
    #[must_use]
    pub fn of_app(&self, app: &str) -> Signer {
        Signer::from_seed(&hmac_sha256(&self.secret, format!("{PURPOSE}{app}").as_bytes()))
    }

    /// The signer of an app that wants its requests signed so; `None` if it does not.
    pub(crate) fn signer(&self, app: &str, signing: &RequestSigning) -> Option<Signer> {
        let key = signing.signature.is_some().then(|| self.of_app(app));
        key.or_else(|| signing.secret.clone().map(Signer::Secret))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIGNED: Signed<'_> =
        Signed { method: "POST", path: "/invoke", expires: 1_700_000_000, attempt: [1; 16], body: b"body" };

    /// The private key of the first example of RFC 8032, section 7.1.
    fn key_of_rfc_8032() -> Signer {
        Signer::from_seed(&[
            0x9d, 0x61, 0xb1, 0x9d, 0xef, 0xfd, 0x5a, 0x60, 0xba, 0x84, 0x4a, 0xf4, 0x92, 0xec, 0x2c, 0xc4, 0x44, 0x49,
            0xc5, 0x69, 0x7b, 0x32, 0x69, 0x19, 0x70, 0x3b, 0xac, 0x03, 0x1c, 0xae, 0x7f, 0x60,
        ])
    }

    /// The same as the examples in `docs/internals/worker-protocol.md`, and as `openssl dgst -sha256 -hmac …` and
    /// `openssl pkeyutl -sign -rawin` give them.
    #[test]
    fn a_signature_is_what_the_page_says() {
        assert_eq!(
            Signer::Secret("0123456789abcdef".to_owned()).sign(&SIGNED),
            "v1=e8948cda396ea5fa358572ec88f6c0f5a88cac76691da674697d685e411b574a"
        );
        let key = key_of_rfc_8032();
        assert_eq!(
            key.public_key().as_deref(),
            Some("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
        );
        assert_eq!(
            key.sign(&SIGNED),
            "ed25519=efb779b083c0d6213290f57f70bfc850020f8381cc339fcc6c8ee6b196465593be85208ad00c988687dc2df68b7232b702f42120951dc1e55e296060769e9104"
        );
    }

    #[test]
    fn a_signature_is_for_one_request_and_one_key() {
        let secret = |text: &str| Signer::Secret(text.to_owned());
        let keys = SigningKeys::derived_from([1; 32]);
        for (own, another) in [
            (secret("0123456789abcdef"), secret("0123456789abcdeF")),
            (keys.of_app("bank"), keys.of_app("bank2")),
            (keys.of_app("bank"), SigningKeys::derived_from([2; 32]).of_app("bank")),
        ] {
            for other in [
                Signed { method: "GET", ..SIGNED },
                Signed { path: "/invoke/", ..SIGNED },
                Signed { expires: 1_700_000_001, ..SIGNED },
                Signed { attempt: [2; 16], ..SIGNED },
                Signed { body: b"bodY", ..SIGNED },
            ] {
                assert_ne!(own.sign(&other), own.sign(&SIGNED));
            }
            assert_ne!(own.sign(&SIGNED), another.sign(&SIGNED));
        }
    }

    /// Workers know the public key, so it may never be another one for the same app and directory.
    #[test]
    fn an_app_keeps_its_key() {
        let public = SigningKeys::derived_from([7; 32]).of_app("bank").public_key();
        assert_eq!(public.as_deref(), Some("d97ec1b4145fea630e4f2927881d5e2526fb662b377ebbbefb4ac67bb817b300"));
    }

    #[test]
    fn nothing_secret_is_shown() {
        assert_eq!(format!("{:?} {:?}", Signer::Secret("hidden".to_owned()), key_of_rfc_8032()), "Secret Key");
    }
}
