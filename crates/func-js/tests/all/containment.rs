//! Promise 6: no function outruns its limits or harms the next call. Every test here ends with the
//! proper error and a call that works.

use crate::common;

use crate::common::{World, limited};
use millrace_base::ErrorCode;
use millrace_func::{Engine, Limits};

fn tight() -> Limits {
    Limits { cpu_ms: 30, memory_bytes: 256 << 20, stack_bytes: 256 << 10, ..Limits::default() }
}

/// With time enough that another limit is the first to be broken.
fn patient() -> Limits {
    Limits { cpu_ms: 20_000, memory_bytes: 8 << 20, ..tight() }
}

const OK: &str = "ok(ctx) { return ({}).polluted === undefined && [1, 2].map((x) => x + 1).length; },\n";

/// Handlers under limits other than time; `ok` is there to show that the service lives.
fn contained(handlers: &str) -> World {
    limited(&format!("{OK}{handlers}"), patient())
}

/// Each handler must fail with the code, and the next call must work.
fn assert_contained(code: ErrorCode, cases: &[(&str, &str)]) {
    for (name, body) in cases {
        let limits = if code == ErrorCode::CpuLimit { tight() } else { patient() };
        let handlers = format!("{OK}async bad(ctx, input) {{ {body} }},\nsync(ctx, input) {{ {body} }},");
        let mut world = limited(&handlers, limits);
        for handler in ["bad", "sync"] {
            let started = common::thread_cpu_ns();
            match world.call(handler, "1") {
                Err(error) => assert_eq!(error.code, code, "{name}/{handler}: {error}"),
                Ok(value) => panic!("{name}/{handler} gave {:.100}", value),
            }
            let elapsed_ms = (common::thread_cpu_ns() - started) / 1_000_000;
            let most_ms = if code == ErrorCode::CpuLimit { 1_500 } else { 15_000 };
            assert!(elapsed_ms < most_ms, "{name}/{handler} took {elapsed_ms} ms of CPU time");
            assert_eq!(world.call("ok", ""), Ok("2".into()), "after {name}/{handler}");
        }
    }
}

/// What anybody may send to a handler that looks for one text in another.
#[test]
fn a_search_can_be_interrupted() {
    let searches = [
        ("includes", "text.includes(word)"),
        ("includes an array", "text.includes([word])"),
        ("indexOf", "text.indexOf(word)"),
        ("lastIndexOf", "[...text].reverse().join('').lastIndexOf([...word].reverse().join(''))"),
        ("split", "text.split(word)"),
        ("split an array", "text.split([word])"),
        ("replace", "text.replace(word, 'x')"),
        ("replaceAll", "text.replaceAll(word, () => 'x')"),
    ];
    let texts = "const text = 'a'.repeat(400_000), word = 'a'.repeat(200_000) + 'b';";
    let bodies = searches.map(|(name, search)| (name, format!("{texts} return {search};")));
    let cases: Vec<(&str, &str)> = bodies.iter().map(|(name, body)| (*name, body.as_str())).collect();
    assert_contained(ErrorCode::CpuLimit, &cases);
}

#[test]
fn conversions_of_large_bigints_end_at_the_cpu_limit() {
    assert_contained(
        ErrorCode::CpuLimit,
        &[
            ("BigInt to text", "return (1n << 400_000n).toString().length;"),
            ("text to BigInt", "return BigInt('9'.repeat(200_000)) > 1n;"),
        ],
    );
}

/// Under `cpu_ms`, each body ends with `cpu-limit` before it has used twice that and a little.
/// The limit may come between two elements: what was given for the last one is not given back again.
#[test]
fn functions_of_arrays_can_be_interrupted_between_elements() {
    let searches = ["find", "findIndex", "findLast", "findLastIndex", "some", "filter", "map", "reduce", "flatMap"];
    for name in searches {
        let body = format!(
            "const a = Array.from({{ length: 3000 }}, (_, i) => ['a' + i]);
             for (;;) a.{name}((p) => p === 0);"
        );
        for _ in 0..6 {
            assert_contained(ErrorCode::CpuLimit, &[(name, body.as_str())]);
        }
    }
}

#[test]
fn long_repetitions_end_in_time() {
    assert_ends_in_time(&[
        ("repeat a character", "for (;;) 'x'.repeat(60_000_000);"),
        ("repeat a word", "for (;;) 'word'.repeat(15_000_000);"),
        ("padEnd", "for (;;) 'x'.padEnd(60_000_000);"),
        ("padStart", "for (;;) 'x'.padStart(60_000_000, 'ab');"),
    ]);
}

