//! Operations on records, as fronts, functions and the engine that keeps records agree on them.
//!
//! An operation travels as the input of an ordinary call, and its reply as that call's output, so
//! records have everything calls have: transactions, locks, idempotency keys, durability. Replies
//! may be kept under idempotency keys, so their encoding (postcard, which is stable from 1.0 on)
//! is a stored format: variants and fields are only ever added at the end, and [`VERSION`] tells
//! what cannot be read.

use std::borrow::Cow;

use bytes::{Buf, Bytes};
use millrace_base::{Error, ErrorCode, IdempotencyKey, Name, limits};
use serde::{Deserialize, Serialize};

use crate::{Allows, BuiltInApp, BuiltInFiles, Setting};

/// The app whose services are the types of records. Users cannot deploy an app of this name.
pub const RECORDS_APP: &str = "records";

/// Its row among the built-in apps: its files are the types and their settings.
pub(crate) static APP: BuiltInApp = BuiltInApp {
    name: RECORDS_APP,
    files: Some(BuiltInFiles {
        service_in_use: |name| {
            let message = format!("the type {name:?} has records: delete them first, or force it");
            Error::new(ErrorCode::TypeInUse, message)
        },
    }),
    key_bytes: limits::KEY_BYTES,
    open_services: &[],
    setting: Setting {
        name: "types",
        allows: Allows::Operations,
        most_lines: limits::RECORD_TYPES,
        is_line: |line| line == "*" || is_type_name(line),
        names: "type of records",
        refused: |name| format!("the app may not use records of the type {name:?}"),
    },
    reached: "its records are reached at /records/{type}/{id}",
    no_service: |name| Error::new(ErrorCode::UnknownType, format!("there is no type of records named {name:?}")),
};

/// Whether records can have a type of that name: what holds `--` names services that the app keeps for itself.
fn is_type_name(name: &str) -> bool {
    name.len() <= limits::TYPE_NAME_BYTES && !name.contains("--") && Name::is_valid(name)
}

/// A type's triggers are the service that is the type with this; their handlers are their names behind a `_`.
pub const TRIGGERS_SERVICE: &str = "--triggers";

/// What belongs to a type in one shard is kept by the service that is the type with this.
pub const SHARD_SERVICE: &str = "--shard";

/// Its handler that brings records and index rows to the present settings, in the background.
pub const SWEEP_HANDLER: &str = "_sweep";

/// The handler of a type that runs operations which only read.
pub const READ_HANDLER: &str = "_read";

/// The handler of a type that runs operations which may write.
pub const WRITE_HANDLER: &str = "_write";

/// The encoding of operations and replies.
const VERSION: u8 = 1;

/// How a value is written in a request or a reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Form {
    /// JSON as people write it: unions without their branch's name where that is clear, decimals,
    /// dates and UUIDs as text, bytes as base64.
    #[default]
    Json,
    /// JSON as the Avro specification defines it.
    AvroJson,
    /// Avro's binary encoding, with the type's current schema.
    Binary,
}

/// One operation. `path`, `predicate` and JSON are text as the caller wrote it; the engine reads it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum RecordOperation<'a> {
    /// The whole record.
    Get {
        /// How to write it.
        form: Form,
    },
    /// One field, by name.
    GetField {
        /// Its name.
        field: &'a str,
        /// How to write it.
        form: Form,
    },
    /// What a path matches: a JSON array.
    Select {
        /// The path.
        path: &'a str,
        /// Values of `$name` in it: a JSON object, or empty.
        parameters: &'a str,
        /// How to write them; not binary.
        form: Form,
    },
    /// Changes the record.
    Write(#[serde(borrow)] RecordWrite<'a>),
    /// Several records from one consistent state: `{"records":[…]}`, each `{"id","etag","record"}` or
    /// `{"id","error"}`.
    GetMany {
        /// Their ids.
        ids: Vec<&'a [u8]>,
        /// How to write them; not binary.
        form: Form,
    },
    /// Records of the type in the order of their ids, or by a predicate.
    Find(#[serde(borrow)] RecordQuery<'a>),
    /// The changes after a cursor: a JSON object `{"changes":[…],"cursor":"…"}`.
    Changes {
        /// Where to go on, as the last reply said; empty begins with the oldest kept; `now` with
        /// what comes next.
        cursor: &'a str,
        /// At most so many.
        limit: u32,
    },
    /// How far the type's indexes are: a JSON object that says of each, by its name, in how many of how many shards
    /// it is complete: `{"by_age":{"complete_shards":60,"shards":64}}`. No index has the empty name: it stands for
    /// the sweep that brings records to the present schema.
    Indexes,
}

/// A change of one record.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RecordWrite<'a> {
    /// What to do.
    #[serde(borrow)]
    pub change: RecordChange<'a>,
    /// Under which condition.
    pub condition: Condition,
    /// When the record is to vanish. `None` leaves what was said before, or the type's default.
    pub ttl: Option<Ttl>,
    /// Whether the reply's body is the record as it is afterwards, and how; else it is empty.
    pub answer: Option<Form>,
}

