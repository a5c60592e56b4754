//! The few words of QuickJS that the engine speaks, over its raw C interface.
//!
//! Why the functions here are not `unsafe` although they call C: a [`Context`] and a [`Raw`] value
//! exist only inside this crate, where one invariant holds for all of them: *a value is used only
//! with the context it came from, and only while its isolate lives*. An isolate lives through every turn of it: it is
//! replaced between turns only. The isolate itself keeps what outlives a turn: the handlers and the activations that
//! wait. [`Value`] owns one reference; [`Raw`] is a bare copy that owns nothing, unless its place says so.

use std::ffi::{CStr, c_char, c_int};
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};

use rquickjs::qjs;

/// A JavaScript value without ownership.
pub(crate) type Raw = qjs::JSValue;

/// An interned property name.
pub(crate) type Atom = qjs::JSAtom;

/// An exception is pending in the context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Thrown;

pub(crate) const UNDEFINED: Raw = qjs::JS_UNDEFINED;
pub(crate) const NULL: Raw = qjs::JS_NULL;

/// A context of a live isolate.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Context(pub(crate) NonNull<qjs::JSContext>);

/// A value that owns one reference to it.
pub(crate) struct Value {
    raw: Raw,
    context: Context,
}

impl Drop for Value {
    fn drop(&mut self) {
        self.context.free(self.raw);
    }
}

impl Value {
    /// The value, still owned by this.
    pub(crate) fn raw(&self) -> Raw {
        self.raw
    }

    /// The value, now owned by the caller.
    pub(crate) fn into_raw(self) -> Raw {
        ManuallyDrop::new(self).raw
    }
}

/// What kind of value one is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    Undefined,
    Null,
    Bool(bool),
    Int(i32),
    Float(f64),
    String,
    Symbol,
    BigInt,
    Object,
}

/// What kind of value `raw` is.
#[inline]
pub(crate) fn kind(raw: Raw) -> Kind {
    // SAFETY: the tag says which member of the union is set.
    unsafe {
        match qjs::JS_VALUE_GET_TAG(raw) {
            qjs::JS_TAG_INT => Kind::Int(qjs::JS_VALUE_GET_INT(raw)),
            qjs::JS_TAG_OBJECT => Kind::Object,
            qjs::JS_TAG_STRING | qjs::JS_TAG_STRING_ROPE => Kind::String,
            qjs::JS_TAG_BOOL => Kind::Bool(qjs::JS_VALUE_GET_BOOL(raw)),
            qjs::JS_TAG_NULL => Kind::Null,
            qjs::JS_TAG_FLOAT64 => number_kind(qjs::JS_VALUE_GET_FLOAT64(raw)),
            qjs::JS_TAG_SYMBOL => Kind::Symbol,
            qjs::JS_TAG_BIG_INT | qjs::JS_TAG_SHORT_BIG_INT => Kind::BigInt,
            _ => Kind::Undefined,
        }
    }
}

/// The JSON parser gives every number as a float; a whole one is an integer like any other.
fn number_kind(number: f64) -> Kind {
    let whole = number as i32;
    let is_whole = f64::from(whole).to_bits() == number.to_bits();
    if is_whole { Kind::Int(whole) } else { Kind::Float(number) }
}

#[inline]
pub(crate) fn is_undefined(raw: Raw) -> bool {
    kind(raw) == Kind::Undefined
}

#[inline]
pub(crate) fn is_nullish(raw: Raw) -> bool {
    matches!(kind(raw), Kind::Undefined | Kind::Null)
}

#[inline]
pub(crate) fn int(value: i32) -> Raw {
    qjs::JS_MKVAL(qjs::JS_TAG_INT, value)
}

#[inline]
pub(crate) fn boolean(value: bool) -> Raw {
    if value { qjs::JS_TRUE } else { qjs::JS_FALSE }
}

#[inline]
pub(crate) fn number(value: f64) -> Raw {
    qjs::JS_NewFloat64(value)
}

/// The UTF-8 text of a JavaScript string, borrowed from QuickJS.
pub(crate) struct Text {
    pointer: NonNull<c_char>,
    length: usize,
    context: Context,
}

impl Text {
    /// The bytes: UTF-8, except that a lone surrogate is encoded as three bytes, which is not.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: QuickJS gave `length` bytes that live until the text is freed.
        unsafe { std::slice::from_raw_parts(self.pointer.as_ptr().cast(), self.length) }
    }

    /// The text with U+FFFD for each byte of a lone surrogate.
    pub(crate) fn to_string_lossy(&self) -> String {
        String::from_utf8_lossy(self.bytes()).into_owned()
    }
}