fn assert_ends_in_time(cases: &[(&str, &str)]) {
    const CPU_MS: u64 = 100;
    const MOST_MS: u64 = 2 * CPU_MS + 100;
    let limits = || Limits { cpu_ms: CPU_MS, memory_bytes: 512 << 20, ..tight() };
    for (name, body) in cases {
        let caught = format!("for (;;) {{ try {{ {body} }} catch {{ }} }}");
        let mut world = limited(&format!("{OK}once(ctx) {{ {body} }},\ncaught(ctx) {{ {caught} }},"), limits());
        for handler in ["once", "caught"] {
            let started = common::thread_cpu_ns();
            let error = world.call(handler, "").expect_err(name);
            let used_ms = (common::thread_cpu_ns() - started) / 1_000_000;
            assert_eq!(error.code, ErrorCode::CpuLimit, "{name}/{handler}: {error}");
            assert!(used_ms < MOST_MS, "{name}/{handler} used {used_ms} ms");
            assert_eq!(world.call("ok", ""), Ok("2".into()), "after {name}/{handler}");
        }
    }
}

#[test]
fn operators_of_large_bigints_end_in_time() {
    let mut cases = Vec::new();
    let large = "const a = (1n << 500_000n) - 1n, b = (1n << 1_000_000n) - 1n; let c;";
    let one_after_another = "c = a * a;".repeat(60);
    for (name, work) in [
        ("one after another", one_after_another.as_str()),
        ("multiplication", "for (let i = 0; i < 60; i++) c = a * a;"),
        ("square", "for (let i = 0; i < 60; i++) c = a ** 2n;"),
        ("power", "for (let i = 0; i < 20; i++) c = 3n ** 600_000n;"),
        ("division", "for (let i = 0; i < 60; i++) c = b / (a + 2n);"),
        ("remainder", "for (let i = 0; i < 60; i++) c = -b % a;"),
        ("addition", "for (;;) c = b - a;"),
        ("shift", "for (;;) c = a << 17n;"),
        ("bits", "for (;;) c = BigInt.asIntN(900_000, (a ^ b) & ~a);"),
        ("a template", "return `${b}`.length;"),
        ("toString", "return b.toString().length;"),
        ("toString of a base", "return (-b).toString(7).length;"),
        ("a name", "return ({})[b];"),
        ("concatenation", "return ('' + b).length;"),
        ("join", "return [b, b].join().length;"),
    ] {
        cases.push((name, format!("{large} {work} return 1;")));
    }
    let text = "const text = '9'.repeat(300_000);";
    for (name, work) in [
        ("BigInt", "for (let i = 0; i < 20; i++) BigInt(text);"),
        ("comparison", "for (let i = 0; i < 20; i++) 1n < text;"),
        ("equality", "for (let i = 0; i < 20; i++) 1n == '-' + text;"),
        ("asUintN", "for (let i = 0; i < 20; i++) BigInt.asUintN(64, text);"),
        ("an element", "const all = new BigInt64Array(20); for (let i = 0; i < 20; i++) all[i] = text;"),
    ] {
        cases.push((name, format!("{text} {work} return 1;")));
    }
    let cases: Vec<(&str, &str)> = cases.iter().map(|(name, body)| (*name, body.as_str())).collect();
    assert_ends_in_time(&cases);
}

#[test]
fn functions_of_arrays_without_elements_end_in_time() {
    let huge = "const huge = { length: 2 ** 53 - 1 }, list = Array.prototype;";
    let cases = [
        ("reverse", "return list.reverse.call(huge);"),
        ("join", "return new Array(2 ** 32 - 1).join('').length;"),
        ("toLocaleString", "return new Array(2 ** 32 - 1).fill(1, 0, 1).toLocaleString().length;"),
        ("fill", "return list.fill.call(new Proxy(huge, { set: () => true }), 1);"),
        ("copyWithin", "return list.copyWithin.call(huge, 0, 5);"),
        ("unshift", "return list.unshift.call({ length: 2 ** 52 }, 1);"),
        ("splice", "return list.splice.call({ length: 2 ** 52 }, 0, 1, 2, 3);"),
        ("slice", "return list.slice.call({ length: 2 ** 32 - 1 }, 1);"),
        ("includes", "return list.includes.call(huge, 1);"),
        ("lastIndexOf", "return list.lastIndexOf.call(huge, 1);"),
        ("concat", "return [].concat({ length: 2 ** 52, [Symbol.isConcatSpreadable]: true });"),
        ("flat", "return list.flat.call(huge);"),
        ("every", "return list.every.call(huge, () => true);"),
        ("reduce", "return list.reduceRight.call(huge, () => true, 1);"),
        ("find", "return list.find.call(huge, () => false);"),
        ("sort", "return list.sort.call(huge);"),
        (
            "sort by text",
            "const all = []; for (let i = 0; i < 5; i++) all.push(new Array(60_000).fill(i)); for (;;) all.flat().sort();",
        ),
        // Large enough to take several times the limit, and no larger: the first touch of each page is time of the kernel.
        ("sort of bytes", "const all = new Float64Array(4 << 20); for (;;) all.sort();"),
    ];
    let bodies = cases.map(|(name, body)| (name, format!("{huge} {body}")));
    let cases: Vec<(&str, &str)> = bodies.iter().map(|(name, body)| (*name, body.as_str())).collect();
    assert_ends_in_time(&cases);
}

