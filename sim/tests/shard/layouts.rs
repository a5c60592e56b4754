//! What may come when: which shards share a log, whether messages or disks come first, and what a crash
//! may leave of the logs' tails.

use millrace_sim::rig_logs::OnItsWay;

use crate::Rig;

/// Each shard writes a log of its own, as on a core of its own.
pub const EACH_ITS_OWN: &[u16] = &[0, 1, 2];

/// Of each of three shards, which log it writes: each its own, all one, and two of them one.
pub const LAYOUTS: [&[u16]; 4] = [EACH_ITS_OWN, &[0, 0, 0], &[0, 0, 1], &[0, 1, 1]];

/// All that may be left of tails of these lengths: of each log so many entries, the first ones.
pub fn every_choice(tails: &[usize]) -> Vec<Vec<usize>> {
    tails.iter().fold(vec![Vec::new()], |choices, tail| {
        let longer = |choice: &Vec<usize>| (0..=*tail).map(|kept| [&choice[..], &[kept]].concat()).collect::<Vec<_>>();
        choices.iter().flat_map(longer).collect()
    })
}

/// Who comes first when both could go on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Order {
    Messages,
    /// The newest one, and the last log.
    NewestMessages,
    Disks,
    /// Messages, and after every few steps a tick: whoever waits for a coordinator asks it.
    MessagesAndTicks,
}

pub const ORDERS: [Order; 4] = [Order::Messages, Order::NewestMessages, Order::Disks, Order::MessagesAndTicks];

/// Steps between two ticks: enough for what a tick makes shards say, and for an entry of each log.
const STEPS_PER_TICK: usize = 8;

/// One message is carried, or one entry gets to the disk, or a tick passes. What was carried is noted if a second
/// copy of it may come after a crash. Says whether anything was left.
pub fn advance(rig: &mut Rig, order: Order, step: usize, delivered: &mut Vec<OnItsWay>) -> bool {
    let tails = rig.tails();
    let behind = match order {
        Order::NewestMessages => tails.iter().rposition(|tail| *tail > 0),
        _ => tails.iter().position(|tail| *tail > 0),
    };
    let message = match order {
        Order::Disks if behind.is_some() => None,
        Order::NewestMessages => rig.peers.pop_back(),
        _ => rig.peers.pop_front(),
    };
    match (message, behind) {
        (Some((to, message)), _) => {
            if rig.outlives_a_core(to, &message) {
                delivered.push(OnItsWay::Peer(to, message.clone()));
            }
            rig.peer(to, message);
        }
        (None, Some(log)) => rig.make_entries_durable(log.try_into().expect("few"), 1),
        (None, None) => return false,
    }
    if order == Order::MessagesAndTicks && (step + 1).is_multiple_of(STEPS_PER_TICK) {
        rig.tick(1);
    }
    true
}
