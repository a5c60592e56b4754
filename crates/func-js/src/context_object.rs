//! `ctx`: what a handler or route does to the world. Methods of one shared prototype; each `ctx`
//! carries the number of its activation and nothing else.

use std::ffi::c_void;

use bytes::Bytes;
use millrace_base::{Error, ErrorCode, Value as Stored, ValueKind, limits};
use millrace_func::{HandlerId, Host, LogLevel, Message, NestedCall, ScanRequest};
use rquickjs::qjs;

use crate::isolate::Isolate;
use crate::js::{Kind, NULL, Raw, Text, Thrown, UNDEFINED, Value, boolean, is_nullish, is_undefined, kind, number};
use crate::json::Written;
use crate::native::{Call, Entry, NativeOwner};
use crate::subject::Subject;

pub(crate) const ENTRIES: &[Entry] = &[
    (NativeOwner::Context, "get", 1, get),
    (NativeOwner::Context, "set", 2, set),
    (NativeOwner::Context, "delete", 1, delete),
    (NativeOwner::Context, "fields", 0, fields),
    (NativeOwner::Context, "entries", 0, entries),
    (NativeOwner::Context, "call", 3, call),
    (NativeOwner::Context, "send", 3, send),
    (NativeOwner::Context, "now", 0, now),
    (NativeOwner::Context, "random", 0, random),
    (NativeOwner::Context, "uuid", 0, uuid),
    (NativeOwner::Context, "log", 0, log),
    (NativeOwner::ContextGetter, "key", 0, key),
    (NativeOwner::ContextGetter, "keyBytes", 0, key_bytes),
];

impl Isolate {
    /// A `ctx` for the running activation.
    #[inline]
    pub(crate) fn new_context_object(&self) -> Result<Value, Thrown> {
        self.new_tagged_object(self.context_class)
    }

    /// An object of `class` that carries the number of the running activation.
    #[inline]
    pub(crate) fn new_tagged_object(&self, class: qjs::JSClassID) -> Result<Value, Thrown> {
        // SAFETY: the class is ours; its opaque pointer is a number that nobody follows.
        unsafe {
            let object = self.context.check(qjs::JS_NewObjectClass(self.context.as_ptr(), class))?;
            qjs::JS_SetOpaque(object.raw(), self.serial.get() as *mut c_void);
            Ok(object)
        }
    }

    /// Refuses an object that is not of `class` or belongs to another activation than the running one.
    #[inline]
    pub(crate) fn check_tag(&self, object: Raw, class: qjs::JSClassID, what: &str) -> Result<(), Thrown> {
        // SAFETY: the pointer is a number and is not followed.
        let serial = unsafe { qjs::JS_GetOpaque(object, class) } as usize;
        if serial != 0 && serial == self.serial.get() { Ok(()) } else { Err(self.refuse_tag(serial, what)) }
    }

    #[cold]
    fn refuse_tag(&self, serial: usize, what: &str) -> Thrown {
        if serial == 0 {
            return self.context.throw_type(&format!("this is not a {what}"));
        }
        let message =
            format!("this {what} belongs to a call that has ended, or to another one than the one that runs now");
        self.throw_error(Error::new(ErrorCode::FunctionFailed, message))
    }

    #[inline]
    pub(crate) fn check_context(&self, this: Raw) -> Result<(), Thrown> {
        self.check_tag(this, self.context_class, "ctx")
    }

    /// Uses the host; throws what it answers, and when nothing runs.
    #[inline]
    pub(crate) fn with_host<R>(&self, act: impl FnOnce(&mut dyn Host) -> Result<R, Error>) -> Result<R, Thrown> {
        match self.host.with(act) {
            Some(Ok(result)) => Ok(result),
            Some(Err(error)) => Err(self.throw_error(error)),
            None => Err(self.refuse_no_call()),
        }
    }

    #[cold]
    pub(crate) fn refuse_no_call(&self) -> Thrown {
        let message = "only a running call has a time, random numbers and a store; a module that loads has none";
        self.context.throw_type(message)
    }

