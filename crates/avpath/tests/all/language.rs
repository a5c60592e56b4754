//! What paths and predicates mean where the reference's table says nothing, and what is refused.

use crate::support::Record;
use millrace_avpath::{Comparator, Parameters, Path, Predicate};
use serde_json::{Value, json};

const THINGS: &str = r#"{"type":"record","name":"Thing","fields":[
    {"name":"name","type":"string"},
    {"name":"on","type":"boolean"},
    {"name":"kind","type":{"type":"enum","name":"Kind","symbols":["Small","Large"]}},
    {"name":"ratio","type":"float"},
    {"name":"price","type":{"type":"bytes","logicalType":"decimal","precision":8,"scale":2}},
    {"name":"cost","type":{"type":"fixed","name":"Cost","size":4,"logicalType":"decimal","precision":8,"scale":2}},
    {"name":"day","type":{"type":"int","logicalType":"date"}},
    {"name":"at","type":{"type":"long","logicalType":"timestamp-millis"}},
    {"name":"data","type":"bytes"},
    {"name":"next","type":["null","Thing"]},
    {"name":"tags","type":{"type":"array","items":"string"}},
    {"name":"grid","type":{"type":"array","items":{"type":"array","items":"long"}}},
    {"name":"counts","type":{"type":"map","values":"long"}},
    {"name":"either","type":["null","long","string"]}]}"#;

fn thing() -> Value {
    json!({"name":"Straße","on":false,"kind":"Large","ratio":0.1,"price":"12.50","cost":"-3.00","day":"2024-02-29",
        "at":"2024-02-29T12:00:00Z","data":"AQID","tags":["x","Y"],"grid":[[1,2],[3],[]],"counts":{"a":1,"b c":2},"either":5,
        "next":{"name":"inner","on":true,"next":null,"grid":[[9]],"counts":{"a":7}}})
}

