//! A body comes to this node: part by part, the next one while the last one is written.

use std::collections::BTreeSet;
use std::sync::Mutex;

use bytes::Bytes;
use millrace_base::{Error, ErrorCode};
use millrace_blobs::{BodyName, BodyWriter, Unsettled};
use millrace_replica::NodeId;
use tokio::time::Instant;

use super::{BodyWord, Carrier, FIRST_BYTES, PART_BYTES, UNSETTLED, locked};
use crate::objects::body_failed;

/// What became of getting a body from another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Came {
    /// It is here, or on its way for somebody else.
    Yes,
    /// Not now: a link or a disk failed. It may come later.
    NotNow,
    /// The other node has said that it cannot read all of it.
    Unreadable,
}

/// Why a body was not written here.
enum PullError {
    Unreadable,
    Failed(Error),
}

impl From<Error> for PullError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl PullError {
    fn into_error(self, name: BodyName) -> Error {
        match self {
            PullError::Unreadable => super::far::unreachable(name),
            PullError::Failed(error) => error,
        }
    }
}

/// A body is among these until this is dropped.
struct Among<'a>(&'a Mutex<BTreeSet<BodyName>>, BodyName);

impl<'a> Among<'a> {
    /// `None`: it is among them already.
    fn insert(names: &'a Mutex<BTreeSet<BodyName>>, name: BodyName) -> Option<Self> {
        // Not `then_some`: what that makes in vain takes the name out when it is dropped.
        let is_new = locked(names).insert(name);
        is_new.then(|| Self(names, name))
    }
}

impl Drop for Among<'_> {
    fn drop(&mut self) {
        locked(self.0).remove(&self.1);
    }
}

impl Carrier {
    /// Another node wants this one to hold a body.
    pub(super) async fn hold(
        &self,
        from: NodeId,
        name: BodyName,
        (length, owner): (u64, &[u8]),
        first: Bytes,
    ) -> BodyWord {
        match self.pull(from, name, (length, owner), first).await {
            Some(Ok(())) => BodyWord::Held,
            Some(Err(error)) => {
                self.note_failed(from, name, &error.into_error(name)).await;
                BodyWord::Lacks
            }
            None => BodyWord::Coming,
        }
    }

    /// Gets a body from whichever node has it. Says whether it is here then, or is on its way.
    pub(crate) async fn obtain(&self, name: BodyName) -> bool {
        if self.store.bodies.has(name) {
            return true;
        }
        for node in self.others(name) {
            if self.obtain_from(node, name).await == Came::Yes {
                return true;
            }
        }
        false
    }

    /// Gets a body anew that is damaged here. It stays as it is unless another node has it.
    pub(crate) async fn mend(&self, name: BodyName) {
        let Some(_mending) = Among::insert(&self.mending, name) else { return };
        if let Ok(Some(_)) = self.find(name).await {
            self.store.bodies.free(name);
            if self.obtain(name).await {
                tracing::info!(body = %name, "a damaged body was replaced by another node's copy");
            }
        }
    }

    pub(super) async fn obtain_from(&self, node: NodeId, name: BodyName) -> Came {
        let first = BodyWord::Read { offset: 0, bytes: FIRST_BYTES as u32 };
        let (length, owner, bytes) = match self.question(node, name, &first).await {
            Some(BodyWord::Data { length, owner, bytes }) => (length, owner, bytes),
            Some(BodyWord::Lacks) => return Came::Unreadable,
            _ => return Came::NotNow,
        };
        match self.pull(node, name, (length, &owner), bytes).await {
            None | Some(Ok(())) => Came::Yes,
            Some(Err(error)) => {
                let is_unreadable = matches!(error, PullError::Unreadable);
                self.note_failed(node, name, &error.into_error(name)).await;
                if is_unreadable { Came::Unreadable } else { Came::NotNow }
            }
        }
    }

    /// A body has not come. That is no news if nothing refers to it any more: its object was overwritten meanwhile.
    async fn note_failed(&self, node: NodeId, name: BodyName, error: &Error) {
        if self.is_gone(node, name).await {
            tracing::debug!(body = %name, node = node.0, "a body was freed while it was on its way to here");
        } else if error.code == ErrorCode::Overloaded {
            // The link is down. When it is up again, this node asks for what it lacks.
            tracing::info!(body = %name, node = node.0, %error, "a body has yet to come from another node");
        } else {
            tracing::warn!(body = %name, node = node.0, %error, "a body could not be got from another node");
        }
    }

    /// Writes a body of another node here. `None`: it is on its way already.
    async fn pull(
        &self,
        from: NodeId,
        name: BodyName,
        (length, owner): (u64, &[u8]),
        first: Bytes,
    ) -> Option<Result<(), PullError>> {
        if self.store.bodies.has(name) {
            return Some(Ok(()));
        }
        let _pulling = Among::insert(&self.pulling, name)?;
        // It is never closed.
        let _place = self.pulls.acquire().await.ok()?;
        // It may have come while this one waited.
        if self.store.bodies.has(name) {
            return Some(Ok(()));
        }
        let pulled = self.write(from, name, (length, owner), first).await;
        Some(pulled.map(|unsettled| {
            locked(&self.unsettled).insert(name, (Instant::now() + UNSETTLED, unsettled));
        }))
    }

    async fn write(
        &self,
        from: NodeId,
        name: BodyName,
        (length, owner): (u64, &[u8]),
        first: Bytes,
    ) -> Result<Unsettled, PullError> {
        let lane = 0;
        let begun = self.store.bodies.begin_named(lane, name, owner, length);
        let mut writer = begun.map_err(|error| body_failed(&error))?;
        let (mut next, mut offset) = (first, 0_u64);
        loop {
            offset += next.len() as u64;
            let appending = self.store.pool.run(move || append(writer, &next));
            let bytes = PART_BYTES.min(length.saturating_sub(offset)) as u32;
            let coming = match bytes {
                0 => Ok(Bytes::new()),
                bytes => self.part(from, name, offset, bytes).await,
            };
            writer = appending.await??;
            next = coming?;
            if bytes == 0 {
                break;
            }
        }
        let written = self.store.pool.run(move || writer.finish().map_err(|error| body_failed(&error))).await??;
        Ok(self.store.syncers[lane].sync(written).await?)
    }

    /// One part of a body of another node.
    async fn part(&self, from: NodeId, name: BodyName, offset: u64, bytes: u32) -> Result<Bytes, PullError> {
        match self.question(from, name, &BodyWord::Read { offset, bytes }).await {
            Some(BodyWord::Data { bytes: part, .. }) if part.len() == bytes as usize => Ok(part),
            Some(BodyWord::Lacks) => Err(PullError::Unreadable),
            _ => Err(super::far::unreachable(name).into()),
        }
    }
}

fn append(mut writer: BodyWriter, bytes: &[u8]) -> Result<BodyWriter, Error> {
    writer.append(bytes).map_err(|error| body_failed(&error))?;
    Ok(writer)
}
