//! Errors crossing the border: exceptions of user code become [`Error`]s with a place in the user's
//! source; errors of the host become exceptions.

use millrace_base::{Error, ErrorCode};

use crate::isolate::Isolate;
use crate::js::{Kind, Raw, Thrown, UNDEFINED, Value, kind};
use crate::json::Written;
use crate::transpile::Position;

/// Bytes of a user error's text that are passed on.
const MESSAGE_BYTES: usize = 4096;

/// Before a place, behind a message.
const PLACE: &str = " (at ";

/// A file of the app, and where in it.
pub(crate) type SourcePosition = (String, Position);

impl Isolate {
    /// Throws `error` into user code: an `Abort`, or an `Error` with a `code`.
    #[cold]
    pub(crate) fn throw_error(&self, error: Error) -> Thrown {
        match self.error_value(&error) {
            Ok(value) => self.context.throw(value),
            Err(thrown) => thrown,
        }
    }

    /// The exception that stands for `error`.
    pub(crate) fn error_value(&self, error: &Error) -> Result<Value, Thrown> {
        let code = self.context.string(error.code.as_str().as_bytes())?;
        let message = self.context.string(error.message.as_bytes())?;
        let detail = match &error.detail {
            Some(detail) => self.context.string(detail.as_bytes())?,
            None => self.context.own(UNDEFINED),
        };
        let mut arguments = [code.raw(), message.raw(), detail.raw()];
        self.context.call(self.glue.make_error, UNDEFINED, &mut arguments)
    }

    /// The limit that this turn broke, as the caller's error.
    #[inline]
    pub(crate) fn breach_error(&self) -> Option<Error> {
        self.budget.breach().map(|breach| breach.error(&self.limits))
    }

    /// The pending exception as the caller's error.
    #[cold]
    pub(crate) fn take_error(&self) -> Error {
        let exception = self.context.take_exception();
        self.error_of(exception.raw())
    }

    /// What a thrown value means to the caller. May run user code (getters, proxies), still under
    /// the turn's budget.
    #[cold]
    pub(crate) fn error_of(&self, thrown: Raw) -> Error {
        if let Some(error) = self.breach_error() {
            return error;
        }
        if kind(thrown) == Kind::Object {
            if self.context.is_instance(thrown, self.glue.abort) {
                return self.abort_of(thrown);
            }
            if let Some(code) = self.host_code(thrown) {
                return self.host_error_of(thrown, code);
            }
        }
        let (message, place) = self.describe_exception(thrown);
        let code = match message.as_str() {
            "RangeError: Maximum call stack size exceeded" => ErrorCode::StackLimit,
            // A string that could not even be addressed, and the like.
            "InternalError: out of memory" | "InternalError: string too long" | "RangeError: invalid string length" => {
                ErrorCode::MemoryLimit
            }
            _ => ErrorCode::FunctionFailed,
        };
        Error::new(code, with_place(message, place))
    }

    /// An error of the host. If the host refused misuse, the error gets its place in the code. An error from another call
    /// has told its own place.
    ///
    /// Code that calls what is not there has a mistake. Its caller must not take that for a mistake of its own.
    fn host_error_of(&self, thrown: Raw, code: ErrorCode) -> Error {
        let message = shortened(self.text_property(thrown, self.atoms.message).unwrap_or_default());
        let code = match code {
            ErrorCode::UnknownService | ErrorCode::UnknownHandler => ErrorCode::FunctionFailed,
            code => code,
        };
        if code != ErrorCode::FunctionFailed || message.contains(PLACE) {
            return Error::new(code, message);
        }
        let stack = self.text_property(thrown, self.atoms.stack).unwrap_or_default();
        Error::new(code, with_place(message, self.place_in(&stack)))
    }

