//! One service of one program on one core: a QuickJS runtime with one context, the service's
//! modules loaded in it.
//!
//! Promises: an isolate shares nothing with another one, is made with all its limits set, and can
//! be dropped at any moment between turns. It never frees its runtime object by object: dropping
//! the heap gives everything back.

use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};
use std::rc::Rc;
use std::sync::OnceLock;

use millrace_base::{Error, ErrorCode};
use millrace_func::{HandlerKind, Limits, OperationId};
use rquickjs::qjs;

use crate::Clocks;
use crate::budget::{Budget, STACK_RESERVE_BYTES, find_counter};
use crate::directory::Directory;
use crate::forms::{Forms, NameTexts};
use crate::heap::Heap;
use crate::host_scope::HostScope;
use crate::js::{Atom, Context, Raw, Thrown, UNDEFINED, Value};
use crate::logged::Logged;
use crate::native::{self, NativeOwner};
use crate::operations::Operation;
use crate::rejections::Rejections;
use crate::sources::Sources;
use crate::steps::RunningStep;
use crate::value_cache::ValueCache;

const GLUE: &str = concat!(include_str!("glue.js"), "\n", include_str!("built_ins.js"), include_str!("freeze.js"));

/// Property names that the engine reads often.
pub(crate) struct Atoms {
    pub(crate) length: Atom,
    pub(crate) status: Atom,
    pub(crate) headers: Atom,
    pub(crate) body: Atom,
    pub(crate) name: Atom,
    pub(crate) message: Atom,
    pub(crate) stack: Atom,
    pub(crate) code: Atom,
    pub(crate) payload: Atom,
    pub(crate) prefix: Atom,
    pub(crate) after: Atom,
    pub(crate) limit: Atom,
    pub(crate) delay_ms: Atom,
    pub(crate) id: Atom,
    pub(crate) method: Atom,
    pub(crate) timeout_ms: Atom,
    pub(crate) retry: Atom,
    pub(crate) attempts: Atom,
    pub(crate) first_ms: Atom,
    pub(crate) longest_ms: Atom,
    pub(crate) retries: Atom,
    pub(crate) to_json: Atom,
    /// Where a request keeps what its getters made, out of user code's sight.
    pub(crate) kept: [Atom; 4],
}

/// What `glue.js` gives to the host. The isolate owns the references.
pub(crate) struct Glue {
    pub(crate) make_error: Raw,
    pub(crate) describe: Raw,
    pub(crate) format: Raw,
    pub(crate) abort: Raw,
    pub(crate) host_error: Raw,
    pub(crate) search_parameters: Raw,
    pub(crate) make_response: Raw,
    pub(crate) make_record: Raw,
    pub(crate) make_records: Raw,
    pub(crate) make_object: Raw,
    pub(crate) make_objects: Raw,
    pub(crate) make_stored: Raw,
    pub(crate) run_step: Raw,
    pub(crate) overlook: Raw,
}

/// What a service's module exports, in the order of [`millrace_func::Service`]. The isolate owns
/// the references.
#[derive(Default)]
pub(crate) struct Exports {
    pub(crate) service: Option<Raw>,
    pub(crate) handlers: Vec<Raw>,
    pub(crate) kinds: Vec<HandlerKind>,
    pub(crate) routes: Vec<Raw>,
}

