//! The task that follows guidance on this node, and decides what comes next on the node that leads.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use millrace_api::MAJORITY_LOST;
use millrace_base::{Error, ErrorCode, Lsn, Name, ShardId};
use millrace_format::Write;
use millrace_guidance::{
    AppEntry, Audience, DIALLED_LEVEL, FEATURE_LEVEL, Guidance, Leader, MetaStep, NodeEntry, STOPPED_LEVEL, Status,
    Timing, meta_step,
};
use millrace_peers::Lane;
use millrace_replica::{self as replica, Epoch, NodeId, RoleName};

use super::condition::Said;
use super::loading::Loading;
use super::majority::{MajorityWatch, Turn};
use super::replacing::{self, NEXT_NS};
use super::{Change, Cluster, Heard, Proposal, Word, dialled, locked, rows, sweeping, tables, versions};
use crate::apps::{app_of_tar, version_of};
use crate::backend::CoreHandle;
use crate::built_in_apps;
use crate::core::{NodeMessage, Shared, SharedCore};

/// How often the guide looks around.
const LOOK: Duration = Duration::from_millis(25);

/// How often a node says how it is, beside what others wait for. Those that do not hear it for some of these take it for dead.
const STATUS_NS: u64 = 100_000_000;

/// Runs on core 0 for as long as the node does.
pub(crate) async fn guide(core: SharedCore, shared: Arc<Shared>, cluster: Arc<Cluster>) {
    let meta = ShardId(shared.shard_count());
    let met = cluster.others(&Guidance::default()).into_iter().map(|other| other.node).collect();
    let loading = Loading::new(Rc::clone(&core), Arc::clone(&shared), Arc::clone(&cluster), meta);
    let mut guide = Guide {
        core,
        shared,
        cluster,
        meta,
        read_lsn: Lsn::ZERO,
        present: None,
        loading,
        told: BTreeMap::new(),
        met,
        reign: None,
        audience: Audience::default(),
        said_ns: 0,
        majority: MajorityWatch::default(),
    };
    loop {
        let _ = tokio::time::timeout(LOOK, guide.cluster.wake.notified()).await;
        guide.hear();
        guide.follow().await;
        guide.cluster.note_current();
        guide.cluster.note_quiet(&guide.shared).await;
        guide.lead();
        guide.watch_majority();
        guide.sweep();
        guide.speak();
    }
}

/// This node owns the meta shard.
struct Reign {
    epoch: Epoch,
    leader: Leader,
    /// The last entry that was handed in. What comes next rests on it.
    proposed: Lsn,
    /// Who waits for entries to be committed: the last of them, who it is, and what they are told.
    owed: Vec<(Lsn, (NodeId, u64), u64)>,
    /// What may replace an app, by its deployment, and since when this node knows it.
    next_since: Option<(u32, u64)>,
    /// All services have been swept in this reign: their state may have been left behind by the one before.
    has_swept: bool,
}

struct Guide {
    core: SharedCore,
    shared: Arc<Shared>,
    cluster: Arc<Cluster>,
    meta: ShardId,
    /// The meta shard's last entry when it was last read.
    read_lsn: Lsn,
    /// The guidance in the meta shard.
    present: Option<Guidance>,
    loading: Loading,
    /// The epoch of each shard, its heir, and who is to hold it, as the cores were told.
    told: BTreeMap<usize, (u64, u16, Vec<u16>)>,
    /// The nodes that this one was ever linked to.
    met: BTreeSet<NodeId>,
    reign: Option<Reign>,
    /// What the others have said, while this node does not lead.
    audience: Audience,
    /// When this node last spoke, in monotonic nanoseconds.
    said_ns: u64,
    majority: MajorityWatch,
}

impl Guide {
    fn now_ns(&self) -> u64 {
        self.shared.clock.monotonic_ns()
    }

    /// What the others have said: a leader has it while this node is one.
    fn audience(&mut self) -> &mut Audience {
        match &mut self.reign {
            Some(reign) => reign.leader.audience(),
            None => &mut self.audience,
        }
    }

    /// Takes what other nodes have said.
    fn hear(&mut self) {
        let now_ns = self.now_ns();
        let heard = std::mem::take(&mut *locked(&self.cluster.heard));
        for (node, what) in heard {
            match what {
                Heard::Status(status) => {
                    self.cluster.note_other(node, &status, now_ns);
                    self.audience().heard(now_ns, node.0, *status);
                }
                Heard::Unlinked => self.audience().unlinked(node.0),
            }
        }
    }

