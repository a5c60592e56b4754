//! Subjects, versions, ids, rules: as in the Confluent Schema Registry.

use crate::common;

use crate::common::{avro, record, reference, refused, register};
use millrace_base::limits;
use millrace_registry::{
    Against, Level, Mode, NewSchema, Refusal, RefusalKind, Registered, Registry, Shown, VersionNumber,
};

const LATEST: VersionNumber = VersionNumber::Latest;

fn n(number: u32) -> VersionNumber {
    VersionNumber::Number(number)
}

fn lenient() -> Registry {
    let mut registry = Registry::default();
    registry.set_compatibility(None, Some(Level::None)).expect("a level");
    registry
}

#[test]
fn the_same_schema_has_one_id_and_one_version() {
    let mut registry = lenient();
    assert_eq!(register(&mut registry, "a", "x:int"), (1, 1));
    assert_eq!(register(&mut registry, "a", "y:int"), (2, 2));
    let before = registry.clone();
    assert_eq!(register(&mut registry, "a", "x:int"), (1, 1));
    let spaced = record("x:int").replace(',', " ,\n ");
    let again = registry.register("a", &NewSchema::avro(spaced)).expect("known");
    assert_eq!(again, Registered { id: 1, version: 1, is_new: false });
    assert_eq!(registry, before, "nothing was to be registered");
    assert_eq!(register(&mut registry, "b", "y:int"), (2, 1));
    assert_eq!(register(&mut registry, "b", "z:int"), (3, 2));
    assert_eq!(register(&mut registry, "b", "x:int"), (1, 3));
    assert_eq!(registry.versions_with(1, Shown::Live), Ok(vec![("a", 1), ("b", 3)]));
    assert_eq!(registry.schema(1).expect("there").text(), record("x:int"), "the text as it was sent first");
    assert_eq!(registry.schema(4).expect_err("none").kind, RefusalKind::SchemaNotFound);
}

