//! Deployments in a cluster: the leader numbers them and keeps them in the meta shard, and every node loads what is there.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use millrace_base::{Error, ErrorCode};
use millrace_func::App;
use millrace_guidance::EXPECTED_LEVEL;
use millrace_peers::Lane;
use tokio::time::{Instant, sleep, timeout};

use super::guide::BUILT_IN_DEPLOYMENTS;
use super::replacing::seen;
use super::{Change, Cluster, Proposal, Word, no_leader};
use crate::apps::archive;
use crate::core::Shared;
use crate::deploy;

/// How long the leader may take to answer.
const ANSWER: Duration = Duration::from_secs(10);

/// How long the nodes may take to load what was deployed. It is deployed all the same.
const FOLLOWED: Duration = Duration::from_secs(10);

/// The number under which a node tries whether it can load an app. Those that the leader gives are higher.
const TRIAL: u32 = BUILT_IN_DEPLOYMENTS;

const LOOK: Duration = Duration::from_millis(20);

/// Deploys or replaces an app on all nodes: it serves on those that are alive when this returns. If `expected` is named, it is
/// the content that the app has to have until then.
///
/// # Errors
/// `app-refused`, if this node cannot load it; `overloaded` without a leader; `precondition-failed` for another content. This node
/// has heard of that one then, unless it is slow.
pub(crate) async fn deploy(
    shared: &Arc<Shared>,
    cluster: &Cluster,
    app: App,
    expected: Option<String>,
) -> Result<u64, Error> {
    check(shared, cluster)?;
    try_out(shared, &app).await?;
    let tar = archive(&app).map_err(|error| Error::new(ErrorCode::Internal, format!("the app's files: {error}")))?;
    let name = app.name.as_str().to_owned();
    // Nodes of an earlier version would take the last one that comes.
    let expected = expected.filter(|_| cluster.guidance().feature_level >= EXPECTED_LEVEL);
    let change = Change::Deploy { app: name.clone(), expected: expected.clone(), tar: tar.into() };
    let epoch = match ask_leader(cluster, change).await {
        Ok(epoch) => epoch,
        Err(error) => {
            if let Some(expected) = expected.filter(|_| error.code == ErrorCode::PreconditionFailed) {
                seen(cluster, &name, &expected).await;
            }
            return Err(error);
        }
    };
    followed(cluster, epoch).await;
    Ok(cluster.guidance().apps.get(&name).map_or(1, |entry| entry.version))
}

/// Whether this node can load an app: before anybody else hears of it.
///
/// # Errors
/// `app-refused`.
pub(super) async fn try_out(shared: &Arc<Shared>, app: &App) -> Result<(), Error> {
    let one_at_a_time = shared.deploying.lock().await;
    deploy::make_room(shared, &one_at_a_time).await?;
    let prepared = deploy::prepare_numbered(shared, app.clone(), TRIAL).await;
    // Engines keep programs by their number, so that one is used again and again.
    deploy::discard(shared, &prepared?);
    Ok(())
}

/// Sends no more requests to an app, on all nodes.
///
/// # Errors
/// `unknown-app`; `overloaded` without a leader.
pub(crate) async fn remove(shared: &Shared, cluster: &Cluster, name: &str) -> Result<(), Error> {
    check(shared, cluster)?;
    if !cluster.guidance().apps.contains_key(name) {
        return Err(Error::new(ErrorCode::UnknownApp, format!("no app {name:?} is deployed")));
    }
    let epoch = ask_leader(cluster, Change::Remove { app: name.to_owned() }).await?;
    followed(cluster, epoch).await;
    Ok(())
}

/// Refuses a change while this node does not follow the cluster, or hears no majority.
pub(super) fn check(shared: &Shared, cluster: &Cluster) -> Result<(), Error> {
    cluster.check_guided()?;
    if cluster.hears_majority(shared.clock.monotonic_ns()) { Ok(()) } else { Err(no_leader()) }
}

/// Has the leader change the guidance. Gives its epoch then, or the number of the node that was added.
pub(super) async fn ask_leader(cluster: &Cluster, change: Change) -> Result<u64, Error> {
    let leader = cluster.leader().ok_or_else(no_leader)?;
    let (number, answer) = cluster.ask();
    let is_sent = if leader == cluster.me() {
        cluster.proposed(Proposal { from: (leader, number), change });
        true
    } else {
        cluster.send(leader, Lane::Core, &Word::Change(number, change))
    };
    let answered = if is_sent { timeout(ANSWER, answer).await } else { Ok(Ok(Err(no_leader()))) };
    cluster.forget(number);
    match answered {
        Ok(Ok(result)) => result,
        _ => {
            let message = "the cluster's leader has not answered; the change may or may not be made, repeat it";
            Err(Error::new(ErrorCode::ResultUnknown, message))
        }
    }
}

/// Waits until all nodes that are alive follow a guidance. Says whether they do.
pub(super) async fn followed(cluster: &Cluster, epoch: u64) -> bool {
    let until = Instant::now() + FOLLOWED;
    while !(cluster.followed_epoch.load(Ordering::Acquire) >= epoch && cluster.do_all_follow(epoch)) {
        if Instant::now() >= until {
            tracing::warn!(epoch, "some node has not loaded yet what is deployed; it serves elsewhere");
            return false;
        }
        sleep(LOOK).await;
    }
    true
}
