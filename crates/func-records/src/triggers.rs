//! Triggers: their sources as an app of the wrapped engine, and the host that this engine sees.
//!
//! A trigger is either a module or, like classic scripts, the plain body of a function. A module's default export is
//! `(ctx, { id, record, before, changes }) => …`, and a plain body is the body of such a function. Each type with
//! triggers has one generated service module, `{T}--triggers`, whose handlers are the functions of the sources.
//!
//! The wrapped engine knows its own program only. Ids of handlers are translated between it and the host.

use std::fmt::Write as _;
use std::rc::Rc;

use bytes::Bytes;
use millrace_api::{RECORDS_APP, TRIGGERS_SERVICE, WRITE_HANDLER};
use millrace_base::{Error, ErrorCode, UnixMillis, Value};
use millrace_func::{
    App, BuiltInCall, BuiltInHost, FetchRequest, HandlerId, Host, LogLevel, Message, NestedCall, Offload, OperationId,
    ScanRequest,
};

use crate::program::{FOLLOW, RecordProgram};

/// The text before a plain body, on its first line, so that line numbers stay. A body cannot import, and a trigger
/// without `Abort` could not refuse, so the text imports it.
const BODY_HEAD: &str =
    "import { Abort } from \"millrace\"; export default async function (ctx, { id, record, before, changes }) { ";
const BODY_TAIL: &str = "\n}\n";

/// One trigger's name and source.
pub(crate) struct Source<'a> {
    pub name: &'a str,
    pub text: &'a str,
}

/// Whether a source is a module rather than a plain body. No statement of a plain body begins so.
fn is_module(text: &str) -> bool {
    text.trim_start_matches('\u{feff}').split(['\n', ';']).any(|statement| {
        let rest = statement.trim_start().strip_prefix("export");
        rest.is_some_and(|rest| rest.starts_with([' ', '\t', '{', '*']) || rest.is_empty())
    })
}

/// The path of a trigger's source in the app.
pub(crate) fn path(type_name: &str, trigger: &str) -> String {
    format!("triggers/{type_name}/{trigger}.js")
}

/// The name of a type's service of triggers.
pub(crate) fn service_name(type_name: &str) -> String {
    format!("{type_name}{TRIGGERS_SERVICE}")
}

/// Whether a service is that of a type's triggers.
pub(crate) fn is_service(name: &str) -> bool {
    name.ends_with(TRIGGERS_SERVICE)
}

/// The wrapped engine's name of a trigger's handler. A trigger's own name need not be valid there.
pub(crate) fn inner_handler(index: usize) -> String {
    format!("trigger{index}")
}

/// Adds a type's triggers to the app for the wrapped engine.
pub(crate) fn add_to(app: &mut App, type_name: &str, sources: &[Source<'_>]) {
    let mut imports = String::from("import { service } from \"millrace\";\n");
    let mut handlers = String::new();
    for (index, source) in sources.iter().enumerate() {
        let path = path(type_name, source.name);
        let text = if is_module(source.text) {
            source.text.to_owned()
        } else {
            format!("{BODY_HEAD}{}{BODY_TAIL}", source.text)
        };
        app.files.insert(path.clone(), text.into_bytes());
        // Writing to a string cannot fail. Names are plain: they need no quoting.
        let _ = writeln!(imports, "import * as module{index} from \"./{path}\";");
        let (handler, name) = (inner_handler(index), source.name);
        let _ = writeln!(handlers, "  {handler}: check(module{index}, \"{name}\"),");
    }
    let text = format!(
        "{imports}\nfunction check(module, name) {{\n  if (typeof module.default === \"function\") return module.default;\n  \
         throw new TypeError(`trigger \"${{name}}\" of the type \"{type_name}\" exports no function as its default: write \
         \"export default (ctx, {{ record, before, changes }}) => …\"`);\n}}\n\nexport default service({{\n{handlers}}});\n"
    );
    app.files.insert(format!("{}.js", service_name(type_name)), text.into_bytes());
}

/// The app without the sources of triggers. Helpers in folders stay, for triggers to import.
pub(crate) fn empty_app(app: &App) -> App {
    let helpers = app.files.iter().filter(|(path, _)| path.contains('/'));
    App { files: helpers.map(|(path, content)| (path.clone(), content.clone())).collect(), ..app.clone() }
}

/// An error of the wrapped engine about a trigger's source, with the place as the author knows it.
pub(crate) fn explain(error: Error, app: &App) -> Error {
    let Some(found) = find_place(&error.message) else {
        return error;
    };
    let (type_name, trigger) = (found.type_name.to_owned(), found.trigger.to_owned());
    let path = path(&type_name, &trigger);
    let has_head = app.files.get(&path).is_some_and(|text| text.starts_with(BODY_HEAD.as_bytes()));
    let message = if has_head { without_head(&error.message, &path) } else { error.message };
    Error { message: format!("trigger {trigger:?} of the type {type_name:?}: {message}"), ..error }
}

/// An error with which a trigger ended. An `Abort` stays as it is. Any other error names the trigger, wherever it comes
/// from.
pub(crate) fn explain_run(error: Error, app: &App, [type_name, trigger]: [&str; 2]) -> Error {
    if error.code == ErrorCode::Aborted {
        return error;
    }
    let head = format!("trigger {trigger:?} of the type {type_name:?}: ");
    let error = explain(error, app);
    if error.message.starts_with(&head) {
        return error;
    }
    Error { message: format!("{head}{}", error.message), ..error }
}

struct TriggerName<'a> {
    type_name: &'a str,
    trigger: &'a str,
}

