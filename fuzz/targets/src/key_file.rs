//! The file of API keys. It is refused with a reason, or it is the same when written again. No text is a key by
//! chance.

use millrace_access::{KeyFile, KeySet, PREFIX};
use millrace_base::limits;

pub(crate) fn run(bytes: &[u8]) {
    let file = match KeyFile::parse(bytes) {
        Ok(file) => file,
        Err(why) => {
            assert!(!why.is_empty());
            return;
        }
    };
    let keys = KeySet::new(&file).expect("what was read has been checked");
    assert_eq!(keys.count(), file.keys.len());
    assert!(keys.count() <= limits::API_KEYS);
    let written = serde_json::to_vec(&file).expect("texts and numbers");
    assert_eq!(KeyFile::parse(&written).as_ref(), Ok(&file));
    for record in &file.keys {
        for secret in ["", &record.secret_sha256, "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"] {
            assert!(keys.verify(&format!("{PREFIX}{}_{secret}", record.id)).is_none());
        }
    }
}