    /// Reads the meta shard, if it has changed, and does what it says.
    async fn follow(&mut self) {
        let read = {
            let mut core = self.core.borrow_mut();
            let Some(store) = core.hosted_store(self.meta) else { return };
            if store.lsn() == self.read_lsn {
                return;
            }
            self.read_lsn = store.lsn();
            let read = rows::guidance(store);
            if let Ok(Some(guidance)) = &read {
                self.cluster.options.tables.follow(guidance, store);
            }
            read
        };
        let guidance = match read {
            Ok(Some(guidance)) => guidance,
            Ok(None) => return,
            Err(reason) => return tracing::error!(reason, "this node cannot follow the cluster"),
        };
        if !guidance.admits_level(FEATURE_LEVEL) {
            return self.cluster.note_too_old(guidance.feature_level);
        }
        self.cluster.note_level_of_all(guidance.feature_level);
        let before = self.present.replace(guidance.clone());
        if before.is_some_and(|before| before.epoch == guidance.epoch) {
            return;
        }
        self.meet(&guidance);
        self.loading.follow(&guidance).await;
        let dead = guidance.nodes.iter().filter(|(_, entry)| !entry.is_alive).map(|(node, _)| NodeId(*node));
        for node in dead.filter(|node| *node != self.cluster.me()) {
            self.tell_cores(|| NodeMessage::PeerLost { node });
        }
        for (index, place) in guidance.shards.iter().enumerate() {
            let news = (place.epoch, place.next, place.holders().to_vec());
            if place.owner == 0 || self.told.get(&index) == Some(&news) {
                continue;
            }
            self.told.insert(index, news);
            let shard = ShardId(u16::try_from(index).unwrap_or(u16::MAX));
            let heir = (place.next != 0).then_some(NodeId(place.next));
            let (owner, epoch) = ((NodeId(place.owner), heir), Epoch(place.epoch));
            let replicas: Vec<NodeId> = place.holders().iter().copied().map(NodeId).collect();
            self.tell_cores(|| NodeMessage::Guided { shard, owner, epoch, replicas: replicas.clone() });
        }
        self.cluster.set_guidance(Arc::new(guidance));
        if let Some(carrier) = &self.shared.carrier {
            // This node may be one of other shards from now on.
            carrier.look();
        } else {
            self.cluster.note_bodies(self.cluster.guidance().epoch, &BTreeSet::new());
        }
        self.said_ns = 0;
    }

    /// Links this node to those that came, and no longer to those that are gone.
    fn meet(&mut self, guidance: &Guidance) {
        let others = self.cluster.others(guidance);
        for other in &others {
            if self.met.insert(other.node) {
                self.tell_cores(|| NodeMessage::PeerLink { node: other.node, is_up: false });
            }
        }
        self.cluster.set_others(&others, NodeId(guidance.last_removed));
        // A node that comes reads of times before it, too.
        let me = self.cluster.me().0;
        if !guidance.nodes.contains_key(&me) && guidance.last_removed >= me {
            self.cluster.note_removed();
        }
    }

    fn tell_cores(&self, message: impl Fn() -> NodeMessage) {
        for core in 0..self.shared.cores.len() {
            self.shared.send(core, message());
        }
    }

