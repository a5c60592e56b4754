//! The network between simulated cores: it delays, reorders, doubles and loses.
//!
//! Frames travel as bytes. What happens to a frame depends on its kind. Mail between shards is sent again until it has
//! arrived, so it may get lost. Messages about transactions may come twice. Requests and replies only come late.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use millrace_base::ShardId;
use millrace_driver::{CoreMessage, Frame, ShardMail};
use millrace_io::Net;

use crate::random::Rng;

/// What happens to a frame that is received.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fate {
    /// It comes before so many frames that were sent earlier, or before all of them if they are fewer.
    pub overtaken_by: usize,
    pub is_lost: bool,
    pub is_doubled: bool,
}

/// A frame that has come, and what happened on the way.
pub struct Received {
    pub frame: Frame,
    pub has_overtaken: bool,
    pub is_lost: bool,
    pub is_doubled: bool,
}

/// Frames on their way to each core, encoded.
#[derive(Clone, Default)]
pub struct SimNet {
    queues: Rc<RefCell<Vec<VecDeque<Vec<u8>>>>>,
}

impl SimNet {
    #[must_use]
    pub fn new(cores: usize) -> Self {
        Self { queues: Rc::new(RefCell::new(vec![VecDeque::new(); cores])) }
    }

    /// The next frame for a core.
    ///
    /// # Panics
    /// When a frame does not decode to what was sent.
    pub fn receive(&self, core: usize, fate: Fate) -> Option<Received> {
        let queue = &mut self.queues.borrow_mut()[core];
        let at = fate.overtaken_by.min(queue.len().saturating_sub(1));
        let bytes = queue.remove(at)?;
        let frame = Frame::decode(&bytes).expect("frames decode");
        assert_eq!(frame.encode(), bytes, "a frame means the same behind the network");
        let is_mail = matches!(frame, Frame::Mail(_));
        let is_peer = matches!(frame, Frame::Message(CoreMessage::Peer { .. }));
        let is_lost = fate.is_lost && is_mail;
        let is_message = matches!(frame, Frame::Mail(ShardMail::Message { .. }));
        let is_doubled = fate.is_doubled && !is_lost && (is_peer || is_message);
        if is_doubled && is_peer {
            // Its receiver takes it twice now, and once more behind everything else.
            queue.push_back(bytes);
        }
        Some(Received { frame, has_overtaken: at > 0, is_lost, is_doubled })
    }

    /// # Panics
    /// When there is no such core.
    pub fn send(&self, core: usize, frame: &Frame) {
        self.queues.borrow_mut()[core].push_back(frame.encode());
    }

    /// A shard is gone: of what is on its way between it and others, half is lost. The rest comes late. Gives how much is
    /// lost.
    ///
    /// # Panics
    /// When a frame does not decode.
    pub fn lose_frames_of(&self, shard: ShardId, rng: &mut Rng) -> usize {
        let mut lost = 0;
        for queue in self.queues.borrow_mut().iter_mut() {
            let before = queue.len();
            queue.retain(|bytes| {
                let frame = Frame::decode(bytes).expect("frames decode");
                !is_of(&frame, shard) || rng.chance(1, 2)
            });
            lost += before - queue.len();
        }
        lost
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queues.borrow().iter().all(VecDeque::is_empty)
    }
}

fn is_of(frame: &Frame, shard: ShardId) -> bool {
    match frame {
        Frame::Message(CoreMessage::Peer { to, message }) => *to == shard || message.from == shard,
        // A request or reply that is lost is not between shards: the core that waits for it is told.
        Frame::Message(_) => false,
        Frame::Mail(ShardMail::Message { to, delivery }) => *to == shard || delivery.from == shard,
        Frame::Mail(ShardMail::Arrived { to, from, .. }) => *to == shard || *from == shard,
    }
}

impl Net<CoreMessage> for SimNet {
    fn send(&self, peer: usize, frame: CoreMessage) -> bool {
        SimNet::send(self, peer, &Frame::Message(frame));
        true
    }
}

impl Net<ShardMail> for SimNet {
    fn send(&self, peer: usize, frame: ShardMail) -> bool {
        SimNet::send(self, peer, &Frame::Mail(frame));
        true
    }
}
