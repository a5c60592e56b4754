//! What `ctx` does in workflows: wait for time, signals and steps. The host refuses it elsewhere.

use millrace_base::{Error, ErrorCode, limits};
use millrace_func::StepStart;

use crate::isolate::Isolate;
use crate::js::{Atom, Kind, Raw, Thrown, UNDEFINED, Value, is_nullish, kind};
use crate::native::{Call, Entry, NativeOwner};
use crate::operations::{Answer, Operation};
use crate::steps::{Code, RunningStep};

pub(crate) const ENTRIES: &[Entry] = &[
    (NativeOwner::Context, "sleep", 1, sleep),
    (NativeOwner::Context, "wait", 1, wait),
    (NativeOwner::Context, "result", 1, result),
    (NativeOwner::Context, "signal", 2, signal),
    (NativeOwner::Context, "step", 2, step),
    (NativeOwner::Context, "compensate", 3, compensate),
    (NativeOwner::ContextGetter, "id", 0, id),
];

/// Bytes of an invocation's id: more than any id has, so that a mistaken argument is told at once.
const ID_BYTES: usize = 256;

impl Isolate {
    /// Milliseconds, from 0 to [`limits::DELAY_MS`].
    pub(crate) fn milliseconds(&self, raw: Raw, what: &str) -> Result<u64, Thrown> {
        match kind(raw) {
            Kind::Int(delay) if delay >= 0 => Ok(delay as u64),
            // The range makes the conversion exact but for the fraction.
            Kind::Float(delay) if (0.0..=limits::DELAY_MS as f64).contains(&delay) => Ok(delay as u64),
            _ => {
                let most = limits::DELAY_MS;
                let message = format!("{what} must be a number of milliseconds from 0 to {most} (ten years)");
                Err(self.context.throw_type(&message))
            }
        }
    }

    /// The name of a step or signal: a string of 1 to [`limits::STEP_NAME_BYTES`] bytes.
    fn step_name(&self, raw: Raw, what: &str) -> Result<String, Thrown> {
        self.bounded_text(raw, what, limits::STEP_NAME_BYTES)
    }

    /// An invocation's id, as far as its length tells.
    pub(crate) fn invocation_id(&self, raw: Raw) -> Result<String, Thrown> {
        self.bounded_text(raw, "an invocation's id", ID_BYTES)
    }

    fn bounded_text(&self, raw: Raw, what: &str, most_bytes: usize) -> Result<String, Thrown> {
        if kind(raw) != Kind::String {
            return Err(self.context.throw_type(&format!("{what} must be a string")));
        }
        let text = self.context.text(raw)?;
        self.check_utf8(&text)?;
        if text.bytes().is_empty() || text.bytes().len() > most_bytes {
            let message = format!("{what} has 1 to {most_bytes} bytes, not {}", text.bytes().len());
            return Err(self.throw_error(Error::new(ErrorCode::SizeLimit, message)));
        }
        Ok(text.to_string_lossy())
    }

    /// Refuses options that are no object or have a property that is none of `known`: a
    /// misspelt timeout would otherwise be no timeout. False when there are no options.
    pub(crate) fn check_options(&self, options: Raw, known: &[(Atom, &str)], of: &str) -> Result<bool, Thrown> {
        if is_nullish(options) {
            return Ok(false);
        }
        let names: Vec<&str> = known.iter().map(|(_, name)| *name).collect();
        if kind(options) != Kind::Object {
            let message = format!("the options of {of} are an object: {{ {} }}", names.join(", "));
            return Err(self.context.throw_type(&message));
        }
        for name in self.own_names(options)?.iter() {
            if !known.iter().any(|(atom, _)| *atom == name) {
                let message = format!("{of} has only the options {}", names.join(", "));
                return Err(self.context.throw_type(&message));
            }
        }
        Ok(true)
    }
}

fn sleep(call: &Call<'_>) -> Result<Value, Thrown> {
    let isolate = call.isolate;
    isolate.check_context(call.this)?;
    let delay_ms = isolate.milliseconds(call.argument(0), "the time to sleep")?;
    isolate.check_operations()?;
    isolate.await_pause(|| isolate.with_host(|host| host.in_workflow("sleep")?.sleep(delay_ms)))
}

