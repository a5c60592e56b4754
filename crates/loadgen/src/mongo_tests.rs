//! Tests: messages have the layout of the specification, and every reply is understood or refused.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::RequestTemplate;
use crate::codec::replies_in_pieces;

/// The reply with this document.
fn answer(document: &str) -> Vec<u8> {
    let mut message = message(document).unwrap();
    message[4..12].copy_from_slice(b"\x07\0\0\0\x01\0\0\0");
    message
}

fn parse(bytes: &[u8], piece: usize) -> Result<Vec<(u16, Vec<u8>)>, ParseError> {
    let mut parser = MongoParser::default();
    let replies = replies_in_pieces(bytes, piece, |rest| {
        let (used, reply) = parser.feed(rest)?;
        let reply = reply.map(|reply| reply.told());
        assert!(parser.partial.len() < MESSAGE_BYTES + piece);
        Ok((used, reply))
    })?;
    assert!(!parser.is_inside_reply());
    Ok(replies)
}

/// The layout of the public specification of `OP_MSG`: length, request, answered request, operation, flags, sections.
/// A section of kind 0 is a document.
#[test]
fn a_command_has_the_bytes_of_the_specification() {
    let expected = [
        &b"\x32\0\0\0\x01\0\0\0\0\0\0\0\xDD\x07\0\0"[..],
        b"\0\0\0\0\0",
        b"\x1D\0\0\0\x10ping\0\x01\0\0\0\x02$db\0\x05\0\0\0test\0\0",
    ];
    assert_eq!(message(r#"{"ping":1,"$db":"test"}"#).unwrap(), expected.concat());
    let request = RequestTemplate::mongo(r#"{"ping":1,"$db":"test"}"#).unwrap();
    assert_eq!(request.fixed(), Some(expected.concat().as_slice()));
    assert!(message(r#"{"ping":"{{seq}}"}"#).is_err());
}

#[test]
fn a_command_with_parts_counts_its_length() {
    let json = r#"{"find":"personinfo","filter":{"_id":"{{seq:100000}}"},"$db":"records"}"#;
    let request = RequestTemplate::mongo(json).unwrap();
    assert_eq!(request.fixed(), None);
    let mut out = b"before".to_vec();
    let mut scope = Scope::new(1, 0, 1);
    scope.next_request();
    request.render(&mut scope, &mut Vec::new(), &mut out);
    assert_eq!(out[6..], message(&json.replace("{{seq:100000}}", "100000")).unwrap());
}

const FOUND: &str = r#"{"cursor":{"firstBatch":[{"_id":"7","name":"J","age":60}],"id":0,"ns":"a.b"},"ok":1.0}"#;

#[test]
fn replies_are_the_same_however_their_bytes_arrive() {
    let one = 1i32.to_le_bytes().to_vec();
    let all = [
        (r#"{"ok":1.0}"#, 200, Vec::new()),
        (FOUND, 200, found(r#"{"name":"J","age":60}"#).unwrap()),
        (r#"{"cursor":{"firstBatch":[{"a":1}],"id":0},"ok":1}"#, 200, found(r#"{"a":1}"#).unwrap()),
        (r#"{"cursor":{"firstBatch":[{"a":1},{"a":1}],"id":0},"ok":1}"#, 200, Vec::new()),
        (r#"{"cursor":{"id":0,"firstBatch":[]},"ok":1.0}"#, 404, Vec::new()),
        (r#"{"n":1,"nModified":1,"ok":1.0}"#, 200, one.clone()),
        (r#"{"n":1,"nModified":0,"ok":1.0}"#, 200, one.clone()),
        (r#"{"n":1,"upserted":[{"index":0,"_id":"7"}],"nModified":0,"ok":1.0}"#, 201, one),
        (r#"{"n":2,"ok":1.0}"#, 200, 2i32.to_le_bytes().to_vec()),
        (r#"{"n":0,"nModified":0,"ok":1.0}"#, 404, 0i32.to_le_bytes().to_vec()),
        (r#"{"ok":0.0,"errmsg":"no","code":59}"#, 500, b"no".to_vec()),
        (r#"{"n":1,"writeConcernError":{},"ok":1.0}"#, 500, b"\x05\0\0\0\0".to_vec()),
        (r#"{"n":0,"writeErrors":[],"ok":1.0}"#, 500, b"\x05\0\0\0\0".to_vec()),
        (r#"{"n":1}"#, 500, Vec::new()),
    ];
    let bytes = all.iter().flat_map(|(document, ..)| answer(document)).collect::<Vec<_>>();
    let expected = all.iter().map(|(_, status, body)| (*status, body.clone())).collect::<Vec<_>>();
    for piece in 1..=bytes.len() {
        assert_eq!(parse(&bytes, piece).unwrap(), expected, "in pieces of {piece}");
    }
}

#[test]
fn the_body_of_a_find_is_all_of_the_document_but_its_id() {
    let body = found(r#"{"name":"J","age":60}"#).unwrap();
    assert_eq!(body, b"\x02name\0\x02\0\0\0J\0\x10age\0\x3C\0\0\0\0");
    assert_eq!(found(r#"{"_id":"1","name":"J","age":60}"#).unwrap(), body);
    assert!(found("{{seq}}").is_err() && found(r#"{"a":"{{seq}}"}"#).is_err());
}

#[test]
fn replies_are_decoded_as_a_whole() {
    let expected =
        json!({"cursor": {"firstBatch": [{"_id": "7", "name": "J", "age": 60}], "id": 0, "ns": "a.b"}, "ok": 1.0});
    assert_eq!(decode(&answer(FOUND)).unwrap(), expected);
    assert!(decode(&message(FOUND).unwrap()).is_err());
    assert!(decode(&answer(FOUND)[..20]).is_err());
}

#[test]
fn broken_replies_are_errors() {
    let good = answer(r#"{"ok":1.0}"#);
    assert!(parse(&good, 1000).is_ok());
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        bytes
    };
    let broken = [
        ("too short", with(0, 25)),
        ("too large", with(3, 0x7F)),
        ("negative", with(3, 0x80)),
        ("another request", with(8, 2)),
        ("another operation", with(12, 1)),
        ("a checksum", with(16, 1)),
        ("more to come", with(16, 2)),
        ("another section", with(20, 1)),
        ("a document of another length", with(21, 16)),
        ("more changed than found", answer(r#"{"n":1,"nModified":2,"ok":1}"#)),
        ("a count that is none", answer(r#"{"n":"1","ok":1}"#)),
        ("a negative count", answer(r#"{"n":-1,"ok":1}"#)),
        ("no batch", answer(r#"{"cursor":{},"ok":1}"#)),
        ("a batch of no documents", answer(r#"{"cursor":{"firstBatch":[1]},"ok":1}"#)),
    ];
    for (what, bytes) in broken {
        for piece in [1, 3, 1000] {
            let mut parser = MongoParser::default();
            let outcome = bytes.chunks(piece).try_for_each(|part| parser.feed(part).map(drop));
            assert!(outcome.is_err(), "{what} in pieces of {piece}");
        }
    }
}

#[test]
fn a_large_reply_is_bounded_by_its_first_bytes() {
    let mut parser = MongoParser::default();
    let length = u32::try_from(MESSAGE_BYTES + 1).unwrap().to_le_bytes();
    assert_eq!(parser.feed(&length).unwrap_err(), ParseError("the reply is too large"));
    let mut parser = MongoParser::default();
    assert!(parser.feed(&u32::try_from(MESSAGE_BYTES).unwrap().to_le_bytes()).is_ok());
    assert!(parser.is_inside_reply());
}

proptest! {
    #[test]
    fn any_bytes_are_survived(mut bytes in prop::collection::vec(any::<u8>(), 0..60), piece in 1..70usize, at in 16..60usize) {
        // The bytes before the document are right, so that the parser reaches it.
        let length = bytes.len() as u32;
        let header = [&length.to_le_bytes()[..], b"\0\0\0\0\x01\0\0\0\xDD\x07\0\0\0\0\0\0\0"].concat();
        if let Some(start) = bytes.get_mut(..header.len()) {
            start.copy_from_slice(&header);
        }
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= 1;
        }
        let mut parser = MongoParser::default();
        for part in bytes.chunks(piece) {
            if parser.feed(part).is_err() {
                break;
            }
        }
    }

    #[test]
    fn a_reply_with_any_byte_changed_is_survived(at in 0..200usize, byte in any::<u8>(), piece in 1..70usize) {
        let mut bytes = answer(FOUND);
        let length = bytes.len();
        bytes[at % length] = byte;
        let mut parser = MongoParser::default();
        for part in bytes.chunks(piece) {
            if parser.feed(part).is_err() {
                break;
            }
        }
    }
}