/// What a write does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum RecordChange<'a> {
    /// Removes it.
    #[default]
    Delete,
    /// Replaces it whole. Fields that JSON leaves out get their defaults.
    Put {
        /// How `value` is written.
        form: Form,
        /// The value.
        value: &'a [u8],
    },
    /// Replaces one field, by name.
    PutField {
        /// Its name.
        #[serde(borrow)]
        field: Cow<'a, str>,
        /// How `value` is written.
        form: Form,
        /// The value.
        value: &'a [u8],
    },
    /// All of these or, if one fails, none.
    Patch {
        /// In order; each sees what those before it did.
        #[serde(borrow)]
        operations: Vec<PathOperation<'a>>,
        /// Values of `$name` in paths: a JSON object, or empty.
        parameters: &'a str,
    },
    /// As [`RecordChange::Put`] in Avro's binary encoding, with the schema of any version of the type.
    PutWritten {
        /// The registry's id of the schema that `value` is written with.
        schema_id: u32,
        /// The value.
        value: &'a [u8],
    },
}

/// One step of a patch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathOperation<'a> {
    /// What to do with what the path matches.
    pub kind: PathOperationKind,
    /// The path.
    #[serde(borrow)]
    pub path: Cow<'a, str>,
    /// JSON text, for those kinds that need one.
    pub value: Option<&'a str>,
}

/// What to do with what a path matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PathOperationKind {
    /// Every match becomes the value; a JSON object given for a record sets the fields it names.
    Set,
    /// Adds one element to arrays, one entry (an object with one member) to maps.
    Insert,
    /// Adds several.
    InsertAll,
    /// Removes elements and entries.
    Delete,
    /// Empties arrays and maps.
    Clear,
    /// Adds to numbers.
    Increment,
    /// Adds an element to arrays that do not hold it.
    AppendUnique,
    /// Fails the patch unless the path matches something and every match equals the value (with no
    /// value: unless it matches something).
    Test,
}

/// `If-Match` and `If-None-Match`. A tag is [`RecordReply::tag`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Condition {
    /// Whatever is there.
    #[default]
    None,
    /// Only if the record is there and its tag is one of these; none given: only if it is there.
    Match(Vec<u64>),
    /// Only if the record is not there or has none of these tags; none given: only if it is not there.
    NoneMatch(Vec<u64>),
}

/// When a record is to vanish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ttl {
    /// Never.
    Forever,
    /// So long after this write.
    Milliseconds(u64),
}

/// Which records of a type to read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RecordQuery<'a> {
    /// Only records it holds for; empty: all.
    pub predicate: &'a str,
    /// Values of `$name` in it: a JSON object, or empty.
    pub parameters: &'a str,
    /// A path to one scalar, `-` before it for the reverse; empty: by id.
    pub order: &'a str,
    /// Only ids that start with this.
    pub prefix: &'a [u8],
    /// As the last page said; empty begins.
    pub cursor: &'a str,
    /// At most so many.
    pub limit: u32,
    /// Ids only, without the records.
    pub ids_only: bool,
    /// How to write the records; not binary.
    pub form: Form,
    /// Say how the query would run instead of running it.
    pub explain: bool,
}

