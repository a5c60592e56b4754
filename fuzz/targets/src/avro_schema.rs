//! A stranger's schema. The canonical form of a schema is a schema with the same form. It reads itself, and its zero
//! value is a value of it.

use millrace_avro::{Resolution, Schema, canonicalise_stored, check_readable};

pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let schema = match Schema::parse(text, &[]) {
        Ok(schema) => schema,
        Err(error) => {
            assert!(!error.message.is_empty());
            return;
        }
    };
    let form = schema.canonical_form();
    let again = Schema::parse(&form, &[]).expect("a canonical form is a schema");
    assert_eq!(again.canonical_form(), form);
    assert_eq!(again.fingerprint(), schema.fingerprint());
    assert_eq!(check_readable(&schema, &schema), Ok(()));
    let resolution = Resolution::new(&schema, &schema).expect("it reads itself");
    if let Ok(value) = schema.default_value() {
        // Defaults are taken as given, so that a registered schema stays a schema.
        assert_eq!(canonicalise_stored(&schema, schema.root(), &value).expect("a value").0, value);
        let mut out = Vec::new();
        resolution.apply(&value, &mut out).expect("a value of its own");
        assert_eq!(out, value);
    }
}
