//! The engine: programs, their services' isolates, and the activations that wait.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use millrace_base::limits::{KEPT_LOAD_CPU_MS, LOAD_CPU_MS};
use millrace_base::{Error, ErrorCode};
use millrace_func::{ActivationId, App, Engine, Host, Limits, OperationId, Program, Service, Start, TurnResult};

use crate::Clocks;
use crate::directory::Directory;
use crate::isolate::{Isolate, Parts};
use crate::number_hasher::NumberHasher;
use crate::sources::{ServiceFile, Sources, service_files};
use crate::turn::{TurnEnd, Waiting};
use crate::watchdog::{Core, Running, Switch, Watchdog, WatchedService, code_of};

/// Services of one app: what a [`millrace_func::HandlerId`] can tell apart.
const SERVICES: usize = 65_535;

/// Runs TypeScript and JavaScript. See the crate's documentation.
pub struct JsEngine {
    clocks: Clocks,
    /// Indexed by [`Program`]; never shrinks, so that a program's number is never used again.
    programs: RefCell<Vec<Option<Loaded>>>,
    activations: RefCell<HashMap<u32, WaitingActivation, BuildHasherDefault<NumberHasher>>>,
    /// The number of the last activation that was started, over all isolates.
    last_serial: Cell<usize>,
    /// Knows which services are switched off.
    watchdog: Arc<Watchdog>,
    /// What it sees of this engine.
    core: Arc<Core>,
    /// Turns so far.
    turns: Cell<u64>,
}

/// A loaded app.
struct Loaded {
    limits: Rc<Limits>,
    sources: Rc<Sources>,
    directory: Rc<OnceCell<Directory>>,
    services: Vec<Slot>,
}

/// The place of a service's isolate, which is replaced when a call spoiled it.
struct Slot {
    file: ServiceFile,
    switch: Arc<Switch>,
    place: WatchedService,
    isolate: RefCell<Option<Box<Isolate>>>,
    /// Counts the isolates that were here. An activation of an earlier one cannot go on.
    epoch: Cell<u32>,
}

struct WaitingActivation {
    program: u32,
    service: u16,
    epoch: u32,
    activation: Box<Waiting>,
}

impl JsEngine {
    /// An engine without programs. It belongs to the thread that makes it, whose native stack must
    /// exceed the largest `limits.stack_bytes` by 512 KiB.
    #[must_use]
    pub fn new(clocks: Clocks) -> Self {
        Self::watched(clocks, &Arc::default(), 0)
    }

    /// As [`JsEngine::new`], for an engine whose turns `watchdog` looks at. It knows the engine's thread by the number `thread`.
    #[must_use]
    pub fn watched(clocks: Clocks, watchdog: &Arc<Watchdog>, thread: u64) -> Self {
        Self {
            clocks,
            programs: RefCell::new(Vec::new()),
            activations: RefCell::new(HashMap::default()),
            last_serial: Cell::new(0),
            watchdog: Arc::clone(watchdog),
            core: watchdog.add_core(thread),
            turns: Cell::new(0),
        }
    }

    #[inline]
    fn begin_turn<'a>(&self, slot: &'a Slot, host: &dyn Host) -> Running<'a> {
        self.turns.set(self.turns.get() + 1);
        slot.place.enter(self.turns.get(), host.cpu_spent_ns())
    }

    fn step(
        &self,
        activation: ActivationId,
        place: (u32, u16),
        slot: &Slot,
        end: TurnEnd,
        is_spoiled: bool,
    ) -> TurnResult {
        if is_spoiled {
            slot.isolate.replace(None);
            slot.epoch.set(slot.epoch.get().wrapping_add(1));
        }
        match end {
            TurnEnd::Done(result) => TurnResult::Done(result),
            TurnEnd::Waits(waiting) => {
                let (program, service) = place;
                let waiting = WaitingActivation { program, service, epoch: slot.epoch.get(), activation: waiting };
                self.activations.borrow_mut().insert(activation.0, waiting);
                TurnResult::Waiting
            }
        }
    }
}

