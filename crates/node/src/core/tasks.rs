//! A core's own tasks: the pump between rounds, the messages of other threads, the clock.

use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::MissedTickBehavior;

use crate::core::{Core, SharedCore};

/// How often timers, memory and the checkpoint are looked after.
const TICK_MS: u64 = 50;

/// How its replicas are is counted for `/metrics` once in so many ticks: once a second.
const FIGURES_TICKS: u64 = 20;

/// Messages of other threads taken at once.
const MESSAGES_PER_TURN: usize = 256;

/// Ends each round. The round's first request wakes the pump, so the runtime polls it after every task that was ready
/// then. One batch takes the effects of all of them.
pub(crate) async fn run_pump(core: SharedCore) {
    let pump = core.borrow().platform.pump.clone();
    loop {
        pump.notified().await;
        let has_more = {
            let mut core = core.borrow_mut();
            let has_more = core.end_round();
            core.platform.flush_links();
            if std::mem::take(&mut core.platform.has_opened)
                && let Some(cluster) = core.platform.shared.cluster.clone()
            {
                // Whoever hands shards on waits for that.
                cluster.note_condition(core.index(), cluster.condition_of(&core));
                cluster.speak_soon();
            }
            has_more
        };
        if has_more {
            // Lets the runtime read new input first, so that it can be refused in time.
            tokio::task::yield_now().await;
            pump.notify_one();
        }
    }
}

/// Handles what other threads say, until the node stops: as much as a round may take, then connections have their turn.
pub(crate) async fn run_messages<M>(core: SharedCore, mut messages: UnboundedReceiver<M>, handle: fn(&mut Core, M)) {
    let mut buffer = Vec::with_capacity(MESSAGES_PER_TURN);
    while messages.recv_many(&mut buffer, MESSAGES_PER_TURN).await > 0 {
        let mut rest = buffer.drain(..).peekable();
        while rest.peek().is_some() {
            core.borrow_mut().handle_for_a_round(&mut rest, handle);
            tokio::task::yield_now().await;
        }
    }
}

/// Looks after what depends on time.
pub(crate) async fn run_ticks(core: SharedCore) {
    let mut interval = tokio::time::interval(Duration::from_millis(TICK_MS));
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut ticks = 0_u64;
    loop {
        interval.tick().await;
        let mut core = core.borrow_mut();
        core.tick();
        if let Some(cluster) = core.platform.shared.cluster.clone() {
            cluster.note_condition(core.index(), cluster.condition_of(&core));
            cluster.forget_one(&mut core);
            if ticks.is_multiple_of(FIGURES_TICKS) {
                cluster.note_figures(&mut core);
            }
            ticks += 1;
        }
    }
}
