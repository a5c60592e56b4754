//! Shards of the running node that fail alone, and are opened again.

use millrace_base::ShardId;

use super::{Checked, World};
use crate::node::Node;

impl World {
    /// A shard fails alone, if shards do so in this start of the node.
    pub(super) fn lose_one(&mut self, shard: ShardId) -> Checked {
        if self.is_calm || !self.node.as_ref().is_some_and(|node| node.fails_alone() && node.has(shard)) {
            return Ok(());
        }
        self.take_output()?;
        let Some(node) = self.node.as_mut() else { return Ok(()) };
        if let Some(lsn) = node.lose(shard, &mut self.rng) {
            self.note(|| format!("shard {shard} fails alone; LSN {lsn} is left"));
            if !self.plan.is_black_box {
                self.entries.lost_alone(shard, lsn)?;
            }
        }
        Ok(())
    }

    /// Each shard that is away may be opened now, and each core may hear of one that was.
    pub(super) fn open_some(&mut self) -> Checked {
        for core in 0..self.node.as_ref().map_or(0, Node::cores) {
            if let Some(node) = self.node.as_mut().filter(|node| node.has_news(core))
                && self.rng.chance(1, 6)
            {
                node.hear_news(core);
            }
        }
        for shard in self.node.as_ref().map(|node| node.lost()).unwrap_or_default() {
            if self.rng.chance(1, 6) {
                self.open(shard)?;
            }
        }
        Ok(())
    }

    /// All shards have been there for some seconds, and all cores have heard so: nobody waits for what one has lost.
    ///
    /// # Errors
    /// How many wait.
    pub(super) fn look_for_those_who_wait(&self) -> Checked {
        let waiting = self.node.as_ref().filter(|node| node.fails_alone() && !node.needs_restart()).map(Node::waiting);
        match waiting.unwrap_or(0) {
            0 => Ok(()),
            waiting => Err(format!("{waiting} transactions wait, seconds after the last shard was opened again")),
        }
    }

    pub(super) fn open_all(&mut self) -> Checked {
        for shard in self.node.as_ref().map(|node| node.lost()).unwrap_or_default() {
            self.open(shard)?;
        }
        for core in 0..self.node.as_ref().map_or(0, Node::cores) {
            while let Some(node) = self.node.as_mut().filter(|node| node.has_news(core)) {
                node.hear_news(core);
            }
        }
        Ok(())
    }

    fn open(&mut self, shard: ShardId) -> Checked {
        if let Some(node) = self.node.as_mut() {
            node.open(shard);
        }
        self.note(|| format!("shard {shard} is opened again"));
        self.take_output()?;
        let is_whole = self.node.as_ref().is_some_and(|node| node.is_whole() && !node.needs_restart());
        if is_whole { self.check_while_it_runs() } else { Ok(()) }
    }
}