/// `ownKeys` of a proxy may return what it likes: the time goes with the number of names, not with its square.
#[test]
fn the_names_of_a_proxy_take_as_long_as_there_are_names() {
    let uses = [
        ("keys", "return Object.keys(proxy).length;"),
        ("ownKeys", "return Reflect.ownKeys(proxy).length;"),
        ("entries", "return Object.entries(proxy).length;"),
        ("spread", "return Object.keys({ ...proxy }).length;"),
        ("assign", "return Object.keys(Object.assign({}, proxy)).length;"),
        ("for", "let n = 0; for (const name in proxy) n++; return n;"),
        ("stringify", "return Object.keys(JSON.parse(JSON.stringify(proxy))).length;"),
        ("result", "return proxy;"),
    ];
    for (name, work) in uses {
        let body = format!(
            "const names = Array.from({{ length: count }}, (_, i) => `n${{i}}`);
             const getOwnPropertyDescriptor = () => ({{ value: 1, enumerable: true, configurable: true }});
             const proxy = new Proxy({{}}, {{ ownKeys: () => names, getOwnPropertyDescriptor, get: (_, name) => name === 'toJSON' ? undefined : 1 }});
             {work}"
        );
        let handlers = format!("{OK}use(ctx, count) {{ {body} }},");
        let patient = Limits { cpu_ms: 1_500, memory_bytes: 512 << 20, output_bytes: 16 << 20, ..tight() };
        let mut world = limited(&handlers, patient.clone());
        let output = world.call("use", "100000").expect(name);
        assert!(name == "result" || output == "100000", "{name}: {output}");
        let mut world = limited(&handlers, Limits { cpu_ms: 100, ..patient });
        let started = common::thread_cpu_ns();
        world.fails("use", "400000", ErrorCode::CpuLimit);
        let used_ms = (common::thread_cpu_ns() - started) / 1_000_000;
        assert!(used_ms < 300, "{name} used {used_ms} ms");
        assert_eq!(world.call("ok", ""), Ok("2".into()), "after {name}");
    }
}

/// What the language says of `ownKeys` holds.
#[test]
fn the_names_of_a_proxy_are_checked() {
    let mut world = limited(
        r#"check(ctx) {
            const of = (target, names) => { try { return Reflect.ownKeys(new Proxy(target, { ownKeys: () => names })).map(String); } catch (error) { return error.name; } };
            const fixed = Object.defineProperty({ b: 1 }, "a", { value: 1 });
            const closed = Object.preventExtensions({ a: 1, b: 2 });
            const symbol = Symbol("s");
            return [
                of({}, ["b", "7", "a", symbol, "3"]), of({}, ["a", "b", "a"]), of({}, [symbol, "x", symbol]), of({}, ["1", "2", "1"]), of({}, []),
                of(fixed, ["z", "a"]), of(fixed, ["b"]), of(closed, ["b", "a"]), of(closed, ["a"]), of(closed, ["a", "b", "c"]), of({}, [1]),
            ];
        },"#,
        Limits::default(),
    );
    let expected = r#"[["b","7","a","Symbol(s)","3"],"TypeError","TypeError","TypeError",[],["z","a"],"TypeError",["b","a"],"TypeError","TypeError","TypeError"]"#;
    assert_eq!(world.call("check", ""), Ok(expected.into()));
}

