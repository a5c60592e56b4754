//! The guide's table of settings is made from the list of settings. `MILLRACE_WRITE_GUIDE=1 cargo test --release -p
//! millrace-server guides_table` writes it anew.

use std::path::Path;

use crate::settings_file::with_settings;

struct Setting {
    key: &'static str,
    type_name: &'static str,
    variable: &'static str,
    value: &'static str,
    default: Option<&'static str>,
    guide: &'static str,
}

macro_rules! list {
    ($({
        $name:ident: $type:ty, $variable:literal, $value:literal, $(default $default:literal,)?
        $help:literal, guide $guide:literal $(, arg($($arg:tt)*))? $(, file($($file:tt)*))?
    })*) => {
        vec![$(Setting {
            key: stringify!($name),
            type_name: stringify!($type),
            variable: $variable,
            value: $value,
            default: None$(.or(Some($default)))?,
            guide: $guide,
        }),*]
    };
}

const HEAD: &str = "| flag | variable | key | default | |\n|---|---|---|---|---|\n";

/// Only the command line can name the file.
const CONFIG: &str = "| `--config FILE` | `MILLRACE_CONFIG` | | none | a file with any of these settings, \
                      [see below](#the-file-of-settings) |\n";

impl Setting {
    fn flag(&self) -> String {
        self.key.replace('_', "-")
    }

    fn is_switch(&self) -> bool {
        self.type_name.contains("bool")
    }

    fn row(&self) -> String {
        let value = if self.is_switch() { String::new() } else { format!(" {}", self.value) };
        let default = match self.default {
            None if self.is_switch() => "no".to_owned(),
            None => "none".to_owned(),
            // Text and numbers are for reading, the others for typing.
            Some(text) if text.contains(' ') || text.parse::<u64>().is_ok() => text.to_owned(),
            Some(text) => format!("`{text}`"),
        };
        let Self { key, variable, guide, .. } = self;
        format!("| `--{}{value}` | `{variable}` | `{key}` | {default} | {guide} |\n", self.flag())
    }
}

fn settings() -> Vec<Setting> {
    with_settings!(list)
}

#[test]
fn variables_are_named_after_their_flags() {
    for setting in settings() {
        assert_eq!(setting.variable, format!("MILLRACE_{}", setting.key.to_uppercase()));
    }
}

#[test]
fn the_guides_table_is_made_from_the_list_of_settings() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/operations.md");
    let guide = std::fs::read_to_string(&path).expect("the guide");
    let (before, rest) = guide.split_once(HEAD).expect("the table's head");
    let (_, after) = rest.split_once("\n\n").expect("the table's end");
    let rows: String = settings().iter().map(Setting::row).collect();
    let made = format!("{before}{HEAD}{CONFIG}{rows}\n{after}");
    if std::env::var_os("MILLRACE_WRITE_GUIDE").is_some() {
        std::fs::write(&path, &made).expect("written");
    }
    assert_eq!(std::fs::read_to_string(&path).expect("the guide"), made, "write it anew as this file's head says");
}
