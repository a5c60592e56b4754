//! Parsed values of JSON texts that a service reads again and again.
//!
//! The key is the text itself, found by its hash and compared byte by byte. So nothing has to be
//! forgotten when a field is written, and two fields with one text share a value. A text is kept
//! when it is parsed for the second time, because most texts that change are read once.
//!
//! What is kept is a [`Template`] in Rust's memory. Each read makes a new JavaScript value from it,
//! which the handler may change. No reference to the template ever reaches user code.
//!
//! Bounds: an isolate's templates take at most a quarter of the service's memory limit, beside
//! it. They are kept in two generations. When the young one is full, the old one goes.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use rquickjs::qjs;
use xxhash_rust::xxh3::xxh3_64;

use crate::forms::FormHash;
use crate::isolate::Isolate;
use crate::js::{Atom, Context, Kind, NULL, Raw, Thrown, Value, boolean, int, kind, number};
use crate::number_hasher::NumberHasher;

/// Shorter texts are parsed as fast as they are looked up.
const LEAST_BYTES: usize = 16;

/// What part of a service's memory limit both generations may take.
const MEMORY_PART: usize = 4;

/// What part of one generation a single text may take.
const GENERATION_PART: usize = 8;

/// Hashes of texts that were parsed once. A power of two.
const MET_SLOTS: usize = 4_096;

/// Nesting of a value that is kept.
const DEPTH: usize = 64;

/// A value with more parts than this ends with a look at the time.
const PARTS_WITHOUT_LOOK: usize = 512;

/// A value without the references that tie one to a context, names of properties excepted.
enum Template {
    Int(i32),
    Float(f64),
    Bool(bool),
    Null,
    Text(Box<[u8]>),
    /// An array of small integers, at a quarter of what QuickJS takes for them: the cache of the CPU holds more.
    Ints(Box<[i32]>),
    Array(Box<[Template]>),
    /// Owns a reference to each name.
    Object(Box<[(Atom, Template)]>),
}

struct Entry {
    text: Box<[u8]>,
    template: Template,
    parts: usize,
    bytes: usize,
}

type Generation = HashMap<u64, Entry, BuildHasherDefault<NumberHasher>>;

/// The templates of one isolate.
pub(crate) struct ValueCache {
    /// What one generation may take.
    most_bytes: usize,
    met: RefCell<Box<[u64]>>,
    young: RefCell<Generation>,
    old: RefCell<Generation>,
    young_bytes: Cell<usize>,
    old_bytes: Cell<usize>,
    /// Elements on their way into an array.
    elements: RefCell<Vec<Raw>>,
}

/// Counts what a template takes while it is made.
#[derive(Default)]
struct Size {
    parts: usize,
    bytes: usize,
}

impl ValueCache {
    pub(crate) fn new(memory_bytes: usize) -> Self {
        Self {
            most_bytes: memory_bytes / MEMORY_PART / 2,
            met: RefCell::default(),
            young: RefCell::default(),
            old: RefCell::default(),
            young_bytes: Cell::new(0),
            old_bytes: Cell::new(0),
            elements: RefCell::default(),
        }
    }

    /// What the templates and their texts take.
    pub(crate) fn used_bytes(&self) -> usize {
        self.young_bytes.get() + self.old_bytes.get()
    }

    /// Notes that a text was parsed; whether the same was noted before.
    fn note(&self, hash: u64) -> bool {
        let mut met = self.met.borrow_mut();
        if met.is_empty() {
            *met = vec![0; MET_SLOTS].into_boxed_slice();
        }
        let slot = &mut met[hash as usize % MET_SLOTS];
        std::mem::replace(slot, hash) == hash
    }

    /// Puts an entry among the young, and drops the old if there are too many.
    fn keep(&self, context: Context, hash: u64, entry: Entry) {
        let bytes = self.young_bytes.get() + entry.bytes;
        if bytes > self.most_bytes {
            let young = self.young.take();
            self.old_bytes.set(self.young_bytes.replace(0));
            for (_, entry) in self.old.replace(young) {
                entry.template.release(context);
            }
        }
        self.young_bytes.set(self.young_bytes.get() + entry.bytes);
        // Another text of the same hash goes.
        if let Some(other) = self.young.borrow_mut().insert(hash, entry) {
            self.young_bytes.set(self.young_bytes.get() - other.bytes);
            other.template.release(context);
        }
    }