/// A loaded service.
pub(crate) struct Isolate {
    pub(crate) context: Context,
    pub(crate) runtime: NonNull<qjs::JSRuntime>,
    pub(crate) atoms: Atoms,
    pub(crate) glue: Glue,
    pub(crate) exports: OnceCell<Exports>,
    pub(crate) context_class: qjs::JSClassID,
    pub(crate) request_class: qjs::JSClassID,
    /// The classes of plain objects and of arrays.
    pub(crate) object_class: qjs::JSClassID,
    pub(crate) array_class: qjs::JSClassID,
    pub(crate) budget: Budget,
    pub(crate) host: HostScope,
    /// Which activation runs; its `ctx` carries the same number. 0 between turns.
    pub(crate) serial: Cell<usize>,
    /// What the running activation awaits.
    pub(crate) operations: RefCell<Vec<Operation>>,
    /// The steps of the running activation whose code has not ended, in the order they were begun.
    pub(crate) steps: RefCell<Vec<RunningStep>>,
    /// The step whose code runs; `None` while the activation's own does, and between turns.
    pub(crate) step: Cell<Option<OperationId>>,
    pub(crate) rejections: Rejections,
    /// What the running activation has logged.
    pub(crate) logged: Cell<Logged>,
    /// Whether a value is written that the host wants as JSON, and not for the app's own use.
    pub(crate) is_printing: Cell<bool>,
    /// What is printed is for the code, and no value for the host.
    pub(crate) prints_for_code: Cell<bool>,
    /// How many elements and properties have been printed.
    pub(crate) printed_parts: Cell<usize>,
    pub(crate) forms: Forms,
    pub(crate) values: ValueCache,
    /// Names of properties as JSON, with the colon.
    pub(crate) json_names: NameTexts,
    /// Names of a reply's headers, checked, in lower case.
    pub(crate) header_names: NameTexts,
    pub(crate) limits: Rc<Limits>,
    pub(crate) directory: Rc<OnceCell<Directory>>,
    pub(crate) sources: Rc<Sources>,
    panic: Cell<Option<Box<dyn Any + Send>>>,
    scratch: Cell<Vec<u8>>,
    /// Values kept here and by waiting activations are plain copies without a destructor; dropping the
    /// heap frees what they point to.
    pub(crate) heap: Box<Heap>,
}

/// What an isolate is made from.
pub(crate) struct Parts<'a> {
    pub(crate) clocks: Clocks,
    pub(crate) limits: &'a Rc<Limits>,
    pub(crate) sources: &'a Rc<Sources>,
    pub(crate) directory: &'a Rc<OnceCell<Directory>>,
}

impl Isolate {
    /// A context with the module `millrace` and every global, and nothing of the app in it.
    ///
    /// # Errors
    /// `memory-limit` when not even this fits.
    pub(crate) fn new(parts: &Parts<'_>) -> Result<Box<Isolate>, Error> {
        let heap = Heap::new(parts.limits.memory_bytes);
        let too_small = || Error::new(ErrorCode::MemoryLimit, "limits.memory_bytes is too small for an empty service");
        let runtime = heap.new_runtime().ok_or_else(too_small)?;
        let context = new_context(runtime, parts.limits.stack_bytes).ok_or_else(too_small)?;
        let built = build(&heap, context);
        if heap.take_refused() {
            return Err(too_small());
        }
        let Ok((atoms, glue, classes, counter)) = built else {
            return Err(Error::new(
                ErrorCode::Internal,
                format!("cannot set up a service: {}", plain_exception(context)),
            ));
        };
        let Some(counter) = counter else {
            return Err(Error::new(
                ErrorCode::Internal,
                "this build of QuickJS is not supported: no interrupt counter",
            ));
        };
        let isolate = Box::new(Isolate {
            context,
            runtime,
            atoms,
            glue,
            exports: OnceCell::new(),
            context_class: classes[0],
            request_class: classes[1],
            object_class: classes[2],
            array_class: classes[3],
            budget: Budget::new(parts.clocks, counter, parts.limits.stack_bytes),
            host: HostScope::default(),
            serial: Cell::new(0),
            operations: RefCell::new(Vec::new()),
            steps: RefCell::new(Vec::new()),
            step: Cell::new(None),
            rejections: Rejections::default(),
            logged: Cell::default(),
            is_printing: Cell::new(false),
            prints_for_code: Cell::new(false),
            printed_parts: Cell::new(0),
            forms: Forms::default(),
            values: ValueCache::new(parts.limits.memory_bytes),
            json_names: NameTexts::default(),
            header_names: NameTexts::default(),
            limits: Rc::clone(parts.limits),
            directory: Rc::clone(parts.directory),
            sources: Rc::clone(parts.sources),
            panic: Cell::new(None),
            scratch: Cell::new(Vec::new()),
            heap,
        });
        let opaque: *mut c_void = ptr::from_ref(&*isolate).cast_mut().cast();
        // SAFETY: the isolate is boxed, is only ever used through shared references from here on,
        // and outlives its context and runtime.
        unsafe {
            qjs::JS_SetContextOpaque(context.as_ptr(), opaque);
            qjs::JS_SetInterruptHandler(runtime.as_ptr(), Some(interrupt), opaque);
            crate::loader::install(runtime, opaque);
        }
        isolate.track_rejections(opaque);
        Ok(isolate)
    }

