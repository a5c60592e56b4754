//! The programming model as users know it.

use crate::common::{Request, app, handlers, refusal, service, world, world_of};
use millrace_base::{ErrorCode, limits};
use millrace_func::{App, Engine, HandlerKind, Limits, LogLevel};

const BANK: &str = r#"
import { service, query, Abort } from "millrace";

export default service({
  deposit(ctx, amount: number) {
    const balance = (ctx.get("balance") ?? 0) + amount;
    ctx.set("balance", balance);
    return balance;
  },
  balance: query((ctx) => ctx.get("balance") ?? 0),
  async transfer(ctx, { to, amount }: { to: string; amount: number }) {
    const balance = ctx.get("balance") ?? 0;
    if (balance < amount) throw new Abort("insufficient funds", { balance });
    ctx.set("balance", balance - amount);
    await ctx.call("s", to, "deposit", amount);
    return ctx.get("balance");
  },
  async tryTransfer(ctx, to: string) {
    try {
      await ctx.call("s", to, "transfer", { to: "x", amount: 5 });
    } catch (error) {
      return [error instanceof Abort, error.name, error.message, error.payload];
    }
  },
  async passOn(ctx, to: string) {
    await ctx.call("s", to, "transfer", { to: "x", amount: 5 });
  },
});
"#;

