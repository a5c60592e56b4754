//! Rejected promises that no code has looked at.
//!
//! A failure must not get lost because an `await` was forgotten: a transaction would commit half of what it was to
//! do. So a handler or route that returns while a promise which its turns rejected has no reaction fails with that
//! rejection. One that gets its reaction later, as by an `await` further down, is forgotten again.
//!
//! A workflow has its journal for this, and goes on; it may live for months, and nothing is kept of what it left.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashSet};
use std::ffi::c_void;
use std::hash::BuildHasherDefault;

use millrace_base::Error;
use rquickjs::qjs;

use crate::isolate::Isolate;
use crate::js::{Kind, PromiseState, Raw, kind};
use crate::number_hasher::NumberHasher;

#[derive(Default)]
pub(crate) struct Rejections {
    /// By the promise's address, which stays its own while a reference is held here.
    unseen: RefCell<BTreeMap<usize, Rejection>>,
    /// How many there have been: addresses say nothing about which came first.
    count: Cell<usize>,
    is_watched: Cell<bool>,
    /// What waiting activations have returned: whoever has called them looks at it. One activation can reject
    /// another's, where that waits for a promise which they share in module state.
    returned: RefCell<HashSet<usize, BuildHasherDefault<NumberHasher>>>,
}

struct Rejection {
    /// The activation whose turn rejected it.
    serial: usize,
    /// Owns one reference.
    promise: Raw,
    order: usize,
}

impl Rejections {
    /// From here on a turn runs whose rejections count, or do not.
    #[inline]
    pub(crate) fn watch(&self, is_watched: bool) {
        self.is_watched.set(is_watched);
    }

    /// An activation waits that has returned `raw`.
    #[inline]
    pub(crate) fn activation_waits(&self, raw: Raw) {
        if let Some(address) = address(raw) {
            self.returned.borrow_mut().insert(address);
        }
    }

    /// It does not wait any more.
    #[inline]
    pub(crate) fn activation_goes_on(&self, raw: Raw) {
        if let Some(address) = address(raw) {
            self.returned.borrow_mut().remove(&address);
        }
    }
}

impl Isolate {
    /// Has QuickJS tell of promises that are rejected without a reaction, and of late reactions.
    pub(crate) fn track_rejections(&self, opaque: *mut c_void) {
        // SAFETY: the opaque pointer is the isolate, which outlives its runtime.
        unsafe { qjs::JS_SetHostPromiseRejectionTracker(self.runtime.as_ptr(), Some(track), opaque) };
    }

    /// The first rejection of the activation `serial` that no code has looked at. May run user code.
    #[inline]
    pub(crate) fn unseen_rejection(&self, serial: usize) -> Option<Error> {
        if self.rejections.unseen.borrow().is_empty() { None } else { self.first_rejection(serial) }
    }

    #[cold]
    fn first_rejection(&self, serial: usize) -> Option<Error> {
        let first = {
            let rejections = self.rejections.unseen.borrow();
            let of_activation = rejections.values().filter(|rejection| rejection.serial == serial);
            of_activation.min_by_key(|rejection| rejection.order).map(|rejection| self.context.dup(rejection.promise))
        }?;
        match self.context.promise_state(first.raw()) {
            PromiseState::Rejected(reason) => Some(self.error_of(reason.raw())),
            PromiseState::Pending | PromiseState::Fulfilled(_) => None,
        }
    }

    /// Forgets what the activation `serial` has rejected.
    #[inline]
    pub(crate) fn forget_rejections(&self, serial: usize) {
        if !self.rejections.unseen.borrow().is_empty() {
            self.drop_rejections(serial);
        }
    }

    #[cold]
    fn drop_rejections(&self, serial: usize) {
        let mut forgotten = Vec::new();
        self.rejections.unseen.borrow_mut().retain(|_, rejection| {
            let is_kept = rejection.serial != serial;
            if !is_kept {
                forgotten.push(rejection.promise);
            }
            is_kept
        });
        forgotten.into_iter().for_each(|promise| self.context.free(promise));
    }
}

unsafe extern "C" fn track(_: *mut qjs::JSContext, promise: Raw, _reason: Raw, is_handled: bool, opaque: *mut c_void) {
    // SAFETY: the opaque pointer is the isolate, which outlives its runtime.
    let isolate = unsafe { &*opaque.cast::<Isolate>() };
    let Some(address) = address(promise) else { return };
    let mut rejections = isolate.rejections.unseen.borrow_mut();
    if is_handled {
        let handled = rejections.remove(&address);
        drop(rejections);
        if let Some(rejection) = handled {
            isolate.context.free(rejection.promise);
        }
        return;
    }
    let serial = isolate.serial.get();
    // Outside of turns, as while a module loads, there is no activation to fail.
    let is_returned = isolate.rejections.returned.borrow().contains(&address);
    if serial != 0 && isolate.rejections.is_watched.get() && !is_returned {
        let order = isolate.rejections.count.get();
        isolate.rejections.count.set(order + 1);
        let promise = isolate.context.dup(promise).into_raw();
        rejections.insert(address, Rejection { serial, promise, order });
    }
}

/// Where an object is.
fn address(raw: Raw) -> Option<usize> {
    // SAFETY: reads the address of an object's value.
    (kind(raw) == Kind::Object).then(|| unsafe { qjs::JS_VALUE_GET_PTR(raw) } as usize)
}
