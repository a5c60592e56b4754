//! Modules in QuickJS: imports resolved among the app's own sources, and a service's module
//! loaded and asked what it exports.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{self, NonNull};

use millrace_base::limits::SCHEDULES;
use millrace_base::{Error, ErrorCode, Name};
use millrace_func::{Cron, HandlerKind, Route, Schedule, Service};
use rquickjs::qjs;

use crate::isolate::{Exports, Isolate};
use crate::js::{Context, Kind, PromiseState, Raw, Thrown, UNDEFINED, Value, is_undefined, kind};
use crate::logged::Logged;
use crate::sources::{ServiceFile, refused};

/// Handlers and routes of one service: what a [`millrace_func::HandlerId`] can tell apart.
const EXPORTS: usize = 65_535;

/// A module that is compiled, with what it imports, and not yet run.
pub(crate) struct Compiled {
    value: Value,
    definition: *mut qjs::JSModuleDef,
}

/// Makes imports in `runtime` ask the isolate behind `opaque`.
///
/// # Safety
/// `opaque` points to the runtime's isolate, which outlives it.
pub(crate) unsafe fn install(runtime: NonNull<qjs::JSRuntime>, opaque: *mut c_void) {
    // SAFETY: by contract.
    unsafe {
        qjs::JS_SetModuleLoaderFunc2(runtime.as_ptr(), Some(normalize), Some(load), Some(check_attributes), opaque);
    }
}

/// Compiles a module and everything it imports.
pub(crate) fn compile(context: Context, name: &str, source: &str) -> Result<Compiled, Thrown> {
    let Ok(name) = CString::new(name) else {
        return Err(context.throw_type("a module's name contains NUL"));
    };
    let mut text = Vec::with_capacity(source.len() + 1);
    text.extend_from_slice(source.as_bytes());
    text.push(0);
    let flags = (qjs::JS_EVAL_TYPE_MODULE | qjs::JS_EVAL_FLAG_COMPILE_ONLY | qjs::JS_EVAL_FLAG_STRICT) as c_int;
    // SAFETY: the text outlives the call and ends with a NUL that is not counted. What is compiled
    // as a module is a module.
    unsafe {
        let raw = qjs::JS_Eval(context.as_ptr(), text.as_ptr().cast(), source.len() as _, name.as_ptr(), flags);
        let value = context.check(raw)?;
        let definition = qjs::JS_VALUE_GET_PTR(value.raw()).cast();
        Ok(Compiled { value, definition })
    }
}

/// A compiled module without imports as bytes that [`read_compiled`] takes; `None` when QuickJS
/// cannot write it.
pub(crate) fn write_compiled(context: Context, module: &Compiled) -> Option<Vec<u8>> {
    let flags = (qjs::JS_WRITE_OBJ_BYTECODE | qjs::JS_WRITE_OBJ_STRIP_SOURCE) as c_int;
    let mut size = 0;
    // SAFETY: QuickJS gives `size` bytes, which are copied before they are freed.
    unsafe {
        let bytes = qjs::JS_WriteObject(context.as_ptr(), &mut size, module.value.raw(), flags);
        if bytes.is_null() {
            drop(context.take_exception());
            return None;
        }
        let copy = std::slice::from_raw_parts(bytes, size as usize).to_vec();
        qjs::js_free(context.as_ptr(), bytes.cast());
        Some(copy)
    }
}

/// A module that [`write_compiled`] wrote in this process.
pub(crate) fn read_compiled(context: Context, bytes: &[u8]) -> Result<Compiled, Thrown> {
    let flags = qjs::JS_READ_OBJ_BYTECODE as c_int;
    // SAFETY: the bytes come from this very QuickJS, as it demands, and are copied.
    unsafe {
        let raw = qjs::JS_ReadObject(context.as_ptr(), bytes.as_ptr(), bytes.len() as _, flags);
        let value = context.check(raw)?;
        if qjs::JS_ResolveModule(context.as_ptr(), value.raw()) < 0 {
            return Err(Thrown);
        }
        let definition = qjs::JS_VALUE_GET_PTR(value.raw()).cast();
        Ok(Compiled { value, definition })
    }
}

/// Runs a module whose top level awaits nothing.
pub(crate) fn evaluate(context: Context, module: Compiled) -> Result<(), Thrown> {
    let promise = begin(context, module)?.0;
    match context.promise_state(promise.raw()) {
        PromiseState::Rejected(reason) => Err(context.throw(reason)),
        _ => Ok(()),
    }
}

/// Starts a module: a promise for its end, and its definition.
fn begin(context: Context, module: Compiled) -> Result<(Value, *mut qjs::JSModuleDef), Thrown> {
    let definition = module.definition;
    // SAFETY: the call takes over the module's reference; the context keeps the definition.
    let promise = context.check(unsafe { qjs::JS_EvalFunction(context.as_ptr(), module.value.into_raw()) })?;
    Ok((promise, definition))
}