#[test]
fn the_bank_of_the_design() {
    let mut bank = service(BANK);
    assert_eq!(bank.call("deposit", "10"), Ok("10".into()));
    assert_eq!(bank.call("transfer", r#"{"to":"other","amount":3}"#), Ok("7".into()));
    assert_eq!(bank.call("balance", ""), Ok("7".into()));
    let error = bank.call("transfer", r#"{"to":"other","amount":30}"#).expect_err("aborts");
    assert_eq!((error.code, error.message.as_str()), (ErrorCode::Aborted, "insufficient funds"));
    assert_eq!(error.detail.as_deref(), Some(r#"{"balance":7}"#));
    assert_eq!(
        bank.call("tryTransfer", r#""poor""#),
        Ok(r#"[true,"Abort","insufficient funds",{"balance":0}]"#.into())
    );
    let error = bank.call("passOn", r#""poor""#).expect_err("aborts");
    assert_eq!((error.code, error.detail.as_deref()), (ErrorCode::Aborted, Some(r#"{"balance":0}"#)));
    let services = bank.engine.services(bank.program);
    let kinds: Vec<(&str, HandlerKind)> =
        services[0].handlers.iter().map(|(name, kind)| (name.as_str(), *kind)).collect();
    assert_eq!(kinds[0], ("deposit", HandlerKind::Transaction));
    assert_eq!(kinds[1], ("balance", HandlerKind::Query));
}

#[test]
fn values_come_back_as_they_were() {
    let mut world = handlers(
        "echo(ctx, value) { ctx.set('v', value); return ctx.get('v'); },
         raw(ctx, value) { return value; },
         none(ctx) { return [ctx.get('nothing') === undefined, ctx.delete('v'), ctx.delete('v')]; },
         bytes(ctx) {
           ctx.set('b', new Uint8Array([1, 2, 255]));
           const b = ctx.get('b');
           ctx.set('f', new Float32Array([1.5]));
           ctx.set('a', new ArrayBuffer(2));
           return [b instanceof Uint8Array, [...b], [...new Float32Array(ctx.get('f').buffer)], ctx.get('a').length];
         },
         fields(ctx) {
           for (const name of ['a1', 'a2', 'b1', 'ä']) ctx.set(name, name.length);
           return [ctx.fields(), ctx.fields({ prefix: 'a' }), ctx.entries({ after: 'a1', limit: 2 })];
         },
         float(ctx) { return [0.1 + 0.2, -0, NaN, 1e21, 2 ** 31, -(2 ** 31)].map((n) => (ctx.set('n', n), ctx.get('n'))); },
         surrogate(ctx) { ctx.set('s', '\\ud800x'); return ctx.get('s').length; },",
    );
    for json in [
        "0",
        "7",
        "-1",
        "123456789",
        "2147483648",
        "1.5",
        "1e+21",
        "true",
        "false",
        "null",
        "\"\"",
        "\"plain\"",
        "\"ä €😀\"",
        r#""quote \" backslash \\ newline \n""#,
        "[]",
        "{}",
        r#"{"a":[1,{"b":null}],"__proto__":1}"#,
    ] {
        assert_eq!(world.call("echo", json), Ok(json.into()));
        assert_eq!(world.call("raw", json), Ok(json.into()));
    }
    assert_eq!(world.call("none", ""), Ok("[true,true,false]".into()));
    assert_eq!(world.call("bytes", ""), Ok("[true,[1,2,255],[1.5],2]".into()));
    let mut fresh = handlers(
        "fields(ctx) { for (const name of ['a1', 'a2', 'b1', 'ä']) ctx.set(name, name.length); return [ctx.fields(), ctx.fields({ prefix: 'a' }), ctx.entries({ after: 'a1', limit: 2 })]; }",
    );
    assert_eq!(fresh.call("fields", ""), Ok(r#"[["a1","a2","b1","ä"],["a1","a2"],[["a2",2],["b1",2]]]"#.into()));
    assert_eq!(world.call("float", ""), Ok("[0.30000000000000004,0,null,1e+21,2147483648,-2147483648]".into()));
    assert_eq!(world.call("surrogate", ""), Ok("2".into()));
}

#[test]
fn what_cannot_be_stored_or_passed_says_so() {
    let mut world = handlers(
        "undef(ctx) { ctx.set('a', undefined); },
         func(ctx) { ctx.set('a', () => 1); },
         name(ctx) { ctx.set(5, 1); },
         big(ctx) { return 10n; },
         cycle(ctx) { const a = {}; a.a = a; return a; },
         giveBytes(ctx) { return new Uint8Array(3); },
         giveNothing(ctx) {},
         service(ctx) { return ctx.call('nope', 'k', 'x'); },
         handler(ctx) { return ctx.call('s', 'k', 'constructor'); },
         hidden(ctx) { return ctx.call('s', 'k', '_hidden'); },
         _hidden(ctx) { return 1; },
         empty(ctx) { ctx.set('', 1); },
         async swap(ctx) { try { await ctx.call('s', 'k', 'nope'); } catch (e) { e.code = 'unauthorized'; } },
         async code(ctx) { try { await ctx.call('s', 'k', 'nope'); } catch (e) { return [e.code, e instanceof Error]; } },",
    );
    assert!(world.fails("undef", "", ErrorCode::FunctionFailed).contains("ctx.delete"));
    assert!(world.fails("func", "", ErrorCode::FunctionFailed).contains("cannot be stored"));
    assert!(world.fails("name", "", ErrorCode::FunctionFailed).contains("must be a string"));
    assert!(world.fails("big", "", ErrorCode::FunctionFailed).contains("TypeError"));
    assert!(world.fails("cycle", "", ErrorCode::FunctionFailed).contains("circular"));
    assert!(world.fails("giveBytes", "", ErrorCode::FunctionFailed).contains("base64"));
    assert_eq!(world.call("giveNothing", ""), Ok("null".into()));
    // The code that calls what is not there is wrong, not who called that code.
    assert!(world.fails("service", "", ErrorCode::FunctionFailed).contains("has no service"));
    assert!(world.fails("handler", "", ErrorCode::FunctionFailed).contains("has no handler"));
    assert!(world.fails("hidden", "", ErrorCode::FunctionFailed).contains("has no handler"));
    assert_eq!(world.call("code", ""), Ok(r#"["unknown-handler",true]"#.into()));
    assert!(world.fails("empty", "", ErrorCode::FunctionFailed).contains("must not be empty"));
    assert!(
        world.fails("swap", "", ErrorCode::FunctionFailed).contains("read-only"),
        "an app gives no answers of the node's"
    );
    let names: Vec<String> = world.engine.services(world.program)[0].handlers.iter().map(|h| h.0.to_string()).collect();
    assert!(!names.contains(&"_hidden".to_owned()));
}

#[test]
fn errors_name_their_place_in_the_source() {
    let mut world = world(
        &[
            (
                "s.ts",
                "import { service } from \"millrace\";\nimport { fail } from \"./lib/fail\";\ninterface X {\n  a: number;\n}\nexport default service({\n  go(ctx, x: X) {\n    fail(x);\n  },\n  async later(ctx) {\n    await null;\n    ctx.nope();\n  },\n});\n",
            ),
            (
                "lib/fail.ts",
                "type A = string;\n\n\nexport function fail(x: unknown): never {\n  throw new RangeError(`bad ${x}`);\n}\n",
            ),
        ],
        Limits::default(),
    );
    let message = world.fails("go", "1", ErrorCode::FunctionFailed);
    assert!(message.starts_with("RangeError: bad 1 (at lib/fail.ts:5:"), "{message}");
    let message = world.fails("later", "1", ErrorCode::FunctionFailed);
    assert!(message.contains("(at s.ts:12:"), "{message}");
}

#[test]
fn what_the_host_refuses_names_its_place_once_and_what_is_no_output_says_so() {
    let mut world = service(
        "import { service, query } from 'millrace';
         export default service({
           q: query((ctx) => {
             ctx.set('a', 1);
           }),
           async calls(ctx) {
             return ctx.call('s', 'k', 'q');
           },
           sleeps(ctx) {
             ctx.sleep(1);
           },
           async unknown(ctx) {
             await ctx.call('s', 'k', 'nothing');
           },
           big() {
             return 5n;
           },
         });",
    );
    let refused = "a query cannot write (at s.ts:4:";
    for handler in ["q", "calls"] {
        let message = world.fails(handler, "", ErrorCode::FunctionFailed);
        assert!(message.starts_with(refused) && message.matches("(at ").count() == 1, "{handler}: {message}");
    }
    let message = world.fails("sleeps", "", ErrorCode::FunctionFailed);
    assert!(message.starts_with("ctx.sleep is for workflows only (at s.ts:10:"), "{message}");
    let message = world.fails("unknown", "", ErrorCode::FunctionFailed);
    let start = "the service \"s\" has no handler \"nothing\": it has q, calls, sleeps, unknown, big (at s.ts:13:";
    assert!(message.starts_with(start), "{message}");
    assert!(world.fails("big", "", ErrorCode::FunctionFailed).starts_with("the output: TypeError: BigInt"));
}

#[test]
fn broken_apps_are_refused_with_their_place() {
    let start = "import { service } from \"millrace\";\n";
    let lib = "export const x = 1;\nexport const spin = () => { for (;;); };";
    for (source, place, message) in [
        ("export default service({", "s.ts:2:", ""),
        ("export default service({ a: 1 });", "s.ts:2:", "not a function"),
        ("export default { a() {} };", "s.ts", "service({"),
        ("export const x = 1;", "s.ts", "exports"),
        ("import x from 'fs';\nx();", "s.ts:2:15", "cannot import"),
        ("import { nope } from './lib/x';\nexport default service({ nope });", "s.ts", "nope"),
        ("throw new Error('at load');", "s.ts:2:", "at load"),
        ("Date.now();", "s.ts:2:", "only a running call"),
        (
            "import { query, workflow } from 'millrace';\nexport default service({ a: workflow(query(() => 1)) });",
            "s.ts",
            "not both",
        ),
        ("await new Promise(() => {});\nexport default service({});", "s.ts", "awaits"),
        (
            "import { spin } from './lib/x';\nspin();",
            "lib/x.ts:2:",
            "while loading: used more than 2000 ms of CPU time",
        ),
        ("await null;\nfor (;;) new Promise(() => { for (;;); });", "s.ts", "while loading: used more than 2000 ms"),
        ("const all = [];\nfor (;;) all.push('x'.repeat(1e5) + all.length);", "s.ts:3:", "memory"),
        ("export const routes = { 'GET': 1 };", "s.ts", "GET"),
        ("export const routes = { 'FETCH /x': () => 1 };", "s.ts", "FETCH"),
        (
            "export const routes = { '/a': { '/x': () => 1 } };",
            "s.ts",
            "route \"/x\": it needs a method, such as \"GET /a/x\"",
        ),
        ("export const routes = { 'GET /a/:x': () => 1, 'GET /a/:y': () => 1 };", "s.ts", "same requests"),
    ] {
        let error = refusal(&[("s.ts", &format!("{start}{source}")), ("lib/x.ts", lib)]);
        assert!(error.message.starts_with(place), "{source}: {}", error.message);
        assert!(error.message.contains(message), "{source}: {}", error.message);
    }
    refusal(&[("a.ts", "import { service } from 'millrace'; export default service({});"), ("b.ts", "oops(")]);
    refusal(&[("lib/a.ts", "export const a = 1;")]);
}

#[test]
fn modules_are_shared_by_import_and_keep_their_state() {
    let mut world = world(
        &[
            (
                "s.ts",
                "import { service } from 'millrace';\nimport { Color, next } from './lib';\nimport data from './data.json';\nlet calls = 0;\nclass P { constructor(public x: number) {} }\nexport default service({ go() { return [++calls, next(), Color.Green, data.a, new P(4).x]; }, async dyn() { return (await import('./lib/index.ts')).next(); } });",
            ),
            ("lib/index.ts", "export enum Color { Red, Green }\nlet n = 10;\nexport const next = () => n++;"),
            ("data.json", "{\"a\": [1]}"),
        ],
        Limits::default(),
    );
    assert_eq!(world.call("go", ""), Ok("[1,10,1,[1],4]".into()));
    assert_eq!(world.call("dyn", ""), Ok("11".into()));
    assert_eq!(world.call("go", ""), Ok("[2,12,1,[1],4]".into()));
}

#[test]
fn time_and_chance_come_from_the_invocation() {
    let mut world = handlers(
        "all(ctx) {
           return [ctx.now(), Date.now(), new Date().getTime(), new Date(5).getTime(), typeof Date(), new Date() instanceof Date,
             Math.random(), ctx.random(), crypto.randomUUID(), ctx.uuid(), [...crypto.getRandomValues(new Uint8Array(3))]];
         }",
    );
    let first = world.call("all", "").expect("runs");
    assert!(first.starts_with("[1700000000123,1700000000123,1700000000123,5,\"string\",true,"), "{first}");
    world.state.seed = 0;
    assert_eq!(world.call("all", ""), Ok(first.clone()), "a retry sees the same");
    assert_ne!(world.call("all", ""), Ok(first), "another call does not");
}

#[test]
fn the_globals() {
    let mut world = handlers(
        "text() { return [[...new TextEncoder().encode('ä€')], new TextDecoder().decode(new Uint8Array([0xc3, 0xa4])), btoa('hi'), atob('aGk=')]; },
         base64() { return [base64.encode('hi'), base64.encode(new Uint8Array([255, 254]), 'base64url'), [...base64.decode('__4')]]; },
         hashes() { return [crypto.sha1('abc', 'hex'), crypto.sha256('abc', 'base64'), crypto.sha256('abc').length,
           crypto.hmacSha256('Jefe', 'what do ya want for nothing?', 'hex'), crypto.timingSafeEqual('a', 'a'), crypto.timingSafeEqual('a', 'b')]; },
         async password(ctx) { const h = await crypto.argon2id.hash('secret'); return [h.startsWith('$argon2id$'), await crypto.argon2id.verify('secret', h), await crypto.argon2id.verify('wrong', h)]; },
         async badHash(ctx) { return await crypto.argon2id.verify('secret', 'x'); },
         params() { const p = new URLSearchParams('?a=1&b=x+y%21&a=2'); p.set('c', 'ü'); return [p.get('a'), p.getAll('a'), p.get('b'), p.has('z'), p.toString(), [...p].length]; },
         clone() { const a = { d: new Date(5), m: new Map([[1, new Set([2])]]), b: new Uint8Array([1]) }; a.self = a; const c = structuredClone(a); return [c.self === c, c.d.getTime(), [...c.m.get(1)], c.b[0], c !== a]; },
         log(ctx) { ctx.log('a', { b: 1 }, 2); console.error(new TypeError('bad')); console.debug(undefined); },
         gone() { return ['setTimeout', 'eval', 'SharedArrayBuffer', 'WeakRef', 'performance', '__natives'].map((name) => typeof globalThis[name]); },
         code() { return [() => Function('return 1'), () => new (function () {}).constructor('return 1'), () => (async () => {}).constructor('1'), () => Reflect.construct(Function, ['1'])].map((f) => { try { f(); return 'ran'; } catch (e) { return e.name; } }); },
         tasks() { return new Promise((resolve) => queueMicrotask(() => resolve(1))); },",
    );
    assert_eq!(world.call("text", ""), Ok(r#"[[195,164,226,130,172],"ä","aGk=","hi"]"#.into()));
    assert_eq!(world.call("base64", ""), Ok(r#"["aGk=","__4",[255,254]]"#.into()));
    assert_eq!(
        world.call("hashes", ""),
        Ok(concat!(
            r#"["a9993e364706816aba3e25717850c26c9cd0d89d","ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=",32,"#,
            r#""5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",true,false]"#
        )
        .into())
    );
    assert_eq!(world.call("password", ""), Ok("[true,true,false]".into()));
    world.fails("badHash", "", ErrorCode::InvalidInput);
    assert_eq!(world.call("params", ""), Ok(r#"["1",["1","2"],"x y!",false,"a=1&b=x+y%21&a=2&c=%C3%BC",4]"#.into()));
    assert_eq!(world.call("clone", ""), Ok("[true,5,[2],1,true]".into()));
    world.call("log", "").expect("logs");
    let lines: Vec<(LogLevel, &str)> = world.state.logged.iter().map(|(level, line)| (*level, line.as_str())).collect();
    assert_eq!(
        lines,
        [(LogLevel::Info, "a {\"b\":1} 2"), (LogLevel::Error, "TypeError: bad"), (LogLevel::Debug, "undefined")]
    );
    assert_eq!(world.call("gone", ""), Ok(format!("[{}]", ["\"undefined\""; 6].join(","))));
    assert_eq!(world.call("code", ""), Ok(format!("[{}]", ["\"EvalError\""; 4].join(","))));
    assert_eq!(world.call("tasks", ""), Ok("1".into()));
}

#[test]
fn messages_are_sent_with_their_delay() {
    let mut world = handlers(
        "go(ctx) { ctx.send('s', 'other', 'go', { a: 1 }, { delay_ms: 1500 }); ctx.send('s', new Uint8Array([0, 255]), 'go'); },
         late(ctx, options) { ctx.send('s', 'k', 'go', 1, options); }",
    );
    world.call("go", "").expect("runs");
    let sent = &world.state.sent;
    assert_eq!((&sent[0].key[..], &sent[0].input[..], sent[0].delay_ms), (&b"other"[..], &br#"{"a":1}"#[..], 1500));
    assert_eq!((&sent[1].key[..], &sent[1].input[..], sent[1].delay_ms), (&[0u8, 255][..], &b"null"[..], 0));
    let most = limits::DELAY_MS;
    for (options, why) in [
        (r#"{"delay_ms":-1}"#.to_owned(), "a number of milliseconds"),
        (format!(r#"{{"delay_ms":{}}}"#, most + 1), "from 0 to 315360000000 (ten years)"),
        (r#"{"delay_ms":1e300}"#.to_owned(), "from 0 to 315360000000 (ten years)"),
        (r#"{"delayMs":5}"#.to_owned(), "ctx.send has only the options delay_ms, id"),
        ("5".to_owned(), "{ delay_ms, id }"),
        (r#"{"id":7}"#.to_owned(), "an invocation's id must be a string"),
    ] {
        let error = world.fails("late", &options, ErrorCode::FunctionFailed);
        assert!(error.contains(why), "{options}: {error}");
    }
    for options in [format!(r#"{{"delay_ms":{most}}}"#), "{}".to_owned(), "null".to_owned()] {
        world.call("late", &options).expect(&options);
    }
    assert_eq!(world.state.sent[2].delay_ms, most);
    world.call("late", r#"{"id":"order-17"}"#).expect("which ids are good the host says");
    let ids: Vec<_> = world.state.sent.iter().map(|message| message.id.as_deref()).collect();
    assert_eq!(ids, [None, None, None, None, None, Some("order-17")]);
}

#[test]
fn a_query_and_a_route_cannot_write() {
    let mut world = service(
        "import { service, query } from 'millrace';
         export default service({ q: query((ctx) => { ctx.set('a', 1); }) });
         export const routes = { 'GET /': (ctx) => ctx.set('a', 1), 'GET /key': (ctx) => ({ body: typeof ctx.key }) };",
    );
    world.fails("q", "", ErrorCode::FunctionFailed);
    assert!(world.route(0, &Request::default()).is_err());
    assert_eq!(&world.route(1, &Request::default()).expect("replies").body[..], b"undefined");
}

fn exporting(name: &str) -> String {
    format!(
        "import {{ service }} from 'millrace';
         export default service({{ sweep() {{ return 1; }}, leak() {{ return new Uint8Array(1e9); }} }});
         const value = {{}};
         export {{ value as {name} }};"
    )
}

#[test]
fn an_export_that_looks_misspelt_is_refused() {
    for (name, meant) in [
        ("schedule", "schedules"),
        ("Schedules", "schedules"),
        ("SCHEDULE", "schedules"),
        ("shedules", "schedules"),
        ("schedulles", "schedules"),
        ("scheduels", "schedules"),
        ("route", "routes"),
        ("Routes", "routes"),
        ("routess", "routes"),
        ("router", "routes"),
    ] {
        let error = refusal(&[("s.ts", &exporting(name))]);
        let words = format!("the service exports \"{name}\", which means nothing: did you mean \"{meant}\"?");
        assert_eq!(error.message, format!("s.ts: TypeError: {words}"));
        // Modules to import may export what they like.
        let import = format!("import {{ {name} }} from './lib/a.ts'; import './_b.ts'; {BANK}");
        let other = format!("export const {name} = 1;");
        world(&[("s.ts", &import), ("lib/a.ts", &other), ("_b.ts", &other)], Limits::default());
    }
}

#[test]
fn other_exports_are_for_who_imports_them() {
    service(&format!("{} export const routes = {{}};", exporting("router")));
    for name in
        ["rout", "table", "scheduler2", "schedulesOf", "rotue5", "\\u{e4}", "a", "'routes and more'", "defaults"]
    {
        service(&exporting(name));
    }
}

/// What an earlier release took must not stop a node from starting, nor a service from being loaded again.
#[test]
fn an_app_that_was_deployed_before_goes_on_with_its_misspelt_exports() {
    let limits = Limits { memory_bytes: 8 << 20, ..Limits::default() };
    let kept = App { is_kept: true, ..app(&[("s.ts", &exporting("schedule"))], limits) };
    let mut world = world_of(&kept);
    assert!(world.engine.services(world.program)[0].schedules.is_empty());
    world.fails("leak", "", ErrorCode::MemoryLimit);
    assert_eq!(world.call("sweep", ""), Ok("1".into()));
}

#[test]
fn generators_are_refused_as_handlers_and_routes() {
    for (handler, what) in
        [("*count(ctx) {}", "count"), ("async *count(ctx) {}", "count"), ("count: query(function* () {})", "count")]
    {
        let source = format!("import {{ service, query }} from 'millrace'; export default service({{ {handler} }});");
        let message = refusal(&[("s.ts", &source)]).message;
        assert!(message.contains(&format!("handler \"{what}\" is a generator")), "{message}");
    }
    let message = refusal(&[("s.ts", "export const routes = { 'GET /': async function* () {} };")]).message;
    assert!(message.contains("route \"GET /\" is a generator"), "{message}");
}
