//! Built-in functions that anybody's input can keep busy: the turn ends in time all the same, and what they give is what
//! the language says.

use crate::common;

use crate::common::{World, limited};
use millrace_base::ErrorCode;
use millrace_func::Limits;

fn tight() -> Limits {
    Limits { cpu_ms: 30, memory_bytes: 256 << 20, input_bytes: 8 << 20, output_bytes: 8 << 20, ..Limits::default() }
}

/// Handlers that have time enough.
fn patient(handlers: &str) -> World {
    limited(handlers, Limits { cpu_ms: 60_000, ..tight() })
}

/// A call that is to end with `code`, and soon.
fn assert_ends(world: &mut World, handler: &str, input: &str, code: ErrorCode) {
    let started = common::thread_cpu_ns();
    let error = world.call(handler, input).expect_err(handler);
    let elapsed_ms = (common::thread_cpu_ns() - started) / 1_000_000;
    assert_eq!(error.code, code, "{handler}: {error}");
    assert!(elapsed_ms < 1_500, "{handler} took {elapsed_ms} ms of CPU time");
    assert_eq!(world.call("ok", ""), Ok("2".into()), "after {handler}");
}

/// An object of 32,768 names that QuickJS's hash, which is the same everywhere, puts into one chain.
fn one_chain() -> String {
    let mut names = vec![String::new()];
    for _ in 0..15 {
        names = names.iter().flat_map(|name| ["bA", "a\u{148}"].map(|part| format!("{name}{part}"))).collect();
    }
    let members: Vec<String> = names.iter().map(|name| format!("\"{name}\":1")).collect();
    format!("{{{}}}", members.join(","))
}

#[test]
fn names_of_one_chain_end_the_call_and_no_more() {
    let handlers = "ok() { return 2; }, take(ctx, x) { return 1; }, parse(ctx, text) { return JSON.parse(text).x; }";
    let mut world = limited(handlers, tight());
    let object = one_chain();
    assert_ends(&mut world, "take", &object, ErrorCode::CpuLimit);
    assert_ends(&mut world, "take", &format!("[{object}"), ErrorCode::CpuLimit);
    let text = serde_json::to_string(&object).expect("a string");
    assert_ends(&mut world, "parse", &text, ErrorCode::CpuLimit);
}

#[test]
fn long_texts_that_are_no_json_are_refused_with_their_place() {
    let mut world = patient("ok() { return 2; }, take(ctx, x) { return 1; }");
    let long = "1,".repeat(50_000);
    for (text, says) in [
        (format!("[\n{long}}}"), "line 2 column 100001"),
        (format!("[{long}\"\\ud800\": 1]"), "column"),
        (format!("[{long}\"\\ud800\"]"), "half of a surrogate pair"),
        (format!("[{long}{}1{}]", "[".repeat(600), "]".repeat(600)), ""),
    ] {
        let error = world.call("take", &text).expect_err("refused");
        assert_eq!(error.code, ErrorCode::InvalidInput);
        assert!(error.message.contains(says), "{}", error.message);
    }
    let deep = format!("[{long}{}1{}]", "[".repeat(500), "]".repeat(500));
    assert_eq!(world.call("take", &deep), Ok("1".into()));
}

#[test]
fn what_prints_for_long_and_says_little_ends_in_time() {
    let hollow = "const hollow = {}; for (let i = 0; i < 5_000; i++) hollow['p' + i] = undefined;\nconst many = new Array(20_000).fill(hollow);";
    let handlers = format!(
        "ok() {{ return 2; }}, out(ctx) {{ {hollow} return many; }}, text(ctx) {{ {hollow} return JSON.stringify(many).length; }}"
    );
    let mut world = limited(&handlers, tight());
    assert_ends(&mut world, "out", "", ErrorCode::CpuLimit);
    assert_ends(&mut world, "text", "", ErrorCode::CpuLimit);
}

