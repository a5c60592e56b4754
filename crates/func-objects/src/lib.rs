//! The engine of the built-in app of objects: buckets, objects with their versions, uploads of parts.
//!
//! [`ObjectsEngine`] runs the app `objects` and no other. How buckets and objects lie in entities is in
//! `docs/internals/objects.md`.
//!
//! Promises: what a bucket says of itself and its objects always agree, as they are written in the same transaction.
//! Every operation asks whether its requester may. Nothing that a stranger sends makes anything here panic or run
//! without a bound.
//!
//! Must not know HTTP, XML or how bodies lie on the disk.

mod access;
mod account;
mod bucket;
mod check;
mod checksum;
mod conditions;
mod configuration;
mod cors;
mod engine;
mod expire;
mod lifecycle;
pub mod limits;
mod list;
mod lock;
mod names;
mod notify;
mod object;
mod object_read;
mod rows;
mod settings;
mod slice_pages;
mod slice_quota;
mod slices;
pub mod tagging;
mod turn;
mod upload;
mod version_id;
mod whole;
mod wire;

pub use check::check_policy;
pub use engine::ObjectsEngine;