    /// A field's name: a string of 1 to [`limits::FIELD_BYTES`] bytes.
    #[inline]
    fn field(&self, raw: Raw) -> Result<Text, Thrown> {
        if kind(raw) != Kind::String {
            return Err(self.context.throw_type("a field's name must be a string"));
        }
        let text = self.context.text(raw)?;
        if text.bytes().len() > limits::FIELD_BYTES {
            let message = format!("a field's name has at most {} bytes", limits::FIELD_BYTES);
            return Err(self.throw_error(Error::new(ErrorCode::SizeLimit, message)));
        }
        self.check_utf8(&text)?;
        Ok(text)
    }

    #[inline]
    pub(crate) fn check_utf8(&self, text: &Text) -> Result<(), Thrown> {
        match std::str::from_utf8(text.bytes()) {
            Ok(_) => Ok(()),
            Err(_) => Err(self.context.throw_type("a name must not contain half of a surrogate pair")),
        }
    }

    /// An entity's key: a string or bytes, at most [`limits::KEY_BYTES`].
    pub(crate) fn entity_key(&self, raw: Raw) -> Result<Vec<u8>, Thrown> {
        let key = if kind(raw) == Kind::String {
            let text = self.context.text(raw)?;
            self.check_utf8(&text)?;
            text.bytes().to_vec()
        } else {
            let bytes = self.context.bytes_of(raw)?;
            bytes.ok_or_else(|| self.context.throw_type("an entity's key must be a string or a Uint8Array"))?
        };
        if key.len() > limits::KEY_BYTES {
            let message = format!("a key has at most {} bytes", limits::KEY_BYTES);
            return Err(self.throw_error(Error::new(ErrorCode::SizeLimit, message)));
        }
        Ok(key)
    }

    /// A stored value as JavaScript sees it. Runs no user code.
    #[inline]
    fn stored(&self, value: &Stored) -> Result<Value, Thrown> {
        match value.kind() {
            ValueKind::Json => self.parse_again(value.content()),
            ValueKind::Bytes => self.context.uint8_array(value.content()),
        }
    }

    /// The JSON text of a call's input.
    pub(crate) fn input(&self, raw: Raw) -> Result<Bytes, Thrown> {
        let mut buffer = self.take_scratch();
        let written = self.write_message(raw, &mut buffer);
        let input = Bytes::copy_from_slice(&buffer);
        self.give_scratch(buffer);
        written?;
        if input.len() > self.limits.input_bytes {
            let message = format!("an input has at most {} bytes", self.limits.input_bytes);
            return Err(self.throw_error(Error::new(ErrorCode::SizeLimit, message)));
        }
        Ok(input)
    }

    /// Appends the JSON text of what a call takes or gives: `undefined` is `null`, and what JSON
    /// would drop is an error.
    #[inline]
    pub(crate) fn write_message(&self, raw: Raw, out: &mut Vec<u8>) -> Result<(), Thrown> {
        if kind(raw) == Kind::Object && self.is_binary(raw) {
            return Err(self.context.throw_type("bytes cannot be passed between calls as they are: use base64.encode"));
        }
        match self.write_json(raw, out)? {
            Written::Json => Ok(()),
            Written::Nothing if is_undefined(raw) => {
                out.extend_from_slice(b"null");
                Ok(())
            }
            Written::Nothing => Err(self.context.throw_type("a function or symbol cannot be passed between calls")),
        }
    }

    /// Whether `raw` is an ArrayBuffer, a typed array or a DataView.
    #[inline]
    pub(crate) fn is_binary(&self, raw: Raw) -> bool {
        // SAFETY: the calls read the object's class.
        unsafe { qjs::JS_GetTypedArrayType(raw) >= 0 || qjs::JS_IsArrayBuffer(raw) || qjs::JS_IsDataView(raw) }
    }
}

#[inline]
fn get(call: &Call<'_>) -> Result<Value, Thrown> {
    let isolate = call.isolate;
    isolate.check_context(call.this)?;
    let field = isolate.field(call.argument(0))?;
    isolate.with_host(|host| {
        Ok(match host.get(field.bytes())? {
            Some(value) => isolate.stored(value),
            None => Ok(isolate.context.own(UNDEFINED)),
        })
    })?
}

