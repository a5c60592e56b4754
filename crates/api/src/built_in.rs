//! Apps that are part of the server: one row each, with all that other parts of the server have to know of one.
//!
//! A new one gets a row here, and an engine in the server's table of engines. Its fronts get a trait, which the node
//! implements in a file of the app's name. Nothing else below the fronts names it; tidy looks after that.

use bytes::Bytes;
use millrace_base::{Error, ErrorCode};

/// An app that is part of the server. Users deploy none under its name, and reach it by paths of its own.
#[derive(Debug)]
pub struct BuiltInApp {
    /// Its name. Roles name it as they name users' apps.
    pub name: &'static str,
    /// Of one that is made of files. One without files is always there.
    pub files: Option<BuiltInFiles>,
    /// Bytes that a key of its entities may have.
    pub key_bytes: usize,
    /// Services whose operations the functions of every app may ask for.
    pub open_services: &'static [&'static str],
    /// What an app's `millrace.toml` says of it.
    pub setting: Setting,
    /// How it is reached, for whoever looks for it below the paths of services.
    pub reached: &'static str,
    /// What is said of a service that it does not have.
    pub no_service: fn(service: &str) -> Error,
}

/// The files of a built-in app are kept and replaced as a whole. Its services follow from them.
#[derive(Debug)]
pub struct BuiltInFiles {
    /// What is said of a service that would go with files that are replaced, and has entities.
    pub service_in_use: fn(service: &str) -> Error,
}

/// What an app's `millrace.toml` says of a built-in app, in the section that has its name: lines, each of which allows
/// something by its name. A star at a line's end stands for any rest. What no line names is not allowed.
#[derive(Debug)]
pub struct Setting {
    /// Its name in the section.
    pub name: &'static str,
    /// What a line allows.
    pub allows: Allows,
    /// How many lines there may be.
    pub most_lines: usize,
    /// Whether something that can be allowed has such a name, or begins so.
    pub is_line: fn(line: &str) -> bool,
    /// What has these names.
    pub names: &'static str,
    /// What is said of a name that no line allows.
    pub refused: fn(name: &str) -> String,
}

/// What a [`Setting`] allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allows {
    /// The app's functions ask for operations of the service of that name.
    Operations,
    /// What has that name sets off handlers of the app.
    SettingOff,
}

/// All of them.
pub static BUILT_IN_APPS: [&BuiltInApp; 2] = [&crate::record::APP, &crate::objects::APP];

/// The built-in app of a name.
#[must_use]
pub fn built_in_app(name: &str) -> Option<&'static BuiltInApp> {
    BUILT_IN_APPS.into_iter().find(|app| app.name == name)
}

/// Whether an app is part of the server.
#[must_use]
pub fn is_built_in(app: &str) -> bool {
    built_in_app(app).is_some()
}

/// What is said of a service that a built-in app does not have, in the words of that app.
#[must_use]
pub fn no_built_in_service(app: &str, service: &str) -> Error {
    match built_in_app(app) {
        Some(app) => (app.no_service)(service),
        None => Error::new(ErrorCode::UnknownApp, format!("no app {app:?} is built in")),
    }
}

/// A reply of a built-in app that was not encoded, as whoever asked is near by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuiltInReply {
    /// Of records.
    Record(crate::RecordReply),
}

impl BuiltInReply {
    /// As the output of a call.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        match self {
            BuiltInReply::Record(reply) => reply.to_bytes(),
        }
    }
}
