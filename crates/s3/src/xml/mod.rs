//! XML documents of S3, in and out.
//!
//! In: a document becomes a small tree first ([`read`]), bounded in bytes, elements and depth. Namespaces are passed
//! over, as S3 does. Entities are the five of XML and numbers; a document type is refused. Each kind of document is
//! then read from the tree, and what breaks a rule is `MalformedXML`.
//! Out: [`Writer`] puts elements one behind the other in the order that S3 documents. Clients rely on it.
//!
//! Must not know HTTP.

pub mod access;
pub mod configuration;
pub mod delete;
pub mod lifecycle;
pub mod lists;
pub mod notification;
mod read;
pub mod tagging;
pub mod uploads;
mod write;

pub use read::{Element, read};
pub(crate) use write::ENCODED;
pub use write::{Encoding, Writer};

#[cfg(test)]
mod tests;
