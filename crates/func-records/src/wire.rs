//! What the handlers of one shard's rows are asked, and what they answer. These travel inside one
//! transaction and are kept nowhere.

use bytes::Bytes;
use millrace_base::{Error, ErrorCode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::rows::Position;

/// Tells inputs of `_read` that only this crate makes from operations, whose first byte is their
/// version.
pub(crate) const INTERNAL: u8 = 0xFF;

/// `_apply`: changes index rows and notes changes.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Apply {
    /// Index rows that go.
    pub remove: Vec<Vec<u8>>,
    /// Index rows that come.
    pub add: Vec<Vec<u8>>,
    /// Changes: the members of a JSON object that follow its sequence and time.
    pub changes: Vec<String>,
}

/// `_read`, asked by queries.
#[derive(Serialize, Deserialize)]
pub(crate) enum Ask<'a> {
    /// Whether the record belongs to a query, and where.
    Probe {
        #[serde(borrow)]
        probe: Probe<'a>,
        /// Steps it may take.
        steps: usize,
    },
    /// The record if it is stored: the members of an object of a list, or only its id.
    Fetch { form: millrace_api::Form, ids_only: bool },
}

/// Whether a record belongs to a query.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Probe<'a> {
    pub predicate: &'a str,
    pub parameters: &'a str,
    /// The path to order by; empty: by id.
    pub order: &'a str,
    pub is_descending: bool,
}

/// A range of order keys in an index, `low` included, `high` not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Range {
    /// Index into the type's indexes.
    pub index: usize,
    pub low: Vec<u8>,
    pub high: Option<Vec<u8>>,
    /// It holds one key only, so that its rows are in the order of ids.
    pub is_equality: bool,
    /// The demands it comes from, for people.
    pub demands: Vec<String>,
}

/// `_scan`: records of one shard that belong to a query, in its order.
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
    /// What lies behind this place is of no use yet.
    pub until: Option<(Vec<u8>, Vec<u8>)>,
    /// Each record may take as many steps as any evaluation, so that it gets behind the first one.
    pub is_patient: bool,
}

/// What `_read` says to a probe.
#[derive(Serialize, Deserialize)]
pub(crate) struct Probed {
    /// Steps it took.
    pub steps: usize,
    pub verdict: Verdict,
}

#[derive(Serialize, Deserialize)]
pub(crate) enum Verdict {
    No,
    /// It belongs, with this key.
    Yes(Vec<u8>),
    /// The steps did not suffice to tell.
    Unknown,
}

/// What `_scan` answers.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Scanned {
    pub found: Vec<(Vec<u8>, Vec<u8>)>,
    /// How far it has looked, when it has not seen all; none if it has not got behind the first.
    pub frontier: Option<(Vec<u8>, Vec<u8>)>,
    /// The next one in order, where it gave up.
    pub next: Option<(Vec<u8>, Vec<u8>)>,
    /// It has seen all.
    pub is_exhausted: bool,
    /// Steps it took.
    pub steps: usize,
    /// It would have to sort more than it may look at.
    pub is_too_many: bool,
    /// It would have to sort what takes more steps to look at than it has.
    pub is_too_much: bool,
    /// How: the index it went through, if it did.
    pub index: Option<usize>,
    /// What it looked at had to be sorted.
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
    /// Where to go on when there are none.
    pub at: u64,
    /// What follows the place asked for is not kept any more.
    pub is_lost: bool,
}

/// What `_migrate` answers to a sweep.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Migrated {
    pub remove: Vec<Vec<u8>>,
    pub add: Vec<Vec<u8>>,
    /// An index takes none of it, as it would take too much.
    pub is_unfit: bool,
    /// How much it has written.
    pub size_bytes: usize,
    /// It is written with a schema that the present one cannot read.
    pub is_skipped: bool,
    /// Rows it has had written itself, and messages sent.
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

/// What several have answered; the first error that there is.
pub(crate) fn decode_all<T: DeserializeOwned>(results: Vec<Result<Bytes, Error>>) -> Result<Vec<T>, Error> {
    results.into_iter().map(|result| decode(&result?)).collect()
}

pub(crate) fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Error> {
    postcard::from_bytes(bytes)
        .map_err(|error| Error::new(ErrorCode::Internal, format!("a message between records cannot be read: {error}")))
}