/// The same results as before there were polls inside the operators.
#[test]
fn large_bigints_are_right() {
    let mut world = limited(
        r#"check(ctx) {
            const a = (1n << 3_000n) - 12345n, b = -(3n ** 1_000n), seen = [];
            const same = (name, is) => { if (!is) seen.push(name); };
            same("product", (a * b) / b === a && (a * b) % a === 0n);
            same("quotient", (a / b) * b + (a % b) === a);
            same("text", BigInt(`${a}`) === a && BigInt(b.toString()) === b && BigInt(`0x${a.toString(16)}`) === a);
            same("power", 3n ** 1_000n === (3n ** 500n) ** 2n);
            const nines = "9".repeat(5_000);
            same("nines", BigInt(nines) + 1n === 10n ** 5_000n && String(10n ** 5_000n - 1n) === nines);
            same("compared", BigInt(nines) == nines && 1n < nines);
            const numbers = Float64Array.from([3, -0, 0, NaN, -Infinity, 2.5]).sort();
            same("sorted", numbers.join() === "-Infinity,0,0,2.5,3,NaN" && Object.is(numbers[1], -0));
            same("texts", [10, 9, 1, undefined, "a"].sort().join() === "1,10,9,a,");
            return seen;
        },"#,
        Limits::default(),
    );
    assert_eq!(world.call("check", ""), Ok("[]".into()));
}

/// The same words in the same texts, and in ones with something before that makes no difference but for the length.
#[test]
fn long_words_are_found_as_short_ones_are() {
    let mut world = limited(
        r#"both(ctx) {
            const long = "=".repeat(1_500);
            const seen = [];
            const same = (name, search) => {
                for (const text of ["", "x", "axa", "xaxbx", "aabaab", "xx$&x"]) {
                    for (const word of ["x", "a", "ax", "xb", "aab", "y"]) {
                        const wide = [...text].map((one) => one + long).join("");
                        const mark = [...word].map((one) => one + long).join("");
                        const narrow = (value) => JSON.stringify(value).replaceAll(long, "");
                        const [small, large] = [search(text, word, 1), search(wide, mark, 1 + long.length)];
                        const scaled = typeof large === "number" && large > 0 ? large / (1 + long.length) : large;
                        if (narrow(small) !== narrow(scaled)) seen.push([name, text, word, small, scaled]);
                    }
                }
            };
            same("includes", (text, word) => text.includes(word));
            same("includes from", (text, word, from) => text.includes(word, from));
            same("includes behind", (text, word) => text.includes(word, Infinity));
            same("includes NaN", (text, word) => text.includes(word, "q"));
            same("indexOf", (text, word) => text.indexOf(word));
            same("indexOf an array", (text, word) => text.indexOf([word]));
            same("indexOf from", (text, word, from) => text.indexOf(word, from));
            same("indexOf before", (text, word) => text.indexOf(word, -7));
            same("lastIndexOf", (text, word) => text.lastIndexOf(word));
            same("lastIndexOf from", (text, word, from) => text.lastIndexOf(word, from));
            same("lastIndexOf 0", (text, word) => text.lastIndexOf(word, 0));
            same("split", (text, word) => text.split(word));
            same("split 2", (text, word) => text.split(word, 2));
            same("split 0", (text, word) => text.split(word, 0));
            same("split -1", (text, word) => text.split(word, -1));
            for (const replacement of ["", "r", "$$", "$&$&", "[$`|$']", "$1", "$<a>", "$"]) {
                same("replace " + replacement, (text, word) => text.replace(word, replacement));
                same("replaceAll " + replacement, (text, word) => text.replaceAll(word, replacement));
            }
            const told = (...all) => all.filter((one) => typeof one === "string").join("|");
            same("replace told", (text, word) => text.replace(word, told));
            same("replaceAll told", (text, word) => text.replaceAll(word, told));
            const names = ["includes", "indexOf", "lastIndexOf", "replace", "replaceAll", "split"];
            for (const name of names) {
                const it = String.prototype[name];
                const thrown = (f) => { try { f(); } catch (error) { return error instanceof TypeError; } };
                if (it.name !== name || !thrown(() => it.call(null, "a")) || !Object.isFrozen(it)) seen.push([name]);
            }
            const lengths = names.map((name) => String.prototype[name].length);
            const objects = [
                "a1b2".split(/\d/), "a1b2".replace(/\d/g, "-"), "12".indexOf(2), "1,2".includes([1, 2]),
                String.prototype.indexOf.call(121, 2), "anull".includes(null), "aundefined".indexOf(),
            ];
            return { seen, lengths, objects };
        },"#,
        Limits { cpu_ms: 20_000, ..Limits::default() },
    );
    let expected = r#"{"seen":[],"lengths":[1,1,1,2,2,2],"objects":[["a","b",""],"a-b-",1,true,1,true,1]}"#;
    assert_eq!(world.call("both", ""), Ok(expected.into()));
}

