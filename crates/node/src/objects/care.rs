//! What is done for bodies in the background. Bodies that nothing refers to are freed. The others are read and compared
//! with their checksums. Segments with little left in them are copied together.
//!
//! One core does it, a little at a time. Whether something refers to a body is asked of the entity that it was written
//! for. Writers whose operation has not ended keep theirs out of this.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millrace_api::objects::{BodyOwner, ObjectOperation, ObjectReply, ObjectRequest, Requester};
use millrace_base::{Error, ErrorCode};
use millrace_blobs::{BlobError, Cursor, Owned};

use super::BodyStore;
use crate::backend::CoreHandle;
use crate::cluster::{Carrier, UNSETTLED};

/// Bodies that are asked for at a time.
const OWNERS: usize = 64;

/// Bytes that are read and compared at a time, and the pause behind: at most 32 MB a second, so that it is not felt
/// beside requests.
const SCRUB_BYTES: u64 = 8 << 20;
const PAUSE: Duration = Duration::from_millis(250);

/// The pause when all bodies were looked at.
const ROUND: Duration = Duration::from_secs(24 * 60 * 60);

/// In a cluster, how often it is looked whether the node follows.
const LOOK: Duration = Duration::from_millis(200);

/// The pause while there is nothing to copy together.
const IDLE: Duration = Duration::from_secs(5);

/// Looks after bodies until the node stops.
///
/// Where the log was not closed by a clean stop, no body is freed for a day. If somebody has cut the log's end, entries are
/// missing that refer to bodies, and nothing on the disk can tell. Then the operator still has them.
pub(crate) async fn look_after(node: CoreHandle, store: Arc<BodyStore>) {
    let lane = node.index();
    let tidying = Arc::clone(&store);
    tokio::task::spawn_local(async move {
        loop {
            let bodies = Arc::clone(&tidying.bodies);
            match tidying.pool.run(move || bodies.tidy(lane)).await {
                Ok(Ok(true)) => {}
                Ok(Ok(false) | Err(BlobError::Full)) => tokio::time::sleep(IDLE).await,
                Ok(Err(error)) => {
                    tracing::error!(%error, "bodies of objects are not copied together any more");
                    return;
                }
                // The node is stopping.
                Err(_) => return,
            }
        }
    });
    if node.shared().cluster.is_some() {
        while !node.is_guided() {
            tokio::time::sleep(LOOK).await;
        }
        // Bodies of other nodes may wait for the entries that name them: longer than any request takes.
        tokio::time::sleep(UNSETTLED).await;
    }
    // What is damaged is found within a day.
    if node.shared().is_log_closed && free_unneeded(&node, &store).await.is_err() {
        return;
    }
    loop {
        if scrub(&store, node.shared().carrier.as_deref()).await.is_err() {
            return;
        }
        tokio::time::sleep(ROUND).await;
        if free_unneeded(&node, &store).await.is_err() {
            return;
        }
    }
}

/// Frees the bodies that nothing refers to.
async fn free_unneeded(node: &CoreHandle, store: &Arc<BodyStore>) -> Result<(), Error> {
    let mut cursor = Some(Cursor::default());
    let mut freed = 0_u64;
    while let Some(from) = cursor {
        let bodies = Arc::clone(&store.bodies);
        let (owned, next) = store.pool.run(move || bodies.owners(from, OWNERS)).await?;
        for body in owned {
            match refers(node, &body).await {
                Ok(false) => {
                    // Else this node would get it from another one again.
                    if let Some(carrier) = &node.shared().carrier {
                        carrier.freed(body.name);
                    }
                    if !store.keeps(body.name) {
                        let bodies = Arc::clone(&store.bodies);
                        store.pool.run(move || bodies.free(body.name)).await?;
                    }
                    freed += 1;
                }
                Ok(true) => {}
                Err(error) if error.code == ErrorCode::ShuttingDown => return Err(error),
                Err(error) => {
                    tracing::warn!(%error, body = %body.name, "whether a body is needed could not be found out")
                }
            }
        }
        cursor = next;
        if cursor.is_some() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    if freed > 0 {
        tracing::info!(bodies = freed, "bodies that nothing refers to were freed");
        let bodies = Arc::clone(&store.bodies);
        if let Err(error) = store.pool.run(move || bodies.note_freed()).await? {
            tracing::warn!(%error, "the next start will find freed bodies again");
        }
    }
    Ok(())
}

/// Whether what a body was written for still refers to it.
async fn refers(node: &CoreHandle, body: &Owned) -> Result<bool, Error> {
    // Nobody but this node writes owners. One that cannot be read is left alone.
    let Some(owner) = BodyOwner::from_bytes(&body.owner) else { return Ok(true) };
    let part = owner.part.map(|(upload, number)| (upload.to_owned(), number));
    let (is_part, number) = (part.is_some(), body.name.number);
    if is_part && ask(node, &owner, ObjectOperation::RefersTo { part, number }).await? {
        return Ok(true);
    }
    // A completed upload's bodies belong to the object, too.
    ask(node, &owner, ObjectOperation::RefersTo { part: None, number }).await
}

async fn ask(node: &CoreHandle, owner: &BodyOwner<'_>, operation: ObjectOperation) -> Result<bool, Error> {
    let requester = Requester { is_system: true, ..Requester::default() };
    let request = ObjectRequest { requester, bucket: owner.bucket, key: owner.key, operation, body: Bytes::new() };
    let aim = node.aim(&request);
    let begun = node.run_object(&aim);
    match node.follow(aim, begun).await {
        Ok((ObjectReply::RefersTo(refers), _)) => Ok(refers),
        Ok(_) => Err(Error::new(ErrorCode::Internal, "a question about a body was answered with something else")),
        // The bucket is gone, and with it everything in it.
        Err(error) if error.code == ErrorCode::ObjectRefused => Ok(false),
        Err(error) => Err(error),
    }
}

/// Reads every body once, and tells of the damaged ones. In a cluster they are got anew.
async fn scrub(store: &Arc<BodyStore>, carrier: Option<&Carrier>) -> Result<(), Error> {
    let mut cursor = Some(Cursor::default());
    while let Some(from) = cursor {
        let bodies = Arc::clone(&store.bodies);
        let (rot, next) = store.pool.run(move || bodies.scrub(from, SCRUB_BYTES)).await?;
        for damaged in rot {
            let owner = damaged.owner.as_deref().and_then(BodyOwner::from_bytes);
            let (bucket, key) = owner.map_or(("?", "?"), |owner| (owner.bucket, owner.key));
            tracing::error!(bucket, key, error = %damaged.what, "an object is damaged on the disk");
            if let Some(carrier) = carrier {
                carrier.mend(damaged.name).await;
            }
        }
        cursor = next;
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}
