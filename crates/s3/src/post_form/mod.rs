//! Uploads by browsers: forms of `multipart/form-data`, their policy and its signature.
//!
//! Promises: of the fields at most 1 MiB is held, of the file at most what was pushed last. All fields stand before the
//! file, so the policy is checked before the file's first byte is handed out.

mod form;
mod multipart;
mod policy;
mod signed;

pub use form::{Form, Success};
pub use multipart::{Event, FormReader, boundary};
pub use policy::Policy;
pub use signed::{PostSigned, verify};
