//! aws-chunked bodies: the documented examples, split points, and what is refused with which code.

use millrace_api::objects::ChecksumAlgorithm;
use millrace_s3::chunked::{Decoder, Trailer, TrailerRules};
use millrace_s3::error::{Code, S3Error};
use millrace_s3::signature::{Seed, SigningKey};
use proptest::prelude::*;

const PLAIN_SEED: &str = "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9";
const TRAILER_SEED: &str = "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e";
const CRC32C: TrailerRules = TrailerRules { checksum: Some(ChecksumAlgorithm::Crc32c) };

fn seed(signature: &str) -> Option<Seed> {
    Some(Seed {
        key: SigningKey::derive("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "20130524", "us-east-1"),
        timestamp: "20130524T000000Z".to_owned(),
        scope: "20130524/us-east-1/s3/aws4_request".to_owned(),
        signature: signature.to_owned(),
    })
}

fn decode(mut decoder: Decoder, pieces: &[&[u8]]) -> Result<(Vec<u8>, Trailer), S3Error> {
    let mut data = Vec::new();
    for mut piece in pieces.iter().copied() {
        while !piece.is_empty() {
            data.extend_from_slice(decoder.decode(&mut piece)?);
        }
    }
    Ok((data, decoder.finish()?))
}

fn body(signatures: [&str; 3], end: &str) -> Vec<u8> {
    let [first, second, last] = signatures;
    let (large, small) = ("a".repeat(65_536), "a".repeat(1_024));
    format!(
        "10000;chunk-signature={first}\r\n{large}\r\n400;chunk-signature={second}\r\n{small}\r\n\
         0;chunk-signature={last}\r\n{end}"
    )
    .into_bytes()
}

fn plain() -> Vec<u8> {
    let signatures = [
        "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
        "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
        "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9",
    ];
    body(signatures, "\r\n")
}

fn with_trailer(end: &str) -> Vec<u8> {
    let signatures = [
        "b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2",
        "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7",
        "2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992",
    ];
    body(signatures, end)
}

const TRAILER: &str = "x-amz-checksum-crc32c:sOO8/Q==\r\n\
    x-amz-trailer-signature:d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435\r\n\r\n";

#[test]
fn documented_examples_are_decoded() {
    let body = plain();
    for end in [body.len(), body.len() - 2] {
        let (data, trailer) = decode(Decoder::new(seed(PLAIN_SEED), None, 66_560), &[&body[..end]]).unwrap();
        assert_eq!(data, vec![b'a'; 66_560]);
        assert_eq!(trailer, Trailer::default());
    }
    let documented = TRAILER.replacen("\r\n", "\n\r\n", 1);
    for end in [TRAILER, documented.as_str(), &format!("\r\n{TRAILER}"), TRAILER.trim_end_matches("\r\n\r\n").trim()] {
        let end = if end.ends_with('\n') { end.to_owned() } else { format!("{end}\r\n") };
        let body = with_trailer(&end);
        let decoder = Decoder::new(seed(TRAILER_SEED), Some(CRC32C), 66_560);
        let (data, trailer) = decode(decoder, &[&body]).unwrap();
        assert_eq!(data.len(), 66_560);
        assert_eq!(trailer.checksum, Some((ChecksumAlgorithm::Crc32c, vec![0xb0, 0xe3, 0xbc, 0xfd])));
    }
}

#[test]
fn wrong_signatures_are_refused() {
    for at in [30, 200, 65_550, 65_640, 66_600, 66_760] {
        let mut body = plain();
        body[at] ^= 1;
        assert!(decode(Decoder::new(seed(PLAIN_SEED), None, 66_560), &[&body]).is_err(), "{at}");
    }
    let other = Decoder::new(seed(TRAILER_SEED), None, 66_560);
    assert_eq!(decode(other, &[&plain()]).unwrap_err().code, Code::SignatureDoesNotMatch);
    for (from, to, code) in [
        ("d81f82", "d81f83", Code::SignatureDoesNotMatch),
        ("sOO8/Q==", "sOO8/A==", Code::SignatureDoesNotMatch),
        ("sOO8/Q==", "sOO8", Code::InvalidRequest),
        ("crc32c", "crc32", Code::MalformedTrailer),
        ("x-amz-trailer-signature", "x-amz-meta-a", Code::MalformedTrailer),
        (":sOO8", " sOO8", Code::MalformedTrailer),
        ("x-amz-checksum-crc32c:sOO8/Q==\r\n", "", Code::MalformedTrailer),
    ] {
        let body = with_trailer(&TRAILER.replacen(from, to, 1));
        let decoder = Decoder::new(seed(TRAILER_SEED), Some(CRC32C), 66_560);
        assert_eq!(decode(decoder, &[&body]).unwrap_err().code, code, "{from} → {to}");
    }
}

#[test]
fn malformed_framing_is_refused() {
    let incomplete = Code::IncompleteBody;
    for (body, code) in [
        ("", incomplete),
        ("3\r\nabc\r\n", incomplete),
        ("3\r\nabc\r\n0\r\n", incomplete),
        ("3\r\nabcd\r\n0\r\n", incomplete),
        ("3\r\nab\r\n0\r\n\r\n", incomplete),
        ("3\nabc\r\n0\r\n\r\n", incomplete),
        ("+3\r\nabc\r\n0\r\n\r\n", incomplete),
        ("\r\n", incomplete),
        ("3;chunk-signature=a\r\nabc\r\n", incomplete),
        ("4\r\nabcd\r\n0\r\n", incomplete),
        ("2\r\nab\r\n0\r\n\r\n", incomplete),
        ("ffffffffffffffff\r\n", incomplete),
        ("10000000000000000\r\n", incomplete),
        ("3\r\nabc\r\n0\r\nx-amz-checksum-crc32c:sOO8/Q==\r\n\r\nmore", incomplete),
        ("3\r\nabc\r\n0\r\n\r\n\r\n\r\n", Code::MalformedTrailer),
        ("3\r\nabc\r\n0\r\na:b\r\n\r\n", Code::MalformedTrailer),
        ("3\r\nabc\r\n0\r\nx-amz-checksum-crc32c:sOO8/Q==-1\r\n\r\n", Code::MalformedTrailer),
    ] {
        let result = decode(Decoder::new(None, Some(CRC32C), 3), &[body.as_bytes()]);
        assert_eq!(result.unwrap_err().code, code, "{body:?}");
    }
    let endless = "1".repeat(10_000);
    assert_eq!(decode(Decoder::new(None, None, 3), &[endless.as_bytes()]).unwrap_err().code, incomplete);
}

proptest! {
    #[test]
    fn split_points_do_not_matter(
        kind in 0..3_usize,
        noise in prop::collection::vec(prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'0'), Just(b'3'), Just(b';'), any::<u8>()], 0..40),
        change in prop::option::of((any::<prop::sample::Index>(), any::<u8>())),
        splits in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let mut body = match kind {
            0 => plain(),
            1 => with_trailer(TRAILER),
            _ => noise,
        };
        if let Some((at, byte)) = change && !body.is_empty() {
            let at = at.index(body.len());
            body[at] = byte;
        }
        let decoder = || match kind {
            0 => Decoder::new(seed(PLAIN_SEED), None, 66_560),
            1 => Decoder::new(seed(TRAILER_SEED), Some(CRC32C), 66_560),
            _ => Decoder::new(None, Some(CRC32C), 3),
        };
        let mut ends: Vec<_> = splits.iter().map(|split| split.index(body.len() + 1)).chain([body.len()]).collect();
        ends.sort_unstable();
        let mut start = 0;
        let pieces: Vec<_> = ends.iter().map(|end| { let piece = &body[start..*end]; start = *end; piece }).collect();
        prop_assert_eq!(decode(decoder(), &pieces), decode(decoder(), &[&body]));
    }
}