#[test]
fn endless_work_ends_at_the_cpu_limit() {
    assert_contained(
        ErrorCode::CpuLimit,
        &[
            ("loop", "for (;;) {}"),
            ("caught loop", "for (;;) { try { for (;;) {} } catch { } finally { for (;;) {} }  }"),
            ("getter", "return { get a() { for (;;) {} } };"),
            ("toJSON", "ctx.set('a', { toJSON() { for (;;) {} } });"),
            ("toString", "throw { toString() { for (;;) {} }, toJSON() { for (;;) {} } };"),
            (
                "proxy error",
                "const e = new Error(); Object.defineProperty(e, 'message', { get() { for (;;) {} } }); throw e;",
            ),
            ("microtasks", "const spin = () => Promise.resolve().then(spin); return spin();"),
            ("detached microtasks", "const spin = () => Promise.resolve().then(spin); spin(); return 1;"),
            (
                "caught microtasks",
                "const spin = async () => { for (;;) { try { await null; } catch {} } }; return spin();",
            ),
            ("regex", "return /^(a+)+$/.test('a'.repeat(40) + 'b');"),
            (
                "generator",
                "function* g() { for (;;) { try { yield 1; } finally { continue; } } } for (const x of g()) { }",
            ),
            ("iterator", "return [...{ [Symbol.iterator]() { return { next() { for (;;) {} } }; } }];"),
            ("sort", "return [1, 2, 3].sort(() => { for (;;) {} });"),
            ("huge sparse array", "return Array.prototype.indexOf.call({ length: 2 ** 53 - 1 }, 1);"),
            ("slow built-ins", "const s = 'x'.repeat(3e6); let n = 0; for (;;) n += s.indexOf('y');"),
            (
                "slow built-ins without a loop",
                "const s = 'x'.repeat(3e6); return Array.from({ length: 1e6 }, () => s.indexOf('y')).length;",
            ),
        ],
    );
}

#[test]
fn endless_recursion_ends_at_the_stack_limit() {
    assert_contained(
        ErrorCode::StackLimit,
        &[
            ("plain", "const f = () => f() + 1; return f();"),
            ("caught", "const f = () => { try { return f() + 1; } catch { return 0; } }; return f();"),
            ("getter", "const o = { get a() { return this.a; } }; return o.a;"),
            ("toString", "const o = { toString() { return `${o}`; } }; return `${o}`;"),
            ("async", "const f = async () => { await f(); }; await_(f()); function await_(x) { return x; }"),
            ("async caught", "const f = async () => { try { await f(); } catch { } }; return f();"),
            ("async generator", "const f = async function* () { yield* f(); }; return f().next();"),
            ("constructor", "class A { constructor() { new A(); } } new A();"),
            ("proxy", "const p = new Proxy({}, { get: (t, k, r) => r[k] }); return p.a;"),
            ("replace", "const f = () => 'a'.replace(/a/, f); return f();"),
            ("sort", "const f = () => [2, 1].sort(f); return f();"),
            ("toJSON", "const o = { toJSON: () => JSON.stringify(o) }; return JSON.stringify(o);"),
            ("big frames", "const f = (...xs) => f.apply(null, xs) + 1; return f(...new Array(500).fill(1));"),
        ],
    );
}

#[test]
fn bombs_end_at_the_memory_limit() {
    assert_contained(
        ErrorCode::MemoryLimit,
        &[
            ("objects", "const all = []; for (;;) all.push({ a: 1, b: [2] });"),
            ("caught objects", "const all = []; for (;;) { try { all.push({ a: 1, b: [2] }); } catch {} }"),
            ("a 1 GB string", "return 'x'.repeat(2 ** 30);"),
            ("almost a 1 GB string", "return 'x'.repeat(2 ** 30 - 25).length;"),
            ("doubling string", "let s = 'x'; for (;;) s += s;"),
            ("caught string", "try { 'x'.repeat(5e8).charCodeAt(1) } catch { } return 1;"),
            ("array", "const a = new Array(5e7).fill(0); return a.length;"),
            ("buffer", "return new Uint8Array(1e9).length;"),
            ("caught buffer", "try { new Uint8Array(1e9) } catch { } return 1;"),
            ("map", "const m = new Map(); for (let i = 0; ; i++) m.set(i, i);"),
            ("closures", "let f = null; for (;;) { const g = f; f = () => g; }"),
            ("cycles that stay", "const all = []; for (;;) { const a = {}; a.a = a; all.push(a); }"),
            ("json", "return JSON.parse('[' + '{\"a\":[1,2,3]},'.repeat(4e5) + '1]').length;"),
            ("promises", "const all = []; for (;;) all.push(new Promise(() => {}));"),
        ],
    );
}

