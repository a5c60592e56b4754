//! JavaScript values to JSON text: plain objects and arrays are walked here; everything with a
//! meaning of its own (dates, maps, proxies, boxed values, `toJSON`) is left to QuickJS's
//! `JSON.stringify`, and so are structures so deep that they may be cycles.

use std::ffi::c_int;
use std::ptr;

use millrace_base::json::is_plain_ascii;
use millrace_base::{Error, ErrorCode};
use rquickjs::qjs;

use crate::forms::FormHash;
use crate::isolate::Isolate;
use crate::js::{Kind, Raw, Thrown, UNDEFINED, is_undefined, kind};
use crate::json::{Written, write_int};

/// Nesting that is walked here.
const DEPTH: usize = 64;

/// Why the walk ended early.
enum Stop {
    Thrown,
    /// Deeper than [`DEPTH`].
    Deep,
}

impl From<Thrown> for Stop {
    fn from(_: Thrown) -> Self {
        Stop::Thrown
    }
}

impl Isolate {
    /// Appends the JSON text of an object (or of a BigInt, which throws). May run user code.
    pub(crate) fn print_object(&self, raw: Raw, out: &mut Vec<u8>) -> Result<Written, Thrown> {
        let start = out.len();
        match self.print(raw, out, 0) {
            Ok(written) => Ok(written),
            Err(Stop::Thrown) => Err(Thrown),
            Err(Stop::Deep) => {
                out.truncate(start);
                self.stringify(raw, out)
            }
        }
    }

    fn print(&self, raw: Raw, out: &mut Vec<u8>, depth: usize) -> Result<Written, Stop> {
        match kind(raw) {
            Kind::Int(value) => write_int(value, out),
            Kind::Bool(value) => out.extend_from_slice(if value { b"true" } else { b"false" }),
            Kind::Null => out.extend_from_slice(b"null"),
            Kind::Undefined | Kind::Symbol => return Ok(Written::Nothing),
            Kind::Float(value) if !value.is_finite() => out.extend_from_slice(b"null"),
            Kind::Float(_) => out.extend_from_slice(self.context.text(raw)?.bytes()),
            Kind::String => write_string(self.context.text(raw)?.bytes(), out),
            Kind::BigInt => return Ok(self.stringify(raw, out)?),
            Kind::Object => {
                if depth == DEPTH {
                    return Err(Stop::Deep);
                }
                // SAFETY: reads the object's class.
                let class = unsafe { qjs::JS_GetClassID(raw) };
                let is_array = class == self.array_class;
                if (!is_array && class != self.object_class) || self.has_to_json(raw)? {
                    return Ok(self.stringify(raw, out)?);
                }
                if is_array { self.print_array(raw, out, depth)? } else { self.print_plain(raw, out, depth)? }
            }
        }
        Ok(Written::Json)
    }

    fn has_to_json(&self, raw: Raw) -> Result<bool, Thrown> {
        Ok(!is_undefined(self.context.get(raw, self.atoms.to_json)?.raw()))
    }

    fn print_array(&self, raw: Raw, out: &mut Vec<u8>, depth: usize) -> Result<(), Stop> {
        let mut length = 0;
        // SAFETY: the out parameter outlives the call.
        if unsafe { qjs::JS_GetLength(self.context.as_ptr(), raw, &mut length) } < 0 {
            return Err(Stop::Thrown);
        }
        // An array has at most 2^32 - 1 elements.
        let length = u32::try_from(length).map_err(|_| Stop::Deep)?;
        out.push(b'[');
        for index in 0..length {
            if index > 0 {
                out.push(b',');
            }
            let element = self.context.get_index(raw, index)?;
            if self.print(element.raw(), out, depth + 1)? == Written::Nothing {
                out.extend_from_slice(b"null");
            }
            self.check_length(out)?;
        }
        out.push(b']');
        Ok(())
    }

    fn print_plain(&self, raw: Raw, out: &mut Vec<u8>, depth: usize) -> Result<(), Stop> {
        let names = self.plain_names(raw)?;
        out.push(b'{');
        let mut is_first = true;
        for name in names.iter() {
            let value = self.context.get(raw, name)?;
            let before = out.len();
            if !is_first {
                out.push(b',');
            }
            self.print_name(name, out)?;
            match self.print(value.raw(), out, depth + 1)? {
                Written::Json => is_first = false,
                Written::Nothing => out.truncate(before),
            }
            self.check_length(out)?;
        }
        out.push(b'}');
        Ok(())
    }

    /// Appends a name and its colon.
    fn print_name(&self, name: crate::js::Atom, out: &mut Vec<u8>) -> Result<(), Thrown> {
        let make = || {
            self.name_text(name, |text| {
                let mut json = Vec::with_capacity(text.len() + 3);
                write_string(text, &mut json);
                json.push(b':');
                json
            })
        };
        self.json_names.with(self.context, name, make, |json| out.extend_from_slice(json))
    }