/// The path that `name` means in the module `base`, or an exception.
unsafe extern "C" fn normalize(
    context: *mut qjs::JSContext,
    base: *const c_char,
    name: *const c_char,
    opaque: *mut c_void,
) -> *mut c_char {
    // SAFETY: QuickJS passes NUL-terminated names and the isolate that `install` was given.
    unsafe {
        let isolate = &*opaque.cast::<Isolate>();
        let (base, name) = (CStr::from_ptr(base).to_string_lossy(), CStr::from_ptr(name).to_string_lossy());
        match isolate.sources.resolve(&base, &name) {
            Ok(path) => qjs::js_strndup(context, path.as_ptr().cast(), path.len() as _),
            Err(message) => {
                isolate.context.throw_type(&message);
                ptr::null_mut()
            }
        }
    }
}

unsafe extern "C" fn load(
    _: *mut qjs::JSContext,
    name: *const c_char,
    opaque: *mut c_void,
    _attributes: Raw,
) -> *mut qjs::JSModuleDef {
    // SAFETY: as in `normalize`.
    let (isolate, name) = unsafe { (&*opaque.cast::<Isolate>(), CStr::from_ptr(name).to_string_lossy()) };
    let Some(module) = isolate.sources.module(&name) else {
        isolate.context.throw_type(&format!("the app has no module {name:?}"));
        return ptr::null_mut();
    };
    match compile(isolate.context, &name, &module.code) {
        // The context keeps its modules; our reference to this one is dropped.
        Ok(compiled) => compiled.definition,
        Err(Thrown) => ptr::null_mut(),
    }
}

unsafe extern "C" fn check_attributes(_: *mut qjs::JSContext, _: *mut c_void, _: Raw) -> c_int {
    // `with { type: "json" }` says nothing that the file's ending does not.
    0
}

impl Isolate {
    /// Loads the service's module and keeps what it exports. Names that look misspelt are refused where it is new.
    ///
    /// # Errors
    /// `app-refused`, naming the place.
    pub(crate) fn load_service(&self, file: &ServiceFile, is_new: bool, cpu_ms: u64) -> Result<Service, Error> {
        self.budget.begin_loading(cpu_ms * 1_000_000);
        self.logged.set(Logged::default());
        let described = self.load_exports(file, is_new);
        self.budget.end_loading();
        self.run_jobs();
        self.resume_panic();
        // What was refused says so already, with its place; what ended in a job that nothing awaited does not.
        if let (Ok(_), Some(reason)) = (&described, self.breach_while_loading()) {
            return Err(refused(&file.path, None, &reason));
        }
        let (service, exports) = described?;
        // A fresh isolate loads once.
        let _ = self.exports.set(exports);
        if self.keep_shapes().is_err() {
            return Err(self.refusal(&file.path));
        }
        self.keep_arenas();
        Ok(service)
    }

    fn load_exports(&self, file: &ServiceFile, is_new: bool) -> Result<(Service, Exports), Error> {
        let refuse = |Thrown| self.refusal(&file.path);
        let module = self.sources.module(&file.path);
        let code = module.map_or("", |module| module.code.as_str());
        let compiled = compile(self.context, &file.path, code).map_err(refuse)?;
        let (promise, definition) = begin(self.context, compiled).map_err(refuse)?;
        self.run_jobs();
        match self.context.promise_state(promise.raw()) {
            PromiseState::Fulfilled(_) => {}
            PromiseState::Rejected(reason) => return Err(refuse(self.context.throw(reason))),
            // In a job: what is interrupted there rejects nothing.
            PromiseState::Pending if self.budget.breach().is_some() => return Err(refuse(Thrown)),
            PromiseState::Pending => {
                return Err(refused(&file.path, None, "the module awaits something that never comes while it loads"));
            }
        }
        // SAFETY: the context keeps the module's definition.
        let namespace = self.context.check(unsafe { qjs::JS_GetModuleNamespace(self.context.as_ptr(), definition) });
        let namespace = namespace.map_err(refuse)?;
        let definition = self.context.get_named(namespace.raw(), c"default").map_err(refuse)?;
        let routes = self.context.get_named(namespace.raw(), c"routes").map_err(refuse)?;
        let schedules = self.context.get_named(namespace.raw(), c"schedules").map_err(refuse)?;
        let checked = if is_new { namespace.raw() } else { UNDEFINED };
        let mut arguments = [definition.raw(), routes.raw(), schedules.raw(), checked];
        let described = self.context.call(self.glue.describe, UNDEFINED, &mut arguments).map_err(refuse)?;
        let (service, mut exports) = self.read_description(file, described.raw())?;
        exports.service = (!is_undefined(definition.raw())).then(|| definition.into_raw());
        Ok((service, exports))
    }

