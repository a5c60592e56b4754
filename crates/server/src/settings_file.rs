//! The TOML file of settings as text: keys and the spelling of values, but not their meaning.
//!
//! Promises: reading never panics and is bounded by the text's length; an error says why. This file must not
//! know the command line or the node. It uses only `serde`, `toml` and the standard library, because the fuzz
//! target includes it alone.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use serde::de::value::SeqAccessDeserializer;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

#[path = "settings_table.rs"]
mod settings_table;

pub(crate) use settings_table::with_settings;

macro_rules! declare_file {
    ($({
        $name:ident: $type:ty, $variable:literal, $value:literal, $(default $default:literal,)?
        $help:literal, guide $guide:literal $(, arg($($arg:tt)*))? $(, file($($file:tt)*))?
    })*) => {
        /// The TOML file: each key is a flag of `millrace serve` with `_` for `-`.
        #[derive(Debug, Default, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub(crate) struct SettingsFile {
            $($(#[serde($($file)*)])? pub $name: $type,)*
        }

        /// Defaults as `--help` and the guide tell them.
        #[allow(non_upper_case_globals, dead_code, reason = "named as the settings; some are sentences")]
        pub(crate) mod default {
            $($(pub(crate) const $name: &str = $default;)?)*
        }
    };
}

with_settings!(declare_file);

/// What an acknowledged effect survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DurabilityName {
    /// A power cut.
    Fsync,
    /// A killed process, but not a power cut: loses what the kernel had not written.
    Os,
    /// Only a clean stop: keeps no log.
    None,
}

impl SettingsFile {
    /// Reads the file's text.
    ///
    /// # Errors
    /// Names the place and what is wrong there.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|error| error.to_string())
    }
}

/// A folder, or a list of them.
fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PathBuf>, D::Error> {
    struct Folders;
    impl<'de> Visitor<'de> for Folders {
        type Value = Vec<PathBuf>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a folder, or a list of folders")
        }

        fn visit_str<E: Error>(self, folder: &str) -> Result<Self::Value, E> {
            Ok(vec![PathBuf::from(folder)])
        }

        fn visit_seq<A: SeqAccess<'de>>(self, folders: A) -> Result<Self::Value, A::Error> {
            Vec::deserialize(SeqAccessDeserializer::new(folders))
        }
    }
    deserializer.deserialize_any(Folders)
}

fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SocketAddr>, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse_address(&text).map(Some).map_err(D::Error::custom)
}

/// Reads `127.0.0.1:8080`, `[::1]:8080`, `localhost:8080`. Nothing is looked up: `localhost` is 127.0.0.1.
///
/// A port alone is refused. Some programs take it for this machine, others for all addresses, and a wrong guess
/// serves strangers or nobody.
pub(crate) fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let text = text.trim();
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
    match (host, port.parse::<u16>()) {
        ("localhost", Ok(port)) => Ok((Ipv4Addr::LOCALHOST, port).into()),
        ("" | "*", Ok(port)) => Err(format!(
            "write 127.0.0.1:{port} to be reached from this machine only, 0.0.0.0:{port} from everywhere, for which \
             API keys are needed"
        )),
        _ if text.parse::<IpAddr>().is_ok() || text == "localhost" => {
            // Which port is right depends on the option. IPv6 needs brackets before a port.
            let host = if text.contains(':') { format!("[{text}]") } else { text.to_owned() };
            Err(format!("the port is missing: write it as {host}:PORT"))
        }
        _ => Err("write an address and a port, such as 127.0.0.1:8080, [::1]:8080 or localhost:8080; other names are \
                  not looked up"
            .to_owned()),
    }
}

/// Reads the value of a switch. An empty value means off, as if the variable were not set.
pub(crate) fn parse_switch(text: &str) -> Result<bool, String> {
    match text.trim().to_ascii_lowercase().as_str() {
        "1" | "yes" | "true" | "on" => Ok(true),
        "" | "0" | "no" | "false" | "off" => Ok(false),
        _ => Err("write yes or no, true or false, 1 or 0".to_owned()),
    }
}

