//! What functions ask of built-in apps, and which of it an app may ask.

use bytes::Bytes;
use millrace_api::objects::{BUCKET_SERVICE, OBJECT_SERVICE, OBJECTS_APP};
use millrace_api::{BuiltInReply, RECORDS_APP};
use millrace_base::{Error, ErrorCode};

use crate::catalog::Loaded;

/// An operation of a built-in app: a call of one of its handlers, which any app may ask for that has the right to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuiltInCall<'a> {
    /// The built-in app.
    pub app: &'static str,
    /// One of its services: a type of records is one.
    pub service: &'a str,
    /// A handler of the service.
    pub handler: &'static str,
    /// The entity's key. `None`: any entity will do, at best one in the caller's shard.
    pub key: Option<&'a [u8]>,
    /// The operation, as the built-in app encodes it.
    pub input: Bytes,
}

impl Loaded {
    /// Whether the app may ask for operations of a service of a built-in app. A built-in app may ask for its own.
    ///
    /// # Errors
    /// `forbidden`, naming the setting that would allow it.
    pub fn may_operate(&self, app: &str, service: &str) -> Result<(), Error> {
        match app {
            _ if self.app.as_str() == app => Ok(()),
            RECORDS_APP => self.records.allows(service),
            // Buckets say themselves who may what.
            OBJECTS_APP if matches!(service, BUCKET_SERVICE | OBJECT_SERVICE) => Ok(()),
            _ => {
                let message = format!("functions have no operations of the built-in app {app:?}");
                Err(Error::new(ErrorCode::Forbidden, message))
            }
        }
    }

    /// Whether something of a built-in app may set off the app's handlers.
    ///
    /// # Errors
    /// `forbidden`, naming the setting that would allow it.
    pub fn may_be_set_off(&self, app: &str, name: &str) -> Result<(), Error> {
        match app {
            OBJECTS_APP => self.objects.allows(name),
            _ => {
                let message =
                    format!("nothing of the built-in app {app:?} sets off handlers of {:?}", self.app.as_str());
                Err(Error::new(ErrorCode::Forbidden, message))
            }
        }
    }
}

/// What a query gave that was answered at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The output of the call.
    Value(Bytes),
    /// The same of an operation of a built-in app: whoever asked from near by need not read it.
    BuiltIn(BuiltInReply),
}

impl Answer {
    /// The output of the call.
    #[must_use]
    pub fn into_value(self) -> Bytes {
        match self {
            Answer::Value(output) => output,
            Answer::BuiltIn(reply) => reply.to_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use millrace_base::Name;

    use super::*;
    use crate::{App, ObjectPolicy};

    #[test]
    fn an_app_says_which_buckets_set_off_its_handlers_and_nothing_else_does() {
        let objects = ObjectPolicy::new(vec!["photos".to_owned()]).expect("a name");
        let app = App { objects, ..App::new(Name::new("shop").expect("a name")) };
        let loaded = Loaded::new(&app, 1, Vec::new());
        assert_eq!(loaded.may_be_set_off(OBJECTS_APP, "photos"), Ok(()));
        for (by, name) in [(OBJECTS_APP, "letters"), (RECORDS_APP, "photos"), ("shop", "photos")] {
            let refused = loaded.may_be_set_off(by, name).map_err(|error| error.code);
            assert_eq!(refused, Err(ErrorCode::Forbidden), "{by}/{name}");
        }
    }
}
