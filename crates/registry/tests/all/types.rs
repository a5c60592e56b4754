//! Types: settings, indexes, triggers, and the schemas that they need.

use crate::common;

use crate::common::{avro, change, record, refused, register};
use millrace_base::limits;
use millrace_registry::{
    ChangesSettings, Create, Level, Mode, NewSchema, Refusal, RefusalKind, Registry, Shown, TriggerSettings,
    TypeChange, TypeSettings, VersionNumber, When, is_type_name,
};

fn put(registry: &mut Registry, json: &str) -> Result<(), Refusal> {
    registry.put_type("t", &change(json)).map(drop)
}

fn with_schema(fields: &str) -> TypeChange {
    TypeChange { schema: Some(record(fields)), ..TypeChange::default() }
}

/// A type `t` of records with these fields.
fn typed(fields: &str) -> Registry {
    let mut registry = Registry::default();
    registry.put_type("t", &with_schema(fields)).expect("a type");
    registry
}

fn numbers(registry: &Registry) -> Vec<(String, u16)> {
    let found = registry.record_type("t").expect("a type");
    found.indexes().map(|index| (index.settings.name.clone(), index.number)).collect()
}

fn trigger(name: &str, path: &str) -> TriggerSettings {
    TriggerSettings { name: name.into(), path: path.into(), when: When::After, source: "// nothing".into() }
}

#[test]
fn names_of_types_are_names_with_room() {
    for good in ["a", "personinfo", "Order_Line-2", &"n".repeat(limits::TYPE_NAME_BYTES)] {
        assert!(is_type_name(good), "{good}");
    }
    let long = "n".repeat(limits::TYPE_NAME_BYTES + 1);
    for bad in ["", "1a", "a--b", "--", "a b", "ü", "a/b", "ids", "types", "subjects", "contexts", &long] {
        assert!(!is_type_name(bad), "{bad}");
        let mut registry = Registry::default();
        let kind = refused(&mut registry, |registry| registry.put_type(bad, &with_schema("x:int")));
        assert_eq!(kind, RefusalKind::Invalid, "{bad}");
    }
    let mut registry = Registry::default();
    register(&mut registry, "ids", "x:int");
    assert_eq!(registry.subjects(Shown::Live), ["ids"], "a subject may be called so, and is no type");
}

#[test]
fn settings_are_json_that_people_read() {
    let all = r#"{"create":"touch","ttl_ms":5,"indexes":[{"name":"i","path":".x","ignore_case":true}],
        "triggers":[{"name":"t","path":".","when":"before","source":"//"}],
        "changes":{"retention_ms":7,"retention_count":9}}"#;
    let settings: TypeSettings = serde_json::from_str(all).expect("settings");
    assert_eq!(settings.create, Create::Touch);
    assert_eq!(settings.triggers[0].when, When::Before);
    assert_eq!(settings.changes, Some(ChangesSettings { retention_ms: 7, retention_count: Some(9) }));
    let back: TypeSettings = serde_json::from_str(&serde_json::to_string(&settings).expect("JSON")).expect("settings");
    assert_eq!(back, settings);
    let default = serde_json::to_value(TypeSettings::default()).expect("JSON");
    let expected = r#"{"create":"explicit","ttl_ms":null,"indexes":[],"triggers":[],"changes":null}"#;
    assert_eq!(default, serde_json::from_str::<serde_json::Value>(expected).expect("JSON"));
    let short: TypeSettings = serde_json::from_str(
        r#"{"indexes":[{"name":"i","path":".x"}],"triggers":[{"name":"t","path":".","source":""}]}"#,
    )
    .expect("settings");
    assert!(!short.indexes[0].ignore_case);
    let bare: TypeSettings = serde_json::from_str(r#"{"changes":{}}"#).expect("settings");
    let week = ChangesSettings { retention_ms: limits::CHANGE_RETENTION_MS, retention_count: None };
    assert_eq!(bare.changes, Some(week));
    assert_eq!(short.triggers[0].when, When::After);
    for bad in [
        r#"{"crate":"touch"}"#,
        r#"{"create":"maybe"}"#,
        r#"{"ttl_ms":-1}"#,
        r#"{"indexes":[{"name":"i"}]}"#,
        r#"{"indexes":[{"name":"i","path":".x","case":1}]}"#,
        r#"{"triggers":[{"name":"i","path":".x"}]}"#,
        r#"{"changes":{"retention":1}}"#,
        r#"{"compatibility":"SOME"}"#,
        r#"{"schema":1"#,
        "[]",
    ] {
        assert_eq!(TypeChange::from_json(bad).expect_err(bad).kind, RefusalKind::Invalid);
    }
}