#[inline]
fn set(call: &Call<'_>) -> Result<Value, Thrown> {
    let isolate = call.isolate;
    isolate.check_context(call.this)?;
    let field = isolate.field(call.argument(0))?;
    if field.bytes().is_empty() {
        // Nothing could name it in a URL, nor go on behind it in a list.
        return Err(isolate.context.throw_type("a field's name must not be empty"));
    }
    let raw = call.argument(1);
    let mut buffer = isolate.take_scratch();
    let written = write_stored(isolate, raw, &mut buffer);
    let stored = written.map(|kind| (buffer.len(), Stored::new(kind, &buffer)));
    isolate.give_scratch(buffer);
    let (length, stored) = stored?;
    if length > isolate.limits.value_bytes {
        let message = format!("a field's value has at most {} bytes, not {length}", isolate.limits.value_bytes);
        return Err(isolate.throw_error(Error::new(ErrorCode::SizeLimit, message)));
    }
    // Writing the JSON may have run user code, but not ended this activation's turn.
    isolate.with_host(|host| host.set(field.bytes(), stored))?;
    Ok(isolate.context.own(UNDEFINED))
}

#[inline]
fn write_stored(isolate: &Isolate, raw: Raw, out: &mut Vec<u8>) -> Result<ValueKind, Thrown> {
    let context = isolate.context;
    if kind(raw) == Kind::Object && isolate.is_binary(raw) {
        let bytes = context.bytes_of(raw)?;
        let bytes = bytes.ok_or_else(|| context.throw_type("a DataView cannot be stored; store a Uint8Array"))?;
        out.extend_from_slice(&bytes);
        return Ok(ValueKind::Bytes);
    }
    match isolate.write_json(raw, out)? {
        Written::Json => Ok(ValueKind::Json),
        Written::Nothing if is_undefined(raw) => {
            Err(context.throw_type("undefined cannot be stored: use ctx.delete to remove a field"))
        }
        Written::Nothing => Err(context.throw_type("a function or symbol cannot be stored")),
    }
}

fn delete(call: &Call<'_>) -> Result<Value, Thrown> {
    call.isolate.check_context(call.this)?;
    let field = call.isolate.field(call.argument(0))?;
    let was_there = call.isolate.with_host(|host| host.delete(field.bytes()))?;
    Ok(call.context.own(boolean(was_there)))
}

/// The rows that a call of `ctx.fields` or `ctx.entries` asks for: never fewer than it believes to get.
fn scan(call: &Call<'_>) -> Result<Vec<(Vec<u8>, millrace_base::Value)>, Thrown> {
    let isolate = call.isolate;
    isolate.check_context(call.this)?;
    let mut request = scan_request(isolate, call.argument(0))?;
    let wants_all = request.limit > limits::SCAN_ROWS;
    request.limit = request.limit.min(limits::SCAN_ROWS);
    let rows = isolate.with_host(|host| host.scan(&request))?;
    if let Some((last, _)) = rows.last().filter(|_| wants_all && rows.len() == limits::SCAN_ROWS) {
        request.after = Some(last.clone());
        request.limit = 1;
        if !isolate.with_host(|host| host.scan(&request))?.is_empty() {
            let message =
                format!("there are more than {} fields: read them in pages, with a limit and after", limits::SCAN_ROWS);
            return Err(isolate.throw_error(Error::new(ErrorCode::SizeLimit, message)));
        }
    }
    Ok(rows)
}