    fn abort_of(&self, thrown: Raw) -> Error {
        let message = self.text_property(thrown, self.atoms.message).unwrap_or_default();
        let mut error = Error::new(ErrorCode::Aborted, shortened(message));
        let mut detail = Vec::new();
        let written = self.context.get(thrown, self.atoms.payload).and_then(|payload| {
            let written = self.write_json(payload.raw(), &mut detail)?;
            Ok(written)
        });
        match written {
            Ok(Written::Nothing) => {}
            Ok(Written::Json) if detail.len() > self.limits.output_bytes => {
                error.message.push_str(" (the payload is larger than limits.output_bytes)");
            }
            Ok(Written::Json) => error.detail = String::from_utf8(detail).ok(),
            Err(Thrown) => {
                drop(self.context.take_exception());
                error.message.push_str(" (the payload is not JSON)");
            }
        }
        error
    }

    /// The code of an error that the host threw.
    fn host_code(&self, thrown: Raw) -> Option<ErrorCode> {
        if !self.context.is_instance(thrown, self.glue.host_error) {
            return None;
        }
        ErrorCode::parse(&self.text_property(thrown, self.atoms.code)?)
    }

    /// The text of a thrown value and the place in the app it came from.
    pub(crate) fn describe_exception(&self, thrown: Raw) -> (String, Option<SourcePosition>) {
        let message = match kind(thrown) {
            Kind::Object => return self.describe_object(thrown),
            Kind::Symbol => "threw a symbol".to_owned(),
            Kind::Undefined => "threw undefined".to_owned(),
            _ => match self.context.text(thrown) {
                Ok(text) => format!("threw {}", text.to_string_lossy()),
                Err(Thrown) => {
                    drop(self.context.take_exception());
                    "threw a value that cannot be shown".to_owned()
                }
            },
        };
        (shortened(message), None)
    }

    fn describe_object(&self, thrown: Raw) -> (String, Option<SourcePosition>) {
        if self.context.is_error(thrown) {
            let name = self.text_property(thrown, self.atoms.name).unwrap_or_else(|| "Error".to_owned());
            let message = self.text_property(thrown, self.atoms.message).unwrap_or_default();
            let text = if message.is_empty() { name } else { format!("{name}: {message}") };
            let stack = self.text_property(thrown, self.atoms.stack).unwrap_or_default();
            return (shortened(text), self.place_in(&stack));
        }
        let mut json = Vec::new();
        let text = match self.write_json(thrown, &mut json) {
            Ok(Written::Json) => format!("threw {}", String::from_utf8_lossy(&json)),
            Ok(Written::Nothing) => "threw a function".to_owned(),
            Err(Thrown) => {
                drop(self.context.take_exception());
                "threw an object that cannot be shown as JSON".to_owned()
            }
        };
        (shortened(text), None)
    }

    /// A property that is a string; `None` when it is not or asking throws.
    fn text_property(&self, object: Raw, name: crate::js::Atom) -> Option<String> {
        let read = self.context.get(object, name).and_then(|value| match kind(value.raw()) {
            Kind::String => self.context.text(value.raw()).map(|text| Some(text.to_string_lossy())),
            _ => Ok(None),
        });
        match read {
            Ok(text) => text,
            Err(Thrown) => {
                drop(self.context.take_exception());
                None
            }
        }
    }

    /// The first line of a stack trace that lies in the app, as a place in its sources.
    ///
    /// A line reads `    at name (file:line:column)` or `    at file:line:column`.
    fn place_in(&self, stack: &str) -> Option<SourcePosition> {
        stack.lines().find_map(|line| {
            let inner = match line.rsplit_once('(') {
                Some((_, inner)) => inner.trim_end_matches(')'),
                None => line.trim_start().strip_prefix("at ")?,
            };
            let (rest, column) = inner.rsplit_once(':')?;
            let (path, line) = rest.rsplit_once(':')?;
            let generated = Position { line: line.parse().ok()?, column: column.parse().ok()? };
            let position = self.sources.source_position(path, generated)?;
            Some((path.to_owned(), position))
        })
    }
}

fn with_place(message: String, place: Option<SourcePosition>) -> String {
    match place {
        Some((path, Position { line, column })) => format!("{message}{PLACE}{path}:{line}:{column})"),
        None => message,
    }
}

fn shortened(mut text: String) -> String {
    if text.len() > MESSAGE_BYTES {
        let mut end = MESSAGE_BYTES;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push('…');
    }
    text
}
