//! Slices of a bucket: where its objects lie, if one shard is too little for them.
//!
//! The first slice is the bucket itself: it holds the settings, and in most buckets it is the only one. An object's slice
//! follows from its key. Whoever sends a request may be wrong about a bucket's slices: then the engine says [`moved`].

use std::borrow::Cow;

use millrace_base::{Error, ErrorCode, fingerprint, limits, shard_of_key};
use serde::{Deserialize, Serialize};

/// The slices of a bucket behind the first, by their numbers. Empty: the first is the only one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slices(Vec<u16>);

/// The place of the slice of this number.
fn place_of(bucket: &str, number: u16) -> String {
    format!("{bucket}/{number}")
}

impl Slices {
    /// Slices for a new bucket, on shards that follow each other: so they are on different cores, and on as many as there
    /// can be. A node's cores take its shards in turn.
    ///
    /// `count` is at most [`limits::BUCKET_SLICES`].
    #[must_use]
    pub fn spread(bucket: &str, count: u16, shard_count: u16) -> Self {
        let shard = |place: &str| shard_of_key(["{", place, "}"].concat().as_bytes(), shard_count).0;
        let first = u32::from(shard(bucket));
        let mut numbers: Vec<u16> = Vec::new();
        for index in 1..count.min(limits::BUCKET_SLICES) {
            let wanted = (first + u32::from(index)) % u32::from(shard_count);
            let is_free = |number: &u16| !numbers.contains(number);
            let fits = |number: &u16| is_free(number) && u32::from(shard(&place_of(bucket, *number))) == wanted;
            // A number for each shard is as good as certain. One on another shard is right, too.
            let number = (1..=u16::MAX).find(fits).or_else(|| (1..=u16::MAX).find(is_free));
            numbers.extend(number);
        }
        Self(numbers)
    }

    /// How many there are, with the first.
    #[must_use]
    pub fn count(&self) -> usize {
        1 + self.0.len()
    }

    /// What stands between the braces in the keys of an object's slice.
    ///
    /// Buckets depend on this function: it never changes.
    #[must_use]
    pub fn place<'b>(&self, bucket: &'b str, key: &str) -> Cow<'b, str> {
        if self.0.is_empty() {
            return Cow::Borrowed(bucket);
        }
        let index = fingerprint(&[key.as_bytes()]) % self.count() as u64;
        match (index as usize).checked_sub(1) {
            None => Cow::Borrowed(bucket),
            Some(behind_first) => Cow::Owned(place_of(bucket, self.0[behind_first])),
        }
    }

    /// The places of all slices but the first.
    pub fn others<'a>(&'a self, bucket: &'a str) -> impl Iterator<Item = String> + 'a {
        self.0.iter().map(move |number| place_of(bucket, *number))
    }
}

/// What the detail of an error says that is [`moved`].
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Moved {
    slices: Slices,
}

/// The request came to a slice that does not have the object: the bucket has these slices. Nothing was done.
///
/// It is between engine and node: no client sees it.
#[must_use]
pub fn moved(slices: &Slices) -> Error {
    let detail = serde_json::json!({ "slices": slices }).to_string();
    let message = "the bucket was changed meanwhile; try again";
    Error { code: ErrorCode::Overloaded, message: message.to_owned(), detail: Some(detail) }
}

/// The bucket's slices, if the error is [`moved`].
#[must_use]
pub fn moved_to(error: &Error) -> Option<Slices> {
    if error.code != ErrorCode::Overloaded {
        return None;
    }
    serde_json::from_str(error.detail.as_deref()?).ok().map(|moved: Moved| moved.slices)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn an_objects_slice_never_changes() {
        let slices = Slices(vec![7, 300]);
        let places = ["", "a", "b", "photos/cat.jpg", "ä", "{x}y"].map(|key| slices.place("b", key).into_owned());
        assert_eq!(places, ["b/300", "b/300", "b/7", "b", "b", "b"]);
        assert!(matches!(Slices::default().place("b", "a"), Cow::Borrowed("b")));
        assert_eq!(slices.others("b").collect::<Vec<_>>(), ["b/7", "b/300"]);
    }

    #[test]
    fn slices_lie_on_shards_that_follow_each_other() {
        for (count, shard_count) in [(2, 64), (4, 64), (16, 64), (16, 1), (3, 2), (16, 1024)] {
            let slices = Slices::spread("photos", count, shard_count);
            assert_eq!(slices.count(), usize::from(count));
            let places: Vec<String> = std::iter::once("photos".to_owned()).chain(slices.others("photos")).collect();
            let shard = |place: &String| shard_of_key(format!("{{{place}}}key").as_bytes(), shard_count).0;
            let first = shard(&places[0]);
            for (index, place) in places.iter().enumerate() {
                assert_eq!(u32::from(shard(place)), (u32::from(first) + index as u32) % u32::from(shard_count));
            }
            assert_eq!(places.iter().collect::<BTreeSet<_>>().len(), places.len());
        }
        assert_eq!(Slices::spread("photos", 1, 64), Slices::default());
        assert_eq!(Slices::spread("photos", u16::MAX, 64).count(), usize::from(limits::BUCKET_SLICES));
    }

    #[test]
    fn objects_are_spread_evenly() {
        let slices = Slices::spread("photos", 4, 64);
        let mut counts = std::collections::BTreeMap::new();
        for number in 0..4000 {
            *counts.entry(slices.place("photos", &format!("2026/{number}.jpg")).into_owned()).or_insert(0) += 1;
        }
        assert!(counts.len() == 4 && counts.values().all(|count| (900..1100).contains(count)), "{counts:?}");
    }

    #[test]
    fn moved_says_where_to() {
        let slices = Slices(vec![3]);
        assert_eq!(moved_to(&moved(&slices)), Some(slices));
        assert_eq!(moved_to(&Error::new(ErrorCode::Overloaded, "busy")), None);
    }
}