    /// Runs every job that is due. Stops at a breach.
    pub(crate) fn run_jobs(&self) {
        let mut context = ptr::null_mut();
        while self.has_jobs() && self.budget.breach().is_none() {
            // SAFETY: plain call on a live runtime; the out parameter outlives it.
            let status = unsafe { qjs::JS_ExecutePendingJob(self.runtime.as_ptr(), &mut context) };
            if status < 0 {
                drop(self.context.take_exception());
            }
        }
    }

    /// Whether promise reactions wait to run.
    #[inline]
    pub(crate) fn has_jobs(&self) -> bool {
        // SAFETY: plain call on a live runtime.
        unsafe { qjs::JS_IsJobPending(self.runtime.as_ptr()) }
    }

    pub(crate) fn collect_garbage(&self) {
        // SAFETY: QuickJS collects at any allocation, so it may at any callback.
        unsafe { qjs::JS_RunGC(self.runtime.as_ptr()) }
    }

    /// An empty buffer to use and to give back.
    #[inline]
    pub(crate) fn take_scratch(&self) -> Vec<u8> {
        self.scratch.take()
    }

    /// Gives a buffer back; one that grew large is not kept.
    #[inline]
    pub(crate) fn give_scratch(&self, mut buffer: Vec<u8>) {
        const KEPT_BYTES: usize = 64 << 10;
        if buffer.capacity() <= KEPT_BYTES {
            buffer.clear();
            self.scratch.set(buffer);
        }
    }

    /// Sees to it that there is room for the small objects of a call.
    ///
    /// QuickJS keeps objects of like size in arenas of 4 KiB, and gives an arena back when its
    /// last object goes. A size of which a call makes its only objects would cost an arena made
    /// and freed with every call; one block kept in an otherwise empty arena of each size avoids
    /// that.
    pub(crate) fn keep_arenas(&self) {
        let mut fillers = Vec::new();
        // QuickJS's sizes are 8 bytes apart, then 16; larger objects are rare.
        for size in (8..=120).step_by(8).chain((136..=248).step_by(16)) {
            let before = self.heap.used_bytes();
            while self.heap.used_bytes() == before {
                // SAFETY: plain call on a live runtime.
                let block = unsafe { qjs::js_malloc_rt(self.runtime.as_ptr(), size as qjs::size_t) };
                if block.is_null() {
                    break;
                }
                fillers.push(block);
            }
            // The block that began a new arena stays for as long as the heap.
            fillers.pop();
        }
        for block in fillers {
            // SAFETY: allocated above.
            unsafe { qjs::js_free_rt(self.runtime.as_ptr(), block) };
        }
    }

    /// Keeps one of each object that calls make whatever their code is, for their layouts; see
    /// `forms.rs`.
    pub(crate) fn keep_shapes(&self) -> Result<(), Thrown> {
        let (promise, functions) = self.context.promise()?;
        // Functions get their length and then their name. With the length alone one is never seen,
        // but a layout is reached by way of those before it.
        // SAFETY: plain calls on a function of this context.
        let unfinished = unsafe {
            let prototype = self.context.check(qjs::JS_GetPrototype(self.context.as_ptr(), functions[0].raw()))?;
            self.context.check(qjs::JS_NewObjectProto(self.context.as_ptr(), prototype.raw()))?
        };
        let length = self.context.own(crate::js::int(1));
        self.context.define(unfinished.raw(), self.atoms.length, length, qjs::JS_PROP_CONFIGURABLE)?;
        let mut kept = vec![promise, unfinished, self.new_context_object()?, self.new_request_object()?];
        kept.extend(functions);
        // They stay for as long as the heap.
        kept.into_iter().map(Value::into_raw).for_each(|_| {});
        Ok(())
    }

    /// Whether the turn has broken a limit: for native loops, which QuickJS does not interrupt.
    pub(crate) fn must_end(&self) -> bool {
        self.budget.look(&self.heap, || self.collect_garbage())
    }

    /// Throws what ends a native loop of a turn that must end. Who catches it gets no further: the next look ends the
    /// activation.
    #[cold]
    pub(crate) fn throw_broken(&self) -> Thrown {
        self.context.throw_type("a limit of the call is used up")
    }

