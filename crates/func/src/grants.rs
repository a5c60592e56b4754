//! What an app allows of built-in apps: the sections of its `millrace.toml` that have their names.

use std::collections::BTreeMap;

use millrace_api::{Allows, BUILT_IN_APPS, BuiltInApp, built_in_app};
use millrace_base::{Error, ErrorCode};
use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use crate::catalog::Loaded;
use crate::settings::Misplaced;

/// What an app allows, by built-in app; nothing, unless its `millrace.toml` says so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants(BTreeMap<&'static str, Vec<String>>);

impl Grants {
    /// Takes the sections of built-in apps out of a `millrace.toml`.
    pub(crate) fn take_from(table: &mut DeTable<'_>) -> Result<Self, Misplaced> {
        let mut grants = Self::default();
        for app in BUILT_IN_APPS {
            if let Some(section) = table.remove(app.name) {
                grants.read(app, &section)?;
            }
        }
        Ok(grants)
    }

    fn read(&mut self, app: &'static BuiltInApp, section: &Spanned<DeValue<'_>>) -> Result<(), Misplaced> {
        let setting = app.setting.name;
        let DeValue::Table(table) = section.get_ref() else {
            return Err(Misplaced::at(section, format!("invalid type: expected a section with {setting:?}")));
        };
        for (key, value) in table {
            if key.get_ref() != setting {
                return Err(Misplaced::at(key, format!("unknown field `{}`, expected `{setting}`", key.get_ref())));
            }
            let lines = Vec::<String>::deserialize(ValueDeserializer::from(value.clone()))?;
            self.allow(app, lines).map_err(|message| Misplaced::at(value, message))?;
        }
        Ok(())
    }

    /// Allows of a built-in app what these lines name.
    ///
    /// # Errors
    /// More lines than one app may have, and names that nothing of the built-in app can have.
    pub fn allow(&mut self, app: &'static BuiltInApp, lines: Vec<String>) -> Result<(), String> {
        let (setting, most) = (&app.setting, app.setting.most_lines);
        let path = format!("{}.{}", app.name, setting.name);
        if lines.len() > most {
            return Err(format!("{path} has {} lines; {most} are allowed", lines.len()));
        }
        if let Some(wrong) = lines.iter().find(|line| !(setting.is_line)(line)) {
            return Err(format!("{path}: {wrong:?} cannot be the name of a {}", setting.names));
        }
        self.0.insert(app.name, lines);
        Ok(())
    }

    /// Whether a line names what a built-in app has.
    fn check(&self, app: &BuiltInApp, name: &str) -> Result<(), Error> {
        let is_named = |line: &String| match line.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => line == name,
        };
        if self.0.get(app.name).is_some_and(|lines| lines.iter().any(is_named)) {
            return Ok(());
        }
        let message = format!(
            "{}; to allow it, add {name:?} to `{}` under `[{}]` in the app's millrace.toml",
            (app.setting.refused)(name),
            app.setting.name,
            app.name
        );
        Err(Error::new(ErrorCode::Forbidden, message))
    }
}

impl Loaded {
    /// Whether the app may ask for operations of a service of a built-in app. A built-in app may ask for its own.
    ///
    /// # Errors
    /// `forbidden`, naming the setting that would allow it.
    pub fn may_operate(&self, app: &str, service: &str) -> Result<(), Error> {
        if self.app.as_str() == app {
            return Ok(());
        }
        match built_in_app(app) {
            Some(app) if app.open_services.contains(&service) => Ok(()),
            Some(app) if app.setting.allows == Allows::Operations => self.grants.check(app, service),
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
        match built_in_app(app) {
            Some(app) if app.setting.allows == Allows::SettingOff => self.grants.check(app, name),
            _ => {
                let message =
                    format!("nothing of the built-in app {app:?} sets off handlers of {:?}", self.app.as_str());
                Err(Error::new(ErrorCode::Forbidden, message))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use millrace_api::RECORDS_APP;
    use millrace_api::objects::{BUCKET_SERVICE, OBJECTS_APP, UPLOAD_SERVICE};
    use millrace_base::{Name, limits};

    use super::*;
    use crate::App;

    fn grants(app: &str, lines: &[&str]) -> Result<Grants, String> {
        let mut grants = Grants::default();
        let app = built_in_app(app).expect("it is built in");
        grants.allow(app, lines.iter().map(|line| (*line).to_owned()).collect())?;
        Ok(grants)
    }

    fn loaded(grants: Grants) -> Loaded {
        Loaded::new(&App { grants, ..App::new(Name::new("shop").expect("a name")) }, 1, Vec::new())
    }

    #[test]
    fn only_named_types_are_allowed() {
        let one = loaded(grants(RECORDS_APP, &["personinfo"]).expect("a name"));
        assert_eq!(one.may_operate(RECORDS_APP, "personinfo"), Ok(()));
        let error = one.may_operate(RECORDS_APP, "account").expect_err("not named");
        assert_eq!(error.code, ErrorCode::Forbidden);
        assert!(error.message.contains("add \"account\" to `types` under `[records]`"), "{error}");
        assert!(loaded(Grants::default()).may_operate(RECORDS_APP, "personinfo").is_err());
        let every = loaded(grants(RECORDS_APP, &["*"]).expect("any"));
        assert_eq!(every.may_operate(RECORDS_APP, "anything"), Ok(()));
    }

    #[test]
    fn names_that_no_type_can_have_are_refused() {
        for name in ["", "a b", "personinfo--shard", "**", "a*", &"x".repeat(limits::TYPE_NAME_BYTES + 1)] {
            assert!(grants(RECORDS_APP, &[name]).is_err(), "{name:?}");
        }
        assert!(grants(RECORDS_APP, &vec!["a"; limits::RECORD_TYPES + 1]).is_err());
    }

    #[test]
    fn an_app_says_which_buckets_set_off_its_handlers_and_nothing_else_does() {
        let some = loaded(grants(OBJECTS_APP, &["photos", "logs-*"]).expect("names"));
        for (bucket, is_allowed) in
            [("photos", true), ("photos2", false), ("logs-", true), ("logs-a", true), ("logs", false), ("", false)]
        {
            assert_eq!(some.may_be_set_off(OBJECTS_APP, bucket).is_ok(), is_allowed, "{bucket}");
        }
        assert!(loaded(Grants::default()).may_be_set_off(OBJECTS_APP, "photos").is_err());
        let every = loaded(grants(OBJECTS_APP, &["*"]).expect("any"));
        assert_eq!(every.may_be_set_off(OBJECTS_APP, "photos"), Ok(()));
        for by in [RECORDS_APP, "shop"] {
            let refused = every.may_be_set_off(by, "photos").map_err(|error| error.code);
            assert_eq!(refused, Err(ErrorCode::Forbidden), "{by}");
        }
        for wrong in ["", "Photos", "a*b", "a/b"] {
            assert!(grants(OBJECTS_APP, &[wrong]).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn every_app_may_use_the_services_that_are_open_to_all_and_its_own() {
        let none = loaded(Grants::default());
        assert_eq!(none.may_operate(OBJECTS_APP, BUCKET_SERVICE), Ok(()));
        assert_eq!(none.may_operate("shop", "anything"), Ok(()));
        assert!(none.may_operate(OBJECTS_APP, UPLOAD_SERVICE).is_err());
        assert!(loaded(grants(OBJECTS_APP, &["*"]).expect("any")).may_operate(OBJECTS_APP, UPLOAD_SERVICE).is_err());
    }
}