#[test]
fn each_stream_of_changes_has_a_number_of_its_own() {
    let mut registry = Registry::default();
    let mut seen = std::collections::BTreeSet::new();
    let schema = record("x:int");
    let stream = |registry: &Registry| {
        let kept = Registry::from_files(&registry.to_files()).expect("its own files");
        assert_eq!(&kept, registry);
        kept.record_type("t").expect("a type").stream
    };
    for _ in 0..3 {
        put(&mut registry, &format!(r#"{{"schema":{schema},"changes":{{}}}}"#)).expect("a type");
        let first = stream(&registry);
        assert!(seen.insert(first), "{first} was there before: {seen:?}");
        put(&mut registry, r#"{"changes":{"retention_ms":5},"indexes":[{"name":"i","path":".x"}]}"#).expect("settings");
        assert_eq!(stream(&registry), first, "it goes on");
        put(&mut registry, r#"{"changes":null}"#).expect("settings");
        put(&mut registry, r#"{"changes":{}}"#).expect("settings");
        let second = stream(&registry);
        assert!(seen.insert(second), "{second} was there before: {seen:?}");
        registry.delete_type("t", true, true).expect("deleted");
        if seen.len() > 2 {
            registry.delete_subject("t", true).expect("gone for good");
        }
    }
}

#[test]
fn a_schema_is_given_as_it_is_or_in_a_string() {
    let text = record("x:int").replace(',', " , ");
    let as_it_is = change(&format!(r#"{{"schema": {text}}}"#));
    let in_a_string = change(&serde_json::json!({ "schema": text }).to_string());
    assert_eq!(as_it_is, in_a_string);
    let mut registry = Registry::default();
    let put = registry.put_type("t", &as_it_is).expect("a type");
    assert!(put.is_new && put.schema.is_new);
    assert_eq!(registry.record_type("t").expect("a type").schema.text(), text);
    let put = registry.put_type("t", &in_a_string).expect("a type");
    assert!(!put.is_new && !put.schema.is_new);
    assert_eq!((put.schema.id, put.schema.version), (1, 1));
}

#[test]
fn one_change_sets_schema_level_and_settings_and_leaves_what_it_does_not_name() {
    let mut registry = Registry::default();
    assert_eq!(refused(&mut registry, |r| put(r, "{}")), RefusalKind::UnknownType);
    assert_eq!(refused(&mut registry, |r| put(r, r#"{"compatibility":"FULL"}"#)), RefusalKind::UnknownType);
    let whole = format!(
        r#"{{"schema":{},"compatibility":"FORWARD","create":"touch","ttl_ms":9,"changes":{{"retention_ms":1}},
            "indexes":[{{"name":"x","path":".x"}}],"triggers":[{{"name":"on","path":".x","source":"//"}}]}}"#,
        record("x:int")
    );
    put(&mut registry, &whole).expect("a type");
    let settings = registry.record_type("t").expect("a type").settings.clone();
    assert_eq!((settings.create, settings.ttl_ms), (Create::Touch, Some(9)));
    assert_eq!(registry.compatibility(Some("t")), Some(Level::Forward));
    // Forward: the old schema reads what the new one writes.
    assert_eq!(refused(&mut registry, |r| r.put_type("t", &with_schema("y:int"))), RefusalKind::Incompatible);
    registry.put_type("t", &with_schema("x:int y:int")).expect("compatible");
    let found = registry.record_type("t").expect("a type");
    assert_eq!((found.version, found.schema_id()), (2, 2));
    assert_eq!(*found.settings, settings);
    put(&mut registry, r#"{"ttl_ms":null,"changes":null,"compatibility":null,"create":"explicit"}"#).expect("settings");
    let left = registry.record_type("t").expect("a type").settings.clone();
    assert_eq!((left.create, left.ttl_ms, left.changes), (Create::Explicit, None, None));
    assert_eq!((&left.indexes, &left.triggers), (&settings.indexes, &settings.triggers));
    assert_eq!(registry.compatibility(Some("t")), None);
    // The new level applies to the change that sets it.
    let other = format!(r#"{{"schema":{},"compatibility":"NONE","indexes":[],"triggers":[]}}"#, record("z:string"));
    put(&mut registry, &other).expect("no level any more, and nothing that needs x");
    assert_eq!(registry.record_type("t").expect("a type").version, 3);
    // All of it or nothing.
    let half = format!(r#"{{"schema":{},"create":"touch","indexes":[{{"name":"no","path":".no"}}]}}"#, record("q:int"));
    assert_eq!(refused(&mut registry, |r| put(r, &half)), RefusalKind::Invalid);
    let lone = r#"{"references":[{"name":"a","subject":"a","version":1}]}"#;
    assert_eq!(refused(&mut registry, |r| put(r, lone)), RefusalKind::Invalid);
}

#[test]
fn a_subject_becomes_a_type_by_its_settings() {
    let mut registry = Registry::default();
    register(&mut registry, "t", "x:int");
    assert_eq!(registry.types().count(), 0);
    assert_eq!(registry.record_type("t").expect_err("no type").kind, RefusalKind::UnknownType);
    put(&mut registry, "{}").expect("a type");
    let types: Vec<&str> = registry.types().map(|found| found.name).collect();
    assert_eq!(types, ["t"]);
    registry.register("u", &NewSchema::avro("\"int\"")).expect("a schema");
    assert_eq!(refused(&mut registry, |r| r.put_type("u", &change("{}"))), RefusalKind::InvalidSchema);
}

#[test]
fn a_types_schema_is_a_record() {
    for text in [
        "\"int\"",
        r#"["null","int"]"#,
        r#"{"type":"map","values":"int"}"#,
        r#"[{"type":"record","name":"R","fields":[]}]"#,
    ] {
        let mut registry = typed("x:int");
        registry.set_compatibility(None, Some(Level::None)).expect("a level");
        let kind = refused(&mut registry, |r| r.register("t", &NewSchema::avro(text)));
        assert_eq!(kind, RefusalKind::InvalidSchema, "{text}");
        let change = TypeChange { schema: Some(text.into()), ..TypeChange::default() };
        assert_eq!(refused(&mut registry, |r| r.put_type("new", &change)), RefusalKind::InvalidSchema, "{text}");
    }
}

#[test]
fn settings_must_fit_the_schema() {
    let array = r#"{"type":"array","items":"string"}"#;
    let mut registry = typed(&format!("s:string l:{array} n:[\"null\",\"long\"]"));
    let many = |what: &str, more: &str| {
        let all: Vec<String> = (0..=limits::INDEXES).map(|n| format!(r#"{{"name":"n{n}"{more}}}"#)).collect();
        format!(r#"{{"{what}":[{}]}}"#, all.join(","))
    };
    for bad in [
        r#"{"indexes":[{"name":"i","path":".none"}]}"#,
        r#"{"indexes":[{"name":"i","path":".l"}]}"#,
        r#"{"indexes":[{"name":"i","path":".l[0]"}]}"#,
        r#"{"indexes":[{"name":"i","path":".s[*]"}]}"#,
        r#"{"indexes":[{"name":"i","path":"."}]}"#,
        r#"{"indexes":[{"name":"i","path":"..s"}]}"#,
        r#"{"indexes":[{"name":"i","path":".s{"}]}"#,
        r#"{"indexes":[{"name":"i","path":""}]}"#,
        r#"{"indexes":[{"name":"","path":".s"}]}"#,
        r#"{"indexes":[{"name":"1","path":".s"}]}"#,
        r#"{"indexes":[{"name":"i","path":".n","ignore_case":true}]}"#,
        r#"{"indexes":[{"name":"i","path":".s"},{"name":"i","path":".n"}]}"#,
        r#"{"indexes":[{"name":"i","path":".s"},{"name":"j","path":".s"}]}"#,
        r#"{"triggers":[{"name":"i","path":".none","source":""}]}"#,
        r#"{"triggers":[{"name":"i","path":".l[0]","source":""}]}"#,
        r#"{"triggers":[{"name":"i","path":"","source":""}]}"#,
        r#"{"triggers":[{"name":"../i","path":".s","source":""}]}"#,
        r#"{"triggers":[{"name":"i","path":".s","source":""},{"name":"i","path":".","source":""}]}"#,
        r#"{"ttl_ms":0}"#,
        r#"{"ttl_ms":4000000000000001}"#,
        r#"{"ttl_ms":18446744073709551615}"#,
        &format!(r#"{{"triggers":[{{"name":"{}","path":".","source":""}}]}}"#, "t".repeat(64)),
        &many("indexes", r#","path":".s""#),
        &many("triggers", r#","path":".s","source":"""#),
    ] {
        assert_eq!(refused(&mut registry, |r| put(r, bad)), RefusalKind::Invalid, "{bad}");
    }
    let good = r#"{"indexes":[{"name":"i","path":".s"},{"name":"j","path":".s","ignore_case":true},
                              {"name":"k","path":".l[*]"},{"name":"n","path":".n"}],
        "triggers":[{"name":"i","path":".","source":""},{"name":"j","path":".l","source":""},
                    {"name":"k","path":".l[*]","source":""}]}"#;
    put(&mut registry, good).expect("settings");
}

#[test]
fn a_new_schema_must_fit_the_settings() {
    let mut registry = typed("x:int y:int");
    put(&mut registry, r#"{"indexes":[{"name":"i","path":".x"}],"triggers":[{"name":"on","path":".y","source":""}]}"#)
        .expect("settings");
    for fields in ["x:int", "y:int"] {
        assert_eq!(refused(&mut registry, |r| r.register("t", &avro(fields))), RefusalKind::Incompatible, "{fields}");
        assert_eq!(refused(&mut registry, |r| r.put_type("t", &with_schema(fields))), RefusalKind::Incompatible);
    }
    let both = format!(r#"{{"schema":{},"triggers":[]}}"#, record("x:int"));
    put(&mut registry, &both).expect("what needs the field goes with it");
}

#[test]
fn an_index_keeps_its_number_and_numbers_are_never_given_again() {
    let mut registry = typed("a:int b:string c:string");
    let steps: [(&str, &[(&str, u16)]); 8] = [
        (r#"[{"name":"a","path":".a"},{"name":"b","path":".b"}]"#, &[("a", 0), ("b", 1)]),
        // Another order, another name.
        (r#"[{"name":"bb","path":".b"},{"name":"a","path":".a"}]"#, &[("bb", 1), ("a", 0)]),
        // The same name, another path.
        (r#"[{"name":"bb","path":".c"},{"name":"a","path":".a"}]"#, &[("bb", 2), ("a", 0)]),
        (r#"[{"name":"bb","path":".c","ignore_case":true},{"name":"a","path":".a"}]"#, &[("bb", 3), ("a", 0)]),
        ("[]", &[]),
        // A definition that was there before comes back as a new one.
        (r#"[{"name":"a","path":".a"}]"#, &[("a", 4)]),
        (r#"[{"name":"a","path":".a"},{"name":"c","path":".c"}]"#, &[("a", 4), ("c", 5)]),
        (r#"[{"name":"c","path":".c"}]"#, &[("c", 5)]),
    ];
    for (indexes, expected) in steps {
        put(&mut registry, &format!(r#"{{"indexes":{indexes}}}"#)).expect(indexes);
        let expected: Vec<(String, u16)> = expected.iter().map(|(name, number)| ((*name).into(), *number)).collect();
        assert_eq!(numbers(&registry), expected, "{indexes}");
        registry = Registry::from_files(&registry.to_files()).expect("a registry");
        assert_eq!(numbers(&registry), expected, "read again");
    }
    // Not even if the type is made anew.
    registry.delete_type("t", false, false).expect("no records");
    registry.put_type("t", &with_schema("a:int")).expect("a type");
    put(&mut registry, r#"{"indexes":[{"name":"a","path":".a"}]}"#).expect("settings");
    assert_eq!(numbers(&registry), [("a".to_owned(), 7)], "the deletion took one");
    registry.delete_type("t", false, false).expect("no records");
    registry.delete_subject("t", true).expect("deleted before");
    registry.put_type("t", &with_schema("a:int")).expect("a type");
    put(&mut registry, r#"{"indexes":[{"name":"a","path":".a"}]}"#).expect("settings");
    assert_eq!(numbers(&registry), [("a".to_owned(), 9)]);
}

#[test]
fn a_type_is_told_from_those_of_its_name_before() {
    let mut registry = typed("a:int");
    let began = |registry: &Registry| {
        let kept = Registry::from_files(&registry.to_files()).expect("a registry");
        kept.record_type("t").expect("a type").began
    };
    let mut known = vec![began(&registry)];
    for is_permanent in [false, true, true, false] {
        put(&mut registry, r#"{"changes":{"retention_ms":5}}"#).expect("settings");
        put(&mut registry, r#"{"changes":null,"ttl_ms":5}"#).expect("settings");
        assert_eq!(known.last(), Some(&began(&registry)), "it is the same type");
        registry.delete_type("t", false, false).expect("no records");
        if is_permanent {
            registry.delete_subject("t", true).expect("deleted before");
        }
        registry.put_type("t", &with_schema("a:int")).expect("a type");
        assert!(!known.contains(&began(&registry)), "{known:?}");
        known.push(began(&registry));
    }
}

#[test]
fn what_an_index_holds_is_part_of_its_definition() {
    let mut registry = typed("a:int b:int");
    put(&mut registry, r#"{"indexes":[{"name":"a","path":".a"},{"name":"b","path":".b"}]}"#).expect("settings");
    register(&mut registry, "t", "a:long b:int c:int=0");
    assert_eq!(numbers(&registry), [("a".to_owned(), 2), ("b".to_owned(), 1)]);
    // Back to the schema of the version before.
    registry.set_compatibility(Some("t"), Some(Level::None)).expect("a level");
    registry.delete_version("t", VersionNumber::Latest, false).expect("deleted");
    assert_eq!(numbers(&registry), [("a".to_owned(), 3), ("b".to_owned(), 1)]);
}

#[test]
fn numbers_of_indexes_end() {
    let mut registry = typed("a:int");
    put(&mut registry, r#"{"indexes":[{"name":"a","path":".a"}]}"#).expect("settings");
    let mut files = registry.to_files();
    let text = String::from_utf8(files[0].content.clone()).expect("text");
    files[0].content = text.replace("\"next_index\": 1", "\"next_index\": 65535").into_bytes();
    let mut registry = Registry::from_files(&files).expect("a registry");
    put(&mut registry, r#"{"indexes":[]}"#).expect("settings");
    let kind = refused(&mut registry, |r| put(r, r#"{"indexes":[{"name":"a","path":".a"}]}"#));
    assert_eq!(kind, RefusalKind::Invalid);
}

#[test]
fn triggers_are_put_and_deleted_one_by_one() {
    let mut registry = typed("x:int");
    let r = &mut registry;
    assert_eq!(refused(r, |r| r.put_trigger("none", trigger("a", "."))), RefusalKind::UnknownType);
    assert_eq!(refused(r, |r| r.put_trigger("t", trigger("a", ".y"))), RefusalKind::Invalid);
    assert_eq!(refused(r, |r| r.put_trigger("t", trigger("a b", "."))), RefusalKind::Invalid);
    r.put_trigger("t", trigger("a", ".")).expect("a trigger");
    r.put_trigger("t", trigger("b", ".x")).expect("a trigger");
    let other = TriggerSettings { source: "// other".into(), ..trigger("a", ".x") };
    r.put_trigger("t", other.clone()).expect("replaced");
    assert_eq!(r.record_type("t").expect("a type").settings.triggers, [other, trigger("b", ".x")]);
    assert_eq!(refused(r, |r| r.delete_trigger("t", "c")), RefusalKind::UnknownTrigger);
    assert_eq!(refused(r, |r| r.delete_trigger("none", "a")), RefusalKind::UnknownType);
    r.delete_trigger("t", "a").expect("there");
    let files = r.to_files();
    assert_eq!(files.len(), 2);
    assert_eq!((files[1].path.as_str(), &files[1].content[..]), ("triggers/t/b.js", &b"// nothing"[..]));
    assert_eq!(Registry::from_files(&files).as_ref(), Ok(&*r));
    let large = TriggerSettings { source: "x".repeat(limits::APP_BYTES), ..trigger("b", ".") };
    assert_eq!(refused(r, |r| r.put_trigger("t", large)), RefusalKind::Invalid);
}

#[test]
fn all_versions_stay_for_what_was_written_with_them() {
    let mut registry = typed("x:int");
    register(&mut registry, "t", "x:int y:int=0");
    register(&mut registry, "t", "x:long y:int=0");
    registry.delete_version("t", VersionNumber::Number(1), false).expect("not the latest");
    let found = registry.record_type("t").expect("a type");
    let ids: Vec<(u32, u32, bool)> =
        found.versions().map(|version| (version.version, version.schema.id(), version.is_deleted)).collect();
    assert_eq!(ids, [(1, 1, true), (2, 2, false), (3, 3, false)]);
    assert_eq!(found.schema_id(), 3);
    let r = &mut registry;
    assert_eq!(refused(r, |r| r.delete_version("t", VersionNumber::Number(1), true)), RefusalKind::TypeInUse);
    assert_eq!(refused(r, |r| r.delete_subject("t", false)), RefusalKind::TypeInUse);
    assert_eq!(refused(r, |r| r.delete_subject("t", true)), RefusalKind::TypeInUse);
    // What version 3 wrote, version 2 cannot read.
    assert_eq!(refused(r, |r| r.delete_version("t", VersionNumber::Latest, false)), RefusalKind::Incompatible);
    r.set_compatibility(Some("t"), Some(Level::None)).expect("a level");
    r.delete_version("t", VersionNumber::Latest, false).expect("nobody minds");
    assert_eq!(r.record_type("t").expect("a type").version, 2);
    assert_eq!(refused(r, |r| r.delete_version("t", VersionNumber::Latest, false)), RefusalKind::TypeInUse);
}

#[test]
fn an_earlier_schema_becomes_current_again() {
    let mut registry = typed("x:int");
    register(&mut registry, "t", "x:int y:int=0");
    let put = registry.put_type("t", &with_schema("x:int")).expect("compatible");
    assert_eq!((put.schema.id, put.schema.version, put.schema.is_new), (1, 3, true));
    assert_eq!(registry.record_type("t").expect("a type").schema_id(), 1);
    assert_eq!(register(&mut registry, "t", "x:int y:int=0"), (2, 2), "registering it finds it");
    assert_eq!(Registry::from_files(&registry.to_files()).as_ref(), Ok(&registry));
}

#[test]
fn a_type_is_deleted_unless_it_is_in_use() {
    let mut registry = typed("x:int");
    let r = &mut registry;
    assert_eq!(refused(r, |r| r.delete_type("none", false, true)), RefusalKind::UnknownType);
    assert_eq!(refused(r, |r| r.delete_type("t", true, false)), RefusalKind::TypeInUse);
    let field = r#"{"type":"record","name":"S","fields":[{"name":"r","type":"R"}]}"#;
    let refers = NewSchema { references: vec![common::reference("R", "t", 1)], ..NewSchema::avro(field) };
    r.register("other", &refers).expect("a schema");
    assert_eq!(refused(r, |r| r.delete_type("t", false, true)), RefusalKind::Referenced);
    r.delete_subject("other", false).expect("there");
    r.set_mode(Some("t"), Some(Mode::ReadOnly), false).expect("a mode");
    assert_eq!(refused(r, |r| r.delete_type("t", false, true)), RefusalKind::NotPermitted);
    r.set_mode(Some("t"), None, false).expect("a mode");
    r.put_trigger("t", trigger("a", ".")).expect("a trigger");
    r.delete_type("t", true, true).expect("forced");
    assert_eq!(refused(r, |r| r.delete_type("t", false, false)), RefusalKind::UnknownType);
    assert_eq!((r.types().count(), r.to_files().len()), (0, 1));
    assert_eq!((r.subjects(Shown::Live), r.subjects(Shown::Deleted)), (vec![], vec!["other", "t"]));
    assert_eq!(Registry::from_files(&r.to_files()).as_ref(), Ok(&*r));
    // It comes back without its settings, and knows the schemas of its records.
    r.put_type("t", &with_schema("z:string")).expect("a type");
    let found = r.record_type("t").expect("a type");
    assert_eq!(**found.settings, TypeSettings::default());
    assert_eq!(found.versions().map(|version| version.schema.id()).collect::<Vec<_>>(), [1, 3]);
    let code = millrace_base::Error::from(r.record_type("none").expect_err("none")).code;
    assert_eq!(code.as_str(), "unknown-type");
}

const CLASSIC: &str = r#"[{"type":"enum","name":"Gender","namespace":"chat","symbols":["Unknown","Male"]},
    {"type":"record","name":"PersonInfo","namespace":"chat","fields":[{"name":"gender","type":"Gender"}]}]"#;

#[test]
fn the_classic_front_puts_schemas() {
    let mut registry = Registry::default();
    let r = &mut registry;
    assert_eq!(refused(r, |r| r.put_classic_schema("p", CLASSIC, None)), RefusalKind::InvalidSchema);
    assert_eq!(refused(r, |r| r.put_classic_schema("p", CLASSIC, Some("No"))), RefusalKind::InvalidSchema);
    assert_eq!(refused(r, |r| r.put_classic_schema("p--q", "{}", None)), RefusalKind::Invalid);
    let put = r.put_classic_schema("p", CLASSIC, Some("chat.PersonInfo")).expect("a type");
    assert!(put.is_new && put.schema.is_new);
    let found = r.record_type("p").expect("a type");
    assert_eq!((found.settings.create, found.settings.ttl_ms), (Create::Touch, None));
    let alone = millrace_avro::Schema::parse(found.schema.text(), &[]).expect("stands alone");
    assert_eq!(alone, **found.schema.schema());
    // Again: nothing new.
    let again = r.put_classic_schema("p", CLASSIC, Some("chat.PersonInfo")).expect("a type");
    assert!(!again.is_new && !again.schema.is_new);
    // Any schema replaces it; other settings stay.
    r.put_trigger("p", trigger("a", ".")).expect("a trigger");
    r.put_type("p", &change(r#"{"ttl_ms":60000}"#)).expect("an expiry");
    r.put_classic_schema("p", &record("x:string"), None).expect("replaced");
    let found = r.record_type("p").expect("a type");
    assert_eq!((found.version, found.settings.ttl_ms, found.settings.triggers.len()), (2, Some(60_000), 1));
    r.put_classic_schema("p", CLASSIC, Some("chat.PersonInfo")).expect("back");
    let found = r.record_type("p").expect("a type");
    assert_eq!((found.version, found.schema_id(), found.settings.ttl_ms), (3, 1, Some(60_000)));
}

#[test]
fn the_classic_front_heeds_levels_that_were_set() {
    for global in [true, false] {
        let mut registry = Registry::default();
        registry.put_classic_schema("p", &record("x:int"), None).expect("a type");
        registry.set_compatibility(if global { None } else { Some("p") }, Some(Level::Backward)).expect("a level");
        let kind = refused(&mut registry, |r| r.put_classic_schema("p", &record("x:string"), None));
        assert_eq!(kind, RefusalKind::Incompatible);
    }
    let mut registry = Registry::default();
    registry.put_classic_schema("p", &record("x:int"), None).expect("a type");
    assert_eq!(
        refused(&mut registry, |r| r.register("p", &avro("x:string"))),
        RefusalKind::Incompatible,
        "the default level holds for all others"
    );
    let mut native = typed("x:int");
    native.put_classic_schema("t", &record("x:int y:int=0"), None).expect("replaced");
    assert_eq!(native.record_type("t").expect("a type").settings.create, Create::Explicit);
}
