//! Who may invoke a worker: whoever knows its deployment's secret.

use millrace_base::hex;
use millrace_func::{AttemptToken, hmac_sha256, sha256};

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

/// The header `millrace-signature`.
#[must_use]
pub fn signature(secret: &str, signed: &Signed<'_>) -> String {
    let Signed { method, path, expires, attempt, body } = *signed;
    let (attempt, body) = (hex(&attempt), hex(&sha256(body)));
    let text = format!("{method}\n{path}\n{expires}\n{attempt}\n{body}\n");
    format!("v1={}", hex(&hmac_sha256(secret.as_bytes(), text.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same as the example in `docs/internals/worker-protocol.md`, and as
    /// `printf … | openssl dgst -sha256 -hmac …` gives it.
    #[test]
    fn a_signature_is_what_the_page_says() {
        let signed =
            Signed { method: "POST", path: "/invoke", expires: 1_700_000_000, attempt: [1; 16], body: b"body" };
        assert_eq!(
            signature("0123456789abcdef", &signed),
            "v1=e8948cda396ea5fa358572ec88f6c0f5a88cac76691da674697d685e411b574a"
        );
        for other in [
            Signed { method: "GET", ..signed },
            Signed { path: "/invoke/", ..signed },
            Signed { expires: 1_700_000_001, ..signed },
            Signed { attempt: [2; 16], ..signed },
            Signed { body: b"bodY", ..signed },
        ] {
            assert_ne!(signature("0123456789abcdef", &other), signature("0123456789abcdef", &signed));
        }
        assert_ne!(signature("0123456789abcdeF", &signed), signature("0123456789abcdef", &signed));
    }
}