/// Reads `67108864`, `64MiB`, `64M`, `1.5GiB`. Units are powers of 1024, whatever their spelling.
pub(crate) fn parse_size(text: &str) -> Result<usize, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor: f64 = match unit.trim().to_ascii_lowercase().trim_end_matches("ib").trim_end_matches('b') {
        "" => 1.0,
        "k" => 1024.0,
        "m" => 1024.0 * 1024.0,
        "g" => 1024.0 * 1024.0 * 1024.0,
        "t" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => return Err(format!("{unit:?} is not a unit: use KiB, MiB, GiB or TiB")),
    };
    let number: f64 = number.parse().map_err(|_| "not a size: write it as 512MiB".to_owned())?;
    let bytes = number * factor;
    let smallest = 16.0 * 1024.0 * 1024.0;
    if !(smallest..=1e15).contains(&bytes) {
        return Err("outside 16MiB to 1000TB".to_owned());
    }
    Ok(bytes as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024() {
        for (text, bytes) in [("64MiB", 64 << 20), ("64m", 64 << 20), ("1.5 GiB", 3 << 29), ("67108864", 64 << 20)] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "MiB", "1", "-1GiB", "1PiBx", "1e3GiB", "999999TiB"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_address_has_a_port_and_is_not_guessed() {
        for (text, address) in [
            ("127.0.0.1:9802", "127.0.0.1:9802"),
            ("localhost:9802", "127.0.0.1:9802"),
            ("0.0.0.0:80", "0.0.0.0:80"),
            ("[::1]:80", "[::1]:80"),
            (" 10.0.0.1:0 ", "10.0.0.1:0"),
        ] {
            assert_eq!(parse_address(text), Ok(address.parse().expect("an address")), "{text}");
        }
        for (text, words) in [
            (":9802", "127.0.0.1:9802 to be reached from this machine only, 0.0.0.0:9802"),
            ("9802", "127.0.0.1:9802"),
            ("*:9802", "0.0.0.0:9802"),
            ("127.0.0.1", "the port is missing: write it as 127.0.0.1:PORT"),
            ("::1", "the port is missing: write it as [::1]:PORT"),
            ("localhost", "the port is missing"),
            ("localhost:http", "127.0.0.1:8080"),
            ("shop.test:80", "not looked up"),
            ("99999", "127.0.0.1:8080"),
            ("", "127.0.0.1:8080"),
        ] {
            let error = parse_address(text).expect_err(text);
            assert!(error.contains(words), "{text}: {error}");
        }
        let file = SettingsFile::parse("http = \"localhost:81\"").expect("valid");
        assert_eq!(file.http, Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 81))));
        let error = SettingsFile::parse("http = \":81\"").expect_err("no address");
        assert!(error.contains("0.0.0.0:81"), "{error}");
    }

    #[test]
    fn switches_are_words_and_digits() {
        for (text, is_on) in [("1", true), ("YES", true), ("true", true), ("on", true), ("0", false), ("no", false)] {
            assert_eq!(parse_switch(text), Ok(is_on), "{text}");
        }
        assert_eq!((parse_switch("false"), parse_switch("off"), parse_switch("")), (Ok(false), Ok(false), Ok(false)));
        assert!(parse_switch("2").is_err() && parse_switch("json").is_err());
    }

    #[test]
    fn one_app_is_a_text_and_several_are_a_list() {
        for (text, apps) in [("app = \"short\"", &["short"][..]), ("app = [\"a\", \"b\"]", &["a", "b"]), ("", &[])] {
            let folders: Vec<PathBuf> = apps.iter().map(PathBuf::from).collect();
            assert_eq!(SettingsFile::parse(text).expect(text).app, folders);
        }
        for text in ["app = 1", "app = [1]", "app = { a = 1 }"] {
            let error = SettingsFile::parse(text).expect_err(text);
            assert!(error.contains("app") && (error.contains("folder") || error.contains("path")), "{text}: {error}");
        }
    }

    #[test]
    fn durability_has_three_names() {
        for (name, durability) in
            [("fsync", DurabilityName::Fsync), ("os", DurabilityName::Os), ("none", DurabilityName::None)]
        {
            let file = SettingsFile::parse(&format!("durability = \"{name}\"")).expect(name);
            assert_eq!(file.durability, Some(durability));
        }
        assert!(SettingsFile::parse("durability = \"Fsync\"").is_err());
    }
}