    /// Decides what comes next, where this node owns the meta shard.
    fn lead(&mut self) {
        let (me, now_ns) = (self.cluster.me(), self.now_ns());
        let (role, epoch) = self.cluster.meta_role();
        if let Some(replica) = self.core.borrow().replica(self.meta) {
            self.cluster.set_leader(replica.promised().to);
            self.cluster.set_voters(replica.log().set().voters());
        }
        if role != RoleName::Owner {
            if let Some(mut reign) = self.reign.take() {
                self.audience = std::mem::take(reign.leader.audience());
            }
            return;
        }
        if self.reign.as_ref().is_none_or(|reign| reign.epoch != epoch) {
            tracing::info!(epoch = epoch.0, "this node leads the cluster");
            let audience = std::mem::take(self.audience());
            let leader = Leader::new(me.0, Timing::default(), now_ns, audience);
            let (proposed, owed) = (Lsn::ZERO, Vec::new());
            self.reign = Some(Reign { epoch, leader, proposed, owed, next_since: None, has_swept: false });
        }
        let applied = self.core.borrow_mut().hosted_store(self.meta).map_or(Lsn::ZERO, |store| store.lsn());
        self.answer_owed(applied);
        let status = self.status();
        let Some(reign) = &mut self.reign else { return };
        reign.leader.audience().heard(now_ns, me.0, status);
        // What was handed in may change what comes next.
        if applied < reign.proposed || self.read_lsn < applied {
            return;
        }
        let present = self.present.clone().unwrap_or_else(|| self.first());
        if let Some(next) = self.reign.as_mut().and_then(|reign| reign.leader.decide(now_ns, &present)) {
            let mut writes = versions::forgotten(&present, &next, self.core.borrow_mut().hosted_store(self.meta));
            writes.push(rows::write_of(&next));
            self.propose(&writes);
        } else if let Some(proposal) = self.next_proposal(&present) {
            self.change(proposal, &present);
        } else if present.epoch > 0 {
            self.step_meta(&present);
        }
    }

    /// Tells the operator when a majority is lost, and when it is back.
    fn watch_majority(&mut self) {
        let now_ns = self.now_ns();
        let is_heard = self.cluster.hears_majority(now_ns);
        match self.majority.look(now_ns, is_heard) {
            Some(Turn::Lost) if self.cluster.is_removed() => {}
            Some(Turn::Lost) if self.cluster.is_guidance_lost() => tracing::error!("{MAJORITY_LOST}"),
            Some(Turn::Lost) => tracing::warn!(
                "this node hears no majority of the nodes any more: it answers calls with 503 until it does"
            ),
            Some(Turn::Back { after_ms }) => tracing::warn!(after_ms, "this node hears a majority of the nodes again"),
            None => {}
        }
    }

    /// Has nodes that came copy the meta shard, and some of those that stay count in it.
    fn step_meta(&self, present: &Guidance) {
        let mut core = self.core.borrow_mut();
        let Some(replica) = core.replica(self.meta) else { return };
        let set = replica.log().set();
        let voters = set.voters().map(|node| node.0).collect();
        let learners = set.members().filter(|node| set.is_learner(*node)).map(|node| node.0).collect();
        let change = meta_step(present, &voters, &learners).map(|step| match step {
            MetaStep::Add(node) => replica::Change::AddLearner(NodeId(node)),
            MetaStep::Promote(node) => replica::Change::Promote(NodeId(node)),
            MetaStep::Remove(node) => replica::Change::Remove(NodeId(node)),
        });
        // If it cannot be made now, it is tried again at the next look.
        if let Some(change) = change {
            core.change_replicas(self.meta, change);
        }
    }

    /// The next change to make. One at a time: each rests on the one before. What would replace an app waits for what may
    /// replace it already, and that does not take for ever.
    fn next_proposal(&mut self, present: &Guidance) -> Option<Proposal> {
        let (me, now_ns) = (self.cluster.me(), self.now_ns());
        let reign = self.reign.as_mut().filter(|_| present.epoch > 0)?;
        let coming = present.apps.iter().find_map(|(name, entry)| Some((name, entry.next.as_ref()?.deployment)));
        reign.next_since = coming.map(|(_, deployment)| match reign.next_since {
            Some((known, since_ns)) if known == deployment => (known, since_ns),
            _ => (deployment, now_ns),
        });
        if let (Some((app, deployment)), Some((_, since_ns))) = (coming, reign.next_since)
            && now_ns >= since_ns.saturating_add(NEXT_NS)
        {
            // Nobody waits for the answer: 0 is no number of a question.
            let change = Change::Settle { app: app.clone(), deployment, is_taken: false };
            return Some(Proposal { from: (me, 0), change });
        }
        if let Some(change) = self.cluster.options.tables.missing(present) {
            return Some(Proposal { from: (me, 0), change });
        }
        let mut proposals = locked(&self.cluster.proposals);
        let may_be_made = |proposal: &Proposal| coming.is_none() || !matches!(proposal.change, Change::Prepare { .. });
        let at = proposals.iter().position(may_be_made)?;
        Some(proposals.remove(at))
    }

