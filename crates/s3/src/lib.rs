//! The S3 front: requests of S3 clients, translated to `millrace_api::objects` operations, and their replies back.
//!
//! A request is routed ([`route`]), authenticated ([`signature`]) and read ([`operation`], [`xml`]). Its body streams
//! into the store through [`chunked`] and [`checksum`].
//!
//! Promises: everything that a stranger sends is bounded, and what is refused gets the code that S3 documents.
//! Must not know shards, storage or functions.

pub mod algorithm;
pub mod checksum;
pub mod chunked;
pub mod error;
pub mod front;
pub mod limits;
pub mod listener;
pub mod metrics;
pub mod null_store;
pub mod operation;
pub mod post_form;
pub mod route;
pub mod signature;
pub mod times;
pub mod users;
pub mod xml;
