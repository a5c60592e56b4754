//! Whatever changes are made in whatever order, the registry stays whole.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::{change, record};
use millrace_api::AppFile;
use millrace_avro::{Kind, check_readable};
use millrace_registry::{
    Level, Mode, NewSchema, Reference, Refusal, Registry, Shown, TriggerSettings, VersionNumber, When,
};
use proptest::prelude::*;

const SUBJECTS: [&str; 4] = ["a", "b", "c-d", "not/a/type"];

/// Some are compatible with some, some are not records, one is not a schema at all.
fn schema_text(n: usize) -> String {
    match n {
        0 => record("x:int"),
        1 => record("x:int y:string=\"\""),
        2 => record("x:long y:string=\"\""),
        3 => record("x:long"),
        4 => record("y:string"),
        5 => record("x:int z:int"),
        6 => "\"int\"".to_owned(),
        7 => record("x:int").replace(',', " , "),
        _ => "{}".to_owned(),
    }
}

#[derive(Clone, Debug)]
enum Action {
    Register { subject: usize, schema: usize, normalize: bool, refers: Option<(usize, i32)> },
    DeleteVersion { subject: usize, version: u32, permanent: bool },
    DeleteSubject { subject: usize, permanent: bool },
    SetLevel { subject: Option<usize>, level: Option<Level> },
    SetMode { subject: Option<usize>, mode: Option<Mode> },
    PutType { subject: usize, schema: Option<usize>, indexes: Option<usize> },
    PutClassic { subject: usize, schema: usize },
    PutTrigger { subject: usize, name: bool, path: usize },
    DeleteTrigger { subject: usize, name: bool },
    DeleteType { subject: usize, force: bool },
}

fn step() -> impl Strategy<Value = Action> {
    let subject = 0..SUBJECTS.len();
    let some_subject = proptest::option::of(subject.clone());
    let schema = 0..9_usize;
    let refers = proptest::option::weighted(0.3, (subject.clone(), -1..4));
    let mode = prop_oneof![8 => Just(None), 1 => Just(Some(Mode::ReadWrite)), 1 => Just(Some(Mode::ReadOnly))];
    prop_oneof![
        8 => (subject.clone(), schema.clone(), any::<bool>(), refers)
            .prop_map(|(subject, schema, normalize, refers)| Action::Register { subject, schema, normalize, refers }),
        3 => (subject.clone(), 0..6_u32, any::<bool>())
            .prop_map(|(subject, version, permanent)| Action::DeleteVersion { subject, version, permanent }),
        2 => (subject.clone(), any::<bool>())
            .prop_map(|(subject, permanent)| Action::DeleteSubject { subject, permanent }),
        2 => (some_subject.clone(), proptest::option::of(proptest::sample::select(Level::ALL.to_vec())))
            .prop_map(|(subject, level)| Action::SetLevel { subject, level }),
        1 => (some_subject, mode).prop_map(|(subject, mode)| Action::SetMode { subject, mode }),
        6 => (subject.clone(), proptest::option::of(schema.clone()), proptest::option::of(0..5_usize))
            .prop_map(|(subject, schema, indexes)| Action::PutType { subject, schema, indexes }),
        2 => (subject.clone(), schema).prop_map(|(subject, schema)| Action::PutClassic { subject, schema }),
        2 => (subject.clone(), any::<bool>(), 0..4_usize)
            .prop_map(|(subject, name, path)| Action::PutTrigger { subject, name, path }),
        1 => (subject.clone(), any::<bool>()).prop_map(|(subject, name)| Action::DeleteTrigger { subject, name }),
        1 => (subject, any::<bool>()).prop_map(|(subject, force)| Action::DeleteType { subject, force }),
    ]
}

fn name_of(first: bool) -> &'static str {
    if first { "one" } else { "two" }
}