    /// Reads what `describe` of `glue.js` found.
    fn read_description(&self, file: &ServiceFile, described: Raw) -> Result<(Service, Exports), Error> {
        let refuse = |Thrown| self.refusal(&file.path);
        let name = file.name.clone();
        let mut service = Service { name, handlers: Vec::new(), routes: Vec::new(), schedules: Vec::new() };
        let mut exports = Exports::default();
        let list = |index| self.context.get_index(described, index).map_err(refuse);
        let (handlers, routes, schedules) = (list(0)?, list(1)?, list(2)?);
        for row in self.rows(handlers.raw(), &file.path)? {
            let [name, handler_kind, function] = row;
            let text = self.context.text(name.raw()).map_err(refuse)?.to_string_lossy();
            let name = Name::new(&text).map_err(|error| refused(&file.path, None, &error.to_string()))?;
            let handler_kind = match kind(handler_kind.raw()) {
                Kind::Int(1) => HandlerKind::Query,
                Kind::Int(2) => HandlerKind::Workflow,
                _ => HandlerKind::Transaction,
            };
            service.handlers.push((name, handler_kind));
            exports.kinds.push(handler_kind);
            exports.handlers.push(function.into_raw());
        }
        for row in self.rows(routes.raw(), &file.path)? {
            let [method, path, function] = row;
            let text = |raw| self.context.text(raw).map(|text| text.to_string_lossy()).map_err(refuse);
            service.routes.push(Route { method: text(method.raw())?, path: text(path.raw())? });
            exports.routes.push(function.into_raw());
        }
        for row in self.rows(schedules.raw(), &file.path)? {
            service.schedules.push(self.read_schedule(&row, &file.path)?);
        }
        if service.schedules.len() > SCHEDULES {
            return Err(refused(&file.path, None, &format!("a service has at most {SCHEDULES} schedules")));
        }
        Ok((service, exports))
    }

    /// Reads one schedule: name, cron, handler, key and JSON input, as the glue checked them.
    fn read_schedule(&self, row: &[Value; 5], path: &str) -> Result<Schedule, Error> {
        let [name, cron, handler, key, input] = row;
        let text = |value: &Value| {
            let text = self.context.text(value.raw()).map_err(|Thrown| self.refusal(path))?;
            Ok::<_, Error>(text.to_string_lossy())
        };
        let (name, cron, handler, input) = (text(name)?, text(cron)?, text(handler)?, text(input)?);
        let refuse = |what: &str| refused(path, None, &format!("schedule \"{name}\": {what}"));
        let parsed = |text: &str| Name::new(text).map_err(|error| refuse(&error.to_string()));
        Cron::parse(&cron).map_err(|what| refuse(&format!("the cron \"{cron}\" cannot be used: {what}")))?;
        let key = self.entity_key(key.raw()).map_err(|Thrown| {
            let exception = self.context.take_exception();
            refuse(&self.describe_exception(exception.raw()).0)
        })?;
        if input.len() > self.limits.input_bytes {
            return Err(refuse(&format!("an input has at most {} bytes", self.limits.input_bytes)));
        }
        Ok(Schedule { name: parsed(&name)?, handler: parsed(&handler)?, cron, key, input: input.into() })
    }

    /// The elements of a flat array, by so many.
    fn rows<const WIDTH: usize>(&self, array: Raw, path: &str) -> Result<Vec<[Value; WIDTH]>, Error> {
        let refuse = |Thrown| self.refusal(path);
        let length = self.context.get_named(array, c"length").map_err(refuse)?;
        let Kind::Int(length) = kind(length.raw()) else {
            return Err(Error::new(ErrorCode::Internal, "the glue described a service wrongly"));
        };
        let count = length as usize / WIDTH;
        if count > EXPORTS {
            return Err(refused(path, None, "the service has too many handlers or routes"));
        }
        let mut rows = Vec::with_capacity(count);
        for row in 0..count {
            let mut values = [const { None }; WIDTH];
            for (column, value) in values.iter_mut().enumerate() {
                let index = (row * WIDTH + column) as u32;
                *value = Some(self.context.get_index(array, index).map_err(refuse)?);
            }
            rows.push(values.map(|value| value.unwrap_or_else(|| self.context.own(UNDEFINED))));
        }
        Ok(rows)
    }

    /// The pending exception as the reason to refuse the app.
    fn refusal(&self, path: &str) -> Error {
        let exception = self.context.take_exception();
        let (message, place) = self.describe_exception(exception.raw());
        let message = self.breach_while_loading().unwrap_or(message);
        match place {
            Some((path, position)) => refused(&path, Some(position), &message),
            None => refused(path, None, &message),
        }
    }

    /// The limit that loading broke, as a sentence.
    fn breach_while_loading(&self) -> Option<String> {
        let error = self.breach_error()?;
        let reason = match error.code {
            ErrorCode::CpuLimit => format!("used more than {} ms of CPU time", self.budget.allowed_ms()),
            _ => error.message,
        };
        Some(format!("while loading: {reason}"))
    }
}
