//! The engines of one core: one for each built-in app, one for apps of workers, and one for all other apps.
//!
//! Promises: a program and its activations stay with the engine that loaded the program. To find it costs one indexed
//! look, and nothing is allocated for apps without an engine of their own.
//!
//! Must not know what any of the engines runs.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;
use millrace_base::{Error, Name};

use crate::{
    ActivationId, Answer, App, Engine, HandlerId, Host, OperationId, Program, Reader, Service, Start, TurnResult,
    WorkerSlot,
};

/// Which engine: 0 is the one of all other apps, the others count from 1.
type Index = u8;

/// Which apps an engine runs.
#[derive(Clone, Copy)]
enum Chosen {
    /// The one of this name.
    Named(&'static str),
    /// Those with this file.
    With(&'static str),
}

/// An engine made of engines. See the module's documentation.
pub struct Engines {
    others: Rc<dyn Engine>,
    built_in: Vec<(Chosen, Box<dyn Engine>)>,
    /// By program number. It never shrinks, so a program that was unloaded is not taken for another engine's.
    programs: RefCell<Vec<Index>>,
    /// By activation number, as far as one of another engine than 0 has waited.
    waiting: RefCell<Vec<Index>>,
}

impl Engines {
    /// `others` runs every app that gets no engine of its own.
    #[must_use]
    pub fn new(others: Rc<dyn Engine>) -> Self {
        Self { others, built_in: Vec::new(), programs: RefCell::default(), waiting: RefCell::default() }
    }

    /// Has `engine` run the app of this name.
    ///
    /// # Panics
    /// With more than 255 engines.
    #[must_use]
    pub fn with(self, app: &'static str, engine: impl Engine + 'static) -> Self {
        self.chosen(Chosen::Named(app), engine)
    }

    /// Has `engine` run the apps that have a file of this name.
    ///
    /// # Panics
    /// With more than 255 engines.
    #[must_use]
    pub fn with_file(self, file: &'static str, engine: impl Engine + 'static) -> Self {
        self.chosen(Chosen::With(file), engine)
    }

    fn chosen(mut self, chosen: Chosen, engine: impl Engine + 'static) -> Self {
        assert!(self.built_in.len() < usize::from(Index::MAX), "a server has few engines");
        self.built_in.push((chosen, Box::new(engine)));
        self
    }

    fn of_app(&self, app: &App) -> Index {
        let runs = |(chosen, _): &(Chosen, _)| match chosen {
            Chosen::Named(name) => app.name.as_str() == *name,
            Chosen::With(file) => app.files.contains_key(*file),
        };
        let place = self.built_in.iter().position(runs);
        place.map_or(0, |place| u8::try_from(place + 1).unwrap_or_default())
    }

    #[inline]
    fn engine(&self, index: Index) -> &dyn Engine {
        match self.built_in.get(usize::from(index).wrapping_sub(1)) {
            Some((_, engine)) => &**engine,
            None => &*self.others,
        }
    }

    #[inline]
    fn of_program(&self, program: Program) -> &dyn Engine {
        self.engine(index_at(&self.programs, program.0))
    }

    /// Notes where an activation goes on, if it waits.
    #[inline]
    fn stepped(&self, activation: ActivationId, index: Index, step: TurnResult) -> TurnResult {
        let index = if matches!(step, TurnResult::Waiting) { index } else { 0 };
        note(&self.waiting, activation.0, index);
        step
    }
}

#[inline]
fn index_at(table: &RefCell<Vec<Index>>, number: u32) -> Index {
    table.borrow().get(number as usize).copied().unwrap_or_default()
}

/// What is behind a table's end is 0 already.
#[inline]
fn note(table: &RefCell<Vec<Index>>, number: u32, index: Index) {
    let (mut table, place) = (table.borrow_mut(), number as usize);
    match table.get_mut(place) {
        Some(known) => *known = index,
        None if index == 0 => {}
        None => {
            table.resize(place + 1, 0);
            table[place] = index;
        }
    }
}

impl Engine for Engines {
    fn load(&self, program: Program, app: &App) -> Result<(), Error> {
        let index = self.of_app(app);
        self.engine(index).load(program, app)?;
        note(&self.programs, program.0, index);
        Ok(())
    }

    fn services(&self, program: Program) -> Vec<Service> {
        self.of_program(program).services(program)
    }

    fn sweeps(&self, program: Program) -> Vec<(Name, u64)> {
        self.of_program(program).sweeps(program)
    }

    fn drops(&self, program: Program, service: &str, handler: &str) -> bool {
        self.of_program(program).drops(program, service, handler)
    }

    fn begun_again(&self, program: Program, service: &str, input: Bytes) -> Bytes {
        self.of_program(program).begun_again(program, service, input)
    }

    fn failure_of(&self, program: Program, service: &str, handler: &str, error: Error) -> Error {
        self.of_program(program).failure_of(program, service, handler, error)
    }

    fn close(&self, program: Program) -> Vec<Name> {
        self.of_program(program).close(program)
    }

    fn reopen(&self, program: Program) {
        self.of_program(program).reopen(program);
    }

    fn memory_bytes(&self, program: Program) -> usize {
        self.of_program(program).memory_bytes(program)
    }

    fn enter(&self, root: HandlerId) -> Option<WorkerSlot> {
        self.of_program(root.program).enter(root)
    }

    fn unload(&self, program: Program) {
        self.of_program(program).unload(program);
    }

    #[inline]
    fn answer(&self, query: HandlerId, input: &[u8], reader: &mut dyn Reader) -> Option<Result<Answer, Error>> {
        self.of_program(query.program).answer(query, input, reader)
    }

    #[inline]
    fn start(&self, activation: ActivationId, start: Start<'_>, host: &mut dyn Host) -> TurnResult {
        let index = index_at(&self.programs, start.program().0);
        let step = self.engine(index).start(activation, start, host);
        self.stepped(activation, index, step)
    }

    #[inline]
    fn resume(
        &self,
        activation: ActivationId,
        operation: OperationId,
        result: Result<Bytes, Error>,
        host: &mut dyn Host,
    ) -> TurnResult {
        let index = index_at(&self.waiting, activation.0);
        let step = self.engine(index).resume(activation, operation, result, host);
        self.stepped(activation, index, step)
    }

    fn cancel(&self, activation: ActivationId) {
        let index = index_at(&self.waiting, activation.0);
        note(&self.waiting, activation.0, 0);
        self.engine(index).cancel(activation);
    }
}

#[cfg(test)]
#[path = "engines_tests.rs"]
mod tests;
