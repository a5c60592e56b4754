//! Signature version 4 in the Authorization header, as a client of S3 makes it and as the AWS documentation describes it.
//! One signer belongs to one client, so that the key of the day and the time of the second are computed once.
//!
//! Promises: the examples of the documentation have their signatures. Must not know how requests are sent.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use hmac::{Hmac, KeyInit, Mac};
pub use millrace_base::hex;
use sha2::{Digest, Sha256};

/// Stands for the hash of a body that is not hashed.
pub const UNSIGNED: &str = "UNSIGNED-PAYLOAD";

const SERVICE: &str = "s3";
const SIGNED_HEADERS: &str = "host;x-amz-content-sha256;x-amz-date";

/// Who signs, and for which region.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// The public part of the key.
    pub access_key: String,
    /// The secret part of the key.
    pub secret_key: String,
    /// The server's region.
    pub region: String,
}

/// What is signed of a request.
pub struct Unsigned<'a> {
    /// Upper case.
    pub method: &'a str,
    /// Percent-encoded.
    pub path: &'a str,
    /// Percent-encoded, names in order: `a=1&b=`.
    pub query: &'a str,
    /// As in the header.
    pub host: &'a str,
    /// Hex SHA-256 of the body, or [`UNSIGNED`].
    pub payload: &'a str,
}

/// The headers of a signed request, beside `host` and `x-amz-content-sha256`.
pub struct Signed {
    /// `x-amz-date`.
    pub date: String,
    /// `authorization`.
    pub authorization: String,
}

/// Signs the requests of one client.
pub struct Signer {
    credentials: Credentials,
    second: u64,
    /// `20130524T000000Z` of `second`.
    time: String,
    /// The day of `key`.
    day: String,
    key: [u8; 32],
}

impl Signer {
    /// Signs with these.
    #[must_use]
    pub fn new(credentials: Credentials) -> Self {
        Self { credentials, second: u64::MAX, time: String::new(), day: String::new(), key: [0; 32] }
    }

    /// Appends the head of a signed request, up to the line end of its last signed header.
    pub fn write_head(&mut self, request: &Unsigned<'_>, head: &mut String) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        self.write_head_at(request, now, head);
    }

    /// The headers that sign a request which is sent now.
    pub fn sign(&mut self, request: &Unsigned<'_>) -> Signed {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        self.sign_at(request, now)
    }

    fn sign_at(&mut self, request: &Unsigned<'_>, second: u64) -> Signed {
        self.move_to(second);
        let signature = self.signature(request);
        let (key, region) = (&self.credentials.access_key, &self.credentials.region);
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential={key}/{}/{region}/{SERVICE}/aws4_request, SignedHeaders={SIGNED_HEADERS}, \
             Signature={signature}",
            self.day
        );
        Signed { date: self.time.clone(), authorization }
    }

    fn write_head_at(&mut self, request: &Unsigned<'_>, second: u64, head: &mut String) {
        let Signed { date, authorization } = self.sign_at(request, second);
        let Unsigned { method, path, query, host, payload } = request;
        let separator = if query.is_empty() { "" } else { "?" };
        // Writing to a String cannot fail.
        let _ = write!(
            head,
            "{method} {path}{separator}{query} HTTP/1.1\r\nhost: {host}\r\nx-amz-content-sha256: {payload}\r\n\
             x-amz-date: {date}\r\nauthorization: {authorization}\r\n"
        );
    }

    fn move_to(&mut self, second: u64) {
        if self.second == second {
            return;
        }
        self.second = second;
        self.time = time_text(second);
        if self.time.get(..8) != Some(&self.day) {
            self.time[..8].clone_into(&mut self.day);
            let first = hmac(format!("AWS4{}", self.credentials.secret_key).as_bytes(), self.day.as_bytes());
            let region = hmac(&first, self.credentials.region.as_bytes());
            self.key = hmac(&hmac(&region, SERVICE.as_bytes()), b"aws4_request");
        }
    }

    fn signature(&self, request: &Unsigned<'_>) -> String {
        let Unsigned { method, path, query, host, payload } = request;
        let canonical = format!(
            "{method}\n{path}\n{query}\nhost:{host}\nx-amz-content-sha256:{payload}\nx-amz-date:{}\n\n\
             {SIGNED_HEADERS}\n{payload}",
            self.time
        );
        let to_sign = format!(
            "AWS4-HMAC-SHA256\n{}\n{}/{}/{SERVICE}/aws4_request\n{}",
            self.time,
            self.day,
            self.credentials.region,
            hex(&Sha256::digest(canonical))
        );
        hex(&hmac(&self.key, to_sign.as_bytes()))
    }
}

fn hmac(key: &[u8], text: &[u8]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(text);
    mac.finalize().into_bytes().into()
}

/// Percent-encodes what is not unreserved, as a canonical query needs it.
#[must_use]
pub fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// The time as `20130524T000000Z`.
fn time_text(second: u64) -> String {
    let (days, rest) = (second / 86_400, second % 86_400);
    // Days are counted in eras of 400 years that begin on the first of March, so that a leap day ends a year.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}{month:02}{day:02}T{:02}{:02}{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2013-05-24, the day of the examples in the AWS documentation.
    const DAY: u64 = 1_369_353_600;
    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn head(query: &str) -> String {
        let mut signer = Signer::new(Credentials {
            access_key: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            secret_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned(),
            region: "us-east-1".to_owned(),
        });
        let host = "examplebucket.s3.amazonaws.com";
        let mut head = String::new();
        signer.write_head_at(&Unsigned { method: "GET", path: "/", query, host, payload: EMPTY }, DAY, &mut head);
        head
    }

    #[test]
    fn the_examples_of_the_documentation_have_their_signatures() {
        let examples = [
            ("lifecycle=", "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
            ("max-keys=2&prefix=J", "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
        ];
        for (query, signature) in examples {
            let head = head(query);
            assert!(head.ends_with(&format!("Signature={signature}\r\n")), "{head}");
            assert!(head.starts_with(&format!("GET /?{query} HTTP/1.1\r\nhost: examplebucket")), "{head}");
            assert!(head.contains("Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"), "{head}");
        }
    }

    #[test]
    fn times_are_right_around_leap_days_and_new_year() {
        let times = [
            (0, "19700101T000000Z"),
            (951_782_400, "20000229T000000Z"),
            (1_709_251_199, "20240229T235959Z"),
            (1_735_689_599, "20241231T235959Z"),
            (4_107_542_400, "21000301T000000Z"),
        ];
        for (second, text) in times {
            assert_eq!(time_text(second), text);
        }
    }

    #[test]
    fn what_is_not_unreserved_is_encoded() {
        assert_eq!(encode("a/b c~é+"), "a%2Fb%20c~%C3%A9%2B");
    }
}
