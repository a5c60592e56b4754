//! JavaScript values to JSON text: plain objects and arrays are walked here; everything with a
//! meaning of its own (dates, maps, proxies, boxed values) is left to QuickJS's
//! `JSON.stringify`.

use std::ffi::c_int;
use std::ptr;

use millrace_base::json::is_plain_ascii;
use millrace_base::{Error, ErrorCode};
use rquickjs::qjs;

use crate::budget::Breach;
use crate::forms::FormHash;
use crate::isolate::Isolate;
use crate::js::{Atom, Kind, Raw, Thrown, UNDEFINED, Value, is_undefined, kind};
use crate::json::{Written, write_float, write_int};

/// Nesting that is printed. A level takes some 400 bytes of stack.
const DEPTH: usize = 512;

/// Elements and properties between two looks at the time.
const PARTS_BETWEEN_LOOKS: usize = 64;

/// The objects that are being printed, the innermost first.
struct Path<'a> {
    raw: Raw,
    above: Option<&'a Path<'a>>,
    depth: usize,
}

/// What is walked here.
enum Walked {
    Array,
    Plain,
}

/// Where a value stands in what holds it, which `toJSON` is told.
#[derive(Clone, Copy)]
enum PropertyPosition {
    Alone,
    Element(u32),
    Property(Atom),
}

impl Isolate {
    /// Appends the JSON text of an object (or of a BigInt, which throws). May run user code.
    pub(crate) fn print_object(&self, raw: Raw, out: &mut Vec<u8>) -> Result<Written, Thrown> {
        let was_for_code = self.prints_for_code.replace(false);
        let printed = self.print(raw, out, PropertyPosition::Alone, None);
        self.prints_for_code.set(was_for_code);
        printed
    }

    /// What `JSON.stringify` gives an app for an object: the same, but that a promise is `{}`, and only memory bounds the text.
    pub(crate) fn print_for_code(&self, raw: Raw, out: &mut Vec<u8>) -> Result<Written, Thrown> {
        let was_for_code = self.prints_for_code.replace(true);
        let printed = self.print(raw, out, PropertyPosition::Alone, None);
        self.prints_for_code.set(was_for_code);
        printed
    }

    fn print(
        &self,
        raw: Raw,
        out: &mut Vec<u8>,
        place: PropertyPosition,
        above: Option<&Path<'_>>,
    ) -> Result<Written, Thrown> {
        if kind(raw) == Kind::Object && self.walked(raw).is_some() {
            let to_json = self.context.get(raw, self.atoms.to_json)?;
            if self.context.is_function(to_json.raw()) {
                let said = self.call_to_json(to_json.raw(), raw, place)?;
                return self.print_said(said.raw(), out, above);
            }
        }
        self.print_said(raw, out, above)
    }

    /// As what an object is walked here, if it is: as an array, or as a plain one.
    fn walked(&self, raw: Raw) -> Option<Walked> {
        // SAFETY: reads the object's class.
        match unsafe { qjs::JS_GetClassID(raw) } {
            class if class == self.array_class => Some(Walked::Array),
            class if class == self.object_class => Some(Walked::Plain),
            _ => None,
        }
    }

    fn call_to_json(&self, to_json: Raw, raw: Raw, place: PropertyPosition) -> Result<Value, Thrown> {
        let name = match place {
            PropertyPosition::Alone => self.context.string(b"")?,
            PropertyPosition::Element(index) => self.context.string(index.to_string().as_bytes())?,
            PropertyPosition::Property(name) => {
                // SAFETY: plain call.
                let name = unsafe { qjs::JS_AtomToString(self.context.as_ptr(), name) };
                self.context.check(name)?
            }
        };
        let was_printing = self.is_printing.replace(!self.prints_for_code.get());
        let said = self.context.call(to_json, raw, &mut [name.raw()]);
        self.is_printing.set(was_printing);
        said
    }