    /// Has the state of services brought to what serves now, where this node owns the meta shard: all of them once in each
    /// reign, and then those that a deployment has changed. All nodes serve it by then.
    fn sweep(&mut self) {
        let Some(epoch) = self.present.as_ref().map(|present| present.epoch) else { return };
        let Some(reign) = &mut self.reign else { return drop(self.loading.take_sweeps()) };
        if self.cluster.guidance().epoch != epoch || !self.cluster.do_all_follow(epoch) {
            return;
        }
        let services = self.loading.take_sweeps();
        let node = CoreHandle::new(Rc::clone(&self.core));
        if !std::mem::replace(&mut reign.has_swept, true) {
            tokio::task::spawn_local(built_in_apps::sweep_everything(node));
        } else if !services.is_empty() {
            let cluster = Arc::clone(&self.cluster);
            tokio::task::spawn_local(async move {
                built_in_apps::sweep_services(&node, &services).await;
                sweeping::hasten(&node, &cluster, &services).await;
            });
        }
    }

    /// The guidance before the first that is agreed.
    fn first(&self) -> Guidance {
        let entry = |member: &super::Member| {
            let (http, peer, rack) = (member.http.clone(), member.peer.clone(), member.rack.clone());
            (member.node.0, NodeEntry { http, peer, rack, ..NodeEntry::default() })
        };
        let options = &self.cluster.options;
        let mut first = Guidance::first(options.members.iter().map(entry).collect(), self.meta.0, options.replicas);
        // Numbers below are those of built-in apps, which each node loads by itself.
        first.last_deployment = BUILT_IN_DEPLOYMENTS;
        first
    }

    fn propose(&mut self, writes: &[Write]) -> Option<Lsn> {
        let lsn = self.core.borrow_mut().propose(self.meta, writes).ok()?;
        if let Some(reign) = &mut self.reign {
            reign.proposed = lsn;
        }
        Some(lsn)
    }

    /// Makes a change that somebody has asked for.
    fn change(&mut self, Proposal { from, change }: Proposal, present: &Guidance) {
        let mut next = Guidance { epoch: present.epoch + 1, ..present.clone() };
        let (mut entries, mut unneeded, mut value) = (Vec::new(), Vec::new(), next.epoch);
        let made = match change {
            Change::Deploy { app, expected, tar } => replacing::check_expected(present, &app, expected.as_deref())
                .and_then(|()| self.deployed(&app, &tar, &mut next, &mut entries)),
            Change::Prepare { app, expected, tar } => {
                replacing::prepared(&mut next, (&app, &expected, &tar), &mut entries)
            }
            Change::Table { name, before, bytes } => {
                let mut core = self.core.borrow_mut();
                let store = core.hosted_store(self.meta);
                tables::replaced(&mut next, (&name, before, &bytes), store, (&mut entries, &mut unneeded))
            }
            Change::Settle { app, deployment, is_taken } => {
                let mut core = self.core.borrow_mut();
                let store = core.hosted_store(self.meta);
                replacing::settled(&mut next, (&app, deployment, is_taken), store, &mut unneeded)
            }
            Change::Remove { app } => match next.apps.remove(&app) {
                Some(removed) => {
                    unneeded.extend(self.replaced(&mut next, &app, &removed));
                    Ok(())
                }
                None => Err(Error::new(ErrorCode::UnknownApp, format!("no app {app:?} is deployed"))),
            },
            Change::Drain { node, is_draining } => next.drain_node(node.0, is_draining).map_err(refused),
            Change::AddNode { http, peer, rack } => {
                next.add_node(&http, &peer, &rack).map_err(refused).map(|node| value = u64::from(node))
            }
            Change::RemoveNode { node } => match next.remove_node(node.0).map_err(refused) {
                Ok(()) if self.counts_in_meta(node) => Err(counts(node)),
                result => result,
            },
        };
        if let Err(error) = made {
            return self.answer(from, Err(error));
        }
        // In one entry: nobody reads a guidance that names what is gone.
        unneeded.push(rows::write_of(&next));
        entries.push(unneeded);
        let mut last = None;
        for writes in entries {
            last = self.propose(&writes);
        }
        match (last, &mut self.reign) {
            (Some(lsn), Some(reign)) => reign.owed.push((lsn, from, value)),
            _ => self.answer(from, Err(super::no_leader())),
        }
    }

    /// Whether a node counts in the meta shard.
    fn counts_in_meta(&self, node: NodeId) -> bool {
        self.core.borrow().replica(self.meta).is_some_and(|replica| replica.log().set().is_voter(node))
    }

