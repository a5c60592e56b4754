//! Makes one page of what the shards have found, each in its part of one order.
//!
//! Each shard has looked at everything up to some place. The page ends at the nearest of these places. If the shard
//! there had no steps left, the page gets longer when it goes on.

use crate::rows::Position;
use crate::wire::Scanned;

/// What is known of one shard's part.
#[derive(Default)]
struct Part {
    found: Vec<Position>,
    /// Everything up to here, included, has been looked at.
    seen: Option<Position>,
    /// The next position, where the shard gave up.
    next: Option<Position>,
    is_exhausted: bool,
}

/// How far a shard has looked: before a place, or including it.
#[derive(Clone, Copy)]
struct Bound<'a> {
    shard: usize,
    place: &'a Position,
    is_included: bool,
}

/// Collects a page.
pub(crate) struct Merge {
    parts: Vec<Part>,
    /// The page begins behind it.
    after: Option<Position>,
    limit: usize,
    is_descending: bool,
}

/// Where to go on so that the page gets longer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct GoOn {
    pub shard: usize,
    pub after: Option<Position>,
    /// No other shard has got farther than that.
    pub until: Option<Position>,
    /// Without it the next page would begin where this one does.
    pub is_needed: bool,
}

impl Merge {
    pub(crate) fn new(shards: usize, after: Option<Position>, limit: usize, is_descending: bool) -> Self {
        Self { parts: (0..shards).map(|_| Part::default()).collect(), after, limit, is_descending }
    }

    /// Adds what a shard has found behind everything that it had looked at.
    pub(crate) fn add(&mut self, shard: usize, scanned: Scanned) {
        let part = &mut self.parts[shard];
        part.found.extend(scanned.found.into_iter().map(Position::of_pair));
        if let Some(frontier) = scanned.frontier {
            part.seen = Some(Position::of_pair(frontier));
        }
        part.next = scanned.next.map(Position::of_pair);
        part.is_exhausted = scanned.is_exhausted;
    }

    fn is_behind(&self, a: &Position, b: &Position) -> bool {
        if self.is_descending { a < b } else { a > b }
    }

    /// The nearest of the shards' bounds, without one shard's. A shard that has seen everything has none.
    fn nearest(&self, but: Option<usize>) -> Option<Bound<'_>> {
        let mut nearest: Option<Bound<'_>> = None;
        for (shard, part) in self.parts.iter().enumerate() {
            let place = part.next.as_ref().or(part.seen.as_ref());
            let Some(place) = place.filter(|_| !part.is_exhausted && Some(shard) != but) else { continue };
            if nearest.is_none_or(|nearest| self.is_behind(nearest.place, place)) {
                nearest = Some(Bound { shard, place, is_included: part.next.is_none() });
            }
        }
        nearest
    }

    /// Whether all shards have looked at a record that one of them has found.
    fn is_ready(&self, found: &Position, nearest: Option<Bound<'_>>) -> bool {
        nearest.is_none_or(|nearest| !self.is_behind(found, nearest.place))
    }

    /// The last known position up to which all shards have looked.
    fn end(&self, nearest: Bound<'_>) -> Option<Position> {
        if nearest.is_included {
            return Some(nearest.place.clone());
        }
        let mut last = self.after.as_ref();
        for place in self.parts.iter().flat_map(|part| part.found.iter().chain(&part.seen)) {
            if self.is_behind(nearest.place, place) && last.is_none_or(|last| self.is_behind(place, last)) {
                last = Some(place);
            }
        }
        last.cloned()
    }

    /// Where to go on for a longer page. `None` if it is full, or if it does not end for lack of steps.
    pub(crate) fn go_on(&self) -> Option<GoOn> {
        let nearest = self.nearest(None)?;
        let part = &self.parts[nearest.shard];
        part.next.as_ref()?;
        let found = self.parts.iter().flat_map(|part| &part.found);
        if found.filter(|found| self.is_ready(found, Some(nearest))).count() >= self.limit {
            return None;
        }
        Some(GoOn {
            shard: nearest.shard,
            after: part.seen.clone().or_else(|| self.after.clone()),
            until: self.nearest(Some(nearest.shard)).map(|bound| bound.place.clone()),
            is_needed: self.end(nearest) == self.after,
        })
    }

    /// The page, and the place where the next one begins.
    pub(crate) fn page(self) -> (Vec<Position>, Option<Position>) {
        let nearest = self.nearest(None);
        let found = self.parts.iter().flat_map(|part| &part.found);
        let mut page: Vec<Position> = found.filter(|found| self.is_ready(found, nearest)).cloned().collect();
        page.sort_unstable();
        if self.is_descending {
            page.reverse();
        }
        if page.len() > self.limit {
            page.truncate(self.limit);
            let last = page.last().cloned();
            return (page, last);
        }
        let next = nearest.and_then(|nearest| self.end(nearest));
        (page, next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(id: &str) -> Position {
        Position { key: Vec::new(), id: id.into() }
    }

    fn scanned(found: &[&str], seen: Option<&str>, next: Option<&str>) -> Scanned {
        let pair = |id: &str| at(id).into_pair();
        Scanned {
            found: found.iter().map(|id| pair(id)).collect(),
            frontier: seen.map(pair),
            next: next.map(pair),
            is_exhausted: seen.is_none() && next.is_none(),
            ..Scanned::default()
        }
    }

    #[test]
    fn the_page_ends_where_the_slowest_shard_is() {
        let mut merge = Merge::new(3, None, 10, false);
        merge.add(0, scanned(&["a", "d"], None, None));
        merge.add(1, scanned(&["b", "e"], Some("e"), None));
        merge.add(2, scanned(&[], Some("c"), None));
        assert_eq!(merge.go_on(), None, "it has looked at as many as it may");
        assert_eq!(merge.page(), (vec![at("a"), at("b")], Some(at("c"))));
    }

    #[test]
    fn where_a_shard_gave_up_the_page_goes_on_or_ends_before() {
        let mut merge = Merge::new(3, None, 10, false);
        merge.add(0, scanned(&[], None, Some("b")));
        merge.add(1, scanned(&[], None, Some("c")));
        merge.add(2, scanned(&["d"], Some("d"), Some("e")));
        let first = GoOn { shard: 0, after: None, until: Some(at("c")), is_needed: true };
        assert_eq!(merge.go_on(), Some(first));
        merge.add(0, scanned(&["b"], Some("b"), Some("f")));
        let second = GoOn { shard: 1, after: None, until: Some(at("e")), is_needed: false };
        assert_eq!(merge.go_on(), Some(second));
        assert_eq!(merge.page(), (vec![at("b")], Some(at("b"))));
    }

    #[test]
    fn a_full_page_needs_no_more() {
        let mut merge = Merge::new(2, Some(at("z")), 1, true);
        merge.add(0, scanned(&["y"], Some("y"), Some("w")));
        merge.add(1, scanned(&["x"], None, None));
        assert_eq!(merge.go_on(), None);
        assert_eq!(merge.page(), (vec![at("y")], Some(at("y"))));
        let mut merge = Merge::new(1, None, 1, false);
        merge.add(0, scanned(&["a"], None, None));
        assert_eq!(merge.page(), (vec![at("a")], None));
    }
}
