//! Keeps what was parsed from a text for the next operation with the same text.

use std::collections::BTreeMap;
use std::rc::Rc;

/// Texts of one generation. Paths are few, because programs contain them. A client that makes up new ones all the time
/// displaces at most what two generations hold.
const GENERATION: usize = 256;

/// Keeps the entries of the present generation and of the one before. An entry goes if it is not used while a whole
/// generation fills.
pub(crate) struct Cache<T> {
    young: BTreeMap<Box<str>, Rc<T>>,
    old: BTreeMap<Box<str>, Rc<T>>,
}

impl<T> Default for Cache<T> {
    fn default() -> Self {
        Self { young: BTreeMap::new(), old: BTreeMap::new() }
    }
}

impl<T> Cache<T> {
    /// The entry for `text`, made if there is none. Failures are not kept.
    #[inline]
    pub(crate) fn get<E>(&mut self, text: &str, make: impl FnOnce(&str) -> Result<T, E>) -> Result<Rc<T>, E> {
        if let Some(found) = self.young.get(text) {
            return Ok(Rc::clone(found));
        }
        let found = match self.old.remove(text) {
            Some(found) => found,
            None => Rc::new(make(text)?),
        };
        if self.young.len() >= GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(text.into(), Rc::clone(&found));
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_stays_and_the_rest_goes() {
        let mut cache = Cache::default();
        let mut made = 0;
        let mut get = |text: &str| {
            let found = cache.get(text, |text| {
                made += 1;
                Ok::<_, ()>(text.to_owned())
            });
            assert_eq!(found.as_deref().map(String::as_str), Ok(text));
        };
        for number in 0..10 * GENERATION {
            get("used");
            get(&number.to_string());
        }
        get("0");
        let bound = 2 * GENERATION + 1;
        assert!(cache.young.len() + cache.old.len() <= bound);
        assert_eq!(made, 10 * GENERATION + 2, "\"used\" was made once, \"0\" twice");
    }

    #[test]
    fn failures_are_not_kept() {
        let mut cache: Cache<u8> = Cache::default();
        assert!(cache.get("x", |_| Err(())).is_err());
        assert_eq!(cache.get("x", |_| Ok::<_, ()>(1)).as_deref(), Ok(&1));
    }
}