    /// Brings an entry that is used back among the young; whether there is one.
    #[cold]
    fn rejuvenate(&self, context: Context, hash: u64) -> bool {
        let Some(entry) = self.old.borrow_mut().remove(&hash) else { return false };
        self.old_bytes.set(self.old_bytes.get() - entry.bytes);
        self.keep(context, hash, entry);
        true
    }
}

impl Isolate {
    /// As [`Isolate::parse_json`], for a text that may be parsed again.
    #[inline]
    pub(crate) fn parse_again(&self, text: &[u8]) -> Result<Value, Thrown> {
        if text.len() < LEAST_BYTES || !matches!(text[0], b'[' | b'{') {
            return self.parse_json(text);
        }
        let hash = xxh3_64(text);
        let mut copied = self.copy_young(hash, text)?;
        if copied.is_none() && self.values.rejuvenate(self.context, hash) {
            copied = self.copy_young(hash, text)?;
        }
        match copied {
            Some((_, parts)) if parts > PARTS_WITHOUT_LOOK && self.must_end() => Err(self.throw_broken()),
            Some((value, _)) => Ok(value),
            None => self.parse_and_note(hash, text),
        }
    }

    /// A new value of the text, and how many parts it has.
    #[inline]
    fn copy_young(&self, hash: u64, text: &[u8]) -> Result<Option<(Value, usize)>, Thrown> {
        match self.values.young.borrow().get(&hash) {
            Some(entry) if *entry.text == *text => Ok(Some((self.copy(&entry.template)?, entry.parts))),
            _ => Ok(None),
        }
    }

    #[cold]
    fn parse_and_note(&self, hash: u64, text: &[u8]) -> Result<Value, Thrown> {
        let value = self.parse_json(text)?;
        let fits = text.len() <= self.values.most_bytes / GENERATION_PART;
        if fits && self.values.note(hash) {
            self.keep_template(hash, text, value.raw());
        }
        Ok(value)
    }

    /// Keeps the template of what `text` was parsed to. A value that is too large or too deep is not kept.
    fn keep_template(&self, hash: u64, text: &[u8], raw: Raw) {
        let mut size = Size { parts: 0, bytes: text.len() + size_of::<(u64, Entry)>() };
        match self.template(raw, 0, &mut size) {
            Ok(Some(template)) => {
                let entry = Entry { text: text.into(), template, parts: size.parts, bytes: size.bytes };
                self.values.keep(self.context, hash, entry);
            }
            Ok(None) => {}
            Err(Thrown) => drop(self.context.take_exception()),
        }
    }

    /// The template of a value that was just parsed, and so has neither getters nor a prototype of its own.
    fn template(&self, raw: Raw, depth: usize, size: &mut Size) -> Result<Option<Template>, Thrown> {
        size.parts += 1;
        size.bytes += size_of::<(Atom, Template)>();
        if depth > DEPTH || size.bytes > self.values.most_bytes / GENERATION_PART {
            return Ok(None);
        }
        Ok(Some(match kind(raw) {
            Kind::Int(value) => Template::Int(value),
            Kind::Float(value) => Template::Float(value),
            Kind::Bool(value) => Template::Bool(value),
            Kind::Null => Template::Null,
            Kind::String => {
                let text = self.context.text(raw)?;
                // Half of a surrogate pair has no UTF-8.
                if std::str::from_utf8(text.bytes()).is_err() {
                    return Ok(None);
                }
                size.bytes += text.bytes().len();
                Template::Text(text.bytes().into())
            }
            Kind::Object if self.context.is_array(raw) => return self.array_template(raw, depth, size),
            Kind::Object => return self.object_template(raw, depth, size),
            Kind::Undefined | Kind::Symbol | Kind::BigInt => return Ok(None),
        }))
    }

