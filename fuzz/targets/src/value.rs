//! Stored values. An accepted value keeps its bytes.

use millrace_base::Value;

pub(crate) fn run(bytes: &[u8]) {
    let Some(value) = Value::from_encoded(bytes) else { return };
    assert_eq!(value.encoded(), bytes);
    assert_eq!(Value::new(value.kind(), value.content()), value);
}
