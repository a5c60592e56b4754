//! A thread that looks at what the cores run, and switches off a service that no limit ends.

use std::sync::{Arc, Weak};
use std::time::Duration;

use millrace_func_js::Watchdog;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

const PERIOD: Duration = Duration::from_millis(250);

/// Linux tells programs of CPU time in hundredths of a second, on every architecture that we ship for.
const TICK_NS: u64 = 10_000_000;

/// Looks until the node is gone.
///
/// # Errors
/// If the system has no room for a thread.
pub(crate) fn watch(watchdog: &Arc<Watchdog>, registry: &mut Registry) -> std::io::Result<()> {
    let switched_off = Counter::<u64>::default();
    registry.register(
        "millrace_services_switched_off",
        "Services switched off because a call of them could not be ended",
        switched_off.clone(),
    );
    let watchdog = Arc::downgrade(watchdog);
    let look = move || {
        while let Some(watchdog) = Weak::upgrade(&watchdog) {
            for overdue in watchdog.look(thread_cpu_ns) {
                switched_off.inc();
                let (app, service, used_ms) = (overdue.app, overdue.service, overdue.used_ms);
                tracing::error!(
                    app,
                    service,
                    used_ms,
                    "a call keeps a core busy far past its CPU limit: its service is switched off"
                );
            }
            drop(watchdog);
            std::thread::sleep(PERIOD);
        }
    };
    std::thread::Builder::new().name("watchdog".to_owned()).spawn(look).map(drop)
}

/// What the watchdog calls the thread that asks.
pub(crate) fn this_thread() -> u64 {
    u64::from(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs())
}

/// CPU time of a thread of this process; `None` if it has ended.
fn thread_cpu_ns(thread: u64) -> Option<u64> {
    ticks(&std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).ok()?).map(|ticks| ticks * TICK_NS)
}

/// User and system time in `proc(5)`'s `stat`: fields 14 and 15. The name before them may hold spaces.
fn ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_knows_what_it_has_used() {
        assert_eq!(ticks("17 (a ) name) R 1 2 3 4 5 6 7 8 9 10 250 31 0 0"), Some(281));
        assert_eq!(ticks("17 (short) R 1"), None);
        let before = thread_cpu_ns(this_thread()).expect("a thread of this process");
        while thread_cpu_ns(this_thread()).expect("still there") < before + 3 * TICK_NS {}
        assert_eq!(thread_cpu_ns(u64::MAX), None);
    }
}