fn run(registry: &mut Registry, step: &Action) -> Result<(), Refusal> {
    match *step {
        Action::Register { subject, schema, normalize, refers } => {
            let references = refers.into_iter().map(|(subject, version)| Reference {
                name: "R".into(),
                subject: SUBJECTS[subject].into(),
                version,
            });
            let text = if refers.is_some() {
                r#"{"type":"record","name":"Q","fields":[{"name":"x","type":["null","R"],"default":null}]}"#.to_owned()
            } else {
                schema_text(schema)
            };
            let schema = NewSchema { normalize, references: references.collect(), ..NewSchema::avro(text) };
            registry.register(SUBJECTS[subject], &schema).map(drop)
        }
        Action::DeleteVersion { subject, version, permanent } => {
            let number = if version == 0 { VersionNumber::Latest } else { VersionNumber::Number(version) };
            registry.delete_version(SUBJECTS[subject], number, permanent).map(drop)
        }
        Action::DeleteSubject { subject, permanent } => registry.delete_subject(SUBJECTS[subject], permanent).map(drop),
        Action::SetLevel { subject, level } => {
            registry.set_compatibility(subject.map(|subject| SUBJECTS[subject]), level)
        }
        Action::SetMode { subject, mode } => registry.set_mode(subject.map(|subject| SUBJECTS[subject]), mode, false),
        Action::PutType { subject, schema, indexes } => {
            let indexes = indexes.map(|n| {
                [
                    "[]",
                    r#"[{"name":"x","path":".x"}]"#,
                    r#"[{"name":"y","path":".y"}]"#,
                    r#"[{"name":"y","path":".y","ignore_case":true},{"name":"x","path":".x"}]"#,
                    r#"[{"name":"x","path":".y"},{"name":"y","path":".x"}]"#,
                ][n]
            });
            let mut put = change(&indexes.map_or("{}".to_owned(), |indexes| format!(r#"{{"indexes":{indexes}}}"#)));
            put.schema = schema.map(schema_text);
            registry.put_type(SUBJECTS[subject], &put).map(drop)
        }
        Action::PutClassic { subject, schema } => {
            registry.put_classic_schema(SUBJECTS[subject], &schema_text(schema), None).map(drop)
        }
        Action::PutTrigger { subject, name, path } => {
            let path = [".", ".x", ".y", ".none"][path].to_owned();
            let source = format!("// {path}");
            let trigger = TriggerSettings { name: name_of(name).into(), path, when: When::After, source };
            registry.put_trigger(SUBJECTS[subject], trigger)
        }
        Action::DeleteTrigger { subject, name } => registry.delete_trigger(SUBJECTS[subject], name_of(name)),
        Action::DeleteType { subject, force } => registry.delete_type(SUBJECTS[subject], true, force),
    }
}

/// Everything ever seen, to tell whether something is given twice.
#[derive(Default)]
struct Observed {
    schemas: BTreeMap<u32, (String, Vec<Reference>)>,
    /// By type and number: path, case, and the kind of what is there.
    indexes: BTreeMap<(String, u16), (String, bool, String)>,
    /// Subjects of which a version was removed permanently.
    holed: BTreeSet<String>,
}

impl Observed {
    fn check(&mut self, registry: &Registry) {
        self.check_schemas(registry);
        self.check_types(registry);
        let files = registry.to_files();
        let read = Registry::from_files(&files).expect("its own files");
        assert_eq!(read, *registry);
        assert_eq!(read.to_files(), files);
        let read = Registry::from_files_with(&files, Some(registry)).expect("its own files");
        assert_eq!(read, *registry);
    }

    fn check_schemas(&mut self, registry: &Registry) {
        let largest = self.schemas.keys().next_back().copied().unwrap_or(0);
        let mut texts = BTreeSet::new();
        for version in registry.all_versions("", Shown::All) {
            let (id, text) = (version.schema.id(), version.schema.text().to_owned());
            let references = version.schema.references().to_vec();
            match self.schemas.get(&id) {
                Some(seen) => assert_eq!(*seen, (text.clone(), references.clone()), "id {id} was given twice"),
                None => {
                    assert!(id > largest, "id {id} comes after {largest}");
                    self.schemas.insert(id, (text.clone(), references.clone()));
                }
            }
            texts.insert((id, text.replace(' ', ""), references.clone()));
            for Reference { subject, version, .. } in references {
                let number = VersionNumber::Number(u32::try_from(version).expect("pinned"));
                let found = registry.version(&subject, number, true).expect("what is referred to stays");
                assert!(!found.is_deleted || is_hidden(registry, id), "a schema refers to a deleted one");
            }
        }
        let distinct: BTreeSet<_> = texts.iter().map(|(_, text, references)| (text, references)).collect();
        assert_eq!(distinct.len(), texts.len(), "one schema has two ids");
        for subject in registry.subjects(Shown::All) {
            let versions = registry.versions(subject, Shown::All).expect("has some");
            if !self.holed.contains(subject) {
                let dense: Vec<u32> = (1..).take(versions.len()).collect();
                assert_eq!(versions, dense, "{subject}");
            }
        }
    }

    fn check_types(&mut self, registry: &Registry) {
        for found in registry.types() {
            let schema = found.schema.schema();
            assert!(matches!(schema.kind(schema.root()), Kind::Record { .. }));
            let latest = registry.version(found.name, VersionNumber::Latest, false).expect("has one");
            assert_eq!((latest.version, latest.schema.id()), (found.version, found.schema_id()));
            assert_eq!(found.indexes().count(), found.settings.indexes.len());
            for index in found.indexes() {
                let Kind::Record { fields, .. } = schema.kind(schema.root()) else { continue };
                let field = fields.iter().find(|field| format!(".{}", field.name) == index.settings.path);
                let kind = format!("{:?}", schema.kind(field.expect("an index leads somewhere").node));
                let definition = (index.settings.path.clone(), index.settings.ignore_case, kind);
                let key = (found.name.to_owned(), index.number);
                let seen = self.indexes.entry(key).or_insert_with(|| definition.clone());
                assert_eq!(*seen, definition, "a number was given twice");
            }
        }
    }
}

fn is_hidden(registry: &Registry, id: u32) -> bool {
    registry.versions_with(id, Shown::Live).is_ok_and(|versions| versions.is_empty())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_changes_leave_a_whole_registry(steps in proptest::collection::vec(step(), 1..60)) {
        let mut registry = Registry::default();
        let mut seen = Observed::default();
        for step in &steps {
            let before = registry.clone();
            match run(&mut registry, step) {
                Ok(()) => {
                    if let Action::DeleteVersion { subject, permanent: true, .. }
                    | Action::DeleteSubject { subject, permanent: true } = step
                    {
                        seen.holed.insert(SUBJECTS[*subject].to_owned());
                    }
                    seen.check(&registry);
                }
                Err(_) => assert_eq!(registry, before, "{step:?}"),
            }
        }
    }

    #[test]
    fn versions_keep_what_the_level_promises(
        level in proptest::sample::select(Level::ALL.to_vec()),
        schemas in proptest::collection::vec(0..8_usize, 1..12),
    ) {
        let mut registry = Registry::default();
        registry.set_compatibility(None, Some(level)).expect("a level");
        for schema in schemas {
            let _ = registry.register("a", &NewSchema::avro(schema_text(schema)));
        }
        let versions: Vec<_> = registry.all_versions("a", Shown::Live).map(|found| found.schema.schema()).collect();
        for (later, new) in versions.iter().enumerate() {
            for (earlier, old) in versions[..later].iter().enumerate() {
                if !level.is_transitive() && earlier + 1 != later {
                    continue;
                }
                prop_assert!(!level.is_backward() || check_readable(old, new).is_ok());
                prop_assert!(!level.is_forward() || check_readable(new, old).is_ok());
            }
        }
    }

    #[test]
    fn no_file_makes_it_panic(text in "\\PC{0,200}") {
        let _ = Registry::from_files(&[AppFile { path: "registry.json".into(), content: text.into_bytes() }]);
    }

    /// A good registry in which one piece of JSON is replaced by another.
    #[test]
    fn no_damage_makes_it_panic(
        steps in proptest::collection::vec(step(), 1..20),
        place in any::<proptest::sample::Index>(),
        other in prop_oneof![
            Just("null".to_owned()), Just("[]".to_owned()), Just("{}".to_owned()), Just("-1".to_owned()),
            Just("0".to_owned()), Just("4294967295".to_owned()), Just("\"\"".to_owned()), Just("\"a\"".to_owned()),
            Just("1".to_owned()), Just("2".to_owned()), Just("\"\\\"R\\\"\"".to_owned()),
        ],
    ) {
        let mut registry = Registry::default();
        for step in &steps {
            let _ = run(&mut registry, step);
        }
        let mut files = registry.to_files();
        let mut json: serde_json::Value = serde_json::from_slice(&files[0].content).expect("JSON");
        let mut places = Vec::new();
        list(&json, &mut String::new(), &mut places);
        let place = place.get(&places);
        *json.pointer_mut(place).expect("a place") = serde_json::from_str(&other).expect("JSON");
        files[0].content = json.to_string().into_bytes();
        if let Ok(mut read) = Registry::from_files(&files) {
            let again = Registry::from_files(&read.to_files()).expect("its own files");
            prop_assert_eq!(&again, &read);
            for step in &steps {
                let _ = run(&mut read, step);
            }
        }
    }
}

fn list(json: &serde_json::Value, path: &mut String, places: &mut Vec<String>) {
    places.push(path.clone());
    let length = path.len();
    let mut visit = |key: &str, value: &serde_json::Value| {
        path.push('/');
        path.push_str(&key.replace('~', "~0").replace('/', "~1"));
        list(value, path, places);
        path.truncate(length);
    };
    match json {
        serde_json::Value::Object(map) => map.iter().for_each(|(key, value)| visit(key, value)),
        serde_json::Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, value)| visit(&index.to_string(), value));
        }
        _ => {}
    }
}
