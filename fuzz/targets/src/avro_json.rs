//! A schema in one line, and JSON below it. A value that is read is canonical, and comes back from both forms.

use millrace_avro::{JsonForm, Missing, Schema, canonicalise, canonicalise_stored, from_json, order_key, to_json};

pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Some((schema, json)) = text.split_once('\n') else { return };
    let Ok(schema) = Schema::parse(schema, &[]) else { return };
    let root = schema.root();
    for form in [JsonForm::Plain, JsonForm::Avro] {
        let mut bytes = Vec::new();
        match from_json(&schema, root, json.as_bytes(), form, Missing::Default, &mut bytes) {
            Ok(()) => (),
            Err(error) => {
                assert!(!error.message.is_empty() && !error.path.is_empty());
                continue;
            }
        }
        assert!(serde_json::from_str::<serde_json::Value>(json).is_ok(), "only JSON is read");
        assert_eq!(canonicalise_stored(&schema, root, &bytes).expect("a value").0, bytes);
        // A field that was left out has its default, which may be a value that nobody could write.
        let Ok(checked) = canonicalise(&schema, root, &bytes) else { continue };
        assert_eq!(checked, bytes);
        order_key(&schema, root, &bytes, true, &mut Vec::new());
        for form in [JsonForm::Plain, JsonForm::Avro] {
            let (mut written, mut again) = (Vec::new(), Vec::new());
            if to_json(&schema, root, &bytes, form, &mut written).is_ok() {
                from_json(&schema, root, &written, form, Missing::Refuse, &mut again).expect("what was written");
                assert_eq!(again, bytes);
            }
        }
    }
}
