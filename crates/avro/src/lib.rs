//! Avro: schemas, values as bytes, and what leads from one to the other.
//!
//! A value stays what Avro's binary encoding makes of it, from the request to the disk: this crate
//! checks, skips, prints, resolves and compares encoded values, and never builds trees of them.
//! Follows the Apache Avro specification 1.12.
//!
//! Promises: encoded values made here are *canonical* (arrays and maps in one block without byte
//! counts, the shortest varints), so equal values have equal bytes; no input makes anything here
//! panic or run longer than its length allows. Must not know records, entities, or HTTP.

mod schema;

pub use schema::{Field, FullName, Kind, Logical, Node, NodeId, Schema};