/// QuickJS takes 43 µs for each.
#[test]
fn the_smallest_numbers_are_printed_quickly() {
    let mut world = patient("echo(ctx, x) { return x; }, text(ctx, x) { return JSON.stringify(x).length; }");
    let numbers = format!("[{}5e-324]", "5e-324,".repeat(200_000));
    let started = common::thread_cpu_ns();
    assert_eq!(world.call("echo", &numbers).map(|text| text == numbers), Ok(true));
    assert_eq!(world.call("text", &numbers), Ok(numbers.len().to_string()));
    let elapsed_ms = (common::thread_cpu_ns() - started) / 1_000_000;
    assert!(elapsed_ms < 3_000, "{elapsed_ms} ms for what takes QuickJS 17 s");
}

#[test]
fn numbers_are_printed_as_the_language_says() {
    let mut world = patient(
        "same() {
          const bits = new Uint32Array(2), number = new Float64Array(bits.buffer);
          const numbers = [0, -0, 1.5, 1e21, 1e-7, 123456789012345680000, 5e-324, 1.7976931348623157e308, 0.1 + 0.2, -1e-10];
          let state = 1;
          for (let i = 0; i < 20_000; i++) {
            for (const half of [0, 1]) bits[half] = state = (Math.imul(state, 1664525) + 1013904223) | 0;
            if (Number.isFinite(number[0])) numbers.push(number[0], Math.fround(number[0]), i / 100);
          }
          const finite = numbers.filter(Number.isFinite);
          if (JSON.stringify(finite) !== `[${finite.join()}]`) throw new Error(finite.find((x) => JSON.stringify([x]) !== `[${x}]`));
          return finite.length > 30_000;
        }",
    );
    assert_eq!(world.call("same", ""), Ok("true".into()));
}

