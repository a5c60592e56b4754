//! Backups of a running node: everything that a data directory needs, as of one moment.
//!
//! A backup holds whatever is about to be deleted. It takes the checkpoint as it is between two writes, and then the
//! place of every log at one moment. Then it sends all that while the node goes on. What is restored is what a power cut at that
//! moment would have left; `docs/internals/backup.md` has the argument.
//!
//! Promises: everything that was acknowledged before a backup began is in it, and nothing of a transaction in part. No
//! core waits for it longer than for one batch. Must not know where backups are kept.

mod capture;
mod copies;
mod copying;
mod links;
mod send;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use bytes::Bytes;
use millrace_api::{BackupPieces, Backups, Permission, Principal};
use millrace_base::{Error, ErrorCode};
use millrace_io::is_out_of_space;
use tokio::sync::{mpsc, oneshot};

use crate::backend::CoreHandle;
use crate::core::Shared;
use crate::directory::S3_USERS_TABLE;
use crate::options::Durability;
use capture::Capture;
pub(crate) use copying::{Copying, heard};
use send::{PIECES_AHEAD, send};

/// In the data directory: files that a backup keeps from being deleted.
const FOLDER: &str = "backup.held";

/// In a directory that was restored from a backup of a cluster's node: it may have forgotten what the node has promised to others
/// since, so it must not be started as that node.
pub(crate) const OF_BACKUP: &str = "of-backup";

/// In a backup: what other nodes of the cluster hold, a data directory for each, by its number.
pub(crate) const NODES: &str = "nodes";

/// Whether a directory is of a backup of a cluster, and no node of one yet.
#[must_use]
pub fn is_of_cluster_backup(directory: &Path) -> bool {
    directory.join(OF_BACKUP).exists()
}

/// Removes what a backup left that a crash ended.
pub(crate) fn remove_leftovers(data: &Path) -> io::Result<()> {
    links::remove_tree(&data.join(FOLDER))
}

/// The place of the one backup that may be under way.
struct Turn(Arc<Shared>);

impl Turn {
    fn take(shared: &Arc<Shared>) -> Result<Self, Error> {
        if shared.is_backing_up.swap(true, Ordering::Acquire) {
            let message = "another backup of this node is under way; try again when it has ended";
            return Err(Error::new(ErrorCode::Overloaded, message));
        }
        Ok(Self(Arc::clone(shared)))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.is_backing_up.store(false, Ordering::Release);
    }
}

/// The archive on its way out.
struct Pieces(mpsc::Receiver<Bytes>);

impl BackupPieces for Pieces {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.0.poll_recv(context)
    }
}

impl Backups for CoreHandle {
    async fn backup(&self, principal: &Principal) -> Result<Box<dyn BackupPieces>, Error> {
        if !principal.may(Permission::Admin) {
            return Err(Error::new(ErrorCode::Forbidden, "a backup needs the role admin"));
        }
        let shared = self.shared();
        refuse_what_has_no_backup(&shared)?;
        let turn = Turn::take(&shared)?;
        let (sender, receiver) = mpsc::channel(PIECES_AHEAD);
        let (begun, has_begun) = oneshot::channel();
        // No app changes between its file and the entries of its workflows.
        let _no_deployment = shared.deploying.lock().await;
        let failed = |error: &io::Error| match error.kind() {
            io::ErrorKind::TimedOut => Error::new(ErrorCode::Overloaded, format!("no backup was taken: {error}")),
            _ => refused(&error.to_string(), is_out_of_space(error)),
        };
        let copied = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("backup".to_owned());
        thread
            .spawn(move || {
                // The end is not told before the next backup may begin: who has read all of this one may ask at once.
                let end = sender.clone();
                match Capture::take(&copied) {
                    Ok((capture, copies)) => {
                        // Whoever asked may be gone; then nobody reads, which sending notices.
                        let _ = begun.send(Ok(()));
                        send(&copied, (capture, copies), sender);
                    }
                    Err(error) => {
                        let _ = begun.send(Err(error));
                    }
                }
                drop(turn);
                drop(end);
            })
            .map_err(|error| failed(&error))?;
        match has_begun.await {
            Ok(Ok(())) => Ok(Box::new(Pieces(receiver))),
            Ok(Err(error)) => Err(failed(&error)),
            Err(_) => Err(refused("its thread panicked", false)),
        }
    }
}

fn refused(why: &str, is_full: bool) -> Error {
    let code = if is_full { ErrorCode::ReadOnly } else { ErrorCode::Internal };
    Error::new(code, format!("the backup could not begin: {why}"))
}

fn refuse_what_has_no_backup(shared: &Shared) -> Result<(), Error> {
    if shared.options.durability == Durability::None {
        let why = "a node with durability \"none\" keeps no log, so it cannot be backed up while it runs: stop it and copy its \
                   data directory";
        return Err(Error::new(ErrorCode::NotYetSupported, why));
    }
    let Some(cluster) = &shared.cluster else { return Ok(()) };
    cluster.check_guided()?;
    let has_users = cluster.guidance().tables.contains_key(S3_USERS_TABLE);
    let has_objects = has_users || shared.bodies.as_ref().is_some_and(|store| store.bodies.counts().bodies > 0);
    if has_objects && (shared.carrier.is_none() || !cluster.all_keep_bodies()) {
        let why = "a cluster that keeps objects can be backed up once all of its nodes have this version, at a node that holds \
                   contents";
        return Err(Error::new(ErrorCode::NotYetSupported, why));
    }
    let (me, guidance) = (cluster.me().0, cluster.guidance());
    let lacking = guidance.shards.iter().filter(|place| !place.replicas.contains(&me)).count();
    if lacking > 0 && !cluster.all_make_copies() {
        let why = format!(
            "this node does not hold {lacking} of {} shards, and others can add what they hold once all nodes have this \
             version",
            guidance.shards.len()
        );
        return Err(Error::new(ErrorCode::NotYetSupported, why));
    }
    Ok(())
}