#[test]
fn garbage_is_no_memory() {
    let mut world = limited(
        "cycles(ctx) { for (let i = 0; i < 300000; i++) { const a = { x: [1, 2, 3] }; a.a = a; } return 1; }",
        Limits { memory_bytes: 8 << 20, cpu_ms: 5_000, ..Limits::default() },
    );
    assert_eq!(world.call("cycles", ""), Ok("1".into()));
}

#[test]
fn promises_that_never_settle_are_stalled() {
    assert_contained(ErrorCode::Stalled, &[("never", "return new Promise(() => {});")]);
}

#[test]
fn strange_throws_are_errors() {
    assert_contained(
        ErrorCode::FunctionFailed,
        &[
            ("null", "throw null;"),
            ("undefined", "throw undefined;"),
            ("symbol", "throw Symbol('x');"),
            ("bigint", "throw 10n;"),
            ("function", "throw () => 1;"),
            ("cyclic", "const a = {}; a.a = a; throw a;"),
            (
                "proxy",
                "throw new Proxy({}, { get() { throw 1; }, ownKeys() { throw 2; }, getPrototypeOf() { throw 3; } });",
            ),
            ("proxied error", "throw new Proxy(new Error('x'), { get() { throw new Error('inner'); } });"),
            (
                "throwing getters",
                "const e = new Error('x'); for (const k of ['message', 'name', 'stack']) Object.defineProperty(e, k, { get() { throw e; } }); throw e;",
            ),
            ("revoked", "const { proxy, revoke } = Proxy.revocable({}, {}); revoke(); throw proxy;"),
            ("forged code", "throw Object.assign(new Error('x'), { code: 'overloaded' });"),
            ("cyclic cause", "const e = new Error('x'); e.cause = e; throw e;"),
            ("surrogate", "throw new Error('\\ud800');"),
            ("huge text", "throw new Error('x'.repeat(1e6));"),
            ("throwing output", "return { toJSON() { throw new Error('no'); } };"),
            ("bigint output", "return { a: 1n };"),
        ],
    );
    assert_contained(
        ErrorCode::Aborted,
        &[
            ("cyclic payload", "const a = {}; a.a = a; throw new Abort('x', a);"),
            ("throwing payload", "throw new Abort('x', { toJSON() { throw 1; } });"),
            ("subclass", "class Mine extends Abort {} throw new Mine('x');"),
        ],
    );
}

#[test]
fn deep_json_is_refused() {
    let mut world = contained(
        "echo(ctx, x) { return 1; },\ndeep() { let a = []; for (let i = 0; i < 2e4; i++) a = [a]; return a; },\nparse(ctx) { return JSON.parse('['.repeat(1e5)); }",
    );
    for text in ["[".repeat(1_000_000), "{\"a\":".repeat(500_000)] {
        world.fails("echo", &text, ErrorCode::InvalidInput);
        assert_eq!(world.call("ok", ""), Ok("2".into()));
    }
    for text in ["[1,", "{a:1}", "'a'", "01", "[1]x", "\u{feff}1", "undefined", "NaN", "\"\n\""] {
        world.fails("echo", text, ErrorCode::InvalidInput);
    }
    world.fails("deep", "", ErrorCode::StackLimit);
    assert!(world.fails("parse", "", ErrorCode::FunctionFailed).contains("SyntaxError"));
    let not_utf8 = world.handler("s", "echo");
    let error = world.call_id(not_utf8, b"k", b"\"\xff\"").expect_err("refused");
    assert_eq!(error.code, ErrorCode::InvalidInput);
    assert_eq!(world.call("ok", ""), Ok("2".into()));
}