fn wait(call: &Call<'_>) -> Result<Value, Thrown> {
    let isolate = call.isolate;
    isolate.check_context(call.this)?;
    let name = isolate.step_name(call.argument(0), "a signal's name")?;
    let timeout_ms = timeout_of(call, "ctx.wait")?;
    isolate.check_operations()?;
    isolate.await_pause(|| isolate.with_host(|host| host.in_workflow("wait")?.wait(&name, timeout_ms)))
}

/// How long `of` waits at most, as its second argument says.
fn timeout_of(call: &Call<'_>, of: &str) -> Result<Option<u64>, Thrown> {
    let (isolate, options) = (call.isolate, call.argument(1));
    if !isolate.check_options(options, &[(isolate.atoms.timeout_ms, "timeoutMs")], of)? {
        return Ok(None);
    }
    let value = call.context.get(options, isolate.atoms.timeout_ms)?;
    if is_nullish(value.raw()) { Ok(None) } else { isolate.milliseconds(value.raw(), "timeoutMs").map(Some) }
}

fn result(call: &Call<'_>) -> Result<Value, Thrown> {
    let isolate = call.isolate;
    isolate.check_context(call.this)?;
    let invocation = isolate.invocation_id(call.argument(0))?;
    let timeout_ms = timeout_of(call, "ctx.result")?;
    isolate.check_operations()?;
    isolate.await_pause(|| isolate.with_host(|host| host.in_workflow("result")?.result(&invocation, timeout_ms)))
}

fn signal(call: &Call<'_>) -> Result<Value, Thrown> {
    let isolate = call.isolate;
    isolate.check_context(call.this)?;
    let invocation = isolate.invocation_id(call.argument(0))?;
    let name = isolate.step_name(call.argument(1), "a signal's name")?;
    let payload = isolate.input(call.argument(2))?;
    isolate.with_host(|host| host.signal(&invocation, &name, payload))?;
    Ok(call.context.own(UNDEFINED))
}

/// Notes the step; its code starts when the turn has nothing else to run.
fn step(call: &Call<'_>) -> Result<Value, Thrown> {
    let isolate = call.isolate;
    isolate.check_context(call.this)?;
    let name = isolate.step_name(call.argument(0), "a step's name")?;
    let function = call.argument(1);
    if !call.context.is_function(function) {
        return Err(call.context.throw_type("ctx.step takes a name and a function"));
    }
    isolate.check_operations()?;
    isolate.retry_next(call.argument(2), "ctx.step")?;
    let (promise, [resolve, reject]) = call.context.promise()?;
    let start = isolate.with_host(|host| host.in_workflow("step")?.begin_step(&name))?;
    let random = isolate.random_bits()?;
    let (StepStart::Run(id) | StepStart::Known(id)) = start;
    isolate.operations.borrow_mut().push(Operation {
        id,
        resolve: resolve.into_raw(),
        reject: reject.into_raw(),
        answer: Answer::Json,
        step: isolate.step.get(),
        is_pause: false,
    });
    if matches!(start, StepStart::Run(_)) {
        let code = Code::Queued(call.context.dup(function).into_raw());
        isolate.steps.borrow_mut().push(RunningStep { id, code, random });
    }
    Ok(promise)
}

fn compensate(call: &Call<'_>) -> Result<Value, Thrown> {
    let nested = crate::context_object::nested_call(call)?;
    call.isolate.with_host(|host| host.in_workflow("compensate")?.compensate(nested))?;
    Ok(call.context.own(UNDEFINED))
}

fn id(call: &Call<'_>) -> Result<Value, Thrown> {
    call.isolate.check_context(call.this)?;
    match call.isolate.with_host(|host| Ok(host.flow().map(|flow| flow.invocation())))? {
        Some(id) => call.context.string(id.as_bytes()),
        None => Ok(call.context.own(UNDEFINED)),
    }
}
