//! What a message costs. Not a test of a promise: it prints figures.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use millrace_io::{RealRandom, thread_cpu_ns};
use millrace_peers::{Handler, Lane, LinkEvent, Links};
use millrace_replica::NodeId;

use crate::world::{Authority, CLUSTER, Node, Recorder, config, introduce};

/// Counts what comes, and the CPU time of its thread, which is that of the links.
#[derive(Default)]
struct Counter {
    messages: AtomicU64,
    cpu_ns: AtomicU64,
}

impl Handler for Counter {
    fn received(&self, _from: NodeId, _lane: Lane, _message: Bytes) {
        self.messages.fetch_add(1, Ordering::Relaxed);
    }

    fn settled(&self, _from: NodeId) {
        self.cpu_ns.store(thread_cpu_ns(), Ordering::Relaxed);
    }

    fn changed(&self, _node: NodeId, _event: LinkEvent) {}
}

/// Sends this many messages, so many before each flush, and never more than `window` that have not arrived.
fn measure(name: &str, bytes: usize, together: u64, window: u64, is_inline: bool) {
    const TIME: Duration = Duration::from_secs(2);
    let authority = Authority::new();
    let counter = Arc::new(Counter::default());
    let receiving = config(authority.identity(CLUSTER, 2), 2, 1, 0);
    let receiver = Links::start(receiving, &[], Arc::new(RealRandom), Arc::clone(&counter) as Arc<dyn Handler>);
    let receiver = Node { links: receiver.expect("it starts"), heard: Arc::new(Recorder::default()) };
    let sender = crate::world::start(&authority, 1, 1, 0);
    introduce(&[(1, sender.links.address()), (2, receiver.links.address())], &[&sender, &receiver]);
    sender.heard.wait_for_event(2, LinkEvent::Up { incarnation: 1 });
    let message = Bytes::from(vec![7; bytes]);
    let arrived = || counter.messages.load(Ordering::Relaxed);
    let (began, cpu_before, process_before) = (Instant::now(), thread_cpu_ns(), process_cpu());
    let mut sent = 0;
    while began.elapsed() < TIME {
        while sent - arrived() >= window {
            std::thread::yield_now();
        }
        for _ in 0..together {
            let to = NodeId(2);
            let queued = if is_inline {
                sender.links.queue(to, Lane::Core, message.clone())
            } else {
                sender.links.send(to, Lane::Core, message.clone())
            };
            sent += u64::from(queued.is_ok());
        }
        if is_inline {
            sender.links.flush(NodeId(2));
        }
    }
    let (elapsed, cpu) = (began.elapsed(), thread_cpu_ns() - cpu_before);
    let all = process_cpu() - process_before;
    let each = |ns: u64| ns as f64 / sent as f64 / 1_000.0;
    println!(
        "{name}: {bytes} bytes, {together} together, window {window}: {:.0} messages/s, CPU of both sides {:.2} µs a \
         message (caller {:.2} with its waiting, receiving thread {:.2})",
        sent as f64 / elapsed.as_secs_f64(),
        each(all.as_nanos() as u64),
        each(cpu),
        each(counter.cpu_ns.load(Ordering::Relaxed)),
    );
}

fn process_cpu() -> Duration {
    let mut total = 0;
    for task in std::fs::read_dir("/proc/self/task").expect("Linux").flatten() {
        let text = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        total += text.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0);
    }
    Duration::from_nanos(total)
}

#[test]
#[ignore = "prints figures: run by name, with --release -- --ignored --nocapture"]
fn cost_of_a_message() {
    for bytes in [100, 1_100] {
        for (together, window) in [(1, 1), (16, 16), (64, 1_024)] {
            measure("thread", bytes, together, window, false);
            measure("inline", bytes, together, window, true);
        }
    }
}
