//! The S3 front: requests of S3 clients, translated to `millrace_api::objects` operations.

pub mod algorithm;
pub mod error;
pub mod limits;
pub mod operation;
pub mod route;
pub mod times;
pub mod users;
pub mod xml;
