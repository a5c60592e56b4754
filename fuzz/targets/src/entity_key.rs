//! Entity keys at the start of a row. A key that is split off can be put together again.

use millrace_base::{EntityKey, Name};

pub(crate) fn run(bytes: &[u8]) {
    let Some((key, rest)) = EntityKey::split_from(bytes) else { return };
    assert_eq!([key.as_bytes(), rest].concat(), bytes);
    let parts = key.parts();
    assert!(key.shard(64).0 < 64);
    if let (Ok(app), Ok(service)) = (Name::new(&parts.app), Name::new(&parts.service)) {
        assert_eq!(EntityKey::new(&app, &service, &parts.key), key);
    }
}
