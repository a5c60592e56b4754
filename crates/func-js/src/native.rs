//! How JavaScript calls Rust: one C entry point for all native functions, which finds the isolate
//! and the function by number.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use rquickjs::qjs;

use crate::budget::Breach;
use crate::isolate::Isolate;
use crate::js::{Context, Raw, Thrown, UNDEFINED, Value};
use crate::{bucket_object, context_object, fetch_object, natives, record_object, request_object, workflow_object};

/// One call of a native function.
pub(crate) struct Call<'a> {
    pub(crate) isolate: &'a Isolate,
    pub(crate) context: Context,
    pub(crate) this: Raw,
    arguments: &'a [Raw],
}

impl Call<'_> {
    /// The argument at `index`, `undefined` where there is none.
    #[inline]
    pub(crate) fn argument(&self, index: usize) -> Raw {
        self.arguments.get(index).copied().unwrap_or(UNDEFINED)
    }

    /// All arguments.
    pub(crate) fn arguments(&self) -> &[Raw] {
        self.arguments
    }
}

/// A native function: the result, or a thrown exception.
pub(crate) type Function = fn(&Call<'_>) -> Result<Value, Thrown>;

/// Which object a native function is a property of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum NativeOwner {
    /// The helpers that `glue.js` takes apart.
    Helpers,
    /// The prototype of every `ctx`.
    Context,
    /// A getter there.
    ContextGetter,
    /// The prototype of every request.
    Request,
    /// A getter there.
    RequestGetter,
}

/// Place, name, declared arguments, function.
pub(crate) type Entry = (NativeOwner, &'static str, c_int, Function);

const TABLES: [&[Entry]; 7] = [
    context_object::ENTRIES,
    request_object::ENTRIES,
    workflow_object::ENTRIES,
    fetch_object::ENTRIES,
    record_object::ENTRIES,
    bucket_object::ENTRIES,
    natives::ENTRIES,
];

const COUNT: usize = {
    let (mut count, mut table) = (0, 0);
    while table < TABLES.len() {
        count += TABLES[table].len();
        table += 1;
    }
    count
};

/// Every native function. A function's number is its index here.
static ENTRIES: [Entry; COUNT] = {
    let mut all = [TABLES[0][0]; COUNT];
    let (mut filled, mut table) = (0, 0);
    while table < TABLES.len() {
        let mut index = 0;
        while index < TABLES[table].len() {
            all[filled] = TABLES[table][index];
            filled += 1;
            index += 1;
        }
        table += 1;
    }
    all
};

/// Every native function, by number.
pub(crate) fn entries() -> impl Iterator<Item = &'static Entry> {
    ENTRIES.iter()
}

/// Makes the JavaScript function for the entry at `index`.
pub(crate) fn function(context: Context, index: usize) -> Result<Value, Thrown> {
    let Some((_, name, arguments, _)) = ENTRIES.get(index) else {
        return Err(context.throw_type("no such native function"));
    };
    let name = std::ffi::CString::new(*name).map_err(|_| context.throw_type("a malformed name"))?;
    // SAFETY: QuickJS stores the pointer of a function with a number as that of a plain one and
    // calls it by the kind given (`generic_magic`); the name is copied.
    let raw = unsafe {
        let pointer: unsafe extern "C" fn(*mut qjs::JSContext, Raw, c_int, *mut Raw, c_int) -> Raw = dispatch;
        let pointer: qjs::JSCFunction = std::mem::transmute(pointer);
        let kind = qjs::JSCFunctionEnum_JS_CFUNC_generic_magic;
        qjs::JS_NewCFunction2(context.as_ptr(), pointer, name.as_ptr(), *arguments, kind, index as c_int)
    };
    context.check(raw)
}

unsafe extern "C" fn dispatch(
    context: *mut qjs::JSContext,
    this: Raw,
    count: c_int,
    arguments: *mut Raw,
    index: c_int,
) -> Raw {
    // SAFETY: QuickJS passes a live context, whose opaque pointer is its isolate (or null while
    // the context is being built), and `count` arguments.
    unsafe {
        let isolate = qjs::JS_GetContextOpaque(context).cast::<Isolate>();
        let (Some(isolate), Some(entry)) = (isolate.as_ref(), ENTRIES.get(index as usize)) else {
            qjs::JS_ThrowInternalError(context, c"the service is not ready".as_ptr());
            return qjs::JS_EXCEPTION;
        };
        let arguments = if count > 0 { std::slice::from_raw_parts(arguments, count as usize) } else { &[] };
        let call = Call { isolate, context: isolate.context, this, arguments };
        // A panic must not unwind through C. It goes on when the turn ends.
        match catch_unwind(AssertUnwindSafe(|| (entry.3)(&call))) {
            Ok(Ok(value)) => value.into_raw(),
            Ok(Err(Thrown)) => qjs::JS_EXCEPTION,
            Err(panic) => {
                isolate.keep_panic(panic);
                isolate.budget.set_breach(Breach::Panic);
                qjs::JS_ThrowInternalError(context, c"a host function failed".as_ptr());
                qjs::JS_EXCEPTION
            }
        }
    }
}
