//! A backup as it comes from the node: an archive of any length, piece by piece.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::Method;
use hyper::body::Incoming;
use tokio::time::timeout;

use crate::client::Prepared;
use crate::{Client, ClientError};

/// A node that sends nothing for so long does not send the rest either.
const SILENCE: Duration = Duration::from_secs(120);

/// An archive on its way. Dropping it tells the node to stop.
pub struct BackupStream {
    body: Incoming,
}

impl Client {
    /// Begins a backup of the node: a tar of its data directory, as of one moment after this call.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn backup(&self) -> Result<BackupStream, ClientError> {
        let request = self.build(&Prepared { method: Method::POST, ..Prepared::get("/backup") })?;
        Ok(BackupStream { body: self.transport.stream(request, SILENCE).await? })
    }
}

impl BackupStream {
    /// The next bytes; `None` at the end. Whether the archive is whole, only its content says.
    ///
    /// # Errors
    /// [`ClientError::Interrupted`] or [`ClientError::Timeout`].
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        loop {
            let frame = timeout(SILENCE, self.body.frame()).await.map_err(|_| ClientError::Timeout(SILENCE))?;
            let Some(frame) = frame else { return Ok(None) };
            let frame =
                frame.map_err(|error| ClientError::Interrupted(format!("while reading the backup: {error}")))?;
            // Trailers are passed over.
            if let Ok(bytes) = frame.into_data() {
                return Ok(Some(bytes));
            }
        }
    }
}
