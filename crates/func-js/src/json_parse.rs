//! JSON text to JavaScript values: serde_json reads, and the values are made as it reads. serde_json refuses errors,
//! great depth, half of a surrogate pair and a number out of range. If the text is short, QuickJS's own parser then
//! reads it again and words the error.
//!
//! It looks at the time as it goes. QuickJS finds names and texts by a hash that is the same everywhere. So somebody
//! can write a text whose names all fall into one chain. Then the time for a name grows with the number of names before
//! it. QuickJS's own parser cannot be interrupted.

use std::cell::{Cell, RefCell};
use std::fmt;

use rquickjs::qjs;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::forms::FormHash;
use crate::isolate::Isolate;
use crate::js::{Atom, Context, NULL, Raw, Thrown, Value, boolean, int, number};

/// Nesting that is parsed here; deeper text is rare and goes to the other parser.
const DEPTH: usize = 512;

/// Values between two looks at the time. Of the worst there are, so many take a few milliseconds.
const VALUES_BETWEEN_LOOKS: usize = 16;

/// The longest text that the other parser may read: it takes some 20 ms for the worst one.
pub(crate) const OTHER_PARSER_BYTES: usize = 64 << 10;

/// Why the parser ended early.
pub(crate) enum Stop {
    /// The text is for the other parser.
    Unusual,
    /// The turn has broken a limit, which the budget knows.
    Broken,
}

/// Parses `text`. Runs no user code. No exception is pending afterwards.
pub(crate) fn parse(isolate: &Isolate, text: &str) -> Result<Value, Stop> {
    let context = isolate.context;
    let maker = Maker {
        isolate,
        context,
        elements: RefCell::default(),
        value_count: Cell::new(0),
        is_broken: Cell::new(false),
    };
    let mut deserializer = serde_json::Deserializer::from_str(text);
    // Depth is counted here.
    deserializer.disable_recursion_limit();
    let result = Next { maker: &maker, depth: 0 }
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value));
    for element in maker.elements.into_inner() {
        context.free(element);
    }
    result.map_err(|_| if maker.is_broken.get() { Stop::Broken } else { Stop::Unusual })
}

/// Makes the values of one text.
struct Maker<'a> {
    isolate: &'a Isolate,
    context: Context,
    /// The elements of the arrays that are open, owned.
    elements: RefCell<Vec<Raw>>,
    /// How many values have begun.
    value_count: Cell<usize>,
    is_broken: Cell<bool>,
}

impl Maker<'_> {
    /// Counts a value, and looks at the time now and then.
    #[inline]
    fn begin<E: Error>(&self) -> Result<(), E> {
        let count = self.value_count.get() + 1;
        self.value_count.set(count);
        if count.is_multiple_of(VALUES_BETWEEN_LOOKS) && self.isolate.must_end() {
            self.is_broken.set(true);
            return Err(E::custom("a limit was broken"));
        }
        Ok(())
    }

    /// Turns a failed C call into a second try by the other parser, which will fail alike.
    #[inline]
    fn checked<T, E: Error>(&self, result: Result<T, Thrown>) -> Result<T, E> {
        result.map_err(|_| {
            drop(self.context.take_exception());
            E::custom("QuickJS could not make it")
        })
    }
}

/// Reads the next value, which stands in so many others.
struct Next<'a> {
    maker: &'a Maker<'a>,
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for Next<'_> {
    type Value = Value;

    #[inline]
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.maker.begin()?;
        deserializer.deserialize_any(self)
    }
}

impl Next<'_> {
    #[inline]
    fn own<E>(&self, raw: Raw) -> Result<Value, E> {
        Ok(self.maker.context.own(raw))
    }

    fn inner_depth<E: Error>(&self) -> Result<usize, E> {
        if self.depth < DEPTH { Ok(self.depth + 1) } else { Err(E::custom("it nests too deeply")) }
    }
}

impl<'de> Visitor<'de> for Next<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        self.own(NULL)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        self.own(boolean(value))
    }

    #[inline]
    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        self.own(i32::try_from(value).map_or_else(|_| number(value as f64), int))
    }

    #[inline]
    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        self.own(i32::try_from(value).map_or_else(|_| number(value as f64), int))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        self.own(number(value))
    }

    #[inline]
    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        self.maker.checked(self.maker.context.string(value.as_bytes()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Value, A::Error> {
        let (maker, depth) = (self.maker, self.inner_depth()?);
        let first = maker.elements.borrow().len();
        while let Some(element) = array.next_element_seed(Next { maker, depth })? {
            maker.elements.borrow_mut().push(element.into_raw());
        }
        let mut open = maker.elements.borrow_mut();
        let elements = &open[first..];
        // SAFETY: the call takes over the elements' references, also when it fails.
        let array = unsafe { qjs::JS_NewArrayFrom(maker.context.as_ptr(), elements.len() as i32, elements.as_ptr()) };
        open.truncate(first);
        maker.checked(maker.context.check(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let (maker, depth) = (self.maker, self.inner_depth()?);
        // SAFETY: plain call.
        let object = unsafe { qjs::JS_NewObject(maker.context.as_ptr()) };
        let object = maker.checked(maker.context.check(object))?;
        let mut form = FormHash::default();
        while let Some(name) = map.next_key_seed(NextName(maker))? {
            form.add(name.atom);
            let value = map.next_value_seed(Next { maker, depth })?.into_raw();
            let flags = qjs::JS_PROP_C_W_E as i32;
            // SAFETY: the call takes over the value's reference.
            let status =
                unsafe { qjs::JS_DefinePropertyValue(maker.context.as_ptr(), object.raw(), name.atom, value, flags) };
            maker.checked(if status < 0 { Err(Thrown) } else { Ok(()) })?;
        }
        maker.isolate.note_form(object.raw(), form);
        Ok(object)
    }
}

/// A name of an object, interned.
struct Name {
    atom: Atom,
    context: Context,
}

impl Drop for Name {
    fn drop(&mut self) {
        self.context.free_atom(self.atom);
    }
}

/// Reads the next name of an object.
struct NextName<'a>(&'a Maker<'a>);

impl<'de> DeserializeSeed<'de> for NextName<'_> {
    type Value = Name;

    #[inline]
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Name, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for NextName<'_> {
    type Value = Name;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a name")
    }

    #[inline]
    fn visit_str<E: Error>(self, name: &str) -> Result<Name, E> {
        let context = self.0.context;
        let atom = context.atom(name);
        self.0.checked(if atom == 0 { Err(Thrown) } else { Ok(Name { atom, context }) })
    }
}
