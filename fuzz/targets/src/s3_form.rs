//! Forms of browsers with the boundary `b`. The first byte says where the body is split: that changes nothing. A form
//! that nobody with a key has signed is refused or anonymous, and its policy is read or refused.

use millrace_s3::error::Code;
use millrace_s3::post_form::{Event, Form, FormReader, Policy, boundary, verify};
use millrace_s3::signature::{KnownKey, Rules, SigningKeys};

pub(crate) fn run(bytes: &[u8]) {
    let [split, body @ ..] = bytes else { return };
    if let Ok(text) = std::str::from_utf8(body) {
        let _ = boundary(text);
    }
    if let Err(error) = Policy::parse(body) {
        assert_eq!(error.code, Code::InvalidPolicyDocument);
    }
    let whole = read(&[body]);
    let pieces: Vec<&[u8]> = body.chunks(usize::from(*split).max(1)).collect();
    let split = read(&pieces);
    assert_eq!(whole, split);
    let Ok((form, _)) = whole else { return };
    let rules = Rules { region: "us-east-1".to_owned(), allows_version_2: true };
    let known = |_: &str| Some(KnownKey { secret: "a secret that is not in the corpus".to_owned(), identity: () });
    let signed = verify(&form, "bucket", 1_400_000_000, &rules, &known, &mut SigningKeys::default());
    assert!(!matches!(signed, Ok(Some(_))), "nobody has signed it");
}

/// The fields, and the file.
fn read(pieces: &[&[u8]]) -> Result<(Form, Vec<u8>), Code> {
    let mut reader = FormReader::new("b");
    let (mut file, mut pieces) = (Vec::new(), pieces.iter());
    loop {
        match reader.next_event().map_err(|error| error.code)? {
            Event::NeedsMore => match pieces.next() {
                Some(piece) => reader.push(piece),
                None => return Err(reader.finish().expect_err("it is not whole").code),
            },
            Event::FileBegins => assert!(file.is_empty()),
            Event::File(bytes) => file.extend(bytes),
            Event::End => return Ok((reader.form().clone(), file)),
        }
    }
}