impl Drop for Text {
    fn drop(&mut self) {
        // SAFETY: freed once, with the context it came from.
        unsafe { qjs::JS_FreeCString(self.context.0.as_ptr(), self.pointer.as_ptr()) }
    }
}

/// How a promise stands.
pub(crate) enum PromiseState {
    Pending,
    Fulfilled(Value),
    Rejected(Value),
}

impl Context {
    #[inline]
    pub(crate) fn as_ptr(self) -> *mut qjs::JSContext {
        self.0.as_ptr()
    }

    pub(crate) fn runtime(self) -> *mut qjs::JSRuntime {
        // SAFETY: the context is live.
        unsafe { qjs::JS_GetRuntime(self.as_ptr()) }
    }

    /// Takes ownership of `raw`.
    #[inline]
    pub(crate) fn own(self, raw: Raw) -> Value {
        Value { raw, context: self }
    }

    /// Takes ownership of what a C function returned.
    #[inline]
    pub(crate) fn check(self, raw: Raw) -> Result<Value, Thrown> {
        // SAFETY: reads the tag only.
        if unsafe { qjs::JS_IsException(raw) } { Err(Thrown) } else { Ok(self.own(raw)) }
    }

    fn check_status(self, status: c_int) -> Result<bool, Thrown> {
        if status < 0 { Err(Thrown) } else { Ok(status != 0) }
    }

    /// Another reference to `raw`.
    #[inline]
    pub(crate) fn dup(self, raw: Raw) -> Value {
        // SAFETY: `raw` is live by the module's invariant.
        self.own(unsafe { qjs::JS_DupValue(self.as_ptr(), raw) })
    }

    /// Gives up one reference.
    #[inline]
    pub(crate) fn free(self, raw: Raw) {
        // SAFETY: the caller owned the reference.
        unsafe {
            if qjs::JS_VALUE_HAS_REF_COUNT(raw) {
                qjs::JS_FreeValue(self.as_ptr(), raw);
            }
        }
    }

    pub(crate) fn atom(self, name: &str) -> Atom {
        // QuickJS looks bytes up as Latin-1 there, so a name beyond ASCII goes by way of a string.
        if !name.is_ascii()
            && let Ok(string) = self.string(name.as_bytes())
        {
            // SAFETY: plain call.
            return unsafe { qjs::JS_ValueToAtom(self.as_ptr(), string.raw()) };
        }
        // SAFETY: the bytes are copied.
        unsafe { qjs::JS_NewAtomLen(self.as_ptr(), name.as_ptr().cast(), name.len() as qjs::size_t) }
    }

    pub(crate) fn free_atom(self, atom: Atom) {
        // SAFETY: the caller owned the atom.
        unsafe { qjs::JS_FreeAtom(self.as_ptr(), atom) }
    }

    /// A string from bytes that are ASCII or valid UTF-8.
    #[inline]
    pub(crate) fn string(self, utf8: &[u8]) -> Result<Value, Thrown> {
        // SAFETY: the bytes are copied.
        self.check(unsafe { qjs::JS_NewStringLen(self.as_ptr(), utf8.as_ptr().cast(), utf8.len() as qjs::size_t) })
    }

    /// A string from any bytes; what is not UTF-8 becomes U+FFFD.
    pub(crate) fn string_lossy(self, bytes: &[u8]) -> Result<Value, Thrown> {
        match std::str::from_utf8(bytes) {
            Ok(text) => self.string(text.as_bytes()),
            Err(_) => self.string(String::from_utf8_lossy(bytes).as_bytes()),
        }
    }

    /// The text of `raw`, converted to a string if it is none (which may run user code).
    #[inline]
    pub(crate) fn text(self, raw: Raw) -> Result<Text, Thrown> {
        let mut length = 0;
        // SAFETY: `length` outlives the call.
        let pointer = unsafe { qjs::JS_ToCStringLen2(self.as_ptr(), &mut length, raw, false) };
        match NonNull::new(pointer.cast_mut()) {
            Some(pointer) => Ok(Text { pointer, length: length as usize, context: self }),
            None => Err(Thrown),
        }
    }

    pub(crate) fn object(self) -> Result<Value, Thrown> {
        // SAFETY: plain call.
        self.check(unsafe { qjs::JS_NewObject(self.as_ptr()) })
    }

    pub(crate) fn array(self) -> Result<Value, Thrown> {
        // SAFETY: plain call.
        self.check(unsafe { qjs::JS_NewArray(self.as_ptr()) })
    }

