//! The inputs and outputs of the handlers of one shard's rows. They travel inside one transaction and are never stored.

use bytes::Bytes;
use millrace_base::{Error, ErrorCode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::rows::Position;

/// Marks inputs of `_read` that only this crate makes. The first byte of an operation is its version, so it differs.
pub(crate) const INTERNAL: u8 = 0xFF;

/// `_apply`: changes index rows and stores changes.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Apply {
    /// Index rows to delete.
    pub remove: Vec<Vec<u8>>,
    /// Index rows to add.
    pub add: Vec<Vec<u8>>,
    /// Changes: the members of a JSON object that follow its sequence and time.
    pub changes: Vec<String>,
}

/// `_read`, asked by queries.
#[derive(Serialize, Deserialize)]
pub(crate) enum Ask<'a> {
    /// Whether the record matches a query, and where it stands.
    Probe {
        #[serde(borrow)]
        probe: Probe<'a>,
        /// Steps it may take.
        steps: usize,
    },
    /// The record if it is stored: the members of a list's object, or only its id.
    Fetch { form: millrace_api::Form, ids_only: bool },
}

/// Whether a record matches a query.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Probe<'a> {
    pub predicate: &'a str,
    pub parameters: &'a str,
    /// The path to order by. Empty: by id.
    pub order: &'a str,
    pub is_descending: bool,
}

/// A range of order keys in an index, with `low` and without `high`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Range {
    /// Index into the type's indexes.
    pub index: usize,
    pub low: Vec<u8>,
    pub high: Option<Vec<u8>>,
    /// It has one key only, so that its rows are in the order of ids.
    pub is_equality: bool,
    /// The demands from which it comes, for people.
    pub demands: Vec<String>,
}

/// `_scan`: records of one shard that match a query, in its order.
#[derive(Serialize, Deserialize)]
pub(crate) struct Scan<'a> {
    #[serde(borrow)]
    pub probe: Probe<'a>,
    pub prefix: &'a [u8],
    /// What the predicate says about indexes, the most promising first.
    pub ranges: Vec<Range>,
    /// The index in the order asked for.
    pub order_index: Option<usize>,
    pub after: Option<(Vec<u8>, Vec<u8>)>,
    pub limit: usize,
    /// Only say how it would be done.
    pub explain: bool,
    /// Steps after which it ends with what it has.
    pub steps: usize,
    /// Records behind this place are of no use yet.
    pub until: Option<(Vec<u8>, Vec<u8>)>,
    /// Each record may take as many steps as any evaluation, so that the scan gets past the first one.
    pub is_patient: bool,
}

/// What `_read` answers to a probe.
#[derive(Serialize, Deserialize)]
pub(crate) struct Probed {
    /// Steps it took.
    pub steps: usize,
    pub verdict: Verdict,
}

#[derive(Serialize, Deserialize)]
pub(crate) enum Verdict {
    No,
    /// It matches, with this key.
    Yes(Vec<u8>),
    /// The steps did not suffice to decide.
    Unknown,
}

/// What `_scan` answers.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Scanned {
    pub found: Vec<(Vec<u8>, Vec<u8>)>,
    /// How far it has looked, if it has not seen everything. None if it has not got past the first.
    pub frontier: Option<(Vec<u8>, Vec<u8>)>,
    /// The next one in order, where it gave up.
    pub next: Option<(Vec<u8>, Vec<u8>)>,
    /// It has seen everything.
    pub is_exhausted: bool,
    /// Steps it took.
    pub steps: usize,
    /// It would have to sort more than it may look at.
    pub is_too_many: bool,
    /// It would have to sort records that take more steps to look at than it has.
    pub is_too_much: bool,
    /// The index that it used, if any.
    pub index: Option<usize>,
    /// It had to sort what it looked at.
    pub sorts: bool,
    /// Indexes that would have served and are still being built here.
    pub incomplete: Vec<usize>,
}

/// Where to begin among a shard's changes.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) enum From {
    Oldest,
    Now,
    After(u64),
}

/// `_changes`: changes of one shard.
#[derive(Serialize, Deserialize)]
pub(crate) struct AskChanges {
    pub from: From,
    pub limit: usize,
    pub size_bytes: usize,
}

/// What `_changes` answers.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct GotChanges {
    /// Sequence, time, JSON.
    pub changes: Vec<(u64, u64, String)>,
    /// Where to go on if there are none.
    pub at: u64,
    /// The changes behind the place asked for are no longer kept.
    pub is_lost: bool,
}

/// What `_migrate` answers to a sweep.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Migrated {
    pub remove: Vec<Vec<u8>>,
    pub add: Vec<Vec<u8>>,
    /// An index cannot take it, because it would need too many rows.
    pub is_unfit: bool,
    /// How much it has written.
    pub size_bytes: usize,
    /// It is written with a schema that the present one cannot read.
    pub is_skipped: bool,
    /// Rows that it wrote itself, and messages that it sent.
    pub rows: usize,
    pub messages: usize,
}

impl From {
    /// The place of a cursor.
    pub(crate) fn after(sequence: u64) -> Self {
        From::After(sequence)
    }
}

impl Position {
    pub(crate) fn into_pair(self) -> (Vec<u8>, Vec<u8>) {
        (self.key, self.id)
    }

    pub(crate) fn of_pair((key, id): (Vec<u8>, Vec<u8>)) -> Self {
        Self { key, id }
    }
}

pub(crate) fn encode(value: &impl Serialize) -> Bytes {
    Bytes::from(postcard::to_stdvec(value).expect("a vector takes whatever it is given"))
}

/// An input of `_read` that only this crate makes.
pub(crate) fn encode_ask(ask: &Ask<'_>) -> Bytes {
    Bytes::from(postcard::to_extend(ask, vec![INTERNAL]).expect("a vector takes whatever it is given"))
}

/// The answers of several calls, or the first error among them.
pub(crate) fn decode_all<T: DeserializeOwned>(results: Vec<Result<Bytes, Error>>) -> Result<Vec<T>, Error> {
    results.into_iter().map(|result| decode(&result?)).collect()
}

pub(crate) fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Error> {
    postcard::from_bytes(bytes)
        .map_err(|error| Error::new(ErrorCode::Internal, format!("a message between records cannot be read: {error}")))
}
