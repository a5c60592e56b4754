//! Random records, indexes and queries. Whatever indexes there are, a query gives the same records in the same order,
//! before and after records change.

use crate::common::World;
use millrace_api::{PathOperationKind as Kind, RecordQuery};
use proptest::prelude::*;
use serde_json::{Value, json};

/// A field, its type, and values that are equal, next to each other, or look alike.
type Field = (&'static str, Value, Vec<Value>);

fn fields() -> Vec<Field> {
    [plain(), bytes(), moments(), composites()].concat()
}

fn logical(of: &str, name: &str) -> Value {
    json!({"type":of,"logicalType":name})
}

fn values(json: Value) -> Vec<Value> {
    json.as_array().expect("a list").clone()
}

fn words() -> Vec<Value> {
    values(json!(["", "a", "A", "ab", "É", "é", "5", "a\u{0}"]))
}

fn uuids() -> Vec<Value> {
    ['0', '7', 'a', 'f'].map(|digit| json!(format!("{digit}550e840-e29b-41d4-a716-4466554400{digit}{digit}"))).into()
}

fn plain() -> Vec<Field> {
    let double = 9_007_199_254_740_992_i64;
    // Longer than a key: they differ behind its end.
    let long = ["a", "b"].map(|end| json!(format!("{}{end}", "x".repeat(520))));
    let upper = json!("A550E840-E29B-41D4-A716-4466554400AA");
    vec![
        ("boolean", json!("boolean"), values(json!([true, false]))),
        ("int", json!("int"), values(json!([-1, 0, 5, i32::MAX]))),
        ("long", json!("long"), values(json!([0, double, double + 1, i64::MIN]))),
        ("float", json!("float"), values(json!([0.0, -0.0, 0.1, "NaN", "-Infinity", 16_777_217]))),
        ("double", json!("double"), values(json!([0.0, -0.0, 0.1, "NaN", "Infinity", double]))),
        ("string", json!("string"), [words(), long.into()].concat()),
        ("enum", json!({"type":"enum","name":"E","symbols":["b","a","c"]}), values(json!(["a", "b", "c"]))),
        ("uuid_text", logical("string", "uuid"), [uuids(), vec![upper]].concat()),
    ]
}

fn bytes() -> Vec<Field> {
    let long = ["AA==", "AQ=="].map(|end| json!(format!("{}{end}", "AAAA".repeat(200))));
    let some = values(json!(["", "AA==", "AAA=", "YWI=", "ywI=", "/w==", "+//+"]));
    let decimals = || values(json!(["0.00", "-0.01", "12.50", "12.51", "7.00"]));
    let fixed = |name: &str, size: u32| json!({"type":"fixed","name":name,"size":size});
    let mut uuid = fixed("U", 16);
    uuid["logicalType"] = json!("uuid");
    let mut duration = fixed("P", 12);
    duration["logicalType"] = json!("duration");
    let decimal = json!({"type":"bytes","logicalType":"decimal","precision":9,"scale":2});
    let mut decimal_fixed = decimal.clone();
    (decimal_fixed["type"], decimal_fixed["name"], decimal_fixed["size"]) = (json!("fixed"), json!("D"), json!(4));
    let durations = json!([{"months":0,"days":0,"millis":0}, {"months":1,"days":0,"millis":256}]);
    vec![
        ("bytes", json!("bytes"), [some, long.into()].concat()),
        ("fixed", fixed("F", 2), values(json!(["AAA=", "YWI=", "ywI=", "//8="]))),
        ("uuid_fixed", uuid, uuids()),
        ("duration", duration, values(durations)),
        ("decimal", decimal, decimals()),
        ("decimal_fixed", decimal_fixed, decimals()),
    ]
}

fn moments() -> Vec<Field> {
    let at = |zone: &str| {
        let texts = ["1969-12-31T23:59:59.999", "1970-01-01T00:00:00", "2024-02-29T12:00:00.5", "2024-02-29T12:00:00"];
        texts.map(|text| json!(format!("{text}{zone}"))).to_vec()
    };
    let times = || values(json!(["00:00:00", "00:00:00.001", "12:30:00", "23:59:59.999"]));
    vec![
        ("date", logical("int", "date"), values(json!(["1969-12-31", "1970-01-01", "2024-02-29"]))),
        ("time_millis", logical("int", "time-millis"), times()),
        ("time_micros", logical("long", "time-micros"), times()),
        ("timestamp_millis", logical("long", "timestamp-millis"), at("Z")),
        ("timestamp_micros", logical("long", "timestamp-micros"), at("Z")),
        ("timestamp_nanos", logical("long", "timestamp-nanos"), at("Z")),
        ("local_millis", logical("long", "local-timestamp-millis"), at("")),
        ("local_micros", logical("long", "local-timestamp-micros"), at("")),
        ("local_nanos", logical("long", "local-timestamp-nanos"), at("")),
    ]
}

fn composites() -> Vec<Field> {
    let address = json!({"type":"record","name":"A","fields":[{"name":"city","type":"string"}]});
    let item = json!({"type":"record","name":"I","fields":[{"name":"sku","type":"string"},{"name":"n","type":["null","int"]}]});
    let items = json!([[], [{"sku":"tea","n":1}, {"sku":"Tea","n":null}], [{"sku":"a","n":5}]]);
    let array = |item: Value| json!({"type":"array","items":item});
    vec![
        ("nullable", json!(["null", "string"]), [words(), vec![Value::Null]].concat()),
        ("nullable_uuid", json!(["U", "null"]), [uuids(), vec![Value::Null]].concat()),
        ("address", json!(["null", address]), values(json!([null, {"city":"a"}, {"city":"B"}]))),
        ("tags", array(json!("string")), values(json!([[], ["a"], ["A", "b", "a"], ["ab", "ab"]]))),
        ("numbers", array(json!(["null", "long"])), values(json!([[], [1], [null, 5, 1], [0, 9]]))),
        ("keys", array(json!("bytes")), values(json!([[], ["AA=="], ["YWI=", "ywI="]]))),
        ("items", array(item), values(items)),
    ]
}

/// A path that may have an index, and values that it may have.
fn paths() -> Vec<(String, Vec<Value>)> {
    let mut paths = Vec::new();
    for (name, _, values) in fields() {
        let of = |member: &str| {
            values
                .iter()
                .flat_map(|value| value.as_array().cloned().unwrap_or_default())
                .map(|item| item[member].clone())
                .collect()
        };
        match name {
            "address" => paths.push((".address.city".to_owned(), vec![json!("a"), json!("B"), Value::Null])),
            "items" => {
                paths.push((".items[*].sku".to_owned(), of("sku")));
                paths.push((".items[*].n".to_owned(), of("n")));
            }
            "tags" | "numbers" | "keys" => {
                let items: Vec<Value> =
                    values.iter().flat_map(|value| value.as_array().cloned().unwrap_or_default()).collect();
                paths.push((format!(".{name}[*]"), items));
            }
            _ => paths.push((format!(".{name}"), values)),
        }
    }
    paths
}

const TEXTS: [&str; 6] = [".string", ".nullable", ".uuid_text", ".address.city", ".items[*].sku", ".tags[*]"];

/// Indexes on some of the paths; texts also without their case.
fn indexes(chosen: &[bool]) -> Value {
    let mut list = Vec::new();
    for (path, _) in paths() {
        let is_text = TEXTS.contains(&path.as_str());
        for ignore_case in if is_text { vec![false, true] } else { vec![false] } {
            list.push(json!({"name":format!("index{}", list.len()),"path":path,"ignore_case":ignore_case}));
        }
    }
    let mut chosen = chosen.iter().cycle();
    list.retain(|_| *chosen.next().expect("it goes on"));
    // As many as a type may have.
    list.truncate(32);
    Value::Array(list)
}

#[test]
fn an_index_serves_what_the_guide_says() {
    let uuid = "a550e840-e29b-41d4-a716-4466554400aa";
    let upper = uuid.to_uppercase();
    let mut world = World::with("t", json!({ "schema": schema() }));
    for (path, operator, value, is_served) in [
        (".boolean", "==", json!(true), true),
        (".int", "<", json!(5), true),
        (".long", ">=", json!(5), true),
        (".float", "===", json!(0.1), true),
        (".double", "<=", json!(0.1), true),
        (".string", "^==", json!("a"), true),
        (".string", "==", json!("a"), false),
        (".enum", "==", json!("A"), true),
        (".decimal", ">", json!(5), true),
        (".decimal_fixed", "==", json!(5), true),
        (".date", "<", json!("2024-02-29"), true),
        (".time_micros", ">", json!("12:30:00"), true),
        (".timestamp_nanos", "==", json!("1970-01-01T00:00:00Z"), true),
        (".local_millis", "<", json!("1970-01-01T00:00:00"), true),
        (".nullable", "==", json!(null), true),
        (".address.city", "===", json!("a"), true),
        (".numbers[*]", "==", json!(5), true),
        (".items[*].sku", "===", json!("tea"), true),
        (".uuid_text", "<", json!(uuid), true),
        (".uuid_fixed", "===", json!(uuid), true),
        (".uuid_fixed", "==", json!(upper), true),
        (".uuid_fixed", "<", json!(uuid), true),
        (".uuid_fixed", ">=", json!(uuid), true),
        // Texts that are not UUIDs have a place among texts, not among bytes.
        (".uuid_fixed", "<", json!(upper), false),
        (".uuid_fixed", ">", json!("a550"), false),
        (".uuid_fixed", "^==", json!("a550"), false),
        (".nullable_uuid", "==", json!(uuid), true),
        (".nullable_uuid", "==", json!(null), true),
        (".bytes", "===", json!("AA=="), true),
        (".fixed", "===", json!("AAA="), true),
        (".keys[*]", "===", json!("YWI="), true),
        // Base64 means something else in another case, and sorts otherwise than its bytes.
        (".bytes", "==", json!("AA=="), false),
        (".fixed", "<", json!("AAA="), false),
        (".bytes", "===", json!(5), false),
        (".duration", "===", json!("AAAAAAAAAAAAAAAA"), false),
    ] {
        world.put_type("t", json!({ "indexes": [{ "name": "one", "path": path }] }));
        let predicate = format!("{path} {operator} {value}");
        let asked = RecordQuery { predicate: &predicate, explain: true, ..RecordQuery::default() };
        let explained = world.query(asked).expect("explains");
        assert_eq!(explained["plan"], if is_served { "index" } else { "scan" }, "{predicate}: {explained}");
    }
}

/// What decides a record: for each of its fields, a value.
type Draw = Vec<prop::sample::Index>;

fn record(draw: &Draw) -> Value {
    fields()
        .iter()
        .zip(draw)
        .map(|((name, _, values), index)| ((*name).to_owned(), index.get(values).clone()))
        .collect()
}

fn draws() -> impl Strategy<Value = Draw> {
    prop::collection::vec(any::<prop::sample::Index>(), fields().len())
}

#[derive(Clone, Debug)]
struct RandomQuery {
    predicate: String,
    order: String,
    limit: u32,
}

const OPERATORS: [&str; 16] =
    ["==", "===", "<", "<=", ">", ">=", "^=", "^==", "==", "===", "<", ">=", "!=", "!==", "*=", "$=="];

/// Values that mostly are not of the path's type.
fn strange() -> Vec<Value> {
    let texts = [
        "",
        "0",
        "5",
        "x",
        "a",
        "B",
        "ywI=",
        "YWI",
        "A550E840-E29B-41D4-A716-4466554400AA",
        "a550",
        "1970-01-01",
        "12.5",
    ];
    let numbers = [
        json!(0),
        json!(1),
        json!(12),
        json!(0.1),
        json!(-0.5),
        json!(9_007_199_254_740_992.0),
        json!(1e300),
        json!(16_777_217),
        json!(true),
        Value::Null,
    ];
    texts.into_iter().map(Value::from).chain(numbers).collect()
}

fn comparison() -> impl Strategy<Value = String> {
    let paths = paths();
    let parts = (
        any::<prop::sample::Index>(),
        prop::sample::select(OPERATORS.to_vec()),
        any::<prop::sample::Index>(),
        prop::bool::weighted(0.8),
        0..10,
    );
    parts.prop_map(move |(path, operator, value, is_known, form)| {
        let (path, values) = path.get(&paths);
        let strange = strange();
        let known: Vec<&Value> = values.iter().filter(|value| !value.is_object()).collect();
        let value =
            if is_known && !known.is_empty() { (*value.get(&known)).clone() } else { value.get(&strange).clone() };
        match (form, operator) {
            (0, "^=" | "^==" | "*=" | "$==") | (1.., _) => match form {
                // An array stands for its elements.
                9 => format!("{} {operator} {value}", path.strip_suffix("[*]").unwrap_or(path)),
                8 => format!("^{path} {operator} {value}"),
                _ => format!("{path} {operator} {value}"),
            },
            _ => format!("{value} {operator} {path}"),
        }
    })
}

fn predicate() -> impl Strategy<Value = String> {
    let all = prop::collection::vec(comparison(), 1..4).prop_map(|all| all.join(" && ")).boxed();
    prop_oneof![
        8 => all.clone(),
        1 => (all.clone(), all.clone()).prop_map(|(a, b)| format!("({a}) || ({b})")),
        1 => (all.clone(), all).prop_map(|(a, b)| format!("({a}) && !({b})")),
        1 => Just(String::new()),
    ]
}

fn asked() -> impl Strategy<Value = RandomQuery> {
    let single: Vec<String> = paths().into_iter().map(|(path, _)| path).filter(|path| !path.contains('[')).collect();
    let order = prop_oneof![
        1 => Just(String::new()),
        1 => (prop::sample::select(single), any::<bool>()).prop_map(|(path, is_descending)| if is_descending { format!("-{path}") } else { path }),
    ];
    let limit = prop_oneof![1_u32..6, Just(1000)];
    (predicate(), order, limit).prop_map(|(predicate, order, limit)| RandomQuery { predicate, order, limit })
}

/// A change of a record: which one, and its new values.
#[derive(Clone, Debug)]
enum Action {
    Put(u8, Draw),
    Set(u8, Draw, prop::sample::Index),
    Delete(u8),
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let action = prop_oneof![
        1 => (0_u8..40, draws()).prop_map(|(id, draw)| Action::Put(id, draw)),
        2 => (0_u8..40, draws(), any::<prop::sample::Index>()).prop_map(|(id, draw, field)| Action::Set(id, draw, field)),
        1 => (0_u8..40).prop_map(Action::Delete),
    ];
    prop::collection::vec(action, 0..40)
}

fn act(world: &mut World, action: &Action) -> Option<u32> {
    let result = match action {
        Action::Put(id, draw) => world.put(&id.to_string(), &record(draw).to_string()),
        Action::Set(id, draw, field) => {
            let fields = fields();
            let (name, ..) = field.get(&fields);
            world.patch(&id.to_string(), &[(Kind::Set, &format!(".{name}"), Some(&record(draw)[*name].to_string()))])
        }
        Action::Delete(id) => world.delete(&id.to_string()),
    };
    result.ok().map(|reply| reply.matched)
}

fn schema() -> Value {
    let fields: Vec<Value> = fields().into_iter().map(|(name, of, _)| json!({"name":name,"type":of})).collect();
    json!({"type":"record","name":"T","fields":fields})
}

fn query(asked: &RandomQuery) -> RecordQuery<'_> {
    RecordQuery {
        predicate: &asked.predicate,
        order: &asked.order,
        limit: asked.limit,
        ids_only: true,
        ..RecordQuery::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn indexes_change_no_answer(
        records in prop::collection::vec(draws(), 1..40), chosen in prop::collection::vec(any::<bool>(), 1..40),
        comes_late: bool, actions in actions(), queries in prop::collection::vec(asked(), 40),
    ) {
        let mut plain = World::with("t", json!({ "schema": schema() }));
        let mut indexed = World::with("t", json!({ "schema": schema(), "indexes": if comes_late { json!([]) } else { indexes(&chosen) } }));
        for (id, draw) in records.into_iter().enumerate() {
            let action = Action::Put(id as u8, draw);
            for world in [&mut plain, &mut indexed] {
                prop_assert_eq!(act(world, &action), Some(1));
            }
        }
        if comes_late {
            indexed.put_type("t", json!({ "indexes": indexes(&chosen) }));
        }
        for round in 0..2 {
            for asked in &queries {
                let expected = plain.ids(&query(asked)).map(|(ids, _)| ids).map_err(|error| error.code);
                let found = indexed.ids(&query(asked)).map(|(ids, _)| ids).map_err(|error| error.code);
                prop_assert_eq!(found, expected, "{:?} in round {} with {}", asked, round, indexes(&chosen));
            }
            for action in actions.iter().filter(|_| round == 0) {
                prop_assert_eq!(act(&mut plain, action), act(&mut indexed, action));
            }
        }
    }
}
