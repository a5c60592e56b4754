//! A value that all cores read and that is rarely replaced: keys, TLS settings.

use std::cell::{Cell, Ref, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The value and a count of its replacements.
#[derive(Debug)]
pub struct Shared<T> {
    generation: AtomicU64,
    current: Mutex<Arc<T>>,
}

impl<T> Shared<T> {
    /// A value that has not been replaced yet.
    pub fn new(value: T) -> Self {
        Self { generation: AtomicU64::new(0), current: Mutex::new(Arc::new(value)) }
    }

    /// Replaces the value; cores see it at their next look.
    pub fn replace(&self, value: T) {
        // A panic while the lock is held cannot leave half a value: it only guards a pointer.
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(value);
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// The value as it is now.
    pub fn load(&self) -> Arc<T> {
        Arc::clone(&self.current.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// One core's view of a [`Shared`]: an unchanged value costs one atomic load.
#[derive(Debug)]
pub struct Cached<T> {
    shared: Arc<Shared<T>>,
    generation: Cell<u64>,
    value: RefCell<Arc<T>>,
}

impl<T> Cached<T> {
    /// A view of a value.
    #[must_use]
    pub fn new(shared: Arc<Shared<T>>) -> Self {
        // The generation is read first: a replacement in between is then seen again, not missed.
        let generation = Cell::new(shared.generation.load(Ordering::Acquire));
        let value = RefCell::new(shared.load());
        Self { shared, generation, value }
    }

    /// The value as it is now.
    #[must_use]
    pub fn get(&self) -> Ref<'_, Arc<T>> {
        let generation = self.shared.generation.load(Ordering::Acquire);
        if generation != self.generation.get() {
            self.generation.set(generation);
            *self.value.borrow_mut() = self.shared.load();
        }
        self.value.borrow()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_sees_a_replaced_value_at_its_next_look() {
        let shared = Arc::new(Shared::new(1));
        let cached = Cached::new(Arc::clone(&shared));
        assert_eq!(**cached.get(), 1);
        shared.replace(2);
        assert_eq!(**cached.get(), 2);
        assert_eq!(*shared.load(), 2);
    }
}
