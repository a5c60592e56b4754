//! Shards that one living node hands to another. The next epoch is the heir's. The owner lets go when it has answered what it
//! had in hand. The heir says when it serves.

use crate::document::Guidance;
use crate::leader::Leader;

impl Leader {
    /// Notes which shards were handed on, and gives up on those that are not for too long, or whose heir is gone.
    pub(crate) fn note_handed_on(&mut self, now_ns: u64, next: &mut Guidance) {
        let mut handing = std::collections::BTreeMap::new();
        for shard in 0..next.shards.len() {
            let place = &next.shards[shard];
            if place.next == 0 {
                continue;
            }
            let serves = |heir: &crate::leader::Heard| {
                let mut opened = heir.status.opened.iter();
                opened.any(|opened| usize::from(opened.shard) == shard && opened.epoch == place.epoch + 1)
            };
            if self.audience.heard.get(&place.next).is_some_and(serves) {
                next.shards[shard].handed_on();
                continue;
            }
            let key = (shard, place.epoch);
            let since_ns = self.handing.get(&key).copied().unwrap_or(now_ns);
            let is_lost = !next.is_alive(place.next) || now_ns >= since_ns + self.timing.stuck_ns;
            if is_lost && next.is_alive(place.owner) {
                // An owner that serves goes on. One that does not has let go already, or has nothing to let go of.
                let heir_may = next.is_alive(place.next) && !self.has_stopped(place.next, shard);
                let goes_on = !heir_may || !self.has_obstacle(place.owner, shard, place.epoch);
                let owner = if goes_on { place.owner } else { place.next };
                next.shards[shard].appoint(owner);
            } else {
                handing.insert(key, since_ns);
            }
        }
        self.handing = handing;
    }
}
