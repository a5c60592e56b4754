//! For fuzzing only: what the reader of JSON promises, for any bytes.

use std::cell::OnceCell;
use std::rc::Rc;

use millrace_base::{Error, Name};
use millrace_func::App;
use rquickjs::qjs;
use serde::de::IgnoredAny;

use crate::isolate::{Isolate, Parts};
use crate::js::{Thrown, Value};
use crate::sources::Sources;
use crate::{Clocks, json_parse};

thread_local! {
    /// An isolate with no app in it; why there is none, should that ever be.
    static ISOLATE: Result<Box<Isolate>, Error> = empty_isolate();
}

fn empty_isolate() -> Result<Box<Isolate>, Error> {
    let app =
        App::new(Name::new("fuzz").map_err(|error| Error::new(millrace_base::ErrorCode::Internal, error.to_string()))?);
    // Time stands still: what is measured here is not how long it takes.
    let clocks = Clocks { monotonic_ns: || 0, thread_cpu_ns: || 0 };
    let (limits, sources) = (Rc::new(app.limits.clone()), Rc::new(Sources::read(&app, &[])?));
    Isolate::new(&Parts { clocks, limits: &limits, sources: &sources, directory: &Rc::new(OnceCell::new()) })
}

/// What the reader in Rust makes of a text is what QuickJS's own parser makes of it, and only JSON is read. What is
/// read is written again so that it is read the same.
#[doc(hidden)]
pub fn check_json(text: &[u8]) {
    ISOLATE.with(|isolate| match isolate {
        Ok(isolate) => check(isolate, text),
        Err(error) => assert!(error.message.is_empty(), "no isolate: {error}"),
    });
}

fn check(isolate: &Isolate, text: &[u8]) {
    // SAFETY: plain call on a live runtime.
    unsafe { qjs::JS_UpdateStackTop(isolate.runtime.as_ptr()) };
    isolate.budget.begin(u64::MAX);
    let read = written(isolate, isolate.parse_json(text));
    let Ok(utf8) = std::str::from_utf8(text) else {
        assert_eq!(read, None, "not UTF-8");
        return;
    };
    if let Ok(value) = json_parse::parse(isolate, utf8) {
        let own = written(isolate, Ok(value));
        assert!(own.is_some(), "what was read has a form");
        assert_eq!(own, written(isolate, isolate.parse_unusual(text)), "both parsers read the same");
        assert!(serde_json::from_str::<IgnoredAny>(utf8).is_ok(), "only JSON is read");
    }
    if let Some(json) = read {
        assert_eq!(written(isolate, isolate.parse_json(&json)), Some(json), "read again");
    }
}

fn written(isolate: &Isolate, value: Result<Value, Thrown>) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let result = value.and_then(|value| isolate.write_json(value.raw(), &mut out));
    if result.is_err() {
        drop(isolate.context.take_exception());
        return None;
    }
    Some(out)
}