#[test]
fn steps() {
    let record = Record::new(THINGS, thing());
    for (path, expected) in [
        (".next.name", json!(["inner"])),
        (".next.next", json!([null])),
        (".next.next.name", json!([])),
        (".tags", json!([["x", "Y"]])),
        (".grid[*][*]", json!([1, 2, 3])),
        (".grid[*][0]", json!([1, 3])),
        (".grid[0][-1]", json!([2])),
        (".grid.*", json!([[1, 2], [3], []])),
        (".counts.*", json!([1, 2])),
        (".counts.a", json!([1])),
        (r#".counts."b c""#, json!([2])),
        (".counts('b c')", json!([2])),
        (r#".counts("b c"|"a")"#, json!([1, 2])),
        (r#".(~"na.e"|"on")"#, json!(["Straße", false])),
        (r#".counts(~"b.*")"#, json!([2])),
        (r#".counts(~"b")"#, json!([])),
        (r#".."b c""#, json!([2])),
        ("..a", json!([7, 1])),
        (".next..name", json!(["inner"])),
        (".counts..", json!([{"a":1,"b c":2}, 1, 2])),
        (".counts..*", json!([1, 2])),
        ("(.counts.a|.tags[1])", json!([1, "Y"])),
        (".counts(.a|.*)", json!([1, 1, 2])),
        (".counts{. > 1}", json!([2])),
        (".grid{.[0] >= 3}", json!([[3]])),
        (".grid{. == 2}", json!([[1, 2]])),
        (".grid{.}[0]", json!([[1, 2]])),
        (".grid{.}{.[1]}", json!([[1, 2]])),
        (".grid{.}[*]", json!([[1, 2], [3]])),
        (".tags{.=='y'}", json!(["Y"])),
        (".tags{.==='y'}", json!([])),
        (".next{^.name == 'STRASSE' || ^.on == false}.name", json!(["inner"])),
        ("^", json!([record.json()])),
        (" . tags [ 0 ] ", json!(["x"])),
    ] {
        assert_eq!(record.select(path), expected, "{path}");
    }
}

#[test]
fn names_look_into_arrays() {
    let account = Record::account();
    assert_eq!(account.select(".chargeRecords.time"), json!([1, 2]));
    assert_eq!(account.select(r#".chargeRecords("time")"#), json!([1, 2]));
    assert!(account.holds(".chargeRecords.time == 2"));
}

#[test]
fn predicates() {
    let record = Record::new(THINGS, thing());
    for (predicate, expected) in [
        (".on", false),
        ("!.on", true),
        (".next.on", true),
        (".next.next", false),
        (".tags", true),
        (".next.tags", false),
        (".nothing", false),
        ("true && (false || !false)", true),
        (".next.next == null", true),
        (".nothing == null || .nothing != null", false),
        (".next != null", true),
        // Kinds.
        (".kind == 'large' && .kind === 'Large' && .kind > 'H'", true),
        (".name == 'STRASSE'", false),
        (".name == 'STRAßE' && .name *= 'ASS' == false", true),
        (".ratio == 0.1 && !(.ratio < 0.1) && .ratio * 10 == 1", true),
        (".price == 12.5 && .price == '12.50' && .price > 12.49 && .price < 13 && .price ^== '12.5'", true),
        (".cost == -3 && .cost < .price && .cost + .price == 9.5", true),
        (".day == '2024-02-29' && .day < '2024-03-01' && .day == 19782 && .day $= '-29'", true),
        (".at > .day && .at == '2024-02-29T13:00:00+01:00' && .at < '2024-03-01T00:00:00Z'", true),
        (".day == 'yesterday' || .day < 'yesterday'", false),
        (".data == 'AQID'", true),
        (".either == 5 && .either == '5' && !(.either === '5') && .either ^= '5' && !(.either ^== '5')", true),
        (".either != '6' && .either < '10'", true),
        (".on == 0 || .on == 'false'", false),
        (".counts == .counts && .grid[0] == .grid[0]", true),
        (".next == .counts", false),
        // Of several values any will do.
        (".tags == 'x' && .tags != 'x'", true),
        (".grid[*] > 2 && .grid[*] < 2", true),
        (".grid[0] == .grid[1]", false),
        (".counts.* == .grid[0]", true),
        ("* == 'Straße'", true),
        // Arithmetic.
        ("7 - 2 - 1 == 4 && 7 / 2 == 3.5 && 6 / 2 === 3 && 7 % 4 == 3 && -7 % 4 == -3", true),
        ("2 + 3 * 4 == 14 && (2 + 3) * 4 == 20 && -(2) == -2", true),
        ("9007199254740993 != 9007199254740992 && 9007199254740993 - 1 == 9007199254740992", true),
        ("9223372036854775807 + 1 == 9223372036854775808.0", true),
        ("1 / 0 > 1e308 && !(0 / 0 == 0 / 0) && 1 % 0 != 1", true),
        (".nothing + 1 == 1 || 'a' + 1 == 1 || -'a' == 1", false),
        ("-.counts.a == -1", true),
        (". * 2 == 2", false),
        (".counts.a*2==2", true),
        ("(.counts.a|.counts.b) == 1", true),
        ("('a'|'name') == 'Straße' && (~'na.*') == 'Straße'", true),
        ("(.counts).a == 1 && ((.counts)).a == 1", true),
        ("'b' > 'a' && 'b' > 'B' && '10' < 9 == false", true),
    ] {
        assert_eq!(record.holds(predicate), expected, "{predicate}");
    }
}

#[test]
fn parameters() {
    let record = Record::new(THINGS, thing());
    let parameters = r#"{"list":["q","Y"],"n":5,"map":{"a":1,"b c":2},"none":null,"empty":[]}"#;
    for (predicate, expected) in [
        (".tags === $list", true),
        (".tags === $empty", false),
        ("$n == .either && $n + 1 == 6", true),
        (".counts == $map && .next.counts != $map", true),
        (".next.next == $none", true),
        ("$empty || $none", false),
    ] {
        assert_eq!(record.holds_with(predicate, parameters), expected, "{predicate}");
    }
    let path = Path::parse(".{false && $other}").expect("a path");
    let error = path.select(&record.schema, &record.bytes, Parameters::NONE).expect_err("unbound");
    assert_eq!(error.to_string(), "no value was given for $other");
    assert!(Parameters::parse("[]").is_err() && Parameters::parse("{").is_err());
}

#[test]
fn errors_name_the_column_and_what_was_expected() {
    for (text, column, part) in [
        ("", 1, "expected a path"),
        ("a", 1, "found `a`"),
        (".a b", 4, "expected an operator, a further step or the end, found `b`"),
        (".a[", 4, "expected `*`, an index"),
        (".a[x]", 4, "found `x`"),
        (".a[1:2", 7, "expected `]`"),
        (".a[99999999999999999999]", 4, "64 bits"),
        (".a{", 4, "expected a value"),
        (".a{.b==}", 8, "found `}`"),
        (".a{b == 1}", 4, "`.b`"),
        (".a{.b = 1}", 7, "`=` has no meaning"),
        (".a(1)", 4, "a path or a quoted key"),
        (".a(\"x\"|.b)", 8, "expected a quoted key"),
        (".a(~x)", 5, "quoted regular expression"),
        (".a(~\"(\")", 4, "unclosed group"),
        (".a(~\"a)(b\")", 4, "unopened group"),
        (".\"ä", 2, "no end"),
        ("ä", 1, "found `ä`"),
        (".ä.ö.€", 6, "`€` has no meaning"),
        (".a{.b == \"\\x\"}", 11, "escape"),
        (".a{.b == '\\ud800'}", 11, "no character"),
        (".a{1e999}", 4, "too large"),
        (".a.5", 3, "found `.5`"),
        (".a^.b", 3, "found `^`"),
        (".a[:]", 5, "an index after `:`"),
    ] {
        let error = Path::parse(text).expect_err(text);
        assert_eq!(error.position, column, "{text}: {error}");
        assert!(error.message.contains(part), "{text}: {error}");
    }
    assert_eq!(Predicate::parse(".a ==").expect_err("no end").position, 6);
    assert!(Predicate::parse("").is_err());
}

#[test]
fn texts_are_normal_and_read_back() {
    for (written, normal) in [
        ("^.a.b", ".a.b"),
        ("^", "^"),
        (". a . \"b\"", ".a.b"),
        (".\"b c\"", ".\"b c\""),
        (". .a..b...c.", ".a..b...c."),
        ("^[0]", "^[0]"),
        (".a[*][-1][:2][1:][1:-1]", ".a[*][-1][:2][1:][1:-1]"),
        (".a('x'|~'y\\d\"')", ".a(\"x\"|~\"y\\d\\\"\")"),
        (".a{.b==1&&(.c||!.d)}[0]", ".a{.b == 1 && (.c || !.d)}[0]"),
        (".a{(1+.b)*-2>=-(3)}", ".a{(1 + .b) * -2 >= -(3)}"),
        (".a{'x\\n\\u00e9'==$p}", ".a{\"x\\né\" == $p}"),
        ("(.a|^.b).*..*", "(.a|^.b).*..*"),
        (".a{* == 1.0}", ".a{.* == 1.0}"),
        (".a{- .b == 1e20}", ".a{-.b == 1e20}"),
    ] {
        let path = Path::parse(written).unwrap_or_else(|error| panic!("{written}: {error}"));
        assert_eq!(path.text(), normal);
        assert_eq!(Path::parse(normal).expect("its own text").text(), normal);
    }
    for (text, is_simple) in [
        (".a", true),
        ("^.a.b[*].c", true),
        (".", false),
        (".a[0]", false),
        (".a.*", false),
        ("..a", false),
        ("^", false),
    ] {
        assert_eq!(Path::parse(text).expect("a path").is_simple(), is_simple, "{text}");
    }
}

#[test]
fn comparisons_are_what_an_index_can_serve() {
    let found = |text: &str| {
        let parameters = Parameters::parse(r#"{"p":["x","y"],"q":{"a":1}}"#).expect("parameters");
        let comparisons = Predicate::parse(text).expect("a predicate").comparisons(&parameters).expect("bound");
        comparisons.into_iter().map(|c| (c.path, c.comparator, json!(c.values))).collect::<Vec<_>>()
    };
    assert_eq!(
        found(".a.b == 'x' && (5 <= ^.c && .d[*] === $p) && !(.e == 1) && .f + 1 == 2 && .g == $q && .h"),
        [
            (".a.b".to_owned(), Comparator::Equal, json!(["x"])),
            (".c".to_owned(), Comparator::GreaterOrEqual, json!([5])),
            (".d[*]".to_owned(), Comparator::Same, json!(["x", "y"])),
        ]
    );
    assert_eq!(found(".a == 1 || .b == 2"), []);
    assert_eq!(found("'x' ^= .a"), [], "not the same as `.a ^= 'x'`");
    assert_eq!(found(".a ^= 'x' && .b != -1 && null == .c").len(), 3);
    assert_eq!(found(".a{.x == 1} == 1 && ..b == 1 && .a == .b"), []);
}

#[test]
fn updates_keep_to_the_schema() {
    use millrace_avpath::Change::{Clear, Increment, Insert, Set};
    let mut record = Record::new(THINGS, thing());
    // From null to a value, and back.
    assert_eq!(record.change(".next", Set("null")), Ok(1));
    assert_eq!(record.select(".next"), json!([null]));
    assert_eq!(record.change(".next", Set(r#"{"name":"new"}"#)), Ok(1));
    assert_eq!(record.select("(.next.name|.next.on)"), json!(["new", false]));
    assert_eq!(record.change(".next", Set(r#"{"on":true}"#)), Ok(1));
    assert_eq!(record.select("(.next.name|.next.on)"), json!(["new", true]));
    assert_eq!(record.change(".either", Set("\"text\"")), Ok(1));
    assert_eq!(record.select(".either"), json!(["text"]));
    assert!(record.change(".either", Increment("1")).is_err());
    assert_eq!(record.change(".either", Set("1")), Ok(1));
    assert_eq!(record.change(".either", Increment("41")), Ok(1));
    assert_eq!(record.select(".either"), json!([42]));
    // Decimals.
    assert_eq!(record.change("(.price|.cost)", Increment("\"3.25\"")), Ok(2));
    assert_eq!(record.select("(.price|.cost)"), json!(["15.75", "0.25"]));
    assert_eq!(record.change("(.price|.cost)", Increment("-20")), Ok(2));
    assert_eq!(record.select("(.price|.cost)"), json!(["-4.25", "-19.75"]));
    assert!(record.change(".price", Increment("0.001")).is_err(), "more digits than the scale");
    assert!(record.change(".price", Increment("999999")).is_ok());
    assert!(record.change(".price", Increment("999999")).is_err(), "more digits than the precision");
    // Arrays in arrays: every match gets its element.
    assert_eq!(record.change(".grid[*]", Insert("8")), Ok(3));
    assert_eq!(record.select(".grid"), json!([[[1, 2, 8], [3, 8], [8]]]));
    assert_eq!(record.change(".grid{. == 1}", Clear), Ok(1));
    assert_eq!(record.select(".grid"), json!([[[], [3, 8], [8]]]));
    // A match within another goes with it.
    let mut record = Record::new(THINGS, thing());
    assert_eq!(record.change("..next", Set("null")), Ok(2));
    assert_eq!(record.select(".next"), json!([null]));
}

#[test]
fn a_record_never_nests_deeper_than_values_may() {
    use millrace_avpath::Change::Set;
    let nested = |depth: usize| format!("{}null{}", "{\"next\":".repeat(depth), "}".repeat(depth));
    let mut record = Record::new(THINGS, serde_json::from_str(&nested(40)).expect("JSON"));
    let deepest = ".next".repeat(39);
    assert!(record.change(&deepest, Set(&nested(10))).is_ok());
    let error = record.change(&deepest, Set(&nested(50))).expect_err("too deep");
    assert!(error.to_string().contains("nest"), "{error}");
}
