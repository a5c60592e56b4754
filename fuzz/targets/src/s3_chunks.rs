//! Bodies in aws-chunked framing. The first byte says how: signed, with a trailer; the second where the body is split.
//! Whatever the split, the answer is the same, and no more data come than were announced.

use millrace_api::objects::ChecksumAlgorithm;
use millrace_s3::chunked::{Decoder, Trailer, TrailerRules};
use millrace_s3::error::Code;
use millrace_s3::signature::{Seed, SigningKey};

const ANNOUNCED_BYTES: u64 = 100;

pub(crate) fn run(bytes: &[u8]) {
    let [how, split, body @ ..] = bytes else { return };
    let whole = decode(*how, &[body]);
    let pieces: Vec<&[u8]> = body.chunks(usize::from(*split).max(1)).collect();
    let split = decode(*how, &pieces);
    assert_eq!(whole.1.is_ok(), split.1.is_ok());
    match (whole.1, split.1) {
        (Ok(trailer), Ok(other)) => {
            assert_eq!(trailer, other);
            assert_eq!(whole.0, split.0);
            assert_eq!(whole.0.len() as u64, ANNOUNCED_BYTES);
        }
        (Err(code), Err(other)) => assert_eq!(code, other),
        _ => {}
    }
}

fn decode(how: u8, pieces: &[&[u8]]) -> (Vec<u8>, Result<Trailer, Code>) {
    let seed = (how & 1 != 0).then(|| Seed {
        key: SigningKey::derive("secret", "20130524", "us-east-1"),
        timestamp: "20130524T000000Z".to_owned(),
        scope: "20130524/us-east-1/s3/aws4_request".to_owned(),
        signature: "0".repeat(64),
    });
    let checksum = (how & 4 != 0).then_some(ChecksumAlgorithm::Crc32);
    let trailer = (how & 2 != 0).then_some(TrailerRules { checksum });
    let mut decoder = Decoder::new(seed, trailer, ANNOUNCED_BYTES);
    let mut data = Vec::new();
    for piece in pieces {
        let mut input = *piece;
        while !input.is_empty() {
            match decoder.decode(&mut input) {
                Ok(decoded) => data.extend_from_slice(decoded),
                Err(error) => return (data, Err(error.code)),
            }
            assert!(data.len() as u64 <= ANNOUNCED_BYTES);
        }
    }
    (data, decoder.finish().map_err(|error| error.code))
}