/// Reads `{prefix, after, limit}`; without a limit, it is above all that one answer may hold.
fn scan_request(isolate: &Isolate, options: Raw) -> Result<ScanRequest, Thrown> {
    let mut request = ScanRequest { limit: usize::MAX, ..ScanRequest::default() };
    if is_nullish(options) {
        return Ok(request);
    }
    if kind(options) != Kind::Object {
        return Err(isolate.context.throw_type("the options must be an object: { prefix, after, limit }"));
    }
    let text = |name| -> Result<Option<Vec<u8>>, Thrown> {
        let value = isolate.context.get(options, name)?;
        if is_nullish(value.raw()) {
            return Ok(None);
        }
        Ok(Some(isolate.field(value.raw())?.bytes().to_vec()))
    };
    request.prefix = text(isolate.atoms.prefix)?.unwrap_or_default();
    request.after = text(isolate.atoms.after)?;
    let limit = isolate.context.get(options, isolate.atoms.limit)?;
    match kind(limit.raw()) {
        Kind::Undefined | Kind::Null => {}
        Kind::Int(limit) if limit >= 0 => request.limit = limit as usize,
        Kind::Float(limit) if limit >= limits::SCAN_ROWS as f64 => {}
        _ => return Err(isolate.context.throw_type("limit must be a whole number, 0 or more")),
    }
    Ok(request)
}

fn fields(call: &Call<'_>) -> Result<Value, Thrown> {
    let rows = scan(call)?;
    let array = call.context.array()?;
    for (index, (field, _)) in rows.iter().enumerate() {
        call.context.push(&array, index as u32, call.context.string_lossy(field)?)?;
    }
    Ok(array)
}

fn entries(call: &Call<'_>) -> Result<Value, Thrown> {
    let isolate = call.isolate;
    let rows = scan(call)?;
    let array = call.context.array()?;
    for (index, (field, value)) in rows.iter().enumerate() {
        let pair = call.context.array()?;
        call.context.push(&pair, 0, call.context.string_lossy(field)?)?;
        call.context.push(&pair, 1, isolate.stored(value)?)?;
        call.context.push(&array, index as u32, pair)?;
    }
    Ok(array)
}

/// Reads service, key, handler and input of `ctx.call`, `ctx.send` and `ctx.compensate`.
#[inline]
pub(crate) fn nested_call(call: &Call<'_>) -> Result<NestedCall, Thrown> {
    let isolate = call.isolate;
    isolate.check_context(call.this)?;
    let (service, handler) = (call.argument(0), call.argument(2));
    if kind(service) != Kind::String || kind(handler) != Kind::String {
        return Err(isolate.context.throw_type("give service, key and handler as strings"));
    }
    let (service, handler) = (isolate.context.text(service)?, isolate.context.text(handler)?);
    let found = match isolate.directory.get() {
        Some(directory) => directory.find(service.bytes(), handler.bytes()),
        None => return Err(isolate.refuse_no_call()),
    };
    let handler = match found {
        Ok(handler) => handler,
        Err(error) => find_elsewhere(isolate, (service.bytes(), handler.bytes()), error)?,
    };
    Ok(NestedCall { handler, key: isolate.entity_key(call.argument(1))?, input: isolate.input(call.argument(3))? })
}

/// A service named as `app/service`, which only the host can find; for other names, the error there is.
#[cold]
fn find_elsewhere(isolate: &Isolate, (service, handler): (&[u8], &[u8]), error: Error) -> Result<HandlerId, Thrown> {
    let texts = (std::str::from_utf8(service), std::str::from_utf8(handler));
    let (Ok(service), Ok(handler)) = texts else { return Err(isolate.throw_error(error)) };
    match service.split_once('/') {
        Some((app, service)) => isolate.with_host(|host| host.built_in()?.find([app, service, handler], None)),
        None => Err(isolate.throw_error(error)),
    }
}

fn call(call: &Call<'_>) -> Result<Value, Thrown> {
    let isolate = call.isolate;
    let nested = nested_call(call)?;
    isolate.check_operations()?;
    let options = call.argument(4);
    if !is_nullish(options) {
        isolate.retry_next(options, "ctx.call")?;
    }
    isolate.await_operation(|| isolate.with_host(|host| host.call(nested)))
}

fn send(call: &Call<'_>) -> Result<Value, Thrown> {
    let isolate = call.isolate;
    let NestedCall { handler, key, input } = nested_call(call)?;
    let (delay_ms, id) = send_options(isolate, call.argument(4))?;
    match isolate.with_host(|host| host.send(Message { handler, key, input, delay_ms, id }))? {
        Some(invocation) => call.context.string(invocation.as_bytes()),
        None => Ok(call.context.own(UNDEFINED)),
    }
}

