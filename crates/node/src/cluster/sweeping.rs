//! Sweeps of built-in apps wait until nothing of the version before runs any more. Where all nodes say so, they wait no longer.
//!
//! 1. The leader has asked each shard for a sweep. It hears which run of the sweep that is.
//! 2. All nodes follow the guidance by then, so nothing begins any more in the version before. Each node says when nothing was
//!    under way on it after that. What runs on several nodes is still under way where it began until it has ended on all.
//! 3. The leader tells each shard, and names the run: a later sweep is of other settings, and knows nothing of this.
//!
//! A node that is never without work does not say so, and then sweeps begin after the time that a call may take.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use millrace_base::{Error, ShardId};
use millrace_driver::Call;
use millrace_replica::NodeId;
use millrace_shard::Invoke;
use tokio::time::sleep;

use super::{Cluster, locked};
use crate::backend::{CoreHandle, info};
use crate::built_in_apps::{Swept, find_sweep};
use crate::core::Shared;
use crate::deploy;

/// How often it is looked, and the pause between: no longer than sweeps wait by themselves.
const ATTEMPTS: usize = 200;
const PAUSE: Duration = Duration::from_millis(50);

/// How often all of it is tried for one service.
const ROUNDS: usize = 5;

impl Cluster {
    /// The last guidance that all nodes followed when nothing was under way on this one.
    pub(super) fn quiet_epoch(&self) -> u64 {
        self.quiet_epoch.load(Ordering::Acquire)
    }

    /// Looks whether nothing is under way here that began before all nodes followed the guidance.
    pub(super) async fn note_quiet(&self, shared: &Arc<Shared>) {
        let epoch = self.guidance().epoch;
        if self.quiet_epoch() < epoch && self.do_all_follow(epoch) && deploy::is_quiet(shared).await {
            self.quiet_epoch.store(epoch, Ordering::Release);
        }
    }

    /// Whether all other nodes that are alive follow this guidance or a later one.
    pub(super) fn do_all_follow(&self, epoch: u64) -> bool {
        let known = locked(&self.others);
        let guidance = self.guidance();
        let others = guidance.nodes.iter().filter(|(node, entry)| entry.is_alive && **node != self.me().0);
        others.map(|(node, _)| NodeId(*node)).all(|node| known.get(&node).is_some_and(|other| other.follows >= epoch))
    }

    /// Whether each node that is alive was quiet since all follow this guidance.
    fn were_all_quiet(&self, epoch: u64) -> bool {
        let (known, guidance) = (locked(&self.others), self.guidance());
        let others = guidance.nodes.iter().filter(|(node, entry)| entry.is_alive && **node != self.me().0);
        let were_others = others.map(|(node, _)| NodeId(*node)).all(|node| {
            let other = known.get(&node);
            other.is_some_and(|other| other.quiet_epoch >= epoch)
        });
        self.quiet_epoch() >= epoch && were_others
    }
}

/// Has sweeps that have been asked for begin as soon as they may.
pub(super) async fn hasten(node: &CoreHandle, cluster: &Cluster, services: &[Swept]) {
    for service in services {
        for _ in 0..ROUNDS {
            let Some(runs) = runs_of(node, service).await else { break };
            if !is_quiet(cluster).await {
                break;
            }
            let answers = ask(node, service, &runs).await;
            // A sweep may have been asked for twice: then the run that was named is not the present one any more.
            let is_hastened =
                |answer: &Result<Bytes, Error>| answer.as_ref().is_ok_and(|is| is.is_empty() || **is == *b"true");
            if answers.iter().all(is_hastened) {
                break;
            }
        }
        // What it could not hasten goes on in its time.
    }
}

/// The run of the sweep in each shard, once all have begun it.
async fn runs_of(node: &CoreHandle, service: &Swept) -> Option<Vec<Option<u64>>> {
    let nothing = vec![None; node.shared().shard_keys.len()];
    for _ in 0..ATTEMPTS {
        let answers = ask(node, service, &nothing).await;
        if answers.iter().all(|answer| answer.as_ref().is_ok_and(|answer| **answer != *b"null")) {
            return Some(
                answers.into_iter().map(|answer| std::str::from_utf8(&answer.ok()?).ok()?.parse().ok()).collect(),
            );
        }
        sleep(PAUSE).await;
    }
    None
}

/// Waits until each node was quiet since now. Says whether they were.
async fn is_quiet(cluster: &Cluster) -> bool {
    let epoch = cluster.guidance().epoch;
    for _ in 0..ATTEMPTS {
        if cluster.were_all_quiet(epoch) {
            return true;
        }
        sleep(PAUSE).await;
    }
    false
}

/// Asks each shard how far the sweep is, and hastens the runs that are named.
async fn ask(node: &CoreHandle, service: &Swept, runs: &[Option<u64>]) -> Vec<Result<Bytes, Error>> {
    let mut begun = Vec::new();
    for ((shard, key), run) in (0..).map(ShardId).zip(node.shared().shard_keys.iter()).zip(runs) {
        let input = match run {
            Some(run) => format!(r#"{{"hastens":true,"run":{run}}}"#),
            None => r#"{"hastens":true}"#.to_owned(),
        };
        let handler = match find_sweep(node, service) {
            Ok(handler) => handler,
            Err(error) => return vec![Err(error)],
        };
        let info = info(&mut node.core().borrow_mut(), None);
        let invoke = Invoke { info, handler, key: key.as_slice().into(), input: input.into() };
        begun.push(node.begin(Call { shard, invoke }));
    }
    let mut answers = Vec::new();
    for begun in begun {
        answers.push(begun.reply().await);
    }
    answers
}
