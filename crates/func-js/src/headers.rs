//! HTTP headers that user code wrote: those of a route's reply and of a request to the outside.

use crate::isolate::Isolate;
use crate::js::{Atom, Kind, Raw, Thrown, is_nullish, kind};

/// Bytes of one header's value.
const VALUE_BYTES: usize = 8 << 10;

/// Bytes of one header's name.
const NAME_BYTES: usize = 256;

/// A wrong value, or an exception while reading it.
pub(crate) enum Fault {
    Thrown,
    Wrong(String),
    TooLarge(usize),
}

impl From<Thrown> for Fault {
    fn from(_: Thrown) -> Self {
        Fault::Thrown
    }
}

pub(crate) fn wrong<T>(message: impl Into<String>) -> Result<T, Fault> {
    Err(Fault::Wrong(message.into()))
}

/// What one kind of message may have.
pub(crate) struct Rules {
    /// "a reply".
    pub(crate) what: &'static str,
    /// How many headers.
    pub(crate) most: usize,
    /// Names that belong to who frames the message: a contradiction would let one message pass
    /// for two.
    pub(crate) reserved: &'static [&'static str],
    /// Who that is.
    pub(crate) framed_by: &'static str,
    /// Whether names that passed are remembered: for one kind of message only.
    pub(crate) are_names_kept: bool,
}

impl Isolate {
    /// Names in lower case, and values, of an object whose values are strings, numbers or arrays
    /// of them.
    pub(crate) fn header_list(&self, raw: Raw, rules: &Rules) -> Result<Vec<(String, String)>, Fault> {
        let mut headers = Vec::new();
        if is_nullish(raw) {
            return Ok(headers);
        }
        if kind(raw) != Kind::Object || self.context.is_array(raw) {
            return wrong("headers must be an object");
        }
        let names = self.plain_names(raw)?;
        for name in names.iter() {
            let value = self.context.get(raw, name)?;
            let name = self.header_name(name, rules)?;
            if !self.context.is_array(value.raw()) {
                self.add_header(&mut headers, name, value.raw(), rules)?;
                continue;
            }
            let length = self.context.get_named(value.raw(), c"length")?;
            let Kind::Int(length) = kind(length.raw()) else {
                return wrong("a header has too many values");
            };
            for index in 0..length as u32 {
                let value = self.context.get_index(value.raw(), index)?;
                self.add_header(&mut headers, name.clone(), value.raw(), rules)?;
            }
        }
        Ok(headers)
    }

    /// A header's name in lower case.
    fn header_name(&self, name: Atom, rules: &Rules) -> Result<String, Fault> {
        let make = || {
            let text = self.name_text(name, |text| String::from_utf8_lossy(text).into_owned())?;
            header_name(&text, rules).map(String::into_bytes)
        };
        // What passed is ASCII.
        let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        if rules.are_names_kept {
            self.header_names.with(self.context, name, make, text)
        } else {
            make().map(|name| text(&name))
        }
    }

    fn add_header(
        &self,
        headers: &mut Vec<(String, String)>,
        name: String,
        raw: Raw,
        rules: &Rules,
    ) -> Result<(), Fault> {
        if headers.len() == rules.most {
            return wrong(format!("{} has at most {} headers", rules.what, rules.most));
        }
        if !matches!(kind(raw), Kind::String | Kind::Int(_) | Kind::Float(_)) {
            return wrong(format!("header {name:?} must be a string, a number or an array of them"));
        }
        let text = self.context.text(raw)?;
        if text.bytes().len() > VALUE_BYTES {
            return wrong(format!("header {name:?} has at most {VALUE_BYTES} bytes"));
        }
        if !text.bytes().iter().all(|byte| matches!(byte, b' '..=b'~' | b'\t')) {
            return wrong(format!("header {name:?} may hold visible ASCII characters, spaces and tabs only"));
        }
        headers.push((name, text.to_string_lossy()));
        Ok(())
    }
}

/// Whether a text is a token (RFC 9110, 5.6.2), as names of headers and methods are.
pub(crate) fn is_token(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_part)
}

/// A header's name in lower case.
fn header_name(name: &str, rules: &Rules) -> Result<String, Fault> {
    if name.len() > NAME_BYTES || !is_token(name) {
        return wrong(format!("{:?} is not a header's name", name.chars().take(64).collect::<String>()));
    }
    let name = name.to_ascii_lowercase();
    if rules.reserved.contains(&name.as_str()) {
        return wrong(format!("{} itself sets the header {name:?}", rules.framed_by));
    }
    Ok(name)
}