    pub(crate) fn keep_panic(&self, panic: Box<dyn Any + Send>) {
        self.panic.set(Some(panic));
    }

    /// Goes on with a panic that a native function caught.
    #[inline]
    pub(crate) fn resume_panic(&self) {
        if let Some(panic) = self.panic.take() {
            std::panic::resume_unwind(panic);
        }
    }
}

unsafe extern "C" fn interrupt(_: *mut qjs::JSRuntime, opaque: *mut c_void) -> c_int {
    // SAFETY: the opaque pointer is the isolate, which outlives its runtime.
    let isolate = unsafe { &*opaque.cast::<Isolate>() };
    c_int::from(isolate.must_end())
}

/// A context with the intrinsics that a function may have: neither weak references nor a clock.
fn new_context(runtime: NonNull<qjs::JSRuntime>, stack_bytes: usize) -> Option<Context> {
    // SAFETY: calls on a runtime and a context that were just made.
    unsafe {
        qjs::JS_SetMaxStackSize(runtime.as_ptr(), (stack_bytes + STACK_RESERVE_BYTES) as _);
        let context = NonNull::new(qjs::JS_NewContextRaw(runtime.as_ptr()))?;
        let add = [
            qjs::JS_AddIntrinsicBaseObjects,
            qjs::JS_AddIntrinsicDate,
            qjs::JS_AddIntrinsicEval,
            qjs::JS_AddIntrinsicRegExp,
            qjs::JS_AddIntrinsicJSON,
            qjs::JS_AddIntrinsicProxy,
            qjs::JS_AddIntrinsicMapSet,
            qjs::JS_AddIntrinsicTypedArrays,
            qjs::JS_AddIntrinsicPromise,
            qjs::JS_AddIntrinsicAToB,
        ];
        add.iter().all(|add| add(context.as_ptr()) == 0).then_some(Context(context))
    }
}

type Built = (Atoms, Glue, [qjs::JSClassID; 4], Option<NonNull<i32>>);

/// Classes, native functions and `glue.js`.
fn build(heap: &Heap, context: Context) -> Result<Built, Thrown> {
    let classes = [new_class(context, c"Context")?, new_class(context, c"Request")?];
    let helpers = context.object()?;
    let prototypes = [context.object()?, context.object()?];
    for (index, (place, name, _, _)) in native::entries().enumerate() {
        let function = native::function(context, index)?;
        let (target, is_getter) = match place {
            NativeOwner::Helpers => (helpers.raw(), false),
            NativeOwner::Context => (prototypes[0].raw(), false),
            NativeOwner::ContextGetter => (prototypes[0].raw(), true),
            NativeOwner::Request => (prototypes[1].raw(), false),
            NativeOwner::RequestGetter => (prototypes[1].raw(), true),
        };
        let atom = context.atom(name);
        if is_getter {
            let flags = (qjs::JS_PROP_CONFIGURABLE | qjs::JS_PROP_ENUMERABLE) as c_int;
            // SAFETY: the call takes over the getter's reference.
            let status = unsafe {
                qjs::JS_DefinePropertyGetSet(context.as_ptr(), target, atom, function.into_raw(), UNDEFINED, flags)
            };
            if status < 0 {
                return Err(Thrown);
            }
        } else {
            context.define(target, atom, function, qjs::JS_PROP_CONFIGURABLE)?;
        }
        context.free_atom(atom);
    }
    context.define_named(helpers.raw(), "guardText", crate::text_guard::function(context)?)?;
    context.define_named(helpers.raw(), "contextPrototype", context.dup(prototypes[0].raw()))?;
    context.define_named(helpers.raw(), "requestPrototype", context.dup(prototypes[1].raw()))?;
    for (class, prototype) in classes.iter().zip(prototypes) {
        // SAFETY: the call takes over the prototype's reference.
        unsafe { qjs::JS_SetClassProto(context.as_ptr(), *class, prototype.into_raw()) };
    }
    // SAFETY: plain call.
    let global = context.own(unsafe { qjs::JS_GetGlobalObject(context.as_ptr()) });
    context.define_named(global.raw(), "__natives", context.dup(helpers.raw()))?;
    crate::loader::evaluate(context, glue_module(context)?)?;
    let take = |name| context.get_named(helpers.raw(), name).map(Value::into_raw);
    let glue = Glue {
        make_error: take(c"makeError")?,
        describe: take(c"describe")?,
        format: take(c"format")?,
        abort: take(c"Abort")?,
        host_error: take(c"HostError")?,
        search_parameters: take(c"URLSearchParams")?,
        make_response: take(c"makeResponse")?,
        make_record: take(c"makeRecord")?,
        make_records: take(c"makeRecords")?,
        make_object: take(c"makeObject")?,
        make_objects: take(c"makeObjects")?,
        make_stored: take(c"makeStored")?,
        run_step: take(c"runStep")?,
        overlook: take(c"overlook")?,
    };
    let counter = find_counter(heap, context, context.get_named(helpers.raw(), c"idle")?.raw());
    // SAFETY: the calls read the objects' classes.
    let class_of = |value: &Value| unsafe { qjs::JS_GetClassID(value.raw()) };
    let classes = [classes[0], classes[1], class_of(&context.object()?), class_of(&context.array()?)];
    Ok((atoms(context)?, glue, classes, counter))
}