    /// Appends to an array that has `index` elements.
    pub(crate) fn push(self, array: &Value, index: u32, element: Value) -> Result<(), Thrown> {
        let flags = qjs::JS_PROP_C_W_E as c_int;
        // SAFETY: the call takes over the element's reference.
        let status =
            unsafe { qjs::JS_DefinePropertyValueUint32(self.as_ptr(), array.raw, index, element.into_raw(), flags) };
        self.check_status(status).map(|_| ())
    }

    pub(crate) fn uint8_array(self, bytes: &[u8]) -> Result<Value, Thrown> {
        // SAFETY: the bytes are copied.
        self.check(unsafe { qjs::JS_NewUint8ArrayCopy(self.as_ptr(), bytes.as_ptr(), bytes.len() as qjs::size_t) })
    }

    #[inline]
    pub(crate) fn get(self, object: Raw, name: Atom) -> Result<Value, Thrown> {
        // SAFETY: plain call.
        self.check(unsafe { qjs::JS_GetProperty(self.as_ptr(), object, name) })
    }

    pub(crate) fn get_index(self, object: Raw, index: u32) -> Result<Value, Thrown> {
        // SAFETY: plain call.
        self.check(unsafe { qjs::JS_GetPropertyUint32(self.as_ptr(), object, index) })
    }

    pub(crate) fn get_named(self, object: Raw, name: &CStr) -> Result<Value, Thrown> {
        // SAFETY: the name ends with NUL.
        self.check(unsafe { qjs::JS_GetPropertyStr(self.as_ptr(), object, name.as_ptr()) })
    }

    /// Defines an own data property, without running setters.
    pub(crate) fn define(self, object: Raw, name: Atom, value: Value, flags: u32) -> Result<(), Thrown> {
        // SAFETY: the call takes over the value's reference.
        let status =
            unsafe { qjs::JS_DefinePropertyValue(self.as_ptr(), object, name, value.into_raw(), flags as c_int) };
        self.check_status(status).map(|_| ())
    }

    pub(crate) fn define_named(self, object: Raw, name: &str, value: Value) -> Result<(), Thrown> {
        let atom = self.atom(name);
        let result = self.define(object, atom, value, qjs::JS_PROP_C_W_E);
        self.free_atom(atom);
        result
    }

    #[inline]
    pub(crate) fn call(self, function: Raw, this: Raw, arguments: &mut [Raw]) -> Result<Value, Thrown> {
        // SAFETY: QuickJS copies the arguments it keeps.
        let result =
            unsafe { qjs::JS_Call(self.as_ptr(), function, this, arguments.len() as c_int, arguments.as_mut_ptr()) };
        self.check(result)
    }

    pub(crate) fn is_array(self, raw: Raw) -> bool {
        // SAFETY: reads the object's class.
        unsafe { qjs::JS_IsArray(raw) }
    }

    pub(crate) fn is_function(self, raw: Raw) -> bool {
        // SAFETY: reads the object's class.
        unsafe { qjs::JS_IsFunction(self.as_ptr(), raw) }
    }

    pub(crate) fn is_error(self, raw: Raw) -> bool {
        // SAFETY: reads the object's class.
        unsafe { qjs::JS_IsError(raw) }
    }

    /// Whether `raw` was made by `constructor`; false when asking throws.
    pub(crate) fn is_instance(self, raw: Raw, constructor: Raw) -> bool {
        // SAFETY: plain call.
        let status = unsafe { qjs::JS_IsInstanceOf(self.as_ptr(), raw, constructor) };
        if status < 0 {
            drop(self.take_exception());
        }
        status > 0
    }

    #[inline]
    pub(crate) fn is_promise(self, raw: Raw) -> bool {
        // SAFETY: reads the object's class.
        unsafe { qjs::JS_IsPromise(raw) }
    }

    pub(crate) fn promise_state(self, promise: Raw) -> PromiseState {
        // SAFETY: plain calls on a promise.
        unsafe {
            match qjs::JS_PromiseState(self.as_ptr(), promise) {
                qjs::JSPromiseStateEnum_JS_PROMISE_FULFILLED => {
                    PromiseState::Fulfilled(self.own(qjs::JS_PromiseResult(self.as_ptr(), promise)))
                }
                qjs::JSPromiseStateEnum_JS_PROMISE_REJECTED => {
                    PromiseState::Rejected(self.own(qjs::JS_PromiseResult(self.as_ptr(), promise)))
                }
                _ => PromiseState::Pending,
            }
        }
    }