fn unknown_program() -> Error {
    Error::new(ErrorCode::Internal, "the engine has no such program or service")
}

impl Loaded {
    fn parts(&self, clocks: Clocks) -> Parts<'_> {
        Parts { clocks, limits: &self.limits, sources: &self.sources, directory: &self.directory }
    }

    fn new_isolate(
        &self,
        clocks: Clocks,
        file: &ServiceFile,
        (is_new, cpu_ms): (bool, u64),
    ) -> Result<(Box<Isolate>, Service), Error> {
        let isolate = Isolate::new(&self.parts(clocks))?;
        let service = isolate.load_service(file, is_new, cpu_ms)?;
        Ok((isolate, service))
    }

    /// Makes the isolate anew where a call has spoiled it.
    #[cold]
    fn refill(&self, clocks: Clocks, index: usize) -> Result<(), Error> {
        let slot = &self.services[index];
        let (isolate, service) = self.new_isolate(clocks, &slot.file, (false, LOAD_CPU_MS))?;
        let known = self.directory.get().and_then(|directory| directory.services().get(index));
        if known != Some(&service) {
            let message = format!("{} exported something else when it was loaded again", slot.file.path);
            return Err(Error::new(ErrorCode::FunctionFailed, message));
        }
        slot.isolate.replace(Some(isolate));
        Ok(())
    }
}

impl Engine for JsEngine {
    fn load(&self, program: Program, app: &App) -> Result<(), Error> {
        let place = program.0 as usize;
        if self.programs.borrow().get(place).is_some_and(Option::is_some) {
            return Err(Error::new(ErrorCode::Internal, "the program's number is taken"));
        }
        let files = service_files(app)?;
        if files.is_empty() || files.len() > SERVICES {
            let message = "the app has no service: put a .ts or .js file at the top of its folder";
            return Err(Error::new(ErrorCode::AppRefused, message));
        }
        let sources = Rc::new(Sources::read(app, &files)?);
        let mut loaded = Loaded {
            limits: Rc::new(app.limits.clone()),
            sources,
            directory: Rc::new(OnceCell::new()),
            services: Vec::new(),
        };
        let cpu_ms = if app.is_kept { KEPT_LOAD_CPU_MS } else { LOAD_CPU_MS };
        let mut services = Vec::with_capacity(files.len());
        let code = code_of(app);
        for file in files {
            let (isolate, service) = loaded.new_isolate(self.clocks, &file, (!app.is_kept, cpu_ms))?;
            let switch = self.watchdog.switch(app, code, service.name.as_str());
            let switch_place = self.core.add(Arc::clone(&switch));
            services.push(service);
            loaded.services.push(Slot {
                file,
                switch,
                place: switch_place,
                isolate: RefCell::new(Some(isolate)),
                epoch: Cell::new(0),
            });
        }
        // Nobody has set it: it was made above.
        let _ = loaded.directory.set(Directory::new(program, services));
        let mut programs = self.programs.borrow_mut();
        if programs.len() <= place {
            // Numbers count the node's deployments, so few are left out.
            programs.resize_with(place + 1, || None);
        }
        programs[place] = Some(loaded);
        Ok(())
    }

    fn services(&self, program: Program) -> Vec<Service> {
        let programs = self.programs.borrow();
        let loaded = programs.get(program.0 as usize).and_then(Option::as_ref);
        loaded.and_then(|loaded| loaded.directory.get()).map_or_else(Vec::new, |known| known.services().to_vec())
    }

    /// Bytes that the isolates of a program hold.
    fn memory_bytes(&self, program: Program) -> usize {
        let programs = self.programs.borrow();
        let Some(Some(loaded)) = programs.get(program.0 as usize) else {
            return 0;
        };
        let used_by = |isolate: &Isolate| isolate.heap.used_bytes() + isolate.values.used_bytes();
        let used = |slot: &Slot| slot.isolate.borrow().as_deref().map_or(0, used_by);
        loaded.services.iter().map(used).sum()
    }