/// With a replacer, `null` at least, it is QuickJS's own.
#[test]
fn stringify_gives_what_the_engines_own_gives() {
    let mut world = patient(
        "async same(ctx) {
          class Point { constructor() { this.x = 1; } get y() { return 2; } }
          class Said { toJSON(key) { return { key, said: true }; } }
          const holes = [1, , 3]; holes.name = 'x';
          const odd = Object.create({ inherited: 1 }, { hidden: { value: 1 }, shown: { value: 1, enumerable: true } });
          const nested = { a: [1, { b: null, c: undefined, d() {}, [Symbol('e')]: 1 }], '\\u2028\"\\\\\\n': '\\ud800x\\ud83d\\ude00' };
          const values = [{}, [], nested, holes, odd, new Point(), new Said(), [new Said()], { said: new Said() }, new Date(0), [new Date(NaN)],
            new Map([[1, 2]]), new Set([1]), new Boolean(true), [new Number(3), new String('s')], /x/g, new Error('m'), new Uint8Array(3),
            Promise.resolve(1), { p: Promise.resolve(1) }, new Proxy([1, 2], {}), new Proxy({ a: 1 }, {}), Object.create(null), [undefined, () => {}, Symbol()],
            { 2: 'two', 1: 'one', b: 1, a: 2 }, [NaN, Infinity, -0, 1e300], globalThis.Math, null, [[[[]]]], arguments, Object(Symbol())];
          const shown = (value, ...more) => { try { return String(JSON.stringify(value, ...more)); } catch (error) { return String(error); } };
          for (const value of values) {
            if (shown(value) !== shown(value, null)) throw new Error(shown(value) + ' is not ' + shown(value, null));
          }
          const circle = { inside: [] }; circle.inside.push(circle);
          const names = [circle, [1n], { get a() { throw new RangeError('got'); } }].map((value) => {
            try { return JSON.stringify(value); } catch (error) { return error.name; }
          });
          let deep = 1; for (let i = 0; i < 400; i++) deep = { deep };
          if (JSON.stringify(deep) !== JSON.stringify(deep, null)) throw new Error('deep');
          return [names, JSON.stringify.length, JSON.parse.length, JSON.parse.name];
        }",
    );
    assert_eq!(world.call("same", ""), Ok(r#"[["TypeError","TypeError","RangeError"],3,2,"parse"]"#.into()));
}

#[test]
fn long_json_is_parsed_as_short_is() {
    let mut world = patient(
        "same() {
          const value = [{ a: [1, 'x', null, true, -0.5e-3, '\\u00e9\\ud83d\\ude00'], __proto__: 1, a: 2 }];
          const text = '[' + ' '.repeat(5_000) + JSON.stringify(value).slice(1);
          if (JSON.stringify(JSON.parse(text)) !== JSON.stringify(value)) throw new Error('parsed');
          const seen = [];
          const revived = JSON.parse(' '.repeat(5_000) + '{\"a\":[1,2],\"b\":{\"c\":3}}', function (key, x) {
            seen.push(key);
            return key === 'b' ? undefined : typeof x === 'number' ? x + this.length : x;
          });
          let thrown;
          try { JSON.parse(' '.repeat(5_000) + '{'); } catch (error) { thrown = error.name; }
          return [seen.join(), JSON.stringify(revived), thrown, JSON.parse('7', (key, x) => x + 1)];
        }",
    );
    assert_eq!(world.call("same", ""), Ok(r#"["0,1,a,c,b,","{\"a\":[3,4]}","SyntaxError",8]"#.into()));
}

#[test]
fn normal_forms_of_long_texts_are_those_of_short_ones() {
    let handlers = "ok() { return 2; },
        same() {
          const text = '\u{e9}\u{4e2d}\u{ac00}\u{451} \u{fb01}\u{e9}'.repeat(1_000), apart = text.normalize('NFD');
          const short = '\u{e9}\u{4e2d}\u{ac00}\u{451} \u{fb01}\u{e9}';
          for (const form of ['NFC', 'NFD', 'NFKC', 'NFKD']) {
            if (text.normalize(form) !== short.normalize(form).repeat(1_000)) throw new Error(form);
            if (apart.normalize(form) !== short.normalize(form).repeat(1_000)) throw new Error(`apart ${form}`);
          }
          let thrown = [];
          for (const form of ['NFX', null]) try { text.normalize(form); } catch (error) { thrown.push(error.name); }
          return [text.normalize() === text, thrown.join(), ''.normalize.length, ''.normalize.name];
        },
        marks(ctx, text) { return text.normalize('NFKD').length; }";
    let mut world = patient(handlers);
    assert_eq!(world.call("same", ""), Ok(r#"[true,"RangeError,RangeError",0,"normalize"]"#.into()));
    let marks = format!("\"a{}\"", "\u{315}\u{300}".repeat(100_000));
    assert_ends(&mut world, "marks", &marks, ErrorCode::FunctionFailed);
    let few = format!("\"a{}\"", "\u{315}\u{300}".repeat(1_500));
    assert_eq!(world.call("marks", &few), Ok("3001".into()));
}

#[test]
fn patterns_that_are_made_at_run_time_are_bounded_and_otherwise_as_ever() {
    let handlers = "ok() { return 2; },
        made(ctx, text) { return new RegExp(text, 'iu').source.length; },
        called(ctx, text) { return RegExp([text]).source.length; },
        matched(ctx, text) { return 'x'.match(text); },
        all(ctx, text) { return [...'x'.matchAll(text)].length; },
        searched(ctx, text) { return 'x'.search([text]); },
        same() {
          class Mine extends RegExp { test(text) { return !super.test(text); } }
          const made = new RegExp('a+', 'g');
          return [/x/ instanceof RegExp, made instanceof RegExp, made.constructor === RegExp, /x/.constructor === RegExp,
            new Mine('a').test('a'), new Mine('a') instanceof Mine, RegExp.name, 'baab'.match('a+')[0], [...'abab'.matchAll(/a/g)].length,
            'cab'.search('b'), 'a1b2'.split(/[0-9]/).join(), RegExp(/y/gi).flags, 'aXb'.replace(/x/i, '-'), RegExp[Symbol.species] === RegExp,
            'x'.match(), /a/.compile === undefined];
        }";
    let mut world = patient(handlers);
    let expected = r#"[true,true,true,true,false,true,"RegExp","aa",2,2,"a,b,","gi","a-b",true,[""],true]"#;
    assert_eq!(world.call("same", ""), Ok(expected.into()));
    let class: String = (0..20_000).rev().filter_map(|offset| char::from_u32(0x1_0000 + offset)).collect();
    let text = serde_json::to_string(&format!("[{class}]")).expect("a string");
    for handler in ["made", "called", "matched", "all", "searched"] {
        assert_ends(&mut world, handler, &text, ErrorCode::FunctionFailed);
    }
}
