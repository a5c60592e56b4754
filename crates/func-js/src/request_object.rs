//! A route's request as JavaScript sees it: everything is made when it is asked for, and what is
//! an object is made once.

use millrace_base::{Error, ErrorCode};
use percent_encoding::percent_decode;

use crate::isolate::Isolate;
use crate::js::{Kind, NULL, Raw, Thrown, UNDEFINED, Value, is_undefined, kind};
use crate::native::{Call, Entry, NativeOwner};
use crate::subject::{Request, Subject};

pub(crate) const ENTRIES: &[Entry] = &[
    (NativeOwner::Request, "header", 1, header),
    (NativeOwner::Request, "text", 0, text),
    (NativeOwner::Request, "json", 0, json),
    (NativeOwner::RequestGetter, "method", 0, method),
    (NativeOwner::RequestGetter, "path", 0, path),
    (NativeOwner::RequestGetter, "query", 0, query),
    (NativeOwner::RequestGetter, "params", 0, parameters),
    (NativeOwner::RequestGetter, "headers", 0, headers),
    (NativeOwner::RequestGetter, "body", 0, body),
];

const QUERY: usize = 0;
const PARAMETERS: usize = 1;
const HEADERS: usize = 2;
const BODY: usize = 3;

impl Isolate {
    /// The request of the running activation.
    pub(crate) fn new_request_object(&self) -> Result<Value, Thrown> {
        self.new_tagged_object(self.request_class)
    }
}

/// Uses the request behind `this`.
fn with_request(call: &Call<'_>, act: impl FnOnce(&Request<'_>) -> Result<Value, Thrown>) -> Result<Value, Thrown> {
    call.isolate.check_tag(call.this, call.isolate.request_class, "request")?;
    let value = call.isolate.host.with_subject(|subject| match subject {
        Subject::Request(request) => act(request),
        Subject::Entity(_) => Err(call.isolate.refuse_no_call()),
    });
    value.unwrap_or_else(|| Err(call.isolate.refuse_no_call()))
}

/// What a getter made before, or what `make` makes now.
fn kept(
    call: &Call<'_>,
    index: usize,
    make: impl FnOnce(&Request<'_>) -> Result<Value, Thrown>,
) -> Result<Value, Thrown> {
    let atom = call.isolate.atoms.kept[index];
    let before = call.context.get(call.this, atom)?;
    if !is_undefined(before.raw()) {
        return Ok(before);
    }
    let made = with_request(call, make)?;
    call.context.define(call.this, atom, call.context.dup(made.raw()), 0)?;
    Ok(made)
}

fn method(call: &Call<'_>) -> Result<Value, Thrown> {
    with_request(call, |request| call.context.string(request.method.as_bytes()))
}

fn path(call: &Call<'_>) -> Result<Value, Thrown> {
    with_request(call, |request| call.context.string(request.path.as_bytes()))
}

fn header(call: &Call<'_>) -> Result<Value, Thrown> {
    let name = call.argument(0);
    if kind(name) != Kind::String {
        return Err(call.context.throw_type("a header's name must be a string"));
    }
    let name = call.context.text(name)?;
    with_request(call, |request| {
        let Ok(name) = std::str::from_utf8(name.bytes()) else {
            return Ok(call.context.own(NULL));
        };
        let value = if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            request.headers.get(&name.to_ascii_lowercase())
        } else {
            request.headers.get(name)
        };
        match value {
            Some(value) => call.context.string(value.as_bytes()),
            None => Ok(call.context.own(NULL)),
        }
    })
}

fn text(call: &Call<'_>) -> Result<Value, Thrown> {
    with_request(call, |request| {
        let body = request.body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&request.body);
        call.context.string_lossy(body)
    })
}

fn json(call: &Call<'_>) -> Result<Value, Thrown> {
    with_request(call, |request| {
        if request.body.is_empty() {
            return Err(call.isolate.throw_error(Error::new(ErrorCode::InvalidInput, "the request's body is empty")));
        }
        call.isolate.parse_json(&request.body).map_err(|Thrown| call.isolate.rethrow_invalid("the request's body"))
    })
}

fn query(call: &Call<'_>) -> Result<Value, Thrown> {
    kept(call, QUERY, |request| {
        let text = call.context.string(request.query.as_bytes())?;
        let mut arguments = [text.raw()];
        // SAFETY: QuickJS copies what it keeps of the arguments.
        let made = unsafe {
            rquickjs::qjs::JS_CallConstructor(
                call.context.as_ptr(),
                call.isolate.glue.search_parameters,
                1,
                arguments.as_mut_ptr(),
            )
        };
        call.context.check(made)
    })
}

