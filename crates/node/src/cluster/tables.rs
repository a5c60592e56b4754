//! Small documents that all nodes hold, such as the users of S3. The meta shard keeps them, and guidance names their versions.
//!
//! Whoever keeps a table watches it. It hears each version once guidance names that, with the versions in order. A change
//! names the version that it rests on, so of two changes at once one is made and the other is told.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use millrace_base::{Error, ErrorCode};
use millrace_format::Write;
use millrace_guidance::Guidance;
use millrace_store::Store;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use super::catalogue::{ask_leader, check, followed};
use super::{Change, Cluster, locked, rows};
use crate::core::Shared;

/// Bytes of a table at most: it has to fit in a message between nodes.
const TABLE_BYTES: usize = 8 << 20;

/// How long this node waits for what somebody else has made of a table.
const SEEN: Duration = Duration::from_secs(2);

const LOOK: Duration = Duration::from_millis(10);

/// Hears each version of a table.
type Watch = Box<dyn Fn(u64, &[u8]) + Send + Sync>;

/// Somebody wants to replace a table.
struct Request {
    name: String,
    before: u64,
    bytes: Bytes,
    done: oneshot::Sender<Result<(), Error>>,
}

/// The tables as this node knows them.
pub struct Tables {
    versions: RwLock<BTreeMap<String, u64>>,
    watches: Mutex<BTreeMap<String, Watch>>,
    /// What a table is made from where no node has ever kept it.
    first: Mutex<BTreeMap<String, Bytes>>,
    requests: UnboundedSender<Request>,
    asked: Mutex<Option<UnboundedReceiver<Request>>>,
}

impl fmt::Debug for Tables {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Tables").finish_non_exhaustive()
    }
}

impl Default for Tables {
    fn default() -> Self {
        let (requests, asked) = unbounded_channel();
        Self {
            versions: RwLock::default(),
            watches: Mutex::default(),
            first: Mutex::default(),
            requests,
            asked: Mutex::new(Some(asked)),
        }
    }
}

impl Tables {
    /// Has somebody hear each version of a table, called from a core's thread: it must not wait for anything. To be called
    /// before the node starts.
    pub fn watch(&self, name: &str, watch: impl Fn(u64, &[u8]) + Send + Sync + 'static) {
        locked(&self.watches).insert(name.to_owned(), Box::new(watch));
    }

    /// What a table begins with, if the cluster has none of this name: the leader keeps its own. To be called before the
    /// node starts.
    pub fn begin_with(&self, name: &str, bytes: Vec<u8>) {
        locked(&self.first).insert(name.to_owned(), bytes.into());
    }

    /// The version of a table that this node knows. 0: there is none.
    #[must_use]
    pub fn version(&self, name: &str) -> u64 {
        self.versions.read().unwrap_or_else(PoisonError::into_inner).get(name).copied().unwrap_or(0)
    }

    /// Replaces a table, whose version is one more than `before`. All nodes that are alive know it when this returns, or ten
    /// seconds have passed. Blocks: not to be called from a core's thread.
    ///
    /// # Errors
    /// `precondition-failed` if the table is not of the version `before` any more; `overloaded` without a leader;
    /// `result-unknown` if the leader was lost.
    pub fn replace(&self, name: &str, before: u64, bytes: Vec<u8>) -> Result<(), Error> {
        let stopping = || Error::new(ErrorCode::ShuttingDown, "the node is stopping");
        if bytes.len() > TABLE_BYTES {
            let message = format!("the table has {} bytes; {TABLE_BYTES} are allowed", bytes.len());
            return Err(Error::new(ErrorCode::SizeLimit, message));
        }
        let (done, answer) = oneshot::channel();
        let request = Request { name: name.to_owned(), before, bytes: bytes.into(), done };
        self.requests.send(request).map_err(|_| stopping())?;
        answer.blocking_recv().map_err(|_| stopping())?
    }

