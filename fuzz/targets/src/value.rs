//! Stored values: what is accepted keeps its bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use millrace_base::Value;

fuzz_target!(|bytes: &[u8]| {
    let Some(value) = Value::from_encoded(bytes) else { return };
    assert_eq!(value.encoded(), bytes);
    assert_eq!(Value::new(value.kind(), value.content()), value);
});
