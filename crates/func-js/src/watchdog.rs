//! The last resort against a handler that no limit ends: somebody outside looks at what each core runs.
//!
//! Each engine tells the number of the turn it runs, by one atomic store at the turn's begin and end. It also tells
//! what the turn's transaction had used before. A [`Watchdog::look`] that meets the same turn again compares how much
//! CPU time the thread has used since, and adds what was used before. A transaction far past its limit switches off the
//! service whose turn it is, on all cores: from its next entry on, each call of it is refused until the app is deployed
//! again. Nothing can end the turn itself.
//!
//! A service is known by its app, its name and a hash of the app's code and limits. So a deployment of
//! other code begins switched on, and the version before it stays off.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use millrace_base::{Error, ErrorCode};
use millrace_func::App;
use xxhash_rust::xxh3::Xxh3Default;

/// A turn is overdue when it has used so many times the CPU time that its app allows a call.
const TIMES: u64 = 10;

/// No turn is overdue before it has used this much: a collection of garbage may take ten times a small limit.
const LEAST_MS: u64 = 1_000;

/// Bits of a turn's number; the number of its service is above.
const TURN_BITS: u32 = 40;

/// Looks at the turns of all cores.
#[derive(Debug, Default)]
pub struct Watchdog {
    cores: Mutex<Vec<Weak<Core>>>,
    services: Mutex<HashMap<Service, Weak<Switch>>>,
}

/// A service that was switched off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overdue {
    /// Its app.
    pub app: String,
    /// Its name.
    pub service: String,
    /// CPU time that its turn has used at least.
    pub used_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Service {
    app: String,
    name: String,
    code: u64,
}

/// Whether a service may run; the same for all cores.
#[derive(Debug)]
pub(crate) struct Switch {
    service: Service,
    cpu_ms: u64,
    is_off: AtomicBool,
}

/// What one core runs.
#[derive(Debug)]
pub(crate) struct Core {
    /// How the system numbers its thread.
    thread: u64,
    /// The service's number plus one, and the turn's number; 0 between turns.
    running: AtomicU64,
    /// CPU time that the turn's transaction had used when the turn began.
    before_ns: AtomicU64,
    /// The services, by number.
    switches: Mutex<Vec<Option<Arc<Switch>>>>,
    /// The turn that the last look met, and the CPU time that the thread had used then.
    met: Mutex<(u64, u64)>,
}

/// A service's number on one core, while it lives.
#[derive(Debug)]
pub(crate) struct WatchedService {
    core: Arc<Core>,
    number: u32,
}

impl Drop for WatchedService {
    fn drop(&mut self) {
        if let Some(switch) = lock(&self.core.switches).get_mut(self.number as usize) {
            *switch = None;
        }
    }
}

impl WatchedService {
    /// A turn of the service begins. No two turns of a core have one number. Its transaction has used `before_ns`.
    #[inline]
    pub(crate) fn enter(&self, turn: u64, before_ns: u64) -> Running<'_> {
        // A look that sees the new turn with the time of the one before finds the right time when it meets the turn again.
        self.core.before_ns.store(before_ns, Ordering::Relaxed);
        let turn = turn & ((1 << TURN_BITS) - 1);
        self.core.running.store((u64::from(self.number) + 1) << TURN_BITS | turn, Ordering::Relaxed);
        Running(&self.core)
    }
}

/// While it lives, a turn runs.
pub(crate) struct Running<'a>(&'a Core);

impl Drop for Running<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.running.store(0, Ordering::Relaxed);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watchdog {
    /// Switches off the services whose turns are overdue, and says which. `thread_cpu_ns` gives the CPU time that a thread has used.
    pub fn look(&self, thread_cpu_ns: impl Fn(u64) -> Option<u64>) -> Vec<Overdue> {
        let cores: Vec<Arc<Core>> = lock(&self.cores).iter().filter_map(Weak::upgrade).collect();
        cores.iter().filter_map(|core| core.look(&thread_cpu_ns)).collect()
    }

    pub(crate) fn add_core(&self, thread: u64) -> Arc<Core> {
        let core = Arc::new(Core {
            thread,
            running: AtomicU64::new(0),
            before_ns: AtomicU64::new(0),
            switches: Mutex::default(),
            met: Mutex::default(),
        });
        let mut cores = lock(&self.cores);
        cores.retain(|core| core.strong_count() > 0);
        cores.push(Arc::downgrade(&core));
        core
    }

    /// The switch of a service. A new deployment turns it on.
    pub(crate) fn switch(&self, app: &App, code: u64, name: &str) -> Arc<Switch> {
        let service = Service { app: app.name.as_str().to_owned(), name: name.to_owned(), code };
        let mut services = lock(&self.services);
        services.retain(|_, switch| switch.strong_count() > 0);
        let known = services.get(&service).and_then(Weak::upgrade);
        let switch = known.unwrap_or_else(|| {
            let new = Switch { service: service.clone(), cpu_ms: app.limits.cpu_ms, is_off: AtomicBool::new(false) };
            let new = Arc::new(new);
            services.insert(service, Arc::downgrade(&new));
            new
        });
        if !app.is_kept {
            switch.is_off.store(false, Ordering::Relaxed);
        }
        switch
    }
}

impl Switch {
    /// What a call gets while the service is switched off.
    #[inline]
    pub(crate) fn refusal(&self) -> Option<Error> {
        self.is_off.load(Ordering::Relaxed).then(|| self.off_error())
    }

