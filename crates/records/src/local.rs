//! What one core keeps for records: no state of anybody's, only what is cheaper to have at hand.

use std::any::Any;
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::pin::Pin;
use std::rc::Rc;

use bytes::BytesMut;
use http::HeaderValue;
use millrace_api::{Deployments, Principal, RECORDS_APP};
use millrace_base::Error;
use millrace_registry::Registry;

use crate::condition;
use crate::request::Request;
use crate::url;

/// A turn; it ends when this is dropped.
pub type Turn = Box<dyn Any>;

/// The turns in which a node's requests change the registry. A change reads it whole and replaces it whole, so of
/// those that meet, one succeeds and all others are done again: without turns, the more there are, the more are in
/// vain. Whoever waits gets on when those before it are done, or have gone away.
pub trait Turns {
    /// Waits for the next turn.
    fn next(&self) -> Pin<Box<dyn Future<Output = Turn>>>;
}

/// As many at once as there are: good for whoever is alone.
struct AllAtOnce;

impl Turns for AllAtOnce {
    fn next(&self) -> Pin<Box<dyn Future<Output = Turn>>> {
        let turn: Turn = Box::new(());
        Box::pin(std::future::ready(turn))
    }
}

/// One core's part of the front of records.
pub struct Records {
    pub(crate) turns: Box<dyn Turns>,
    registry: RefCell<Option<(u64, Rc<Registry>)>>,
    random: Cell<u64>,
    texts: Texts,
    /// A schema's id that was told, and its text: most replies tell the same.
    schema_id: RefCell<(u32, HeaderValue)>,
    /// The last name that was one of a type. Most requests have the same, and comparing costs less than checking.
    known_type: RefCell<String>,
}

impl Default for Records {
    fn default() -> Self {
        // Only spreads the ids of a benchmark; the hasher's keys are random enough for that.
        let seed = RandomState::new().hash_one(0u8);
        Self {
            turns: Box::new(AllAtOnce),
            registry: RefCell::default(),
            random: Cell::new(seed | 1),
            texts: Texts::default(),
            schema_id: RefCell::new((0, HeaderValue::from_static("0"))),
            known_type: RefCell::default(),
        }
    }
}

impl Records {
    /// One core's part, which changes the registry in turn with those of the other cores.
    #[must_use]
    pub fn new(turns: impl Turns + 'static) -> Self {
        Self { turns: Box::new(turns), ..Self::default() }
    }

    /// The registry as it is deployed, and its version; read again only when that changed.
    pub(crate) async fn registry<B: Deployments>(&self, backend: &B) -> Result<(u64, Rc<Registry>), Error> {
        // Any key may read schemas: the front that listens has seen to it that there is one.
        let app = backend.system_app(&Principal::unrestricted(), RECORDS_APP).await?;
        if let Some((version, registry)) = &*self.registry.borrow()
            && *version == app.version
        {
            return Ok((*version, Rc::clone(registry)));
        }
        let previous = self.registry.borrow().as_ref().map(|(_, registry)| Rc::clone(registry));
        let registry = Rc::new(Registry::from_files_with(&app.files, previous.as_deref())?);
        self.keep_registry(app.version, Rc::clone(&registry));
        Ok((app.version, registry))
    }

    pub(crate) fn keep_registry(&self, version: u64, registry: Rc<Registry>) {
        *self.registry.borrow_mut() = Some((version, registry));
    }

    /// A number from 1 to `bound`, each as likely as any other.
    pub(crate) fn random_id(&self, bound: u64) -> u64 {
        // Marsaglia's xorshift with Vigna's multiplier: three shifts, far cheaper than the request.
        let mut state = self.random.get();
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        self.random.set(state);
        let drawn = state.wrapping_mul(0x2545_F491_4F6C_DD1D);
        // The high half of the product is uniform as far as `bound` is far below 2^64.
        1 + ((u128::from(drawn) * u128::from(bound)) >> 64) as u64
    }

    /// The name of a type, as [`Request::type_name`].
    pub(crate) fn type_name<'a>(&self, request: &Request<'a>) -> Result<Cow<'a, str>, Error> {
        let name = url::decode_text(request.name)?;
        let mut known = self.known_type.borrow_mut();
        if *known != *name {
            millrace_registry::check_type_name(&name)?;
            known.clear();
            known.push_str(&name);
        }
        Ok(name)
    }

    pub(crate) fn tag(&self, tag: u64) -> HeaderValue {
        self.texts.value(|text| condition::write_tag(tag, text))
    }

    pub(crate) fn schema_id(&self, id: u32) -> HeaderValue {
        let mut known = self.schema_id.borrow_mut();
        if known.0 != id {
            *known = (id, HeaderValue::from(id));
        }
        known.1.clone()
    }

    pub(crate) fn number(&self, number: u64) -> HeaderValue {
        self.texts.value(|text| write_number(number, text))
    }
}

/// Writes a number in decimal; says how many bytes that took, 20 at most.
pub(crate) fn write_number(mut number: u64, text: &mut [u8]) -> usize {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    let length = digits.len() - at;
    text[..length].copy_from_slice(&digits[at..]);
    length
}

/// Short header values cut from one piece of memory after another, so that a reply's headers cost
/// no allocation of their own. A piece lives until its last header has been sent, which is soon.
#[derive(Default)]
struct Texts(RefCell<BytesMut>);

/// Bytes of a piece: some hundred values.
const PIECE_BYTES: usize = 4096;

/// Room for the longest value.
const VALUE_BYTES: usize = 24;

impl Texts {
    fn value(&self, write: impl FnOnce(&mut [u8]) -> usize) -> HeaderValue {
        let mut text = [0; VALUE_BYTES];
        let length = write(&mut text);
        let mut piece = self.0.borrow_mut();
        if piece.capacity() < length {
            *piece = BytesMut::with_capacity(PIECE_BYTES);
        }
        piece.extend_from_slice(&text[..length]);
        let bytes = piece.split().freeze();
        HeaderValue::from_maybe_shared(bytes).expect("digits and quotes")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_ids_cover_their_range_and_nothing_else() {
        let records = Records::default();
        let mut counts = [0u32; 10];
        for _ in 0..10_000 {
            counts[records.random_id(10) as usize - 1] += 1;
        }
        assert!(counts.iter().all(|count| (800..1200).contains(count)), "{counts:?}");
        assert_eq!(records.random_id(1), 1);
        assert!((1..=u64::MAX).contains(&records.random_id(u64::MAX)));
    }

    #[test]
    fn header_values_are_what_was_written_however_many_there_are() {
        let records = Records::default();
        let values: Vec<_> = (0..1000).map(|number| records.number(number)).collect();
        for (number, value) in values.iter().enumerate() {
            assert_eq!(value.to_str().expect("digits"), number.to_string());
        }
        assert_eq!(records.number(u64::MAX), u64::MAX.to_string());
        for id in [0, 7, 7, u32::MAX] {
            assert_eq!(records.schema_id(id), id.to_string());
        }
        assert_eq!(records.tag(255), condition::tag_value(255));
    }
}