fn find_place(message: &str) -> Option<TriggerName<'_>> {
    let rest = &message[message.find("triggers/")? + "triggers/".len()..];
    let (type_name, rest) = rest.split_once('/')?;
    let (trigger, _) = rest.split_once(".js")?;
    let is_name = |name: &str| millrace_base::Name::is_valid(name);
    (is_name(type_name) && is_name(trigger)).then_some(TriggerName { type_name, trigger })
}

/// Corrects columns on the first line of a wrapped body: `path:1:80` is the eighth of the source.
fn without_head(message: &str, path: &str) -> String {
    let start = format!("{path}:1:");
    let mut corrected = String::with_capacity(message.len());
    let mut rest = message;
    while let Some(at) = rest.find(&start) {
        let (before, after) = rest.split_at(at + start.len());
        corrected.push_str(before);
        let digits = after.len() - after.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        match after[..digits].parse::<usize>() {
            Ok(column) => {
                let _ = write!(corrected, "{}", column.saturating_sub(BODY_HEAD.len()).max(1));
            }
            Err(_) => corrected.push_str(&after[..digits]),
        }
        rest = &after[digits..];
    }
    corrected.push_str(rest);
    corrected
}

/// Bytes that [`with_depth`] puts before an input, at most.
pub(crate) const DEPTH_BYTES: usize = 13;

const DEPTH_HEAD: &str = "{\"depth\":";

/// Adds the depth to a trigger's input, which lacks its opening brace. The depth counts the triggers that run after a
/// commit and led to this write, each by what the one before wrote. It is the first member, where [`depth_of`] looks
/// for it.
pub(crate) fn with_depth(depth: u8, input: &str) -> Bytes {
    Bytes::from(format!("{DEPTH_HEAD}{depth},{input}"))
}

/// The depth in a trigger's input. An input that [`with_depth`] did not write begins a line of its own.
pub(crate) fn depth_of(input: &[u8]) -> u8 {
    let rest = input.strip_prefix(DEPTH_HEAD.as_bytes()).unwrap_or_default();
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0_u8, |depth, digit| depth.saturating_mul(10).saturating_add(digit - b'0'))
}

/// The same input as of a write that no trigger has led to. `None` if [`with_depth`] did not write it.
pub(crate) fn without_depth(input: &[u8]) -> Option<Bytes> {
    let rest = input.strip_prefix(DEPTH_HEAD.as_bytes())?;
    let comma = rest.iter().position(|byte| !byte.is_ascii_digit())?;
    let rest = std::str::from_utf8(rest[comma..].strip_prefix(b",")?).ok()?;
    Some(with_depth(0, rest))
}

/// The host as a trigger's activation sees it.
pub(crate) struct TriggerHost<'a> {
    pub host: &'a mut dyn Host,
    pub program: &'a Rc<RecordProgram>,
    /// The depth of the trigger that runs.
    pub depth: u8,
}

impl TriggerHost<'_> {
    /// The host's id of a handler. An id of another app is what the host itself found.
    fn outer(&self, id: HandlerId) -> Result<HandlerId, Error> {
        if Some(id.program) != self.program.inner {
            return Ok(id);
        }
        self.program
            .outer_handler(id)
            .ok_or_else(|| Error::new(ErrorCode::UnknownHandler, "the types have no such trigger"))
    }

    fn outer_call(&self, call: NestedCall) -> Result<NestedCall, Error> {
        Ok(NestedCall { handler: self.outer(call.handler)?, ..call })
    }
}