    /// What `toJSON` has said, or what has none.
    fn print_said(&self, raw: Raw, out: &mut Vec<u8>, above: Option<&Path<'_>>) -> Result<Written, Thrown> {
        match kind(raw) {
            Kind::Int(value) => write_int(value, out),
            Kind::Bool(value) => out.extend_from_slice(if value { b"true" } else { b"false" }),
            Kind::Null => out.extend_from_slice(b"null"),
            Kind::Undefined | Kind::Symbol => return Ok(Written::Nothing),
            Kind::Float(value) => write_float(value, out),
            Kind::String => write_string(self.context.text(raw)?.bytes(), out),
            Kind::BigInt => return self.stringify(raw, out),
            Kind::Object => {
                let Some(walked) = self.walked(raw) else { return self.stringify(raw, out) };
                let path = Path { raw, above, depth: above.map_or(0, |above| above.depth) + 1 };
                if path.depth > DEPTH {
                    return Err(self.too_deep(&path));
                }
                match walked {
                    Walked::Array => self.print_array(&path, out)?,
                    Walked::Plain => self.print_plain(&path, out)?,
                }
            }
        }
        Ok(Written::Json)
    }

    /// What is wrong with an object that nests as deeply as this. What holds itself does.
    #[cold]
    fn too_deep(&self, path: &Path<'_>) -> Thrown {
        let is_same = |above: &&Path<'_>| {
            // SAFETY: both are live values of this context.
            unsafe { qjs::JS_IsStrictEqual(self.context.as_ptr(), above.raw, path.raw) }
        };
        if std::iter::successors(path.above, |path| path.above).any(|above| is_same(&above)) {
            return self.context.throw_type("circular reference");
        }
        self.budget.set_breach(Breach::Stack);
        self.throw_broken()
    }

    fn print_array(&self, path: &Path<'_>, out: &mut Vec<u8>) -> Result<(), Thrown> {
        let mut length = 0;
        // SAFETY: the out parameter outlives the call.
        if unsafe { qjs::JS_GetLength(self.context.as_ptr(), path.raw, &mut length) } < 0 {
            return Err(Thrown);
        }
        // An array has at most 2^32 - 1 elements.
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        out.push(b'[');
        for index in 0..length {
            if index > 0 {
                out.push(b',');
            }
            let element = self.context.get_index(path.raw, index)?;
            if self.print(element.raw(), out, PropertyPosition::Element(index), Some(path))? == Written::Nothing {
                out.extend_from_slice(b"null");
            }
            self.go_on(out)?;
        }
        out.push(b']');
        Ok(())
    }

    fn print_plain(&self, path: &Path<'_>, out: &mut Vec<u8>) -> Result<(), Thrown> {
        let names = self.plain_names(path.raw)?;
        out.push(b'{');
        let mut is_first = true;
        for name in names.iter() {
            let value = self.context.get(path.raw, name)?;
            let before = out.len();
            if !is_first {
                out.push(b',');
            }
            self.print_name(name, out)?;
            match self.print(value.raw(), out, PropertyPosition::Property(name), Some(path))? {
                Written::Json => is_first = false,
                Written::Nothing => out.truncate(before),
            }
            self.go_on(out)?;
        }
        out.push(b'}');
        Ok(())
    }

    /// Appends a name and its colon.
    fn print_name(&self, name: Atom, out: &mut Vec<u8>) -> Result<(), Thrown> {
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

    /// Ends texts that no limit would let through before they fill the node's memory, and the call of who prints for too long:
    /// what is printed may stand in a value many times, and take no place in the text.
    #[inline]
    fn go_on(&self, out: &[u8]) -> Result<(), Thrown> {
        let limits = &self.limits;
        let parts = self.printed_parts.get().wrapping_add(1);
        self.printed_parts.set(parts);
        if parts.is_multiple_of(PARTS_BETWEEN_LOOKS) && self.must_end() {
            return Err(self.throw_broken());
        }
        let most_bytes = match self.prints_for_code.get() {
            true => limits.memory_bytes,
            false => limits.output_bytes.max(limits.input_bytes).max(limits.value_bytes),
        };
        if out.len() <= most_bytes {
            return Ok(());
        }
        let message = "the value's JSON text is larger than any limit allows";
        Err(self.throw_error(Error::new(ErrorCode::SizeLimit, message)))
    }

    /// What `JSON.stringify` gives.
    pub(crate) fn stringify(&self, raw: Raw, out: &mut Vec<u8>) -> Result<Written, Thrown> {
        let was_printing = self.is_printing.replace(!self.prints_for_code.get());
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
