//! Avro: schemas, values as bytes, and the conversions between them.
//!
//! A value keeps its form in Avro's binary encoding from the request to the disk. This crate checks, skips, prints,
//! resolves and compares encoded values, and never builds trees of them. It follows the Apache Avro specification 1.12.
//!
//! Promises: encoded values made here are *canonical* (arrays and maps in one block without byte counts, the shortest
//! varints), so equal values have equal bytes. No input makes anything here panic or run longer than its length allows.
//! Must not know records, entities, or HTTP.

mod binary;
mod calendar;
mod canonical;
mod decimal;
mod default;
mod difference;
mod error;
mod finite;
mod form;
mod json_read;
mod json_token;
mod json_write;
mod logical;
mod order;
mod parse;
mod path;
mod resolve;
mod resolve_plan;
mod schema;
mod shape;
mod skip;
mod text;

pub use binary::{Reader, write_bytes, write_length, write_long};
pub use canonical::{canonicalise, canonicalise_stored};
pub use difference::{Difference, DifferenceKind, difference};
pub use error::{Malformed, SchemaError, ValueError, ValueErrorKind};
pub use json_read::{Missing, from_json, merge_json};
pub use json_write::{JsonForm, to_json};
pub use order::{folded, order_key, order_key_of_json};
pub use resolve::{Incompatibility, Incompatible, Resolution, ResolveError, check_readable};
pub use schema::{Field, FullName, Kind, Logical, Node, NodeId, Schema};
pub use skip::skip;
