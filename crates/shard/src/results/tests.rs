//! Names of results, and their life.

use millrace_base::{EntityKey, Lsn, Name};

use super::*;
use crate::testing::Bench;

/// As docs/internals/format.md has them: a result that is not found again is an effect that comes twice.
#[test]
fn the_fields_are_the_documented_ones() {
    let (app, service) = (Name::new("shop").expect("a name"), Name::new("cart").expect("a name"));
    let entity = EntityKey::new(&app, &service, b"k");
    let id = Sequence { lsn: Lsn(1), index: 2 };
    let plain = [&b"kshop\0cart\0k\0\x01once"[..], b"g\0\0\0\0\0\0\0\x01\0\x02once"];
    // Computed with another implementation, which gives the vectors of SipHash's authors.
    let hashed = [
        &b"h\xc8\xfc\x15\x70\x94\x95\x8b\x34\xce\x35\x6f\x83\x55\xe3\x0c\xec"[..],
        b"h\x75\x33\xb0\x41\x16\x80\x73\x22\xbb\x3f\x44\xf3\x5c\xd5\x22\xbc",
    ];
    let key = std::array::from_fn(|index| index as u8);
    for (names, [call, signal]) in [(ResultNames::Plain, plain), (ResultNames::Hashed(key), hashed)] {
        assert_eq!(*names.of_call(&entity, "add", b"1", "once", b"call").field, *call);
        assert_eq!(*names.of_call(&entity, "add", b"1", "once", b"send").field, *call);
        assert_eq!(*names.name(&[&entity_scope(&entity)], "once"), *call, "a route's");
        assert_eq!(*names.of_signal(id, "go", b"1", "once").field, *signal);
        assert_eq!(*names.name(&[&workflow_scope(id)], "once"), *signal, "a route's");
    }
    assert_eq!(*invocation_field(id), b"i\0\0\0\0\0\0\0\x01\0\x02"[..]);
}

#[test]
fn a_result_is_kept_for_its_time_and_collected_behind_it() {
    let (mut results, mut bench) = (Results::new(ResultNames::Hashed([7; 16]), 60_000), Bench::new(1));
    let entity = EntityKey::internal("x", b"1");
    let key = |input: &[u8]| results_key(&entity, input);
    let kept = results.keep(key(b"1"), ResultState::Sent(Lsn(3), 4), bench.now);
    let pending = results.keep_pending(Sequence { lsn: Lsn(1), index: 0 }, "app", "counter");
    bench.context().append(vec![kept, pending]);
    let reply = results.kept_reply(&key(b"1"), bench.now, &mut bench.rows);
    let id = InvocationId { shard: millrace_base::ShardId(0), sequence: Sequence { lsn: Lsn(3), index: 4 } };
    assert_eq!(reply, Some(Ok(Reply::Sent(id))));
    let other = results.kept_reply(&key(b"2"), bench.now, &mut bench.rows).expect("the key is known");
    assert_eq!(other.map_err(|error| error.code), Err(ErrorCode::IdempotencyMismatch));
    assert_eq!(results.expired(&mut bench.context()).len(), 0);
    bench.now = bench.now.plus(60_000);
    assert_eq!(results.kept_reply(&key(b"1"), bench.now, &mut bench.rows), None, "it is as good as gone");
    let expired = results.expired(&mut bench.context());
    assert_eq!(expired, [key(b"1").field], "what is pending stays");
    results.leave_over(expired.into_iter());
    let expired = results.expired(&mut bench.context());
    assert_eq!(expired.len(), 1, "an entry had no room for it");
    let writes = expired.into_iter().map(|field| results.deletion(field)).collect();
    bench.context().append(writes);
    assert_eq!(results.expired(&mut bench.context()).len(), 0);
}

fn results_key(entity: &EntityKey, input: &[u8]) -> ResultKey {
    ResultNames::Hashed([7; 16]).of_call(entity, "run", input, "key", b"call")
}

#[test]
fn only_the_key_of_the_transaction_that_commits_is_remembered() {
    let mut results = Results::new(ResultNames::Plain, 60_000);
    let key = || results_key(&EntityKey::internal("x", b"1"), b"1");
    results.remember(5, key());
    assert!(results.remembered(6).is_none() && results.remembered(5).is_none(), "it is taken once");
    results.remember(5, key());
    assert!(results.remembered(5).is_some());
}
