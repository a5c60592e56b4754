//! Versions of apps that workflows still run in, after others took their place.
//!
//! Guidance keeps such a version until no shard needs it. All nodes have it loaded meanwhile. So the next owner of a shard goes
//! on with the shard's workflows as the one before would have.
//!
//! Why it is safe to forget one: nothing begins in it once all nodes follow the guidance that keeps it. So what shards need
//! of it only becomes less, whoever owns them. The owner of each shard's present epoch has to say that the
//! shard needs nothing of it. It says so when what ended last is committed.

use crate::document::{AppEntry, Guidance, KEPT_LEVEL, KeptApp};
use crate::leader::Leader;

impl Guidance {
    /// An app was replaced or removed: what served is kept, once all nodes know what that is. Says whether its files are
    /// needed: they also are if the same content serves.
    pub fn keep(&mut self, app: &str, replaced: &AppEntry) -> bool {
        let AppEntry { deployment, content, .. } = replaced;
        if self.feature_level >= KEPT_LEVEL && !self.needs_files(app, content) {
            self.kept.push(KeptApp { app: app.to_owned(), deployment: *deployment, content: content.clone() });
        }
        self.needs_files(app, content)
    }

    /// The same in a cluster that is being made. All its nodes will be of this build, or a later one.
    pub fn keep_from_start(&mut self, kept: KeptApp) {
        self.feature_level = self.feature_level.max(KEPT_LEVEL);
        self.kept.push(kept);
    }

    /// An app serves: if that is a version that was kept, it is no more.
    pub fn note_served(&mut self, app: &str) {
        if let Some(serving) = self.apps.get(app) {
            self.kept.retain(|kept| kept.app != app || kept.content != serving.content);
        }
    }

    /// Whether the meta shard has to hold the files of an app under a content.
    #[must_use]
    pub fn needs_files(&self, app: &str, content: &str) -> bool {
        let serves = |entry: &AppEntry| {
            entry.content == content || entry.next.as_ref().is_some_and(|next| next.content == content)
        };
        self.apps.get(app).is_some_and(serves)
            || self.kept.iter().any(|kept| kept.app == app && kept.content == content)
    }
}

impl Leader {
    /// Forgets what no shard needs any more.
    pub(crate) fn forget_versions(&self, guidance: &Guidance, next: &mut Guidance) {
        if next.kept.is_empty() || !self.has_been_followed(guidance) {
            return;
        }
        let is_unneeded = |deployment: u32| {
            next.shards.iter().zip(0u16..).all(|(place, shard)| {
                let said = self.audience.heard.get(&place.owner).map(|heard| &heard.status.unneeded);
                said.is_some_and(|said| {
                    said.deployments.contains(&deployment)
                        && said.shards.iter().any(|opened| (opened.shard, opened.epoch) == (shard, place.epoch))
                })
            })
        };
        let mut kept = std::mem::take(&mut next.kept);
        kept.retain(|kept| !is_unneeded(kept.deployment));
        next.kept = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{NodeEntry, ShardPlacement};
    use crate::leader::{Audience, Timing};
    use crate::status::{Opened, Status, Unneeded};

    fn entry(deployment: u32, content: &str) -> AppEntry {
        AppEntry { deployment, content: content.to_owned(), version: 1, next: None }
    }

    /// Two nodes with a shard each, and an app whose first version was replaced.
    fn guidance() -> Guidance {
        let node =
            |id: u16| (id, NodeEntry { is_alive: true, incarnation: 1, feature_level: 2, ..NodeEntry::default() });
        let mut guidance = Guidance::first([1, 2].map(node).into(), 2, 0);
        (guidance.epoch, guidance.feature_level, guidance.last_deployment) = (7, KEPT_LEVEL, 18);
        for (index, place) in guidance.shards.iter_mut().enumerate() {
            *place = ShardPlacement { epoch: 3, owner: [1, 2][index], ..place.clone() };
        }
        guidance.apps.insert("shop".to_owned(), entry(18, "b"));
        assert!(guidance.keep("shop", &entry(17, "a")));
        guidance
    }

    fn status(shard: u16, epoch: u64, deployments: &[u32]) -> Status {
        let unneeded = Unneeded { deployments: deployments.to_vec(), shards: vec![Opened { shard, epoch }] };
        let (incarnation, feature_level) = (1, 2);
        Status { incarnation, feature_level, guidance_epoch: 7, last_deployment: 18, unneeded, ..Status::default() }
    }

    /// What is kept after the nodes have said this.
    fn kept_after(said: [Status; 2]) -> usize {
        let mut audience = Audience::default();
        for (node, status) in (1..).zip(said) {
            audience.heard(0, node, status);
        }
        let mut leader = Leader::new(1, Timing::default(), 0, audience);
        let guidance = guidance();
        leader.decide(1, &guidance).unwrap_or(guidance).kept.len()
    }

    #[test]
    fn a_version_is_kept_until_the_owner_of_each_shard_needs_it_no_more() {
        assert_eq!(kept_after([status(0, 3, &[17]), status(1, 3, &[17])]), 0);
        assert_eq!(kept_after([status(0, 3, &[17]), status(1, 3, &[])]), 1, "one needs it");
        assert_eq!(kept_after([status(0, 3, &[17]), status(1, 3, &[16])]), 1, "it is said of another version");
        assert_eq!(kept_after([status(0, 3, &[17]), status(1, 2, &[17])]), 1, "it is said of an earlier epoch");
        assert_eq!(kept_after([status(0, 3, &[17]), status(0, 3, &[17])]), 1, "nobody has said it of a shard");
        let late = Status { guidance_epoch: 6, ..status(1, 3, &[17]) };
        assert_eq!(kept_after([status(0, 3, &[17]), late]), 1, "requests of that node may begin something in it");
    }

    #[test]
    fn the_files_of_a_version_are_needed_while_it_serves_or_is_kept() {
        let mut guidance = guidance();
        assert_eq!(["a", "b", "c"].map(|content| guidance.needs_files("shop", content)), [true, true, false]);
        assert!(!guidance.needs_files("other", "a"));
        // The first version is deployed again.
        assert!(guidance.keep("shop", &entry(18, "b")), "it serves still");
        guidance.apps.insert("shop".to_owned(), entry(19, "a"));
        guidance.note_served("shop");
        assert!(guidance.keep("shop", &entry(18, "b")));
        let kept: Vec<u32> = guidance.kept.iter().map(|kept| kept.deployment).collect();
        assert_eq!(kept, [18]);
        guidance.feature_level = KEPT_LEVEL - 1;
        assert!(!guidance.keep("shop", &entry(12, "z")), "some node would not know what that is");
    }
}