    /// A promise with its resolve and reject functions, which the caller owns.
    pub(crate) fn promise(self) -> Result<(Value, [Value; 2]), Thrown> {
        let mut functions = [UNDEFINED; 2];
        // SAFETY: QuickJS fills both functions when it succeeds.
        let promise = self.check(unsafe { qjs::JS_NewPromiseCapability(self.as_ptr(), functions.as_mut_ptr()) })?;
        Ok((promise, functions.map(|function| self.own(function))))
    }

    /// The pending exception, taken out of the context.
    pub(crate) fn take_exception(self) -> Value {
        // SAFETY: plain call.
        self.own(unsafe { qjs::JS_GetException(self.as_ptr()) })
    }

    pub(crate) fn throw(self, value: Value) -> Thrown {
        // SAFETY: the call takes over the reference.
        unsafe { qjs::JS_Throw(self.as_ptr(), value.into_raw()) };
        Thrown
    }

    /// Throws a `TypeError`. QuickJS cuts its text at 255 bytes.
    pub(crate) fn throw_type(self, message: &str) -> Thrown {
        let text = terminated(message);
        // SAFETY: the format takes one string, and the text ends with NUL.
        unsafe { qjs::JS_ThrowTypeError(self.as_ptr(), c"%s".as_ptr(), text.as_ptr().cast::<c_char>()) };
        Thrown
    }

    /// The same for a `SyntaxError`.
    pub(crate) fn throw_syntax(self, message: &str) -> Thrown {
        let text = terminated(message);
        // SAFETY: the format takes one string, and the text ends with NUL.
        unsafe { qjs::JS_ThrowSyntaxError(self.as_ptr(), c"%s".as_ptr(), text.as_ptr().cast::<c_char>()) };
        Thrown
    }

    /// The bytes behind an ArrayBuffer, a typed array or a DataView; `None` for any other value.
    /// They are copied, because running any code could free them.
    pub(crate) fn bytes_of(self, raw: Raw) -> Result<Option<Vec<u8>>, Thrown> {
        let Some((pointer, length)) = self.byte_range(raw)? else {
            return Ok(None);
        };
        if length == 0 {
            return Ok(Some(Vec::new()));
        }
        // SAFETY: the range lies in a live buffer, and no code runs before it is copied.
        Ok(Some(unsafe { std::slice::from_raw_parts(pointer, length) }.to_vec()))
    }

    /// Overwrites the bytes behind a typed array; false for any other value.
    pub(crate) fn fill_bytes(self, raw: Raw, mut fill: impl FnMut(&mut [u8])) -> Result<bool, Thrown> {
        let Some((pointer, length)) = self.byte_range(raw)? else {
            return Ok(false);
        };
        if length > 0 {
            // SAFETY: as in `bytes_of`; `fill` runs no JavaScript.
            fill(unsafe { std::slice::from_raw_parts_mut(pointer, length) });
        }
        Ok(true)
    }

    fn byte_range(self, raw: Raw) -> Result<Option<(*mut u8, usize)>, Thrown> {
        if kind(raw) != Kind::Object {
            return Ok(None);
        }
        let mut size = 0;
        // SAFETY: plain calls; the out parameters outlive them. The typed array keeps its buffer
        // alive after our reference to the buffer is dropped.
        unsafe {
            if qjs::JS_IsArrayBuffer(raw) {
                let pointer = qjs::JS_GetArrayBuffer(self.as_ptr(), &mut size, raw);
                if pointer.is_null() && size != 0 {
                    return Err(Thrown);
                }
                self.forget_exception(pointer.is_null());
                return Ok(Some((pointer, if pointer.is_null() { 0 } else { size as usize })));
            }
            if qjs::JS_GetTypedArrayType(raw) < 0 {
                return Ok(None);
            }
            let (mut offset, mut length, mut element) = (0, 0, 0);
            let buffer =
                self.check(qjs::JS_GetTypedArrayBuffer(self.as_ptr(), raw, &mut offset, &mut length, &mut element))?;
            let pointer = qjs::JS_GetArrayBuffer(self.as_ptr(), &mut size, buffer.raw);
            if pointer.is_null() || offset.checked_add(length).is_none_or(|end| end > size) {
                // A detached or shrunken buffer has no bytes.
                self.forget_exception(pointer.is_null());
                return Ok(Some((ptr::null_mut(), 0)));
            }
            Ok(Some((pointer.add(offset as usize), length as usize)))
        }
    }

    fn forget_exception(self, is_pending: bool) {
        if is_pending {
            drop(self.take_exception());
        }
    }
}

/// A text as C reads it; a NUL in its middle is left out.
fn terminated(text: &str) -> Vec<u8> {
    text.bytes().filter(|byte| *byte != 0).chain([0]).collect()
}