impl Host for TriggerHost<'_> {
    fn get(&mut self, field: &[u8]) -> Result<Option<&Value>, Error> {
        self.host.get(field)
    }

    fn set(&mut self, field: &[u8], value: Value) -> Result<(), Error> {
        self.host.set(field, value)
    }

    fn delete(&mut self, field: &[u8]) -> Result<bool, Error> {
        self.host.delete(field)
    }

    fn scan(&mut self, request: &ScanRequest) -> Result<Vec<(Vec<u8>, Value)>, Error> {
        self.host.scan(request)
    }

    fn keys(&mut self, service: u16, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<Vec<Vec<u8>>, Error> {
        self.host.keys(service, prefix, after, limit)
    }

    fn operate(&mut self, call: BuiltInCall<'_>) -> Result<OperationId, Error> {
        let is_write = call.app == RECORDS_APP && call.handler == WRITE_HANDLER && self.depth > 0;
        let mut types = self.program.types.iter();
        let of = types.find(|of| is_write && of.name.as_str() == call.service);
        match (of, call.key) {
            // Its writes know where they come from.
            (Some(of), Some(id)) => {
                let mut input = vec![self.depth];
                input.extend_from_slice(&call.input);
                let handler = HandlerId { program: self.program.number, service: of.service, handler: FOLLOW };
                self.host.call(NestedCall { handler, key: id.to_vec(), input: Bytes::from(input) })
            }
            _ => self.host.operate(call),
        }
    }

    fn call(&mut self, call: NestedCall) -> Result<OperationId, Error> {
        let call = self.outer_call(call)?;
        self.host.call(call)
    }

    fn send(&mut self, message: Message) -> Result<Option<String>, Error> {
        let handler = self.outer(message.handler)?;
        self.host.send(Message { handler, ..message })
    }

    fn signal(&mut self, invocation: &str, name: &str, payload: Bytes) -> Result<(), Error> {
        self.host.signal(invocation, name, payload)
    }

    fn offload(&mut self, work: Offload) -> Result<OperationId, Error> {
        self.host.offload(work)
    }

    fn fetch(&mut self, request: FetchRequest) -> Result<OperationId, Error> {
        self.host.fetch(request)
    }

    fn built_in(&mut self) -> Result<&mut dyn BuiltInHost, Error> {
        self.host.built_in()
    }

    fn cpu_spent_ns(&self) -> u64 {
        self.host.cpu_spent_ns()
    }

    fn spend_cpu(&mut self, turn_ns: u64) {
        self.host.spend_cpu(turn_ns);
    }

    fn now(&self) -> UnixMillis {
        self.host.now()
    }

    fn random(&mut self) -> u64 {
        self.host.random()
    }

    fn log(&mut self, level: LogLevel, line: &str) {
        self.host.log(level, line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_and_bodies_are_told_apart() {
        for module in [
            "export default () => 1",
            "import { x } from './x';\n  export default x;",
            "function f() {}\nexport { f as default };",
            "\u{feff}export default f",
            "import { x } from './x'; export default x;",
        ] {
            assert!(is_module(module), "{module}");
        }
        for body in ["", "ctx.log(1)", "const exported = 1;", "exports();", "if (record) { ctx.send(\"a\") }"] {
            assert!(!is_module(body), "{body}");
        }
    }

    #[test]
    fn the_first_line_of_a_body_has_its_own_columns() {
        let column = BODY_HEAD.len() + 8;
        let message = format!("triggers/a/b.js:1:{column}: unexpected; see triggers/a/b.js:2:3");
        assert_eq!(
            without_head(&message, "triggers/a/b.js"),
            "triggers/a/b.js:1:8: unexpected; see triggers/a/b.js:2:3"
        );
        assert_eq!(without_head("nothing", "triggers/a/b.js"), "nothing");
    }

    #[test]
    fn the_depth_comes_back_from_an_input() {
        for depth in [0, 1, 9, 10, 16, 99, 255] {
            let input = with_depth(depth, "\"id\":\"a\"}");
            assert_eq!(depth_of(&input), depth);
            assert!(input.len() <= DEPTH_BYTES + 9, "{} bytes", input.len());
            assert_eq!(without_depth(&input), Some(with_depth(0, "\"id\":\"a\"}")));
        }
        for other in [&b""[..], b"null", b"{\"id\":\"{\\\"depth\\\":9\"}", b"{ \"depth\":9}"] {
            assert_eq!((depth_of(other), without_depth(other)), (0, None));
        }
        assert_eq!(depth_of(b"{\"depth\":256,"), 255);
    }

    #[test]
    fn a_place_names_type_and_trigger() {
        let place = find_place("triggers/account/on-change.js:1:2: x").expect("a place");
        assert_eq!((place.type_name, place.trigger), ("account", "on-change"));
        for other in ["", "triggers/", "triggers/a", "triggers/a/b.ts:1", "lib/x.js:1"] {
            assert!(find_place(other).is_none(), "{other}");
        }
    }
}
