//! Keeps memory within its budget: a clock over the entities in memory.

use millrace_base::Lsn;

use crate::Store;
use crate::fields::Fields;
use crate::store::Residency;

impl Store {
    /// Drops clean entities, the clean fields of large dirty ones, and the oldest clean part of the append-only map. It
    /// stops when at most `target_resident_bytes` are held or nothing more can go. An entity touched since the clock's
    /// hand last passed is spared once.
    pub fn evict(&mut self, target_resident_bytes: usize) {
        // Two rounds: the first takes the second chances away, the second drops.
        let mut steps = u64::from(self.entities.end()) * 2;
        while self.sizes.resident > target_resident_bytes && steps > 0 {
            steps -= 1;
            let index = self.clock_hand;
            self.clock_hand = if index + 1 < self.entities.end() { index + 1 } else { 0 };
            let Some(entity) = self.entities.get_mut(index) else { continue };
            if entity.referenced {
                entity.referenced = false;
                continue;
            }
            if let Fields::AppendOnlyMap(append_only_map) = &mut entity.fields {
                if append_only_map.drop_oldest(target_resident_bytes, &mut self.sizes) {
                    entity.residency = Residency::Partial;
                }
                if self.sizes.resident <= target_resident_bytes {
                    return;
                }
            }
            if entity.last_write == Lsn::ZERO {
                self.remove(index);
            } else if let Fields::Many(many) = &mut entity.fields
                && many.drop_clean(&mut self.sizes)
            {
                entity.residency = Residency::Partial;
            }
        }
    }
}