/// An operation as fronts ask for it.
#[derive(Clone, Debug)]
pub struct RecordRequest<'a> {
    /// The type of records.
    pub type_name: &'a str,
    /// The record's id, decoded; `None` for operations about the type.
    pub id: Option<&'a [u8]>,
    /// What to do.
    pub operation: RecordOperation<'a>,
    /// Makes the operation take effect once however often it is sent.
    pub idempotency_key: Option<IdempotencyKey<&'a str>>,
}

/// What came of an operation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordReply {
    /// Names the record's content: a fingerprint of schema and value, so equal content has equal
    /// tags. `None` where no single record is answered, or it is gone.
    pub tag: Option<u64>,
    /// How many places in the record a path or a patch matched, or how many records a query gives.
    pub matched: u32,
    /// Whether a write made the record.
    pub created: bool,
    /// When the record vanishes, Unix milliseconds.
    pub expires_ms: Option<u64>,
    /// The registry's id of the schema that `body` is written with, where it is a record.
    pub schema_id: Option<u32>,
    /// In the form asked for. Encoded last and as it is, so that it is never copied on its way.
    #[serde(skip)]
    pub body: Bytes,
}

impl RecordOperation<'_> {
    /// The handler that runs it.
    #[must_use]
    pub fn handler(&self) -> &'static str {
        if matches!(self, RecordOperation::Write(_)) { WRITE_HANDLER } else { READ_HANDLER }
    }

    /// Whether it concerns the type rather than one record.
    #[must_use]
    pub fn is_about_type(&self) -> bool {
        matches!(self, Self::GetMany { .. } | Self::Find(_) | Self::Changes { .. } | Self::Indexes)
    }

    /// As the input of a call.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        match self {
            RecordOperation::Get { form: Form::Json } => Bytes::from_static(GET_JSON),
            _ => Bytes::from(encode(self, 0)),
        }
    }
}

impl<'a> RecordOperation<'a> {
    /// Reads the input of a call.
    ///
    /// # Errors
    /// `internal`: only this crate writes such inputs.
    pub fn from_bytes(bytes: &'a [u8]) -> Result<Self, Error> {
        if bytes == GET_JSON {
            return Ok(RecordOperation::Get { form: Form::Json });
        }
        postcard::from_bytes(versioned(bytes)?).map_err(|error| wrong(&error.to_string()))
    }
}

impl RecordReply {
    /// The beginning of the output of a call, with room for a body of about so many bytes: whoever makes
    /// the body appends it, and so never copies it. [`RecordReply::body`] does not count.
    #[must_use]
    pub fn header(&self, body_bytes: usize) -> Vec<u8> {
        encode(self, body_bytes)
    }

    /// As the output of a call.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        let mut bytes = self.header(self.body.len());
        bytes.extend_from_slice(&self.body);
        Bytes::from(bytes)
    }

    /// Reads the output of a call.
    ///
    /// # Errors
    /// `internal`: only this crate writes such outputs.
    pub fn from_bytes(mut bytes: Bytes) -> Result<Self, Error> {
        let read = postcard::take_from_bytes::<Self>(versioned(&bytes)?);
        let (mut reply, body) = read.map_err(|_| wrong("its beginning cannot be read"))?;
        bytes.advance(bytes.len() - body.len());
        reply.body = bytes;
        Ok(reply)
    }
}

/// Most reads: nothing to write or to read each time.
const GET_JSON: &[u8] = &[VERSION, 0, 0];

/// Room for what stands before a reply's body.
const HEADER_BYTES: usize = 40;

fn encode(value: &impl Serialize, more_bytes: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + more_bytes);
    bytes.push(VERSION);
    postcard::to_extend(value, bytes).expect("a vector takes whatever it is given")
}

#[cold]
fn wrong(what: &str) -> Error {
    Error::new(ErrorCode::Internal, format!("not an operation on a record: {what}"))
}