#[test]
fn texts_are_kept_as_sent_unless_normalised() {
    let mut registry = lenient();
    let text = r#"{ "type": "fixed", "size": 4, "namespace": "a", "name": "F" }"#;
    registry.register("a", &NewSchema::avro(text)).expect("a schema");
    assert_eq!(registry.schema(1).expect("there").text(), text);
    let normalised = NewSchema { normalize: true, ..NewSchema::avro(text.replace('4', "5")) };
    registry.register("a", &normalised).expect("a schema");
    assert_eq!(registry.schema(2).expect("there").text(), r#"{"name":"a.F","size":5,"type":"fixed"}"#);
    let same = registry.lookup("a", &NewSchema { normalize: false, ..normalised }, false).expect("found");
    assert_eq!(same.version, 2);
}

#[test]
fn versions_are_found_by_number_and_as_latest() {
    let mut registry = lenient();
    for fields in ["x:int", "y:int", "z:int"] {
        register(&mut registry, "a", fields);
    }
    register(&mut registry, "ab", "x:int");
    registry.delete_version("a", n(3), false).expect("there");
    let id = |number, deleted| registry.version("a", number, deleted).map(|found| found.schema.id());
    let kind = |result: Result<u32, Refusal>| result.map_err(|refusal| refusal.kind);
    assert_eq!(id(n(1), false), Ok(1));
    assert_eq!(id(LATEST, false), Ok(2));
    assert_eq!(id(LATEST, true), Ok(3));
    assert_eq!(id(n(3), true), Ok(3));
    assert_eq!(kind(id(n(3), false)), Err(RefusalKind::VersionNotFound));
    assert_eq!(kind(id(n(4), true)), Err(RefusalKind::VersionNotFound));
    let none = registry.version("none", LATEST, true).expect_err("none");
    assert_eq!(none.kind.number(), 40401);
    assert_eq!(registry.versions("a", Shown::Live), Ok(vec![1, 2]));
    assert_eq!(registry.versions("a", Shown::All), Ok(vec![1, 2, 3]));
    assert_eq!(registry.versions("a", Shown::Deleted), Ok(vec![3]));
    assert!(registry.versions("ab", Shown::Deleted).is_err());
    let all: Vec<_> = registry.all_versions("a", Shown::All).map(|found| (found.subject, found.version)).collect();
    assert_eq!(all, [("a", 1), ("a", 2), ("a", 3), ("ab", 1)]);
    assert_eq!(registry.all_versions("ab", Shown::All).count(), 1);
    assert_eq!(registry.all_versions("b", Shown::All).count(), 0);
    let table =
        [("latest", Some(LATEST)), ("-1", Some(LATEST)), ("1", Some(n(1))), ("2147483647", Some(n(2147483647)))];
    for (text, number) in table {
        assert_eq!(VersionNumber::parse(text).ok(), number, "{text}");
    }
    for text in ["0", "-2", "+1", "2147483648", "", "x", "1.0", "Latest"] {
        assert_eq!(VersionNumber::parse(text).expect_err(text).kind, RefusalKind::InvalidVersion);
    }
}

#[test]
fn schemas_that_are_not_valid_are_refused() {
    let mut registry = Registry::default();
    let table = [
        ("", "empty"),
        ("{", "no JSON"),
        ("{}", "no type"),
        ("\"nothing\"", "unknown name"),
        (r#"{"type":"record","name":"R"}"#, "no fields"),
    ];
    for (text, why) in table {
        let kind = refused(&mut registry, |registry| registry.register("a", &NewSchema::avro(text)));
        assert_eq!(kind, RefusalKind::InvalidSchema, "{why}");
    }
    for kind in ["JSON", "PROTOBUF", "avro", ""] {
        let other = NewSchema { schema_type: Some(kind.into()), ..avro("x:int") };
        let refusal = registry.register("a", &other).expect_err(kind);
        assert_eq!(refusal.kind.number(), 42201);
        assert!(refusal.message.contains("only AVRO"), "{refusal}");
    }
    registry.register("a", &NewSchema { schema_type: Some("AVRO".into()), ..avro("x:int") }).expect("a schema");
    let long = format!("\"{}\"", "x".repeat(limits::SCHEMA_BYTES));
    let kind = refused(&mut registry, |registry| registry.register("a", &NewSchema::avro(long)));
    assert_eq!(kind, RefusalKind::InvalidSchema);
    for subject in ["", "a\nb", &"s".repeat(limits::KEY_BYTES + 1)] {
        let kind = refused(&mut registry, |registry| registry.register(subject, &avro("x:int")));
        assert_eq!(kind, RefusalKind::InvalidSubject);
        let kind = refused(&mut registry, |registry| registry.set_compatibility(Some(subject), Some(Level::Full)));
        assert_eq!(kind, RefusalKind::InvalidSubject);
    }
    registry.register("orders/ü:value", &avro("x:int")).expect("Kafka's names are free");
}

#[test]
fn a_schema_is_looked_up_under_a_subject() {
    let mut registry = lenient();
    register(&mut registry, "a", "x:int");
    register(&mut registry, "a", "y:int");
    register(&mut registry, "b", "z:int");
    let kind = |result: Result<u32, Refusal>| result.map_err(|refusal| refusal.kind);
    let find = |registry: &Registry, subject: &str, schema: &NewSchema, deleted| {
        kind(registry.lookup(subject, schema, deleted).map(|found| found.version))
    };
    assert_eq!(find(&registry, "a", &avro("y:int"), false), Ok(2));
    assert_eq!(find(&registry, "a", &avro("z:int"), false), Err(RefusalKind::SchemaNotFound));
    assert_eq!(find(&registry, "c", &avro("z:int"), false), Err(RefusalKind::SubjectNotFound));
    assert_eq!(find(&registry, "a", &NewSchema::avro("{}"), false), Err(RefusalKind::InvalidSchema));
    registry.delete_version("a", n(1), false).expect("there");
    assert_eq!(find(&registry, "a", &avro("x:int"), false), Err(RefusalKind::SchemaNotFound));
    assert_eq!(find(&registry, "a", &avro("x:int"), true), Ok(1));
    assert_eq!(register(&mut registry, "a", "x:int"), (1, 3), "the same id, a new version");
    assert_eq!(find(&registry, "a", &avro("x:int"), true), Ok(3));
    registry.delete_subject("a", false).expect("there");
    assert_eq!(find(&registry, "a", &avro("x:int"), false), Err(RefusalKind::SubjectNotFound));
    assert_eq!(find(&registry, "a", &avro("x:int"), true), Ok(3));
}

#[test]
fn deletion_is_soft_and_then_permanent() {
    let mut registry = lenient();
    register(&mut registry, "a", "x:int");
    register(&mut registry, "a", "y:int");
    let r = &mut registry;
    assert_eq!(refused(r, |r| r.delete_version("none", n(1), false)), RefusalKind::SubjectNotFound);
    assert_eq!(refused(r, |r| r.delete_version("a", n(3), false)), RefusalKind::VersionNotFound);
    assert_eq!(refused(r, |r| r.delete_version("a", n(1), true)), RefusalKind::VersionNotDeleted);
    assert_eq!(r.delete_version("a", n(1), false), Ok(1));
    assert_eq!(refused(r, |r| r.delete_version("a", n(1), false)), RefusalKind::VersionDeleted);
    assert_eq!(r.schema(1).expect("still there").text(), record("x:int"));
    assert_eq!(r.versions_with(1, Shown::Live), Ok(vec![]));
    assert_eq!(r.versions_with(1, Shown::All), Ok(vec![("a", 1)]));
    assert_eq!(r.delete_version("a", n(1), true), Ok(1));
    assert!(r.schema(1).is_err());
    assert_eq!(refused(r, |r| r.delete_version("a", n(1), true)), RefusalKind::VersionNotFound);
    assert_eq!(refused(r, |r| r.delete_subject("a", true)), RefusalKind::SubjectNotDeleted);
    assert_eq!(r.subjects(Shown::Deleted), Vec::<&str>::new());
    assert_eq!(r.delete_version("a", LATEST, false), Ok(2));
    assert_eq!(r.subjects(Shown::Live), Vec::<&str>::new());
    assert_eq!((r.subjects(Shown::All), r.subjects(Shown::Deleted)), (vec!["a"], vec!["a"]));
    assert_eq!(refused(r, |r| r.delete_subject("a", false)), RefusalKind::SubjectDeleted);
    assert_eq!(r.delete_subject("a", true), Ok(vec![2]));
    assert_eq!(refused(r, |r| r.delete_subject("a", true)), RefusalKind::SubjectNotFound);
    assert_eq!(r.subjects(Shown::All), Vec::<&str>::new());
    assert_eq!(register(r, "a", "x:int"), (3, 1), "ids are not given again");
    let read = Registry::from_files(&r.to_files()).expect("a registry");
    assert_eq!(read, *r);
}

#[test]
fn numbers_of_errors_are_those_that_clients_know() {
    let mut registry = lenient();
    register(&mut registry, "a", "x:int");
    let numbers = [
        registry.versions("none", Shown::Live).expect_err("none").kind.number(),
        registry.version("a", n(2), false).expect_err("none").kind.number(),
        registry.schema(9).expect_err("none").kind.number(),
        registry.clone().delete_subject("a", true).expect_err("not deleted").kind.number(),
        Level::parse("SOME").expect_err("none").kind.number(),
        Mode::parse("SOME").expect_err("none").kind.number(),
    ];
    assert_eq!(numbers, [40401, 40402, 40403, 40405, 42203, 42204]);
}

#[test]
fn each_level_compares_with_what_it_says() {
    // Versions 1 and 2, then the level, then whether a third one fits.
    let with_default = "x:int y:int=0";
    let table = [
        // Adding a field without a default: old readers accept it, the new one does not.
        ("x:int", "x:int", Level::None, "x:int y:int", true),
        ("x:int", "x:int", Level::Backward, "x:int y:int", false),
        ("x:int", "x:int", Level::Forward, "x:int y:int", true),
        ("x:int", "x:int", Level::Full, "x:int y:int", false),
        // Removing one.
        ("x:int y:int", "x:int y:int", Level::Backward, "x:int", true),
        ("x:int y:int", "x:int y:int", Level::Forward, "x:int", false),
        ("x:int y:int", "x:int y:int", Level::Full, "x:int", false),
        // With a default everything fits.
        ("x:int", "x:int", Level::Full, with_default, true),
        ("x:int", "x:int", Level::FullTransitive, with_default, true),
        // The latest has the field (with a default), the one before does not.
        ("x:int", with_default, Level::Backward, "x:int y:int", true),
        ("x:int", with_default, Level::BackwardTransitive, "x:int y:int", false),
        ("x:int y:int", with_default, Level::Forward, "x:int", true),
        ("x:int y:int", with_default, Level::ForwardTransitive, "x:int", false),
        ("x:int", with_default, Level::Full, "x:int y:int", true),
        ("x:int", with_default, Level::FullTransitive, "x:int y:int", false),
        // Another type altogether.
        ("x:int", "x:int", Level::Full, "x:string", false),
        ("x:int", "x:int", Level::Backward, "x:long", true),
        ("x:int", "x:int", Level::Forward, "x:long", false),
    ];
    for (first, second, level, third, fits) in table {
        let mut registry = lenient();
        register(&mut registry, "a", first);
        registry.register("a", &avro(second)).expect("no level yet");
        registry.set_compatibility(Some("a"), Some(level)).expect("a level");
        let points = registry.test_compatibility("a", Against::Subject, &avro(third)).expect("schemas");
        assert_eq!(points.is_empty(), fits, "{first} | {second} | {level} | {third}: {points:?}");
        if fits {
            registry.register("a", &avro(third)).expect(third);
        } else {
            let kind = refused(&mut registry, |registry| registry.register("a", &avro(third)));
            assert_eq!(kind, RefusalKind::Incompatible, "{third}");
            let refusal = registry.register("a", &avro(third)).expect_err("still");
            assert_eq!(refusal.points, points);
            let error = millrace_base::Error::from(refusal);
            assert!(error.detail.is_some_and(|detail| detail.contains("messages")), "each place is told");
        }
    }
}

#[test]
fn a_schema_is_tested_against_one_version_whatever_follows() {
    let mut registry = lenient();
    register(&mut registry, "a", "x:int");
    register(&mut registry, "a", "x:int y:int");
    registry.set_compatibility(None, Some(Level::Backward)).expect("a level");
    let test =
        |against, fields| registry.test_compatibility("a", against, &avro(fields)).map(|points| points.is_empty());
    assert_eq!(test(Against::Version(n(2)), "x:int y:int"), Ok(true));
    assert_eq!(test(Against::Version(LATEST), "x:int y:int"), Ok(true));
    assert_eq!(test(Against::Version(n(1)), "x:int y:int"), Ok(false));
    assert_eq!(test(Against::Version(n(3)), "x:int").expect_err("none").kind, RefusalKind::VersionNotFound);
    let points = registry.test_compatibility("a", Against::Version(n(1)), &avro("x:int y:int")).expect("schemas");
    assert!(points[0].contains("version 1"), "{points:?}");
    let unknown = registry.test_compatibility("none", Against::Version(LATEST), &avro("x:int"));
    assert_eq!(unknown, Ok(vec![]), "nothing that could be broken");
    let invalid = registry.test_compatibility("none", Against::Subject, &NewSchema::avro("{}"));
    assert_eq!(invalid.expect_err("invalid").kind, RefusalKind::InvalidSchema);
}

#[test]
fn deleted_versions_are_not_compared_with() {
    let mut registry = Registry::default();
    register(&mut registry, "a", "x:int");
    register(&mut registry, "a", "x:int y:int=0");
    assert_eq!(refused(&mut registry, |registry| registry.register("a", &avro("z:string"))), RefusalKind::Incompatible);
    registry.delete_subject("a", false).expect("there");
    assert_eq!(register(&mut registry, "a", "z:string"), (3, 3));
}

#[test]
fn levels_are_global_or_a_subjects() {
    let mut registry = Registry::default();
    assert_eq!(registry.compatibility(None), Some(Level::Backward));
    assert_eq!(registry.compatibility(Some("a")), None);
    registry.set_compatibility(Some("a"), Some(Level::Full)).expect("before there are versions");
    registry.set_compatibility(None, Some(Level::Forward)).expect("a level");
    assert_eq!(registry.effective_compatibility("a"), Level::Full);
    assert_eq!(registry.effective_compatibility("b"), Level::Forward);
    assert_eq!(registry.subjects(Shown::All), Vec::<&str>::new(), "a rule makes no subject");
    registry.set_compatibility(Some("a"), None).expect("taken away");
    registry.set_compatibility(Some("b"), None).expect("nothing to take away");
    assert_eq!(registry.effective_compatibility("a"), Level::Forward);
    registry.set_compatibility(None, None).expect("taken away");
    assert_eq!(registry, Registry::default());
    register(&mut registry, "a", "x:int");
    registry.set_compatibility(Some("a"), Some(Level::Full)).expect("a level");
    registry.delete_subject("a", false).expect("there");
    assert_eq!(registry.compatibility(Some("a")), None, "a deleted subject's level goes with it");
    for level in Level::ALL {
        assert_eq!(Level::parse(&level.as_str().to_lowercase()), Ok(level));
        assert_eq!(serde_json::to_value(level).expect("JSON"), level.as_str());
    }
    for mode in Mode::ALL {
        assert_eq!(Mode::parse(mode.as_str()), Ok(mode));
        assert_eq!(serde_json::to_value(mode).expect("JSON"), mode.as_str());
    }
}

#[test]
fn read_only_means_that_nothing_changes() {
    for global in [false, true] {
        let mut registry = lenient();
        register(&mut registry, "a", "x:int");
        register(&mut registry, "a", "y:int");
        registry.delete_version("a", n(2), false).expect("there");
        registry.set_mode(if global { None } else { Some("a") }, Some(Mode::ReadOnly), false).expect("a mode");
        let r = &mut registry;
        assert_eq!(refused(r, |r| r.register("a", &avro("z:int"))).number(), 42205);
        assert_eq!(refused(r, |r| r.delete_version("a", n(1), false)), RefusalKind::NotPermitted);
        assert_eq!(refused(r, |r| r.delete_version("a", n(2), true)), RefusalKind::NotPermitted);
        assert_eq!(refused(r, |r| r.delete_subject("a", false)), RefusalKind::NotPermitted);
        assert_eq!(refused(r, |r| r.set_compatibility(Some("a"), None)), RefusalKind::NotPermitted);
        assert_eq!(refused(r, |r| r.put_type("a", &common::change("{}"))), RefusalKind::NotPermitted);
        assert_eq!(register(r, "a", "x:int"), (1, 1), "what is there already is found");
        assert_eq!(r.register("b", &avro("z:int")).is_ok(), !global);
        assert_eq!(r.set_compatibility(None, Some(Level::Full)).is_ok(), !global);
        r.set_mode(Some("a"), Some(Mode::ReadWrite), false).expect("a mode");
        register(r, "a", "x:int q:int=0");
    }
}

#[test]
fn an_overriding_mode_holds_for_all() {
    let mut registry = lenient();
    registry.set_mode(Some("a"), Some(Mode::ReadWrite), false).expect("a mode");
    let kind = refused(&mut registry, |r| r.set_mode(Some("a"), Some(Mode::ReadOnlyOverride), false));
    assert_eq!(kind, RefusalKind::InvalidMode);
    registry.set_mode(None, Some(Mode::ReadOnlyOverride), false).expect("a mode");
    assert_eq!(registry.effective_mode("a"), Mode::ReadOnlyOverride);
    assert_eq!(refused(&mut registry, |r| r.register("a", &avro("x:int"))), RefusalKind::NotPermitted);
    registry.set_mode(None, None, false).expect("a mode");
    assert_eq!((registry.effective_mode("a"), registry.mode(None)), (Mode::ReadWrite, Some(Mode::ReadWrite)));
    registry.set_mode(Some("a"), None, false).expect("taken away");
    assert_eq!(registry.mode(Some("a")), None);
}

#[test]
fn import_takes_ids_and_versions_as_they_come() {
    let with = |fields: &str, id, version| NewSchema { id, version, ..avro(fields) };
    let mut registry = Registry::default();
    let r = &mut registry;
    assert_eq!(refused(r, |r| r.register("a", &with("x:int", Some(7), None))), RefusalKind::NotPermitted);
    assert_eq!(refused(r, |r| r.register("a", &with("x:int", None, Some(2)))), RefusalKind::InvalidSchema);
    r.register("a", &with("x:int", None, Some(1))).expect("the next version");
    assert_eq!(refused(r, |r| r.set_mode(None, Some(Mode::Import), false)), RefusalKind::NotPermitted);
    assert_eq!(refused(r, |r| r.set_mode(Some("a"), Some(Mode::Import), false)), RefusalKind::NotPermitted);
    r.set_mode(Some("b"), Some(Mode::Import), false).expect("no versions");
    assert_eq!(refused(r, |r| r.register("b", &avro("y:int"))), RefusalKind::NotPermitted);
    assert_eq!(refused(r, |r| r.register("b", &with("y:int", Some(1), None))), RefusalKind::NotPermitted);
    assert_eq!(refused(r, |r| r.register("b", &with("y:int", Some(0), None))), RefusalKind::Invalid);
    assert_eq!(refused(r, |r| r.register("b", &with("y:int", Some(u32::MAX), None))), RefusalKind::Invalid);
    assert_eq!(refused(r, |r| r.register("b", &with("y:int", Some(9), Some(u32::MAX)))), RefusalKind::InvalidVersion);
    let given = r.register("b", &with("y:int", Some(50), Some(5))).expect("imported");
    assert_eq!(given, Registered { id: 50, version: 5, is_new: true });
    let given = r.register("b", &with("y:string", Some(49), Some(3))).expect("in any order, compatible or not");
    assert_eq!((given.id, given.version), (49, 3));
    assert_eq!(refused(r, |r| r.register("b", &with("z:string", Some(48), Some(5)))), RefusalKind::NotPermitted);
    let again = r.register("b", &with("y:int", Some(50), Some(5))).expect("imported");
    assert!(!again.is_new);
    assert_eq!(register(r, "a", "x:int q:int=0"), (51, 2), "own ids follow the largest");
    assert_eq!(Registry::from_files(&r.to_files()).as_ref(), Ok(&*r));
}

/// Half of all numbers: imported numbers leave the other half.
const LARGEST_IMPORTED: u32 = i32::MAX as u32 / 2;

#[test]
fn imported_numbers_leave_room_for_more() {
    let with = |fields: &str, id, version| NewSchema { id: Some(id), version: Some(version), ..avro(fields) };
    let mut registry = Registry::default();
    let r = &mut registry;
    r.set_mode(Some("b"), Some(Mode::Import), false).expect("no versions");
    for far in [LARGEST_IMPORTED + 1, i32::MAX as u32, u32::MAX] {
        assert_eq!(refused(r, |r| r.register("b", &with("x:int", far, 1))), RefusalKind::Invalid);
        assert_eq!(refused(r, |r| r.register("b", &with("x:int", 1, far))), RefusalKind::InvalidVersion);
    }
    r.register("b", &with("x:int", LARGEST_IMPORTED, LARGEST_IMPORTED)).expect("imported");
    assert_eq!(register(r, "a", "y:int"), (LARGEST_IMPORTED + 1, 1));
    r.set_mode(Some("b"), Some(Mode::ReadWrite), false).expect("a mode");
    assert_eq!(register(r, "b", "x:int z:int=0"), (LARGEST_IMPORTED + 2, LARGEST_IMPORTED + 1));
    // An id that this registry gave may be imported again elsewhere, however large it is.
    r.set_mode(Some("c"), Some(Mode::Import), false).expect("no versions");
    r.register("c", &with("y:int", LARGEST_IMPORTED + 1, 1)).expect("the same schema");
    assert_eq!(Registry::from_files(&r.to_files()).as_ref(), Ok(&*r));
}

#[test]
fn a_registry_with_a_far_id_from_before_is_read() {
    let mut registry = Registry::default();
    register(&mut registry, "a", "x:int");
    let mut files = registry.to_files();
    let text = String::from_utf8(files[0].content.clone()).expect("text");
    let largest = i32::MAX as u32;
    let text = text.replace("\"next_id\": 2", &format!("\"next_id\": {}", largest + 1));
    files[0].content = text.replace("\"id\": 1", &format!("\"id\": {largest}")).into_bytes();
    let mut read = Registry::from_files(&files).expect("a registry");
    assert_eq!(read.schema(largest).map(|schema| schema.id()), Ok(largest));
    assert_eq!(read.to_files(), files);
    assert_eq!(refused(&mut read, |r| r.register("a", &avro("x:int y:int=0"))), RefusalKind::Invalid);
}

fn uses(references: &[(&str, i32)], name: &str) -> NewSchema {
    let fields: Vec<String> =
        references.iter().map(|(subject, _)| format!(r#"{{"name":"{subject}","type":"n.{subject}"}}"#)).collect();
    NewSchema {
        references: references
            .iter()
            .map(|(subject, version)| reference(&format!("n.{subject}"), subject, *version))
            .collect(),
        ..NewSchema::avro(format!(r#"{{"type":"record","name":"n.{name}","fields":[{}]}}"#, fields.join(",")))
    }
}

#[test]
fn references_are_resolved_however_deep() {
    let mut registry = lenient();
    let r = &mut registry;
    assert_eq!(refused(r, |r| r.register("b", &uses(&[("a", 1)], "b"))), RefusalKind::InvalidSchema);
    r.register("a", &uses(&[], "a")).expect("a schema");
    r.register("b", &uses(&[("a", -1)], "b")).expect("refers to a");
    r.register("c", &uses(&[("b", 1)], "c")).expect("refers to b, which refers to a");
    assert_eq!(r.schema(2).expect("there").references(), [reference("n.a", "a", 1)], "latest is pinned");
    assert_eq!(refused(r, |r| r.register("b", &uses(&[("a", 2)], "b"))), RefusalKind::InvalidSchema);
    assert_eq!(refused(r, |r| r.register("b", &uses(&[("a", 0)], "b"))), RefusalKind::InvalidSchema);
    let without = NewSchema { references: vec![], ..uses(&[("a", 1)], "b") };
    assert_eq!(refused(r, |r| r.register("b", &without)), RefusalKind::InvalidSchema);
    assert_eq!(r.referenced_by("a", n(1)), Ok(vec![2]));
    assert_eq!(r.referenced_by("b", LATEST), Ok(vec![3]));
    assert_eq!(r.referenced_by("c", LATEST), Ok(vec![]));
    assert_eq!(r.referenced_by("a", n(2)).expect_err("none").kind, RefusalKind::VersionNotFound);
    let again = r.lookup("b", &uses(&[("a", 1)], "b"), false).map(|found| found.version);
    assert_eq!(again, Ok(1));
    assert_eq!(Registry::from_files(&r.to_files()).as_ref(), Ok(&*r));
}

#[test]
fn the_same_text_with_other_references_is_another_schema() {
    let mut registry = lenient();
    registry.register("a", &uses(&[], "a")).expect("a schema");
    let other = r#"{"type":"record","name":"n.a","fields":[{"name":"more","type":"int"}]}"#;
    registry.register("a", &NewSchema::avro(other)).expect("a schema");
    let first = registry.register("b", &uses(&[("a", 1)], "b")).expect("a schema");
    let second = registry.register("b", &uses(&[("a", 2)], "b")).expect("a schema");
    assert_ne!(first.id, second.id);
    // The order in which they are named does not matter.
    registry.register("z", &uses(&[], "z")).expect("a schema");
    let both = uses(&[("a", 1), ("z", 1)], "c");
    let turned = NewSchema { references: both.references.iter().rev().cloned().collect(), ..both.clone() };
    let id = registry.register("c", &both).expect("a schema").id;
    assert_eq!(registry.register("d", &turned).expect("a schema").id, id);
}

#[test]
fn what_is_referred_to_is_not_deleted() {
    let mut registry = lenient();
    let r = &mut registry;
    r.register("a", &uses(&[], "a")).expect("a schema");
    r.register("b", &uses(&[("a", 1)], "b")).expect("a schema");
    assert_eq!(refused(r, |r| r.delete_version("a", n(1), false)).number(), 42206);
    assert_eq!(refused(r, |r| r.delete_subject("a", false)), RefusalKind::Referenced);
    r.delete_subject("b", false).expect("nothing refers to it");
    assert_eq!(r.referenced_by("a", n(1)), Ok(vec![]));
    r.delete_subject("a", false).expect("only what is deleted refers to it");
    assert_eq!(refused(r, |r| r.delete_subject("a", true)), RefusalKind::Referenced, "b may come back");
    assert_eq!(refused(r, |r| r.delete_version("a", n(1), true)), RefusalKind::Referenced);
    assert_eq!(refused(r, |r| r.register("c", &uses(&[("a", 1)], "c"))), RefusalKind::InvalidSchema, "a is deleted");
    assert_eq!(r.lookup("b", &uses(&[("a", 1)], "b"), true).map(|found| found.version), Ok(1));
    r.delete_subject("b", true).expect("deleted before");
    r.delete_subject("a", true).expect("nothing refers to it");
    assert_eq!(r.subjects(Shown::All), Vec::<&str>::new());
}

#[test]
fn a_subject_that_refers_to_itself_goes_as_a_whole() {
    let mut registry = lenient();
    let r = &mut registry;
    r.register("a", &uses(&[], "a")).expect("a schema");
    r.register("a", &uses(&[("a", 1)], "b")).expect("a schema");
    assert_eq!(refused(r, |r| r.delete_version("a", n(1), false)), RefusalKind::Referenced);
    assert_eq!(r.delete_subject("a", false), Ok(vec![1, 2]));
    assert_eq!(r.delete_subject("a", true), Ok(vec![1, 2]));
}

#[test]
fn references_are_bounded() {
    let mut registry = lenient();
    let names: Vec<String> = (0..=limits::SCHEMA_REFERENCES).map(|n| format!("s{n}")).collect();
    for name in &names {
        registry.register(name, &uses(&[], name)).expect("a schema");
    }
    let all: Vec<(&str, i32)> = names.iter().map(|name| (name.as_str(), 1)).collect();
    let half = limits::SCHEMA_REFERENCES / 2;
    registry.register("all", &uses(&all[1..], "all")).expect("as many as may be");
    registry.register("half", &uses(&all[..half], "half")).expect("fewer");
    let r = &mut registry;
    assert_eq!(refused(r, |r| r.register("more", &uses(&all, "more"))), RefusalKind::InvalidSchema);
    let through_another: Vec<_> = [("half", 1)].into_iter().chain(all[half..].iter().copied()).collect();
    assert_eq!(refused(r, |r| r.register("more", &uses(&through_another, "more"))), RefusalKind::InvalidSchema);
    let fitting: Vec<_> =
        [("half", 1)].into_iter().chain(all[1..].iter().copied().take(limits::SCHEMA_REFERENCES - 2)).collect();
    r.register("more", &uses(&fitting, "more")).expect("what is used twice counts once");
    assert_eq!(Registry::from_files(&r.to_files()).as_ref(), Ok(&*r));
}

#[test]
fn the_registry_is_bounded() {
    let padding = "d".repeat(limits::SCHEMA_BYTES - 200);
    let mut registry = lenient();
    let large = |n: u32| NewSchema::avro(format!(r#"{{"type":"record","name":"R{n}","doc":"{padding}","fields":[]}}"#));
    let mut count = 0;
    let refusal = loop {
        match registry.register(&format!("s{count}"), &large(count)) {
            Ok(_) => count += 1,
            Err(refusal) => break refusal,
        }
    };
    assert!((55..64).contains(&count), "{count}: {refusal}");
    assert_eq!(refusal.kind, RefusalKind::Invalid);
    let bytes: usize = registry.to_files().iter().map(|file| file.content.len()).sum();
    assert!(bytes <= limits::APP_BYTES, "{bytes}");
    registry.delete_subject("s0", false).expect("deleting goes on");
    registry.delete_subject("s0", true).expect("deleting goes on");
    registry.register("again", &large(0)).expect("there is room again");
}