/// `glue.js`, compiled once in the process: that takes longer than all the rest of a context.
fn glue_module(context: Context) -> Result<crate::loader::Compiled, Thrown> {
    static COMPILED: OnceLock<Vec<u8>> = OnceLock::new();
    if let Some(bytes) = COMPILED.get() {
        return crate::loader::read_compiled(context, bytes);
    }
    let module = crate::loader::compile(context, crate::sources::BUILTIN, GLUE)?;
    if let Some(bytes) = crate::loader::write_compiled(context, &module) {
        // Another core may have been first; its bytes are as good.
        let _ = COMPILED.set(bytes);
    }
    Ok(module)
}

fn new_class(context: Context, name: &'static std::ffi::CStr) -> Result<qjs::JSClassID, Thrown> {
    let definition = qjs::JSClassDef {
        class_name: name.as_ptr(),
        finalizer: None,
        gc_mark: None,
        call: None,
        exotic: ptr::null_mut(),
    };
    let mut id = 0;
    // SAFETY: the definition is copied and its name is static; `id` outlives the call.
    unsafe {
        qjs::JS_NewClassID(context.runtime(), &mut id);
        if qjs::JS_NewClass(context.runtime(), id, &definition) < 0 {
            return Err(Thrown);
        }
    }
    Ok(id)
}

fn atoms(context: Context) -> Result<Atoms, Thrown> {
    let symbol = |name: &'static std::ffi::CStr| -> Result<Atom, Thrown> {
        // SAFETY: the description is copied; the atom keeps the symbol.
        unsafe {
            let symbol = context.check(qjs::JS_NewSymbol(context.as_ptr(), name.as_ptr(), false))?;
            Ok(qjs::JS_ValueToAtom(context.as_ptr(), symbol.raw()))
        }
    };
    Ok(Atoms {
        length: context.atom("length"),
        status: context.atom("status"),
        headers: context.atom("headers"),
        body: context.atom("body"),
        name: context.atom("name"),
        message: context.atom("message"),
        stack: context.atom("stack"),
        code: context.atom("code"),
        payload: context.atom("payload"),
        prefix: context.atom("prefix"),
        after: context.atom("after"),
        limit: context.atom("limit"),
        delay_ms: context.atom("delay_ms"),
        id: context.atom("id"),
        method: context.atom("method"),
        timeout_ms: context.atom("timeoutMs"),
        retry: context.atom("retry"),
        attempts: context.atom("attempts"),
        first_ms: context.atom("firstMs"),
        longest_ms: context.atom("longestMs"),
        retries: context.atom("retries"),
        to_json: context.atom("toJSON"),
        kept: [symbol(c"query")?, symbol(c"params")?, symbol(c"headers")?, symbol(c"body")?],
    })
}

/// The text of an exception of our own code, while there is no isolate.
fn plain_exception(context: Context) -> String {
    let exception = context.take_exception();
    let text = |raw| context.text(raw).map_or_else(|_| String::new(), |text| text.to_string_lossy());
    let stack = context.get_named(exception.raw(), c"stack").map_or_else(|_| String::new(), |stack| text(stack.raw()));
    format!("{} {stack}", text(exception.raw()))
}