    fn unload(&self, program: Program) {
        self.activations.borrow_mut().retain(|_, activation| activation.program != program.0);
        if let Some(loaded) = self.programs.borrow_mut().get_mut(program.0 as usize) {
            *loaded = None;
        }
    }

    fn start(&self, activation: ActivationId, start: Start<'_>, host: &mut dyn Host) -> TurnResult {
        let (program, service) = match &start {
            Start::Handler { id, .. } => (id.program, id.service),
            Start::Route { id, .. } => (id.program, id.service),
        };
        let programs = self.programs.borrow();
        let loaded = programs.get(program.0 as usize).and_then(Option::as_ref);
        let Some((loaded, slot)) = loaded.and_then(|l| l.services.get(usize::from(service)).map(|slot| (l, slot)))
        else {
            return TurnResult::Done(Err(unknown_program()));
        };
        if let Some(refusal) = slot.switch.refusal() {
            return TurnResult::Done(Err(refusal));
        }
        let mut isolate = slot.isolate.borrow();
        if isolate.is_none() {
            drop(isolate);
            if let Err(error) = loaded.refill(self.clocks, usize::from(service)) {
                return TurnResult::Done(Err(error));
            }
            isolate = slot.isolate.borrow();
        }
        let Some(running) = isolate.as_deref() else {
            return TurnResult::Done(Err(unknown_program()));
        };
        let serial = self.last_serial.get() + 1;
        self.last_serial.set(serial);
        let turn = self.begin_turn(slot, host);
        let end = match start {
            Start::Handler { id, key, input } => {
                running.start_handler(serial, usize::from(id.handler), key, input, host)
            }
            Start::Route { id, request } => running.start_route(serial, usize::from(id.route), request, host),
        };
        drop(turn);
        let is_spoiled = running.is_spoiled();
        drop(isolate);
        self.step(activation, (program.0, service), slot, end, is_spoiled)
    }

    fn resume(
        &self,
        activation: ActivationId,
        operation: OperationId,
        result: Result<Bytes, Error>,
        host: &mut dyn Host,
    ) -> TurnResult {
        let Some(waiting) = self.activations.borrow_mut().remove(&activation.0) else {
            return TurnResult::Done(Err(Error::new(ErrorCode::Internal, "a frame was resumed that does not wait")));
        };
        let programs = self.programs.borrow();
        let loaded = programs.get(waiting.program as usize).and_then(Option::as_ref);
        let Some(slot) = loaded.and_then(|loaded| loaded.services.get(usize::from(waiting.service))) else {
            return TurnResult::Done(Err(unknown_program()));
        };
        let isolate = slot.isolate.borrow();
        let running = isolate.as_deref().filter(|_| slot.epoch.get() == waiting.epoch);
        let Some(running) = running else {
            let message = "the service was restarted because another call broke a limit; try again";
            return TurnResult::Done(Err(Error::new(ErrorCode::Overloaded, message)));
        };
        if let Some(refusal) = slot.switch.refusal() {
            waiting.activation.release(running);
            return TurnResult::Done(Err(refusal));
        }
        let turn = self.begin_turn(slot, host);
        let end = running.resume_activation(waiting.activation, operation, result, host);
        drop(turn);
        let is_spoiled = running.is_spoiled();
        drop(isolate);
        self.step(activation, (waiting.program, waiting.service), slot, end, is_spoiled)
    }

    fn cancel(&self, activation: ActivationId) {
        let Some(waiting) = self.activations.borrow_mut().remove(&activation.0) else {
            return;
        };
        let programs = self.programs.borrow();
        let loaded = programs.get(waiting.program as usize).and_then(Option::as_ref);
        let Some(slot) = loaded.and_then(|loaded| loaded.services.get(usize::from(waiting.service))) else {
            return;
        };
        if slot.epoch.get() == waiting.epoch
            && let Some(isolate) = slot.isolate.borrow().as_deref()
        {
            waiting.activation.release(isolate);
        }
    }
}
