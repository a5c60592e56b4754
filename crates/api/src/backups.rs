//! Backups of a running node.

use std::future::Future;
use std::task::{Context, Poll};

use bytes::Bytes;

use crate::{Error, ErrorCode, Principal};

/// A node that can show all that it holds, as of one moment.
pub trait Backups: Clone + 'static {
    /// Begins a backup. The moment that it shows is between this call and its answer.
    fn backup(&self, _principal: &Principal) -> impl Future<Output = Result<Box<dyn BackupPieces>, Error>> {
        async { Err(Error::new(ErrorCode::NotYetSupported, "this server makes no backups")) }
    }
}

/// A backup on its way out. The node keeps what the backup needs until this is dropped.
pub trait BackupPieces {
    /// The next bytes of the archive; `None` at its end. An archive that had to be broken off says so in itself.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>>;
}
