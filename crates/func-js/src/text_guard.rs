//! Which of two functions a call goes to, by how long the first may take: for functions of texts, which QuickJS cannot
//! interrupt. `glue.js` puts such a guard before each; it is native because calls of these functions are many, and
//! nearly all are short.

use std::ffi::c_int;

use rquickjs::qjs;

use crate::js::{Context, Kind, Raw, Thrown, Value, kind};

/// Makes the JavaScript function `guardText(quick, long, mostSteps)`. That gives a function which hands its call to
/// `quick` or to `long`. `quick` gets the call if `this` and the first argument are texts, and the product of their
/// lengths is at most `mostSteps`.
///
/// It does without the isolate, which is not there yet when `glue.js` runs.
pub(crate) fn function(context: Context) -> Result<Value, Thrown> {
    let kind = qjs::JSCFunctionEnum_JS_CFUNC_generic;
    // SAFETY: a function of this kind is called as it is declared; the name is copied.
    let raw = unsafe { qjs::JS_NewCFunction2(context.as_ptr(), Some(guard_text), c"guardText".as_ptr(), 3, kind, 0) };
    context.check(raw)
}

unsafe extern "C" fn guard_text(context: *mut qjs::JSContext, _: Raw, _: c_int, arguments: *mut Raw) -> Raw {
    // SAFETY: QuickJS passes a live context and as many arguments as were declared, filled up with `undefined`.
    unsafe {
        let length = length(context, *arguments).and_then(|length| c_int::try_from(length).ok()).unwrap_or(0);
        qjs::JS_NewCFunctionData2(context, Some(guarded), c"".as_ptr(), length, 0, 3, arguments)
    }
}

unsafe extern "C" fn guarded(
    context: *mut qjs::JSContext,
    this: Raw,
    count: c_int,
    arguments: *mut Raw,
    _magic: c_int,
    data: *mut Raw,
) -> Raw {
    // SAFETY: QuickJS passes a live context, `count` arguments, and the three values that `guard_text` gave.
    unsafe {
        let [quick, long, most] = [*data, *data.add(1), *data.add(2)];
        let is_quick = count > 0
            && steps(context, this, *arguments)
                .is_some_and(|steps| matches!(kind(most), Kind::Int(most) if steps <= i64::from(most)));
        qjs::JS_Call(context, if is_quick { quick } else { long }, this, count, arguments)
    }
}

/// Characters compared at most when `word` is looked for in `text`; `None` where they are not texts.
fn steps(context: *mut qjs::JSContext, text: Raw, word: Raw) -> Option<i64> {
    if kind(text) != Kind::String || kind(word) != Kind::String {
        return None;
    }
    // SAFETY: both are values of this context.
    unsafe { length(context, text)?.checked_mul(length(context, word)?) }
}

unsafe fn length(context: *mut qjs::JSContext, of: Raw) -> Option<i64> {
    let mut length = 0;
    // SAFETY: the caller's.
    let status = unsafe { qjs::JS_GetLength(context, of, &raw mut length) };
    (status == 0).then_some(length)
}