#[test]
fn prototypes_cannot_be_polluted() {
    let mut world = contained(
        "object() { Object.prototype.polluted = 1; },
         array() { Array.prototype.map = () => 'x'; },
         promise() { Promise.prototype.then = 1; },
         json() { JSON.stringify = () => 'x'; },
         proto(ctx, input) { const merge = (a, b) => { for (const k in b) typeof b[k] === 'object' ? merge(a[k] ??= {}, b[k]) : (a[k] = b[k]); }; merge({}, input); },
         builtin() { Object.prototype.toString = () => 'x'; },
         context(ctx) { Object.getPrototypeOf(ctx).get = () => 'x'; },
         error() { Error.prototype.name = 'x'; },
         iterator() { Object.getPrototypeOf([][Symbol.iterator]()).next = 1; },
         generator() { Object.getPrototypeOf(Object.getPrototypeOf((function* () {})())).next = 1; },
         global() { globalThis.Array = 1; },
         math() { Math.random = () => 4; },
         date() { Date.now = () => 4; },
         definition() { this.ok = 1; },
         shadow() { const e = new Error('a'); e.name = 'Mine'; e.message = 'b'; const o = {}; o.toString = () => 'mine'; o.constructor = 1;
           class Old extends TypeError { constructor() { super('x'); this.name = 'Old'; } }
           function F() {} F.prototype.toString = () => 'f'; F.prototype.constructor = F;
           return [e.name, e.message, `${o}`, new Old().name, `${new F()}`, `${{}}`]; },",
    );
    for handler in [
        "object",
        "array",
        "promise",
        "json",
        "builtin",
        "context",
        "error",
        "iterator",
        "generator",
        "global",
        "math",
        "date",
        "definition",
    ] {
        world.fails(handler, "", ErrorCode::FunctionFailed);
        assert_eq!(world.call("ok", ""), Ok("2".into()), "after {handler}");
    }
    world.fails("proto", r#"{"__proto__":{"polluted":1}}"#, ErrorCode::FunctionFailed);
    assert_eq!(world.call("ok", ""), Ok("2".into()));
    assert_eq!(world.call("shadow", ""), Ok(r#"["Mine","b","mine","Old","f","[object Object]"]"#.into()));
}

#[test]
fn only_handlers_are_reachable() {
    let mut world = contained(
        "_private(ctx) { return 1; },
         async reach(ctx, name) { await ctx.call('s', 'k', name); },
         async service(ctx, name) { await ctx.call(name, 'k', 'ok'); },",
    );
    for name in ["_private", "constructor", "__proto__", "toString", "hasOwnProperty", "valueOf", "", "OK", "ok\\u0000"]
    {
        let message = world.fails("reach", &format!("\"{name}\""), ErrorCode::FunctionFailed);
        assert!(message.contains("has no handler"), "{message}");
        let message = world.fails("service", &format!("\"{name}\""), ErrorCode::FunctionFailed);
        assert!(message.contains("has no service"), "{message}");
    }
    let names: Vec<String> = world.engine.services(world.program)[0].handlers.iter().map(|h| h.0.to_string()).collect();
    assert_eq!(names, ["ok", "reach", "service"]);
}

#[test]
fn a_ctx_belongs_to_its_call() {
    let source = "import { service } from 'millrace';
        let kept, request, promise, resolve;
        export default service({
          keep(ctx) { kept = ctx; ctx.set('a', 1); return ctx.get('a'); },
          use(ctx) { return kept.get('a'); },
          useKey(ctx) { return kept.key; },
          fake(ctx) { return Object.getPrototypeOf(ctx).get.call({}, 'a'); },
          inherit(ctx) { return Object.create(ctx).get('a'); },
          useRequest() { return request.path; },
          async later(ctx) { kept = ctx; await ctx.call('s', 'x', 'use'); return ctx.get('a') ?? 'mine'; },
        });
        export const routes = { 'GET /': (ctx, r) => { request = r; return r.path; } };";
    let mut world = common::service(source);
    assert_eq!(world.call("keep", ""), Ok("1".into()));
    for handler in ["use", "useKey"] {
        let message = world.fails(handler, "", ErrorCode::FunctionFailed);
        assert!(message.contains("belongs to a call that has ended"), "{message}");
    }
    world.fails("fake", "", ErrorCode::FunctionFailed);
    world.fails("inherit", "", ErrorCode::FunctionFailed);
    assert_eq!(world.route(0, &common::Request::default()).expect("replies").status, 200);
    world.fails("useRequest", "", ErrorCode::FunctionFailed);
    let message = world.fails("later", "", ErrorCode::FunctionFailed);
    assert!(message.contains("belongs to a call that has ended"), "{message}");
}

#[test]
fn other_activations_survive_a_cpu_breach_and_end_after_a_memory_breach() {
    for (bomb, expected) in
        [("for (;;) {}", Ok("[\"cpu-limit\",1]")), ("return new Uint8Array(1e9)", Err(ErrorCode::Overloaded))]
    {
        let handlers = format!(
            "async outer(ctx) {{ try {{ await ctx.call('s', 'x', 'bomb'); }} catch (e) {{ ctx.set('a', 1); return [e.code, ctx.get('a')]; }} }},
             bomb(ctx) {{ {bomb} }},"
        );
        let mut world = limited(&format!("{OK}{handlers}"), tight());
        world.state.counts_apart = true;
        match (world.call("outer", ""), expected) {
            (Ok(value), Ok(expected)) => assert_eq!(value, expected),
            (Err(error), Err(expected)) => assert_eq!(error.code, expected, "{error}"),
            (result, expected) => panic!("{result:?}, not {expected:?}"),
        }
        assert_eq!(world.call("ok", ""), Ok("2".into()));
    }
}

#[test]
fn module_state_is_lost_with_the_memory_and_kept_otherwise() {
    let source = "import { service } from 'millrace'; let n = 0;
        export default service({ count() { return ++n; }, spin() { for (;;) {} }, leak() { return new Uint8Array(1e9); } });";
    let mut world = common::world(&[("s.ts", source)], tight());
    assert_eq!(world.call("count", ""), Ok("1".into()));
    world.fails("spin", "", ErrorCode::CpuLimit);
    assert_eq!(world.call("count", ""), Ok("2".into()));
    world.fails("leak", "", ErrorCode::MemoryLimit);
    assert_eq!(world.call("count", ""), Ok("1".into()));
}

#[test]
fn services_share_nothing() {
    let service = |body: &str| {
        format!(
            "import {{ service }} from 'millrace'; globalThis.x = (globalThis.x ?? 0) + 1; export default service({{ go() {{ {body} }} }});"
        )
    };
    let mut world = common::world(
        &[
            ("s.ts", &service("return [globalThis.x, globalThis.y = 1];")),
            ("t.ts", &service("return [globalThis.x, typeof globalThis.y];")),
        ],
        tight(),
    );
    assert_eq!(world.call("go", ""), Ok("[1,1]".into()));
    let other = world.handler("t", "go");
    assert_eq!(world.call_id(other, b"k", b""), Ok("[1,\"undefined\"]".into()));
}

/// A clock that stands still lets a turn run for ever, as a function without an end in QuickJS would.
#[test]
fn a_service_that_no_limit_ends_is_switched_off() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    static STANDS_STILL: AtomicBool = AtomicBool::new(true);
    fn stopped_ns() -> u64 {
        if STANDS_STILL.load(Ordering::Relaxed) { 0 } else { 1 << 50 }
    }
    let watchdog = Arc::new(millrace_func_js::Watchdog::default());
    let thread = rustix::thread::gettid().as_raw_nonzero().get() as u64;
    let clocks = millrace_func_js::Clocks { monotonic_ns: stopped_ns, thread_cpu_ns: stopped_ns };
    let engine = millrace_func_js::JsEngine::watched(clocks, &watchdog, thread);
    let source =
        format!("import {{ service }} from \"millrace\";\nexport default service({{ {OK} spin() {{ for (;;); }} }});");
    let mut app = common::app(&[("s.ts", &source)], Limits { cpu_ms: 50, ..Limits::default() });
    let program = millrace_func::Program(0);
    engine.load(program, &app).expect("loads");
    let mut world = World { engine, program, state: common::State::default(), activations: 0, operations: 0, depth: 0 };
    assert_eq!(world.call("ok", ""), Ok("2".into()));
    let looker = std::thread::spawn(move || {
        let cpu_ns = std::cell::Cell::new(0);
        loop {
            std::thread::sleep(std::time::Duration::from_millis(1));
            // The thread does nothing but the turn; what it has used does not matter here.
            cpu_ns.set(cpu_ns.get() + 100_000_000);
            let overdue = watchdog.look(|number| (number == thread).then(|| cpu_ns.get()));
            if let [overdue] = overdue.as_slice() {
                assert_eq!((overdue.app.as_str(), overdue.service.as_str(), overdue.used_ms), ("app", "s", 1_000));
                STANDS_STILL.store(false, Ordering::Relaxed);
                return;
            }
        }
    });
    world.fails("spin", "", ErrorCode::CpuLimit);
    looker.join().expect("looked");
    let refused = world.fails("ok", "", ErrorCode::CpuLimit);
    assert!(refused.contains("app/s is switched off") && refused.contains("deploy the app again"), "{refused}");
    // A restart of the version changes nothing, and a deployment does.
    app.is_kept = true;
    world.program = millrace_func::Program(1);
    world.engine.load(world.program, &app).expect("loads");
    world.fails("ok", "", ErrorCode::CpuLimit);
    app.is_kept = false;
    world.program = millrace_func::Program(2);
    world.engine.load(world.program, &app).expect("loads");
    assert_eq!(world.call("ok", ""), Ok("2".into()));
}