    /// Tells of the tables that guidance names and this node does not know yet.
    pub(super) fn follow(&self, guidance: &Guidance, store: &mut Store) {
        for (name, version) in &guidance.tables {
            if self.version(name) >= *version {
                continue;
            }
            match rows::table(store, name, *version) {
                Ok(bytes) => {
                    if let Some(watch) = locked(&self.watches).get(name) {
                        watch(*version, &bytes);
                    }
                    let mut versions = self.versions.write().unwrap_or_else(PoisonError::into_inner);
                    versions.insert(name.clone(), *version);
                }
                Err(reason) => tracing::error!(table = name, reason, "this node could not read a table of the cluster"),
            }
        }
    }

    /// A table that this node has something for, and the cluster has not.
    pub(super) fn missing(&self, guidance: &Guidance) -> Option<Change> {
        let first = locked(&self.first);
        let (name, bytes) = first.iter().find(|(name, _)| !guidance.tables.contains_key(*name))?;
        Some(Change::Table { name: name.clone(), before: 0, bytes: bytes.clone() })
    }
}

/// Asks the leader for what is wanted on this node, on core 0 for as long as the node runs.
pub(crate) async fn serve(shared: Arc<Shared>, cluster: Arc<Cluster>) {
    let Some(mut asked) = locked(&cluster.options.tables.asked).take() else { return };
    while let Some(Request { name, before, bytes, done }) = asked.recv().await {
        let (shared, cluster) = (Arc::clone(&shared), Arc::clone(&cluster));
        tokio::task::spawn_local(async move {
            // Whoever asked may have gone.
            let _ = done.send(replace(&shared, &cluster, name, before, bytes).await);
        });
    }
}

async fn replace(shared: &Shared, cluster: &Cluster, name: String, before: u64, bytes: Bytes) -> Result<(), Error> {
    check(shared, cluster)?;
    let tables = &cluster.options.tables;
    match ask_leader(cluster, Change::Table { name: name.clone(), before, bytes }).await {
        Ok(epoch) => {
            followed(cluster, epoch).await;
            Ok(())
        }
        Err(error) => {
            let until = Instant::now() + SEEN;
            let is_late = error.code == ErrorCode::PreconditionFailed;
            while is_late && tables.version(&name) <= before && Instant::now() < until {
                sleep(LOOK).await;
            }
            Err(error)
        }
    }
}

/// The leader's part of [`Change::Table`].
///
/// # Errors
/// `precondition-failed`.
pub(super) fn replaced(
    next: &mut Guidance,
    (name, before, bytes): (&str, u64, &[u8]),
    store: Option<&mut Store>,
    (entries, deletions): (&mut Vec<Vec<Write>>, &mut Vec<Write>),
) -> Result<(), Error> {
    let version = next.tables.entry(name.to_owned()).or_default();
    if *version != before {
        let message = format!("the table {name:?} has been replaced meanwhile");
        return Err(Error::new(ErrorCode::PreconditionFailed, message));
    }
    *version += 1;
    entries.extend(rows::writes_of_table(name, *version, bytes));
    if let Some(store) = store.filter(|_| before > 0) {
        deletions.extend(rows::deletions_of_table(store, name, before));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_changes_that_rest_on_one_version_one_is_made() {
        let (mut guidance, mut entries) = (Guidance::default(), Vec::new());
        replaced(&mut guidance, ("users", 0, b"a"), None, (&mut entries, &mut Vec::new())).expect("there was none");
        let late = replaced(&mut guidance, ("users", 0, b"b"), None, (&mut entries, &mut Vec::new()));
        assert_eq!(late.expect_err("there is one").code, ErrorCode::PreconditionFailed);
        replaced(&mut guidance, ("users", 1, b"c"), None, (&mut entries, &mut Vec::new()))
            .expect("it rests on the present one");
        assert_eq!((guidance.tables["users"], entries.len()), (2, 2));
    }

    #[test]
    fn what_a_node_brings_is_kept_unless_the_cluster_has_it() {
        let tables = Tables::default();
        tables.begin_with("keys", b"first".to_vec());
        let mut guidance = Guidance::default();
        let bytes = Bytes::from_static(b"first");
        assert_eq!(tables.missing(&guidance), Some(Change::Table { name: "keys".to_owned(), before: 0, bytes }));
        guidance.tables.insert("keys".to_owned(), 1);
        assert_eq!(tables.missing(&guidance), None);
    }
}