    /// Ends texts that no limit would let through before they fill the node's memory.
    #[inline]
    fn check_length(&self, out: &[u8]) -> Result<(), Thrown> {
        let limits = &self.limits;
        if out.len() <= limits.output_bytes.max(limits.input_bytes).max(limits.value_bytes) {
            return Ok(());
        }
        let message = "the value's JSON text is larger than any limit allows";
        Err(self.throw_error(Error::new(ErrorCode::SizeLimit, message)))
    }

    /// What `JSON.stringify` gives.
    pub(crate) fn stringify(&self, raw: Raw, out: &mut Vec<u8>) -> Result<Written, Thrown> {
        let was_printing = self.is_printing.replace(true);
        // SAFETY: plain call.
        let text = unsafe { qjs::JS_JSONStringify(self.context.as_ptr(), raw, UNDEFINED, UNDEFINED) };
        self.is_printing.set(was_printing);
        let text = self.context.check(text)?;
        if is_undefined(text.raw()) {
            return Ok(Written::Nothing);
        }
        out.extend_from_slice(self.context.text(text.raw())?.bytes());
        Ok(Written::Json)
    }

    /// The names of the own enumerable properties that are strings.
    pub(crate) fn own_names(&self, raw: Raw) -> Result<Names<'_>, Thrown> {
        let (mut table, mut count) = (ptr::null_mut(), 0);
        let flags = (qjs::JS_GPN_STRING_MASK | qjs::JS_GPN_ENUM_ONLY) as c_int;
        // SAFETY: the out parameters outlive the call.
        let status = unsafe { qjs::JS_GetOwnPropertyNames(self.context.as_ptr(), &mut table, &mut count, raw, flags) };
        if status < 0 { Err(Thrown) } else { Ok(Names { isolate: self, table, count }) }
    }

    /// The same of an object that may be plain, whose form is noted then.
    pub(crate) fn plain_names(&self, raw: Raw) -> Result<Names<'_>, Thrown> {
        let names = self.own_names(raw)?;
        let mut form = FormHash::default();
        names.iter().for_each(|name| form.add(name));
        self.note_form(raw, form);
        Ok(names)
    }
}

/// Property names, as QuickJS lists them.
pub(crate) struct Names<'a> {
    isolate: &'a Isolate,
    table: *mut qjs::JSPropertyEnum,
    count: u32,
}

impl Names<'_> {
    pub(crate) fn iter(&self) -> impl Iterator<Item = crate::js::Atom> {
        // SAFETY: QuickJS gave `count` rows, which live until this is dropped.
        (0..self.count as usize).map(|index| unsafe { (*self.table.add(index)).atom })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl Drop for Names<'_> {
    fn drop(&mut self) {
        // SAFETY: freed once, with its context.
        unsafe { qjs::JS_FreePropertyEnum(self.isolate.context.as_ptr(), self.table, self.count) }
    }
}

/// Appends a string with its quotes. `text` is UTF-8 but for lone surrogates, which are encoded as
/// three bytes each and come out as escapes.
pub(crate) fn write_string(text: &[u8], out: &mut Vec<u8>) {
    out.reserve(text.len() + 2);
    out.push(b'"');
    if is_plain_ascii(text) {
        out.extend_from_slice(text);
    } else {
        write_unusual(text, out);
    }
    out.push(b'"');
}

#[cold]
fn write_unusual(mut text: &[u8], out: &mut Vec<u8>) {
    loop {
        let (valid, rest) = match std::str::from_utf8(text) {
            Ok(valid) => (valid, &[][..]),
            Err(error) => {
                let (valid, rest) = text.split_at(error.valid_up_to());
                (std::str::from_utf8(valid).unwrap_or_default(), rest)
            }
        };
        for byte in valid.bytes() {
            match byte {
                b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
                b'\n' => out.extend_from_slice(b"\\n"),
                b'\r' => out.extend_from_slice(b"\\r"),
                b'\t' => out.extend_from_slice(b"\\t"),
                0x08 => out.extend_from_slice(b"\\b"),
                0x0C => out.extend_from_slice(b"\\f"),
                0..=0x1F => write_unit(u16::from(byte), out),
                byte => out.push(byte),
            }
        }
        let [first, second, third, more @ ..] = rest else {
            return;
        };
        // 1110xxxx 10xxxxxx 10xxxxxx
        write_unit(u16::from(first & 0x0F) << 12 | u16::from(second & 0x3F) << 6 | u16::from(third & 0x3F), out);
        text = more;
    }
}

/// Appends `\uXXXX`.
fn write_unit(unit: u16, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("\\u{unit:04x}").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lone_surrogates_are_escaped() {
        let mut out = Vec::new();
        write_string(b"a\xED\xA0\x80\xED\xB0\x80b\x01\"", &mut out);
        assert_eq!(out, br#""a\ud800\udc00b\u0001\"""#);
    }

    proptest! {
        #[test]
        fn strings_come_out_as_json(text in any::<String>()) {
            let mut out = Vec::new();
            write_string(text.as_bytes(), &mut out);
            prop_assert_eq!(serde_json::from_slice::<String>(&out).ok(), Some(text));
        }
    }
}
