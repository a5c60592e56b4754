//! The host of the turn that runs, and what the turn's activation was started with. JavaScript's callbacks reach them
//! for as long as the turn lasts and not a moment longer.
//!
//! QuickJS calls back with a context pointer only, so the `&mut dyn Host` of
//! [`millrace_func::Engine::start`] must lie where a callback finds it. Its lifetime cannot be
//! written down there; this module is the one place that pretends it is longer.
//!
//! Why that is sound:
//! * [`HostScope::enter`] borrows the host mutably (and the subject shared) for the lifetime of the returned guard. So
//!   nobody else can use the host while the pointer is stored. The guard's drop takes the pointers out. The guard is
//!   created on the stack of the turn and never forgotten.
//! * [`HostScope::with`] takes the pointer *out* while it uses it: a second use inside the first
//!   finds nothing and reports it, so two mutable references never exist.
//! * [`HostScope::with_subject`] hands out shared references only, for the time of a closure.
//! * The scope is neither `Send` nor `Sync` (it holds a raw pointer), so no other thread looks.

use std::cell::Cell;
use std::marker::PhantomData;
use std::mem;
use std::ptr::NonNull;

use millrace_func::Host;

use crate::subject::Subject;

/// Where the running turn's host is kept.
#[derive(Default)]
pub(crate) struct HostScope {
    host: Cell<Option<NonNull<dyn Host>>>,
    subject: Cell<Option<NonNull<Subject<'static>>>>,
}

/// While it lives, the scope has a host.
pub(crate) struct HostGuard<'a> {
    scope: &'a HostScope,
    borrow: PhantomData<&'a mut ()>,
}

impl HostScope {
    /// Makes `host` and `subject` reachable until the guard is dropped.
    pub(crate) fn enter<'a>(&'a self, host: &'a mut (dyn Host + 'a), subject: &'a Subject<'a>) -> HostGuard<'a> {
        let pointer: NonNull<dyn Host + 'a> = NonNull::from(host);
        // SAFETY: only the lifetime changes, and the guard ends the pointer's use before the
        // borrow it was made of ends.
        let pointer: NonNull<dyn Host> =
            unsafe { mem::transmute::<NonNull<dyn Host + 'a>, NonNull<dyn Host + 'static>>(pointer) };
        self.host.set(Some(pointer));
        self.subject.set(Some(NonNull::from(subject).cast()));
        HostGuard { scope: self, borrow: PhantomData }
    }

    /// Uses what the running activation was started with; `None` outside of a turn.
    pub(crate) fn with_subject<R>(&self, act: impl FnOnce(&Subject<'_>) -> R) -> Option<R> {
        let pointer = self.subject.get()?;
        // SAFETY: as in `with`; the reference is shared and ends with the closure.
        Some(act(unsafe { pointer.as_ref() }))
    }

    /// Uses the host; `None` outside of a turn and inside another use.
    #[inline]
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut dyn Host) -> R) -> Option<R> {
        let mut pointer = self.host.take()?;
        let restore = Restore { scope: self, pointer };
        // SAFETY: the pointer was stored by `enter`, whose guard is alive because its drop would
        // have taken it; it was taken out of the cell, so this is the only reference.
        let result = act(unsafe { pointer.as_mut() });
        drop(restore);
        Some(result)
    }
}

/// Puts the pointer back even when the use panics.
struct Restore<'a> {
    scope: &'a HostScope,
    pointer: NonNull<dyn Host>,
}

impl Drop for Restore<'_> {
    fn drop(&mut self) {
        self.scope.host.set(Some(self.pointer));
    }
}

impl Drop for HostGuard<'_> {
    fn drop(&mut self) {
        self.scope.host.set(None);
        self.scope.subject.set(None);
    }
}