fn parameters(call: &Call<'_>) -> Result<Value, Thrown> {
    kept(call, PARAMETERS, |request| {
        let object = call.context.object()?;
        for (name, value) in request.parameters.iter() {
            call.context.define_named(object.raw(), name, call.context.string(value.as_bytes())?)?;
        }
        Ok(object)
    })
}

fn headers(call: &Call<'_>) -> Result<Value, Thrown> {
    kept(call, HEADERS, |request| {
        let object = call.context.object()?;
        let mut result = Ok(());
        request.headers.each(&mut |name, value| {
            if result.is_ok() {
                result = add_header(call, object.raw(), name, value);
            }
        });
        result.map(|()| object)
    })
}

/// Adds a header; one that came several times has its values joined, as HTTP allows.
fn add_header(call: &Call<'_>, object: Raw, name: &str, value: &str) -> Result<(), Thrown> {
    let atom = call.context.atom(name);
    let before = own_text(call, object, atom)?;
    let separator = if name == "cookie" { "; " } else { ", " };
    let value = match before {
        Some(before) => call.context.string(format!("{before}{separator}{value}").as_bytes())?,
        None => call.context.string(value.as_bytes())?,
    };
    let result = call.context.define(object, atom, value, rquickjs::qjs::JS_PROP_C_W_E);
    call.context.free_atom(atom);
    result
}

/// The text of an own property that is a string.
fn own_text(call: &Call<'_>, object: Raw, atom: crate::js::Atom) -> Result<Option<String>, Thrown> {
    // `constructor` and the like are inherited and no strings.
    let value = call.context.get(object, atom)?;
    match kind(value.raw()) {
        Kind::String => Ok(Some(call.context.text(value.raw())?.to_string_lossy())),
        _ => Ok(None),
    }
}

fn body(call: &Call<'_>) -> Result<Value, Thrown> {
    kept(call, BODY, |request| call.context.uint8_array(&request.body))
}

/// `a=1&b=%20` as pairs of decoded text.
pub(crate) fn parse_query(call: &Call<'_>) -> Result<Value, Thrown> {
    let text = call.context.text(call.argument(0))?;
    let pairs = call.context.array()?;
    let parts = text.bytes().split(|byte| *byte == b'&').filter(|part| !part.is_empty());
    for (index, part) in parts.enumerate() {
        let split = part.iter().position(|byte| *byte == b'=');
        let (name, value) = match split {
            Some(at) => (&part[..at], &part[at + 1..]),
            None => (part, &[][..]),
        };
        let pair = call.context.array()?;
        call.context.push(&pair, 0, decoded(call, name)?)?;
        call.context.push(&pair, 1, decoded(call, value)?)?;
        call.context.push(&pairs, index as u32, pair)?;
    }
    Ok(pairs)
}

fn decoded(call: &Call<'_>, text: &[u8]) -> Result<Value, Thrown> {
    let spaced: Vec<u8> = text.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
    let bytes: Vec<u8> = percent_decode(&spaced).collect();
    call.context.string_lossy(&bytes)
}

impl Isolate {
    /// Turns the exception of the JSON parser into an `invalid-input` error about `what`.
    pub(crate) fn rethrow_invalid(&self, what: &str) -> Thrown {
        let error = self.invalid_json(what);
        self.throw_error(error)
    }

    /// The JSON parser's pending exception as an error about `what`.
    pub(crate) fn invalid_json(&self, what: &str) -> Error {
        let exception = self.context.take_exception();
        if let Some(error) = self.breach_error() {
            return error;
        }
        let (message, _) = self.describe_exception(exception.raw());
        if self.heap.take_refused() {
            return crate::budget::Breach::Memory.error(&self.limits);
        }
        let message = match message.as_str() {
            "RangeError: Maximum call stack size exceeded" => "it nests too deeply",
            other => other.strip_prefix("SyntaxError: ").unwrap_or(other),
        };
        Error::new(ErrorCode::InvalidInput, format!("{what} is not valid JSON: {message}"))
    }
}

/// `undefined` as a value.
pub(crate) fn undefined(call: &Call<'_>) -> Value {
    call.context.own(UNDEFINED)
}