    #[cold]
    fn off_error(&self) -> Error {
        let Service { app, name, .. } = &self.service;
        let message = format!(
            "{app}/{name} is switched off, for one of its calls used more than {TIMES} times its CPU time and could not \
             be ended; deploy the app again to switch it on"
        );
        Error::new(ErrorCode::CpuLimit, message)
    }

    /// CPU time after which a turn is overdue.
    fn overdue_ms(&self) -> u64 {
        self.cpu_ms.saturating_mul(TIMES).max(LEAST_MS)
    }
}

impl Core {
    /// Takes a service in.
    pub(crate) fn add(self: &Arc<Self>, switch: Arc<Switch>) -> WatchedService {
        let mut switches = lock(&self.switches);
        let free = switches.iter().position(Option::is_none).unwrap_or(switches.len());
        if free == switches.len() {
            switches.push(None);
        }
        switches[free] = Some(switch);
        // Services fit in memory, and so their number in 23 bits.
        WatchedService { core: Arc::clone(self), number: free as u32 }
    }

    fn look(&self, thread_cpu_ns: impl Fn(u64) -> Option<u64>) -> Option<Overdue> {
        let running = self.running.load(Ordering::Relaxed);
        let mut met = lock(&self.met);
        if running == 0 {
            *met = (0, 0);
            return None;
        }
        let now_ns = thread_cpu_ns(self.thread)?;
        let (met_turn, met_ns) = *met;
        if met_turn != running {
            *met = (running, now_ns);
            return None;
        }
        let number = usize::try_from((running >> TURN_BITS) - 1).ok()?;
        let switch = lock(&self.switches).get(number)?.clone()?;
        let before_ns = self.before_ns.load(Ordering::Relaxed);
        let used_ms = before_ns.saturating_add(now_ns.saturating_sub(met_ns)) / 1_000_000;
        if used_ms < switch.overdue_ms() || switch.is_off.swap(true, Ordering::Relaxed) {
            return None;
        }
        let Service { app, name, .. } = &switch.service;
        Some(Overdue { app: app.clone(), service: name.clone(), used_ms })
    }
}

/// What tells the code and limits of an app from those of another version.
pub(crate) fn code_of(app: &App) -> u64 {
    let mut hash = Xxh3Default::new();
    for (path, text) in &app.files {
        for part in [path.as_bytes(), text] {
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part);
        }
    }
    hash.update(format!("{:?}", app.limits).as_bytes());
    hash.digest()
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_base::Name;
    use millrace_func::Limits;
    use std::cell::Cell;

    fn app(text: &str, cpu_ms: u64, is_kept: bool) -> App {
        App {
            files: [("cart.ts".to_owned(), text.as_bytes().to_vec())].into(),
            limits: Limits { cpu_ms, ..Limits::default() },
            is_kept,
            ..App::new(Name::new("shop").expect("a name"))
        }
    }

    fn switch(watchdog: &Watchdog, app: &App) -> Arc<Switch> {
        watchdog.switch(app, code_of(app), "cart")
    }

    #[test]
    fn a_turn_is_overdue_by_its_own_cpu_time() {
        let watchdog = Watchdog::default();
        let app = app("1", 200, false);
        let (core, other) = (watchdog.add_core(7), watchdog.add_core(8));
        let [place, _other] = [&core, &other].map(|core| core.add(switch(&watchdog, &app)));
        let used_ms = Cell::new(5_000);
        let look = || watchdog.look(|thread| (thread == 7).then(|| used_ms.get() * 1_000_000));
        {
            let _running = place.enter(1, 0);
            assert_eq!(look(), []);
            used_ms.set(6_999);
            assert_eq!(look(), []);
        }
        assert_eq!(look(), []);
        // Another turn counts from when it is met.
        let _running = place.enter(2, 100_000_000);
        used_ms.set(9_500);
        assert_eq!(look(), []);
        used_ms.set(11_399);
        assert_eq!(look(), [], "what its transaction used before is told apart from it");
        assert!(switch(&watchdog, &App { is_kept: true, ..app.clone() }).refusal().is_none());
        used_ms.set(11_400);
        assert_eq!(look(), [Overdue { app: "shop".into(), service: "cart".into(), used_ms: 2_000 }]);
        assert_eq!(look(), [], "told once");
        let refusal = switch(&watchdog, &App { is_kept: true, ..app.clone() }).refusal().expect("off on all cores");
        assert!(refusal.code == ErrorCode::CpuLimit && refusal.message.contains("shop/cart is switched off"));
    }

    #[test]
    fn a_deployment_switches_on_and_versions_are_apart() {
        let watchdog = Watchdog::default();
        let core = watchdog.add_core(1);
        let (before, after) = (app("1", 1, false), app("2", 1, false));
        let place = core.add(switch(&watchdog, &before));
        let running = place.enter(1, 0);
        let used_ms = Cell::new(0);
        let look = || watchdog.look(|_| Some(used_ms.get() * 1_000_000));
        assert_eq!(look(), []);
        used_ms.set(LEAST_MS - 1);
        assert_eq!(look(), [], "a small limit has a least");
        used_ms.set(LEAST_MS);
        assert_eq!(look().len(), 1);
        assert!(switch(&watchdog, &after).refusal().is_none());
        assert!(switch(&watchdog, &App { is_kept: true, ..before.clone() }).refusal().is_some());
        assert!(switch(&watchdog, &before).refusal().is_none());
        // A place that became free is used again.
        drop(running);
        let number = place.number;
        drop(place);
        assert_eq!(core.add(switch(&watchdog, &after)).number, number);
    }
}
