//! JSON in and out is what `JSON.parse` and `JSON.stringify` make of it.

use crate::common;
use millrace_func::Engine;

use std::cell::RefCell;

use crate::common::{World, handlers};
use proptest::prelude::*;
use serde_json::{Value, json};

thread_local! {
    static WORLD: RefCell<World> = RefCell::new(handlers(
        "echo(ctx, x) { return x; },
         stored(ctx, x) { ctx.set('x', x); return ctx.get('x'); },
         // The third time from a template.
         again(ctx, x) { ctx.set('x', x); ctx.get('x'); ctx.get('x'); return ctx.get('x'); },
         // The same through QuickJS's own parser and printer.
         direct(ctx, text) { return JSON.stringify(JSON.parse(text)); },",
    ));
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        (-1e9..1e9).prop_map(Value::from),
        any::<f64>().prop_filter("finite", |number| number.is_finite()).prop_map(Value::from),
        "[a-z]{0,6}".prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 6, |inner| {
        let key =
            prop_oneof!["[a-z0-9]{0,4}", any::<String>(), Just("__proto__".to_owned()), Just("toString".to_owned())];
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            proptest::collection::vec((key, inner), 0..6).prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn values_come_back(value in value(), is_pretty in any::<bool>()) {
        let text = if is_pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
        let text = text.expect("JSON");
        WORLD.with_borrow_mut(|world| {
            let quoted = Value::from(text.clone()).to_string();
            let direct: String = serde_json::from_str(&world.call("direct", &quoted).expect("runs")).expect("a string");
            prop_assert_eq!(&world.call("echo", &text).expect("runs"), &direct);
            prop_assert_eq!(&world.call("stored", &text).expect("runs"), &direct);
            prop_assert_eq!(&world.call("again", &text).expect("runs"), &direct);
            Ok(())
        })?;
    }

    #[test]
    fn what_one_parser_refuses_the_other_refuses(text in "[-+0-9.eE\\[\\]{}:,\" \\\\untrfalse]{0,12}") {
        WORLD.with_borrow_mut(|world| {
            let ours = world.call("echo", &text);
            let quoted = Value::from(text.clone()).to_string();
            let direct = world.call("direct", &quoted);
            prop_assert_eq!(ours.is_ok(), direct.is_ok() || text.is_empty(), "{:?}: {:?} {:?}", text, ours, direct);
            if let (Ok(ours), Ok(direct)) = (ours, direct) {
                prop_assert_eq!(json!(ours).to_string(), direct);
            }
            Ok(())
        })?;
    }
}

#[test]
fn the_printer_agrees_with_json_stringify() {
    let mut world = handlers(
        "all() {
           class Point { x = 1; #y = 2; get z() { return 3; } }
           const sparse = [1, , 3]; sparse.extra = 1;
           const hidden = Object.defineProperty({ a: 1 }, 'b', { value: 2, enumerable: false });
           const values = [
             { u: undefined, f() {}, s: Symbol('s'), n: null }, [undefined, () => 1, Symbol('s')], sparse, hidden,
             new Date(5), new Map([[1, 2]]), new Set([1]), /x/g, new Number(5), new String('s'), new Boolean(false), Object(Symbol('x')),
             new Point(), Object.create({ inherited: 1 }), Object.assign(Object.create(null), { a: 1 }),
             { toJSON() { return { replaced: true }; } }, [{ toJSON: () => undefined }], { toJSON: 5 },
             new Proxy({ a: 1 }, {}), new Proxy([1, 2], {}), new Error('x'), (function () { return arguments; })(1, 2), new Uint8Array([1, 2]).subarray(1),
             { 2: 'b', 1: 'a', z: 0, get computed() { return [1]; } }, [NaN, -0, Infinity, 1e100, 5e-324, 0.1, 123456789012345680000], '\\u2028\\u007f\\ud800',
             { 'ä\"\\n': 1, '\\ud800': 2, '': 3 }, [[[[[[]]]]]], globalThis.Math, [,], { [Symbol.iterator]: 1, a: { [Symbol('x')]: 1 } },
           ];
           const nested = (depth) => (depth === 0 ? 1 : { a: [nested(depth - 1)] });
           return [values.length, values, nested(100)].flatMap((value) => (value === values ? values.map((v) => [v, JSON.stringify(v)]) : [[value, JSON.stringify(value)]]));
         }",
    );
    let output = world.call("all", "").expect("runs");
    let pairs: Vec<(Box<serde_json::value::RawValue>, Option<String>)> = serde_json::from_str(&output).expect("pairs");
    assert!(pairs.len() > 30);
    for (ours, theirs) in pairs {
        assert_eq!(ours.get(), theirs.as_deref().unwrap_or("null"));
    }
}

#[test]
fn what_is_remembered_about_objects_is_bounded() {
    let mut world = common::handlers(
        "echo(ctx, value) { return value; },
         header(ctx, name) { return Object.keys({ [name]: 1 })[0]; },",
    );
    world.call("echo", "{}").expect("runs");
    let before = world.engine.memory_bytes(world.program);
    let long = "x".repeat(50_000);
    for round in 0..2_000u32 {
        // Each form twice, so that it counts as one that comes again; names that share no text.
        let names: Vec<String> = (0..1 + round % 14)
            .map(|index| format!("n{round}\\n{index}{}", if round % 7 == 0 { &long } else { "" }))
            .collect();
        let members: Vec<String> = names.iter().map(|name| format!("\"{name}\":{round}")).collect();
        let json = format!("{{{}}}", members.join(","));
        for _ in 0..2 {
            assert_eq!(world.call("echo", &json), Ok(json.clone()));
        }
    }
    let grown = world.engine.memory_bytes(world.program).saturating_sub(before);
    assert!(grown < 512 << 10, "{grown} bytes are kept");
}

#[test]
fn objects_of_one_form_are_each_their_own() {
    let mut world = common::handlers(
        "echo(ctx, value) { return value; },
         grow(ctx, value) { value.extra = 1; delete value.a; return [value, Object.keys(value), { a: 1, b: 2 }]; },
         order() { return [{ a: 1, b: 2 }, { b: 2, a: 1 }, { a: 1 }, { 1: 1, a: 2 }, { a: 2, 1: 1 }, { ['__proto__']: 1, a: 2 }]; },
         frozen() { const o = Object.freeze({ a: 1, b: 2 }); try { o.a = 5; } catch {} return o; },",
    );
    for _ in 0..5 {
        assert_eq!(world.call("echo", r#"{"a":1,"b":2}"#), Ok(r#"{"a":1,"b":2}"#.into()));
        assert_eq!(world.call("echo", r#"{"b":1,"a":2,"b":3}"#), Ok(r#"{"b":3,"a":2}"#.into()));
        assert_eq!(
            world.call("grow", r#"{"a":1,"b":2}"#),
            Ok(r#"[{"b":2,"extra":1},["b","extra"],{"a":1,"b":2}]"#.into())
        );
        assert_eq!(
            world.call("order", ""),
            Ok(r#"[{"a":1,"b":2},{"b":2,"a":1},{"a":1},{"1":1,"a":2},{"1":1,"a":2},{"__proto__":1,"a":2}]"#.into())
        );
        assert_eq!(world.call("frozen", ""), Ok(r#"{"a":1,"b":2}"#.into()));
    }
}

/// A value that is read again comes from a template, of which no handler gets hold.
#[test]
fn what_a_handler_changes_in_a_value_stays_its_own() {
    let document = r#"{"10":[1,-7,2.5,true,null],"__proto__":{"a":"\u00e9 \ud83d\ude00 \\ \" \n"},"list":[[],{},["x",{"y":[1]}]],"z":"","b":1e300,"2":3000000000}"#;
    let mut world = common::handlers(
        r#"store(ctx, text) { ctx.set("document", JSON.parse(text)); },
         read(ctx) { return ctx.get("document"); },
         change(ctx) {
             const [one, other] = [ctx.get("document"), ctx.get("document")];
             one[10].push(7);
             one.list[2][1].y[0] = "changed";
             one.list[1].added = one;
             delete one.z;
             Object.getOwnPropertyDescriptor(one, "__proto__").value.a = 1;
             Object.freeze(other);
             const last = ctx.get("document");
             const names = Object.getOwnPropertyDescriptors(last);
             const isPlain = Object.values(names).every((one) => one.writable && one.enumerable && one.configurable)
                 && Object.getPrototypeOf(last) === Object.prototype && last[10].length === 5;
             return [isPlain, one !== other, JSON.stringify(other) === JSON.stringify(last), last];
         },
         write(ctx, n) { const value = ctx.get("document"); value.list.push(n); ctx.set("document", value); return ctx.get("document").list.at(-1); },"#,
    );
    world.call("store", &serde_json::to_string(document).expect("a text")).expect("stored");
    let first = world.call("read", "").expect("read");
    for _ in 0..5 {
        assert_eq!(world.call("change", "").expect("changed"), format!("[true,true,true,{first}]"));
        assert_eq!(world.call("read", "").expect("read"), first);
    }
    for n in 0..5 {
        assert_eq!(world.call("write", &n.to_string()), Ok(n.to_string()));
    }
    assert!(world.call("read", "").expect("read").contains(r#",0,1,2,3,4],"z""#));
}

/// Far more values than the templates may take, read in turn and again and again.
#[test]
fn templates_are_bounded_and_values_that_go_and_come_are_right() {
    let memory_bytes = 4 << 20;
    let mut world = common::limited(
        r#"fill(ctx) { for (let i = 0; i < 2_000; i++) ctx.set(`f${i}`, Array.from({ length: 100 }, (_, j) => ({ i, j: `${i} ${j}` }))); },
         sum(ctx, [from, to]) {
             let sum = 0;
             for (let i = from; i < to; i++) {
                 const value = ctx.get(`f${i}`);
                 if (value.length !== 100 || value[99].i !== i || value[50].j !== `${i} 50`) throw new Error(`${i}`);
                 sum += value.length;
                 value.length = 0;
             }
             return sum;
         },"#,
        millrace_func::Limits { memory_bytes, cpu_ms: 20_000, ..millrace_func::Limits::default() },
    );
    world.call("fill", "").expect("filled");
    let before = world.engine.memory_bytes(world.program);
    for round in 0..4 {
        assert_eq!(world.call("sum", "[0,2000]"), Ok("200000".into()));
        for _ in 0..4 {
            assert_eq!(world.call("sum", "[0,20]"), Ok("2000".into()), "round {round}");
        }
        let grown = world.engine.memory_bytes(world.program).saturating_sub(before);
        assert!(grown > 0 && grown < memory_bytes / 3, "{grown} bytes of templates");
    }
}
