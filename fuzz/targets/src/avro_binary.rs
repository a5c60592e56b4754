//! A schema in one line, and bytes below it. A value's canonical form is a value too. It goes through JSON and back.

use millrace_avro::{JsonForm, Missing, Resolution, Schema, canonicalise, difference, from_json, skip, to_json};

pub(crate) fn run(bytes: &[u8]) {
    let input = bytes;
    let Some(end) = input.iter().position(|byte| *byte == b'\n') else { return };
    let Ok(text) = std::str::from_utf8(&input[..end]) else { return };
    let Ok(schema) = Schema::parse(text, &[]) else { return };
    let (root, bytes) = (schema.root(), &input[end + 1..]);
    let skipped = skip(&schema, root, bytes);
    let applied = Resolution::new(&schema, &schema).expect("it reads itself").apply(bytes, &mut Vec::new());
    let written = to_json(&schema, root, bytes, JsonForm::Plain, &mut Vec::new());
    let Ok(canonical) = canonicalise(&schema, root, bytes) else { return };
    assert_eq!(skipped, Ok(bytes.len()));
    assert_eq!((applied, written.is_ok()), (Ok(()), true));
    assert_eq!(canonicalise(&schema, root, &canonical).as_deref(), Ok(&canonical[..]));
    assert!(difference(&schema, Some(&canonical), Some(&canonical), 1).is_empty());
    let (mut json, mut again) = (Vec::new(), Vec::new());
    to_json(&schema, root, &canonical, JsonForm::Plain, &mut json).expect("a value");
    from_json(&schema, root, &json, JsonForm::Plain, Missing::Refuse, &mut again).expect("what was written");
    assert_eq!(again, canonical);
}
