//! Backups: what a node sends of its data directory, and the place where backups are kept.
//!
//! ```text
//! node ──archive (tar)──▶ Repository::backup ──chunks, snapshot──▶ place ──Repository::restore──▶ data directory
//! ```
//!
//! A *place* is a folder or a bucket of S3. Files lie in it as *chunks*, named by the hash of their bytes, so what two backups have in common
//! is kept once. A *snapshot* is a document that lists all files of one backup with their chunks. It is written last. So a
//! backup that broke off leaves chunks and no snapshot, and the next one finds these chunks.
//!
//! Promises: a snapshot that is there is whole and durable, unless the place was changed from outside. Nothing is restored
//! but the bytes that were backed up: every hash is compared. Must not know a node, HTTP, or what any file is for.
//! `docs/internals/backup.md` has the forms and the argument.

mod archive;
mod check;
mod chunks;
mod error;
mod folder;
mod limits;
mod place;
mod prune;
mod repository;
mod restore;
mod snapshot;

pub use archive::{ArchiveWriter, Missing, Received, Sent, Take, read as read_archive};
pub use check::check_bytes;
pub use chunks::ChunkName;
pub use error::BackupError;
pub use folder::Folder;
pub use place::Place;
pub use prune::PruneReport;
pub use repository::{BackupReport, Repository, VerifyReport};
pub use restore::{RestoreReport, UNFINISHED_FILE};
pub use snapshot::{FileRecord, Snapshot};
