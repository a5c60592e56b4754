//! TypeScript and JavaScript functions: [`millrace_func::Engine`] over QuickJS.
//!
//! Every service of every app has its own runtime and context on every core. They are made when the app is loaded, and
//! used for all its calls. A handler that returns a plain value costs one function call; one that awaits keeps its
//! promise here until the host resumes it.
//!
//! What user code meets:
//! * Built-in prototypes are frozen before it loads, so no call can change what another one sees
//!   through them; properties that programs do shadow (`error.name`, `object.toString`) still can
//!   be on objects of their own.
//! * No code from strings (`eval`, `Function`), no shared memory, no weak references, no timers.
//! * `Date.now`, `new Date()`, `Math.random` and `crypto` take time and chance from the invocation,
//!   so a retry sees the same; a module that loads has neither. Local time is UTC on every machine.
//! * What runs in a turn depends on the activation's input, on the host's answers and on the order of its resumes.
//!   Beside these it depends on the module's own variables only. That is what lets a workflow be replayed; see
//!   `steps.rs` for how the code of its steps is kept apart.
//! * A breach of the CPU, stack or memory limit ends the activation and cannot be caught. After a
//!   memory breach, and when an activation ended by force leaves jobs behind, the service's context is
//!   made anew for the next call: module state is lost, and activations that waited in it end with
//!   `overloaded` when they are resumed.
//!
//! Must not touch the store: all of the world comes through [`millrace_func::Host`]. Must not read
//! a clock but the two it is given ([`Clocks`]), and draws no randomness of its own.

mod bucket_object;
mod budget;
mod check;
mod context_object;
mod directory;
mod engine;
mod errors;
mod fetch_object;
mod forms;
mod headers;
mod heap;
mod host_scope;
mod isolate;
mod js;
mod json;
mod json_parse;
mod json_print;
mod loader;
mod logged;
mod native;
mod natives;
mod number_hasher;
mod operations;
mod record_object;
mod rejections;
mod reply;
mod request_object;
mod retry_options;
mod sources;
mod steps;
mod subject;
mod text_guard;
mod transpile;
mod turn;
mod value_cache;
mod watchdog;
mod workflow_object;

#[doc(hidden)]
pub use check::check_json;
pub use engine::JsEngine;
pub use watchdog::{Overdue, Watchdog};

/// The clocks that CPU limits are measured with.
#[derive(Clone, Copy, Debug)]
pub struct Clocks {
    /// Nanoseconds of a clock that never goes back; read once a turn, so it should be cheap.
    pub monotonic_ns: fn() -> u64,
    /// CPU time of the calling thread in nanoseconds; read only in turns of more than a
    /// millisecond, so that a thread the system preempted does not end an innocent call.
    pub thread_cpu_ns: fn() -> u64,
}

/// TypeScript declarations of the module `millrace` and of the globals, for editors and checkers.
#[must_use]
pub fn type_definitions() -> &'static str {
    include_str!("millrace.d.ts")
}
