//! A new body goes to the other replicas of its shard. Only when a majority of them holds it, an entry may name it.
//!
//! So an entry never waits for a body, and a replica takes entries without knowing what is in them. Any majority that commits
//! an entry has a node in common with the one that holds the body: what the entry names is on a disk of a node that goes on.

use std::collections::BTreeSet;
use std::sync::Arc;

use millrace_base::{Error, ErrorCode};
use millrace_blobs::BodyName;
use millrace_replica::NodeId;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::{Instant, timeout_at};

use super::{ANSWER, BodyWord, Carrier, FIRST_BYTES, OFFERS, locked};

/// How long another node may say nothing about a body that it is to hold.
const SILENT: std::time::Duration = std::time::Duration::from_secs(10);

/// How long a body may take to reach a majority. Replicas that hold it keep it for longer than that.
const LONGEST: std::time::Duration = std::time::Duration::from_secs(1_800);

impl Carrier {
    /// Has a body that is durable here held by a majority of its shard's replicas. The others get it afterwards.
    ///
    /// # Errors
    /// `overloaded` without a majority.
    pub(crate) async fn spread(self: &Arc<Self>, name: BodyName) -> Result<(), Error> {
        let mut holders = BTreeSet::from([self.cluster.me()]);
        let (mut asked, mut pending) = (BTreeSet::new(), 0_usize);
        let (done, mut offered) = unbounded_channel();
        let until = Instant::now() + LONGEST;
        loop {
            for node in self.others(name) {
                if asked.insert(node) {
                    let (carrier, done) = (Arc::clone(self), done.clone());
                    tokio::task::spawn_local(async move {
                        // Nobody waits any more once a majority is there.
                        let _ = done.send(carrier.offer(node, name).await.then_some(node));
                    });
                    pending += 1;
                }
            }
            // While the replicas change, of those before and of those to come. They may have changed since this began.
            let sets = self.holders(name);
            if sets.iter().all(|nodes| nodes.intersection(&holders).count() > nodes.len() / 2) {
                return Ok(());
            }
            let heard = if pending > 0 { timeout_at(until, offered.recv()).await.ok().flatten() } else { None };
            let Some(held) = heard else {
                let message =
                    "a majority of the nodes could not take the object's content; nothing happened: try again";
                return Err(Error::new(ErrorCode::Overloaded, message));
            };
            holders.extend(held);
            pending -= 1;
        }
    }

    /// Has another node hold a body. Says whether it does. A node that does not finds the body later by itself.
    async fn offer(&self, node: NodeId, name: BodyName) -> bool {
        let places = Arc::clone(locked(&self.offers).entry(node).or_insert_with(|| Arc::new(Semaphore::new(OFFERS))));
        // It is never closed.
        let Ok(_place) = places.acquire().await else { return false };
        if !self.hears(node) {
            return false;
        }
        let read = self.read_here(name, 0, FIRST_BYTES as u32).await;
        let Some(BodyWord::Data { length, owner, bytes }) = read else { return false };
        let mut asking = self.ask();
        let (mut first, mut heard) = (bytes, Instant::now());
        while self.hears(node) && heard.elapsed() < SILENT && self.store.bodies.has(name) {
            // Asked again, it is for the answer only.
            let word = BodyWord::Hold { length, owner: owner.clone(), first: std::mem::take(&mut first) };
            self.say(node, name, asking.number, word);
            let until = Instant::now() + ANSWER;
            while let Ok(Some(answer)) = timeout_at(until, asking.answers.recv()).await {
                match answer {
                    BodyWord::Held => return true,
                    BodyWord::Coming => heard = Instant::now(),
                    _ => return false,
                }
            }
        }
        false
    }
}
