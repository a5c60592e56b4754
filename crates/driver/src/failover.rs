//! A shard that is lost alone, and opened again: here, or on another node, while the shards around it go on.
//!
//! What the shard had in memory is gone, and so are the entries that were not durable. The platform must not let those
//! entries become durable later: the opened shard gives their LSNs to other entries.

use millrace_base::ShardId;
use millrace_shard::{Input, Shard};

use crate::core::Core;
use crate::message::ShardMail;
use crate::outputs::Event;
use crate::platform::Platform;

impl<P: Platform> Core<P> {
    /// Gives up a shard of this core. Whoever waits for its answer is told that nobody knows what became of the request.
    /// Requests that come while the shard is away are refused.
    pub fn give_up_shard(&mut self, id: ShardId) {
        let Some(shard) = self.shards.get_mut(usize::from(id.0)).and_then(Option::take) else {
            return;
        };
        if let Err(reason) = self.with_world(None, |_, world| shard.give_up(world)) {
            tracing::error!(shard = id.0, reason, "giving up the shard broke an invariant");
        }
        self.events.retain(|event| !matches!(event, Event::Peer { to, message } if *to == id || message.from == id));
        self.mail.retain(|mail| mail.shard() != id && sender_of(mail) != id);
        self.upkeep.forget(id);
        let held = self.pending.unanswered_by(id);
        self.give_up_requests(held, "the shard goes on at another node, or was opened again");
    }

    /// Takes a shard that was opened from its checkpoint and its log.
    pub fn take_shard(&mut self, shard: Shard) {
        let id = shard.id();
        self.read_clock();
        self.shards[usize::from(id.0)] = Some(shard);
        self.give(id, Input::Tick);
        self.handle_events();
    }

    /// A shard, of this core or another, was lost and is open again, as `incarnation`. To be told to every core, once for each
    /// opening, in their order.
    pub fn peer_opened(&mut self, opened: ShardId, incarnation: u64) {
        self.read_clock();
        for id in self.local_shards() {
            if id != opened {
                self.give(id, Input::PeerOpened { shard: opened, incarnation });
                self.handle_events();
            }
        }
    }
}

fn sender_of(mail: &ShardMail) -> ShardId {
    match mail {
        ShardMail::Message { delivery, .. } => delivery.from,
        ShardMail::Arrived { from, .. } => *from,
    }
}