/// How much later a message is to run, and the id of the workflow that it starts.
fn send_options(isolate: &Isolate, options: Raw) -> Result<(u64, Option<String>), Thrown> {
    let known = [(isolate.atoms.delay_ms, "delay_ms"), (isolate.atoms.id, "id")];
    if !isolate.check_options(options, &known, "ctx.send")? {
        return Ok((0, None));
    }
    let value = isolate.context.get(options, isolate.atoms.delay_ms)?;
    let delay_ms = if is_nullish(value.raw()) { 0 } else { isolate.milliseconds(value.raw(), "delay_ms")? };
    let value = isolate.context.get(options, isolate.atoms.id)?;
    let id = if is_nullish(value.raw()) { None } else { Some(isolate.invocation_id(value.raw())?) };
    Ok((delay_ms, id))
}

fn now(call: &Call<'_>) -> Result<Value, Thrown> {
    call.isolate.check_context(call.this)?;
    call.isolate.now_value()
}

fn random(call: &Call<'_>) -> Result<Value, Thrown> {
    call.isolate.check_context(call.this)?;
    call.isolate.random_value()
}

fn uuid(call: &Call<'_>) -> Result<Value, Thrown> {
    call.isolate.check_context(call.this)?;
    call.isolate.uuid_value()
}

fn log(call: &Call<'_>) -> Result<Value, Thrown> {
    let isolate = call.isolate;
    isolate.check_context(call.this)?;
    let values = call.context.array()?;
    for (index, value) in call.arguments().iter().enumerate() {
        call.context.push(&values, index as u32, call.context.dup(*value))?;
    }
    let line = call.context.call(isolate.glue.format, UNDEFINED, &mut [values.raw()])?;
    isolate.log_line(LogLevel::Info, line.raw())
}

fn key(call: &Call<'_>) -> Result<Value, Thrown> {
    with_key(call, |key| call.context.string_lossy(key))
}

fn key_bytes(call: &Call<'_>) -> Result<Value, Thrown> {
    with_key(call, |key| call.context.uint8_array(key))
}

#[inline]
fn with_key(call: &Call<'_>, act: impl FnOnce(&[u8]) -> Result<Value, Thrown>) -> Result<Value, Thrown> {
    call.isolate.check_context(call.this)?;
    let value = call.isolate.host.with_subject(|subject| match subject {
        Subject::Entity(key) => act(key),
        // A route has no entity.
        Subject::Request(_) => Ok(call.context.own(UNDEFINED)),
    });
    value.unwrap_or_else(|| Ok(call.context.own(NULL)))
}

impl Isolate {
    /// The invocation's time in milliseconds.
    pub(crate) fn now_value(&self) -> Result<Value, Thrown> {
        let now = self.with_host(|host| Ok(host.now()))?;
        // Milliseconds since 1970 stay far below 2^53.
        Ok(self.context.own(number(now.0 as f64)))
    }

    /// A number from 0 to 1, 1 excluded.
    pub(crate) fn random_value(&self) -> Result<Value, Thrown> {
        let bits = self.random_bits()?;
        // 53 bits are what a double holds.
        Ok(self.context.own(number((bits >> 11) as f64 / (1u64 << 53) as f64)))
    }

    /// A random UUID (RFC 9562, version 4).
    pub(crate) fn uuid_value(&self) -> Result<Value, Thrown> {
        let (high, low) = (self.random_bits()?, self.random_bits()?);
        let high = (high & 0xFFFF_FFFF_FFFF_0FFF) | 0x4000;
        let low = (low & 0x3FFF_FFFF_FFFF_FFFF) | 0x8000_0000_0000_0000;
        let (a, b, c) = (high >> 32, (high >> 16) & 0xFFFF, high & 0xFFFF);
        let text = format!("{a:08x}-{b:04x}-{c:04x}-{:04x}-{:012x}", low >> 48, low & 0xFFFF_FFFF_FFFF);
        self.context.string(text.as_bytes())
    }
}
