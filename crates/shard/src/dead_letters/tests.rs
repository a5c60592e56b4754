//! Dead letters alone: counted, found, listed in pages.

use super::*;
use crate::testing::{Bench, START, message, sequence};
use crate::typed_reply::Listed;

#[test]
fn they_are_counted_listed_in_pages_and_dropped() {
    let mut bench = Bench::new(1);
    let mut dead_letters = DeadLetters::recover(&mut bench.rows).expect("no rows");
    let error = Error::new(ErrorCode::FunctionFailed, "it threw");
    for index in 0..3 {
        let dead_letter = DeadLetterRecord::encode(&error, &message("k", START));
        let write = dead_letters.write(&sequence(1, index).encode(), &dead_letter);
        bench.context().append(vec![write]);
    }
    let unreadable = dead_letters.write(b"no record", b"?");
    bench.context().append(vec![unreadable]);
    assert_eq!(dead_letters.len(), 4);
    assert_eq!(DeadLetters::recover(&mut bench.rows).expect("as before").len(), 4);
    let Listed { items: page, has_more } = dead_letters.page(None, 2, &mut bench.rows).expect("it is read");
    assert_eq!((page.len(), has_more), (2, true));
    let Listed { items: page, has_more } = dead_letters.page(Some(&page[1].0), 2, &mut bench.rows).expect("it is read");
    assert_eq!((page.len(), has_more), (1, false), "what cannot be read is not shown");
    let field = page[0].0.clone();
    assert_eq!(dead_letters.get(&field, &mut bench.rows).expect("it is there").message.key, b"k");
    let write = dead_letters.deletion(&field);
    bench.context().append(vec![write]);
    let gone = dead_letters.get(&field, &mut bench.rows).expect_err("it was dropped");
    assert_eq!((gone.code, dead_letters.len()), (ErrorCode::UnknownInvocation, 3));
}
