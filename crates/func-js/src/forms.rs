//! What is worth remembering about objects that calls make again and again.
//!
//! QuickJS shares the layout of objects that got the same properties in the same order, for as
//! long as one of them lives. An object that a call reads from its input, or returns, is gone
//! when the call ends, and mostly the last of its form: its layout is built property by property, entered in
//! a table and thrown away with every call. So the isolate keeps an object without values of each form that it met
//! twice in JSON or in a reply. It also keeps one of each stage on the way to that form.
//!
//! The texts of property names are kept too, in the form they are needed in.
//!
//! Everything here is bounded, and no object of a call is kept.

use std::cell::{Cell, RefCell};

use rquickjs::qjs;

use crate::isolate::Isolate;
use crate::js::{Atom, Context, Raw, Thrown, UNDEFINED};

/// Forms that are kept. The first ones are taken: what is loaded once is called often.
const FORMS: u32 = 32;

/// Properties of a form; larger objects are tables more than forms.
const FORM_NAMES: usize = 12;

/// Bytes of all names of a form, and of a name that is remembered: names come from strangers too.
const FORM_BYTES: usize = 256;
const NAME_BYTES: usize = 64;

const SLOTS: usize = 64;

/// Names are numbered as they come up, so those of one app seldom meet in a slot.
const NAME_SLOTS: usize = 256;

/// The forms of one isolate, by a hash of their names in order.
pub(crate) struct Forms {
    kept: [Cell<u64>; SLOTS],
    /// Met once.
    candidates: [Cell<u64>; SLOTS],
    count: Cell<u32>,
}

impl Default for Forms {
    fn default() -> Self {
        Self { kept: [const { Cell::new(0) }; SLOTS], candidates: [const { Cell::new(0) }; SLOTS], count: Cell::new(0) }
    }
}

/// The hash of a form, name by name. Two forms with one hash would cost time, not correctness.
#[derive(Clone, Copy, Default)]
pub(crate) struct FormHash {
    hash: u64,
    count: usize,
}

impl FormHash {
    #[inline]
    pub(crate) fn add(&mut self, name: Atom) {
        self.hash = (self.hash.rotate_left(5) ^ u64::from(name)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.count += 1;
    }
}

impl Isolate {
    /// Notes that a call made `object`, of this form.
    #[inline]
    pub(crate) fn note_form(&self, object: Raw, form: FormHash) {
        let slot = form.hash as usize % SLOTS;
        let is_known = self.forms.kept[slot].get() == form.hash;
        if !is_known && (1..=FORM_NAMES).contains(&form.count) {
            self.note_unknown_form(object, form, slot);
        }
    }

    #[cold]
    fn note_unknown_form(&self, object: Raw, form: FormHash, slot: usize) {
        let forms = &self.forms;
        // SAFETY: reads the object's class. Listing the names of anything else may run user code.
        if unsafe { qjs::JS_GetClassID(object) } != self.object_class {
            return;
        }
        let is_full = forms.count.get() == FORMS || self.heap.used_bytes() > self.limits.memory_bytes / 2;
        if is_full || forms.candidates[slot].replace(form.hash) != form.hash {
            return;
        }
        // One form a slot: another one of the same slot would push it out again and again.
        if forms.kept[slot].get() == 0 {
            forms.kept[slot].set(form.hash);
            forms.count.set(forms.count.get() + 1);
            if self.keep_form(object).is_err() {
                drop(self.context.take_exception());
            }
        }
    }

    fn keep_form(&self, object: Raw) -> Result<(), Thrown> {
        let names = self.own_names(object)?;
        let mut bytes = 0;
        for name in names.iter() {
            bytes += self.name_text(name, <[u8]>::len)?;
        }
        if bytes > FORM_BYTES {
            return Ok(());
        }
        self.keep_stages(&names.iter().collect::<Vec<Atom>>())
    }

    /// Keeps an object that has these properties, and one that has the first of them only, and so on.
    fn keep_stages(&self, names: &[Atom]) -> Result<(), Thrown> {
        for count in 1..=names.len() {
            let stage = self.context.object()?;
            for name in &names[..count] {
                self.context.define(stage.raw(), *name, self.context.own(UNDEFINED), qjs::JS_PROP_C_W_E)?;
            }
            // It stays for as long as the heap.
            let _ = stage.into_raw();
        }
        Ok(())
    }

    /// Uses the text of a property's name.
    pub(crate) fn name_text<R>(&self, name: Atom, act: impl FnOnce(&[u8]) -> R) -> Result<R, Thrown> {
        // SAFETY: plain call.
        let text = self.context.check(unsafe { qjs::JS_AtomToString(self.context.as_ptr(), name) })?;
        Ok(act(self.context.text(text.raw())?.bytes()))
    }
}

type NameSlot = Option<(Atom, Box<[u8]>)>;

/// Remembers a text for property names met lately. A name keeps its atom alive while it is here.
pub(crate) struct NameTexts {
    slots: RefCell<[NameSlot; NAME_SLOTS]>,
}

impl Default for NameTexts {
    fn default() -> Self {
        Self { slots: RefCell::new([const { None }; NAME_SLOTS]) }
    }
}

impl NameTexts {
    /// Uses the text of `name`, which `make` makes if it is not known.
    #[inline]
    pub(crate) fn with<R, E>(
        &self,
        context: Context,
        name: Atom,
        make: impl FnOnce() -> Result<Vec<u8>, E>,
        act: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, E> {
        if let Some((known, text)) = &self.slots.borrow()[name as usize % NAME_SLOTS]
            && *known == name
        {
            return Ok(act(text));
        }
        let text = make()?;
        let result = act(&text);
        if text.len() <= NAME_BYTES {
            // SAFETY: plain calls; the slot owns a reference to its atom.
            let name = unsafe { qjs::JS_DupAtom(context.as_ptr(), name) };
            let before = self.slots.borrow_mut()[name as usize % NAME_SLOTS].replace((name, text.into_boxed_slice()));
            if let Some((before, _)) = before {
                context.free_atom(before);
            }
        }
        Ok(result)
    }
}
