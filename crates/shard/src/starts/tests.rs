//! Workflows that have yet to begin, alone.

use super::*;
use crate::testing::{Bench, sequence};

#[test]
fn a_start_is_known_by_its_message_until_that_leaves_the_inbox() {
    let mut bench = Bench::new(1);
    let mut starts = Starts::recover(&mut bench.rows).expect("no rows");
    let ids = [sequence(1, 0), sequence(1, 1), sequence(2, 0)];
    for id in ids {
        let write = starts.write(id, &id.encode());
        bench.context().append(vec![write]);
    }
    assert!(starts.is_at(ids[0], &ids[0].encode()) && !starts.is_at(ids[0], b"elsewhere"));
    assert_eq!(starts.end(ids[1], b"elsewhere"), None, "another message leaves");
    let write = starts.end(ids[1], &ids[1].encode()).expect("its own does");
    bench.context().append(vec![write]);
    let recovered = Starts::recover(&mut bench.rows).expect("as written");
    for starts in [&starts, &recovered] {
        assert_eq!((starts.len(), starts.field(ids[1])), (2, None));
        assert_eq!(starts.after(Bound::Unbounded, 9).collect::<Vec<_>>(), [ids[0], ids[2]]);
        assert_eq!(starts.after(Bound::Excluded(ids[0]), 9).collect::<Vec<_>>(), [ids[2]]);
    }
}