    fn array_template(&self, raw: Raw, depth: usize, size: &mut Size) -> Result<Option<Template>, Thrown> {
        let length = self.context.get(raw, self.atoms.length)?;
        let Kind::Int(length) = kind(length.raw()) else { return Ok(None) };
        let mut elements = Vec::new();
        for index in 0..length {
            let element = self.context.get_index(raw, index as u32)?;
            match self.template(element.raw(), depth + 1, size) {
                Ok(Some(template)) => elements.push(template),
                other => {
                    Template::Array(elements.into()).release(self.context);
                    return other;
                }
            }
        }
        let ints: Option<Box<[i32]>> = elements
            .iter()
            .map(|element| if let Template::Int(value) = element { Some(*value) } else { None })
            .collect();
        Ok(Some(ints.map_or_else(|| Template::Array(elements.into()), Template::Ints)))
    }

    fn object_template(&self, raw: Raw, depth: usize, size: &mut Size) -> Result<Option<Template>, Thrown> {
        let names = self.own_names(raw)?;
        let mut properties = Vec::new();
        for name in names.iter() {
            let property = self.context.get(raw, name).and_then(|value| {
                size.bytes += self.name_text(name, <[u8]>::len)?;
                self.template(value.raw(), depth + 1, size)
            });
            match property {
                Ok(Some(template)) => {
                    // SAFETY: plain call; the template owns this reference.
                    let name = unsafe { qjs::JS_DupAtom(self.context.as_ptr(), name) };
                    properties.push((name, template));
                }
                other => {
                    Template::Object(properties.into()).release(self.context);
                    return other;
                }
            }
        }
        Ok(Some(Template::Object(properties.into())))
    }

    /// A new value. Runs no user code.
    fn copy(&self, template: &Template) -> Result<Value, Thrown> {
        match template {
            Template::Text(text) => self.context.string(text),
            Template::Ints(values) => {
                let mut elements = self.values.elements.borrow_mut();
                elements.clear();
                elements.extend(values.iter().map(|value| int(*value)));
                self.copied_array(&elements)
            }
            Template::Array(elements) => {
                let mut copies = Vec::with_capacity(elements.len());
                for element in elements {
                    match self.copy(element) {
                        Ok(copy) => copies.push(copy.into_raw()),
                        Err(Thrown) => {
                            copies.into_iter().for_each(|copy| self.context.free(copy));
                            return Err(Thrown);
                        }
                    }
                }
                self.copied_array(&copies)
            }
            Template::Object(properties) => self.copied_object(properties),
            Template::Int(value) => Ok(self.context.own(int(*value))),
            Template::Float(value) => Ok(self.context.own(number(*value))),
            Template::Bool(value) => Ok(self.context.own(boolean(*value))),
            Template::Null => Ok(self.context.own(NULL)),
        }
    }

    /// An array that takes over the references of its elements.
    fn copied_array(&self, elements: &[Raw]) -> Result<Value, Thrown> {
        // SAFETY: the call takes over the elements' references, also when it fails. Few elements fit in memory.
        let array = unsafe { qjs::JS_NewArrayFrom(self.context.as_ptr(), elements.len() as i32, elements.as_ptr()) };
        self.context.check(array)
    }

    fn copied_object(&self, properties: &[(Atom, Template)]) -> Result<Value, Thrown> {
        let object = self.context.object()?;
        let mut form = FormHash::default();
        for (name, template) in properties {
            form.add(*name);
            self.context.define(object.raw(), *name, self.copy(template)?, qjs::JS_PROP_C_W_E)?;
        }
        self.note_form(object.raw(), form);
        Ok(object)
    }
}

impl Template {
    /// Gives up the references to names.
    fn release(self, context: Context) {
        match self {
            Template::Array(elements) => elements.into_iter().for_each(|element| element.release(context)),
            Template::Object(properties) => {
                for (name, template) in properties {
                    context.free_atom(name);
                    template.release(context);
                }
            }
            _ => {}
        }
    }
}