/// What stands behind the version.
fn versioned(bytes: &[u8]) -> Result<&[u8], Error> {
    match bytes.split_first() {
        Some((&VERSION, rest)) => Ok(rest),
        Some((version, _)) => Err(wrong(&format!("encoding {version}"))),
        None => Err(wrong("empty")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_and_replies_are_encoded_as_before() {
        let write = RecordWrite {
            change: RecordChange::Patch {
                operations: vec![PathOperation {
                    kind: PathOperationKind::Increment,
                    path: ".n".into(),
                    value: Some("1"),
                }],
                parameters: "",
            },
            condition: Condition::Match(vec![7]),
            ttl: Some(Ttl::Milliseconds(300)),
            answer: Some(Form::Json),
        };
        let operation = RecordOperation::Write(write);
        let bytes = operation.to_bytes();
        assert_eq!(RecordOperation::from_bytes(&bytes), Ok(operation));
        for form in [Form::Json, Form::AvroJson, Form::Binary] {
            let get = RecordOperation::Get { form };
            assert_eq!(get.to_bytes(), encode(&get, 0));
        }
        assert_eq!(&bytes[..], b"\x01\x03\x03\x01\x05\x02.n\x01\x011\0\x01\x01\x07\x01\x01\xac\x02\x01\0");
        let change = RecordChange::PutWritten { schema_id: 300, value: b"ab" };
        let operation = RecordOperation::Write(RecordWrite { change, ..RecordWrite::default() });
        let bytes = operation.to_bytes();
        assert_eq!(&bytes[..], b"\x01\x03\x04\xac\x02\x02ab\0\0\0");
        assert_eq!(RecordOperation::from_bytes(&bytes), Ok(operation));
        let reply =
            RecordReply { tag: Some(300), matched: 2, body: Bytes::from_static(b"{}"), ..RecordReply::default() };
        assert_eq!(&reply.to_bytes()[..], b"\x01\x01\xac\x02\x02\0\0\0{}");
        assert_eq!(RecordReply::from_bytes(reply.to_bytes()), Ok(reply));
    }

    #[test]
    fn a_reply_of_any_numbers_comes_back() {
        let numbers = (0..64).flat_map(|bits| [(1_u64 << bits) - 1, 1 << bits]).chain([u64::MAX]);
        for (index, number) in numbers.enumerate() {
            let reply = RecordReply {
                tag: (index % 3 > 0).then_some(number),
                matched: number as u32,
                created: index % 2 > 0,
                expires_ms: (index % 5 > 0).then_some(number.rotate_left(7)),
                schema_id: (index % 7 > 0).then_some(number as u32),
                body: Bytes::from_static(b"{}"),
            };
            assert!(reply.header(2).len() <= HEADER_BYTES, "{reply:?}");
            assert_eq!(RecordReply::from_bytes(reply.to_bytes()), Ok(reply));
        }
    }

    /// Bytes that anything was done to are refused, or read as some reply that is written so.
    #[test]
    fn changed_bytes_of_a_reply_are_read_or_refused() {
        let reply = RecordReply {
            tag: Some(u64::MAX),
            matched: u32::MAX,
            created: true,
            expires_ms: Some(300),
            schema_id: Some(7),
            body: Bytes::from_static(b"{}"),
        };
        let whole = reply.to_bytes();
        let beginning = whole.len() - 2;
        for at in 1..whole.len() {
            let cut = RecordReply::from_bytes(whole.slice(..at));
            assert_eq!(cut.is_ok(), at >= beginning, "{at}");
            for byte in 0..=u8::MAX {
                let mut changed = whole.to_vec();
                changed[at] = byte;
                if let Ok(read) = RecordReply::from_bytes(Bytes::from(changed)) {
                    assert_eq!(RecordReply::from_bytes(read.to_bytes()), Ok(read));
                }
            }
        }
    }

    #[test]
    fn other_bytes_are_refused() {
        for bytes in [&b""[..], b"\x01", b"\x02\0", b"{}", b"\x01\xff\xff"] {
            assert!(RecordOperation::from_bytes(bytes).is_err(), "{bytes:?}");
            assert!(RecordReply::from_bytes(Bytes::from_static(bytes)).is_err(), "{bytes:?}");
        }
    }
}