    fn deployed(
        &self,
        name: &str,
        tar: &[u8],
        next: &mut Guidance,
        entries: &mut Vec<Vec<Write>>,
    ) -> Result<(), Error> {
        Name::new(name).map_err(|error| Error::new(ErrorCode::AppRefused, error.to_string()))?;
        let content = format!("{:016x}", version_of(&app_of_tar(name, tar)?));
        versions::refuse_if_full(next)?;
        next.last_deployment += 1;
        let deployment = next.last_deployment;
        let before = next.apps.get(name).cloned();
        let version = before.as_ref().map_or(0, |before| before.version) + 1;
        next.apps.insert(name.to_owned(), AppEntry { deployment, content: content.clone(), version, next: None });
        if before.as_ref().is_some_and(|before| before.content == content) {
            return Ok(());
        }
        next.note_served(name);
        entries.extend(rows::writes_of_app(name, &content, tar));
        if let Some(before) = before {
            entries.push(self.replaced(next, name, &before));
        }
        Ok(())
    }

    /// An app was replaced or removed in the next guidance: gives the deletions of files that are not needed any more.
    fn replaced(&self, next: &mut Guidance, app: &str, before: &AppEntry) -> Vec<Write> {
        let mut core = self.core.borrow_mut();
        let loaded = core.programs.loaded(before.deployment).cloned();
        versions::replaced(next, (app, before), loaded.as_ref(), core.hosted_store(self.meta))
    }

    fn answer_owed(&mut self, applied: Lsn) {
        let Some(reign) = &mut self.reign else { return };
        let (done, owed): (Vec<_>, Vec<_>) =
            std::mem::take(&mut reign.owed).into_iter().partition(|(lsn, ..)| *lsn <= applied);
        reign.owed = owed;
        for (_, from, value) in done {
            self.answer(from, Ok(value));
        }
    }

    fn answer(&self, (node, number): (NodeId, u64), result: Result<u64, Error>) {
        if node == self.cluster.me() {
            self.cluster.answered(number, result);
        } else {
            self.cluster.send(node, Lane::Core, &Word::Answer(number, result));
        }
    }

    fn status(&self) -> Status {
        let guidance = self.cluster.guidance();
        let Said { is_caught_up, obstacles, held, opened, lost, stopped } = self.cluster.condition();
        let knows_dialled = guidance.feature_level >= DIALLED_LEVEL;
        let (bodies_epoch, unreadable) = self.cluster.bodies_here();
        Status {
            incarnation: self.cluster.incarnation,
            feature_level: FEATURE_LEVEL,
            guidance_epoch: guidance.epoch,
            last_deployment: guidance.last_deployment,
            is_caught_up,
            obstacles,
            held,
            opened,
            quiet_epoch: self.cluster.quiet_epoch(),
            bodies_epoch,
            unreadable,
            is_resyncing: lost.guidance,
            resyncing: lost.shards,
            stopped: if guidance.feature_level < STOPPED_LEVEL { Vec::new() } else { stopped },
            dialled: if knows_dialled { dialled::here(&self.shared) } else { Vec::new() },
            unneeded: locked(&self.cluster.unneeded).clone(),
            // Others can write what a full disk cannot.
            is_leaving: self.cluster.is_leaving.load(Ordering::Relaxed)
                || self.shared.read_only_cores.load(Ordering::Relaxed) > 0,
        }
    }

    /// Tells all other nodes how this one is.
    fn speak(&mut self) {
        let now_ns = self.now_ns();
        let has_news = self.cluster.has_news.swap(false, Ordering::AcqRel);
        if !has_news && now_ns < self.said_ns + STATUS_NS {
            return;
        }
        self.said_ns = now_ns;
        let word = Word::Status(self.status());
        for other in self.cluster.others(&self.cluster.guidance()) {
            self.cluster.send(other.node, Lane::Mail, &word);
        }
    }
}

fn counts(node: NodeId) -> Error {
    let message = format!("node {node} still counts among those that agree on the guidance: try again in a moment");
    Error::new(ErrorCode::Overloaded, message)
}

fn refused(why: millrace_guidance::Refused) -> Error {
    Error::new(ErrorCode::BadRequest, why.to_string())
}

/// Deployments up to this number are not the leader's: those of built-in apps, and trials.
pub(super) const BUILT_IN_DEPLOYMENTS: u32 = 16;
