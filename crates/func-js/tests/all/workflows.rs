//! Workflows: cut anywhere and begun again they end the same, and what they may do is checked.

use crate::common;

use crate::common::journal::{Journal, every_cut};
use crate::common::{World, limited, refusal, service, world};
use bytes::Bytes;
use millrace_base::{Error, ErrorCode};
use millrace_func::{
    ActivationId, BuiltInCall, Engine, FetchRequest, Flow, HandlerKind, Host, Limits, RetryOptions, Schedule, Start,
};
use millrace_func::{LogLevel, Message, NestedCall, Offload, OperationId, ScanRequest, StepStart, TurnResult};

const BOOKING: &str = r#"
import { service, workflow, query, Abort } from "millrace";

let runs = 0;

export default service({
  add(ctx, n: number) {
    const value = (ctx.get("n") ?? 0) + n;
    if (value > 100) throw new Abort("too much", { value });
    ctx.set("n", value);
    return value;
  },
  value: query((ctx) => ctx.get("n") ?? 0),

  everything: workflow(async (ctx, input) => {
    const seen: unknown[] = [ctx.key, ctx.id, ctx.now(), Date.now(), new Date().toISOString(), input];
    seen.push(ctx.random(), await ctx.call("s", "a", "add", 1));
    seen.push(await ctx.step("plain", () => { ctx.log("in plain"); return [ctx.random(), Math.random(), ctx.uuid()]; }));
    seen.push(Math.random(), ctx.uuid());
    seen.push(await ctx.step("deep", async () => {
      ctx.log("in deep");
      const first = await ctx.call("s", "b", "add", 2);
      await null;
      const inner = await ctx.step("inner", async () => { await null; return await ctx.call("s", "c", "add", 3); });
      return [first, inner, ctx.random(), crypto.randomUUID()];
    }));
    seen.push(ctx.random(), [...crypto.getRandomValues(new Uint8Array(4))]);
    seen.push(await ctx.sleep(1000), ctx.send("s", "a", "add", 1, { delay_ms: 5 }));
    ctx.signal(ctx.id, "mine", { to: "me" });
    seen.push(await ctx.wait("mine"));
    const response = await ctx.fetch("https://outside.test/x", { method: "PUT", body: { n: ctx.random() } });
    seen.push(response, response.json(), ctx.random());
    return seen;
  }),

  parallel: workflow(async (ctx) => {
    const order: string[] = [];
    const noted = async (name: string, work: Promise<unknown>) => { const value = await work; order.push(name); return value; };
    const all = await Promise.all([
      noted("call", ctx.call("s", "a", "add", 1)),
      noted("step", ctx.step("one", async () => { await ctx.call("s", "a", "add", 10); return ctx.random(); })),
      noted("other", ctx.step("two", async () => { await ctx.sleep(1); return (await ctx.call("s", "b", "add", 5)) + ctx.random(); })),
      noted("sleep", ctx.sleep(5)),
    ]);
    const first = await Promise.race([ctx.call("s", "c", "add", 1).then(() => "c"), ctx.call("s", "d", "add", 1).then(() => "d")]);
    return [order, all, first, ctx.random(), await ctx.call("s", "a", "value")];
  }),

  saga: workflow(async (ctx) => {
    ctx.compensate("s", "a", "add", -7);
    await ctx.call("s", "a", "add", 7);
    ctx.compensate("s", "b", "add", -8);
    await ctx.call("s", "b", "add", 8);
    await ctx.call("s", "c", "add", 1000);
  }),

  failing: workflow(async (ctx) => {
    const errors = [];
    for (const [name, code] of Object.entries({
      abort: () => { throw new Abort("no", { why: 1 }); },
      type: () => { throw new TypeError("bad"); },
      late: async () => { await null; throw new RangeError("late"); },
      callee: () => ctx.call("s", "a", "add", 1000),
      json: () => () => 1,
      getter: () => ({ get a() { throw new Error("in getter"); } }),
    })) {
      try {
        await ctx.step(name, code as any);
      } catch (error: any) {
        errors.push([name, error instanceof Abort, error.code, error.message, error.payload]);
      }
    }
    return errors;
  }),

  state: workflow(async (ctx: any, what: string) => {
    if (what === "get") return ctx.get("a");
    if (what === "set") return ctx.set("a", 1);
    if (what === "delete") return ctx.delete("a");
    return what === "fields" ? ctx.fields() : ctx.entries();
  }),

  timeout: workflow(async (ctx) => {
    try { await ctx.wait("never", { timeoutMs: 10 }); } catch (error: any) { return error.code; }
  }),

  counts: workflow(async (ctx) => {
    const before = ++runs;
    await ctx.step(`run ${before}`, () => 1);
    await ctx.sleep(1);
  }),
});
"#;

fn answer(request: &FetchRequest) -> Result<String, Error> {
    let body = millrace_func::base64_encode(&request.body, millrace_func::Base64Alphabet::Standard);
    Ok(format!(r#"{{"status":200,"headers":[["content-type","application/json"]],"body":"{body}"}}"#))
}

fn booking() -> World {
    let mut world = service(BOOKING);
    world.state.outside = Some(answer);
    world
}

#[test]
fn a_workflow_cut_anywhere_ends_the_same() {
    for order in 0..4 {
        let (result, world) = every_cut(booking, "everything", r#"{"a":1}"#, order);
        let result = result.expect("ends well");
        let start = r#"["k","invocation-1",1700000000123,1700000000123,"2023-11-14T22:13:20.123Z",{"a":1},"#;
        assert!(result.starts_with(start), "{result}");
        assert!(
            result.contains(r#","sent-"#) && result.contains(r#"{"to":"me"},{"status":200,"ok":true,"#),
            "{result}"
        );
        assert_eq!(world.state.fetched.len(), 1);
    }
}

#[test]
fn parallel_work_ends_in_the_order_it_was_resumed_in() {
    let mut results: Vec<String> = Vec::new();
    for order in 0..12 {
        results.push(every_cut(booking, "parallel", "", order).0.expect("ends well"));
    }
    assert!(
        results[0].starts_with(r#"[["call","sleep","#) || results[0].starts_with(r#"[["call","step"#),
        "{}",
        results[0]
    );
    results.sort();
    results.dedup();
    assert!(results.len() > 4, "the orders differ: {results:?}");
}

#[test]
fn a_step_that_ended_never_runs_again() {
    let (mut world, mut journal) = (booking(), Journal::default());
    let whole = every_cut(booking, "everything", "", 0).1;
    let lines = |world: &World, line: &str| world.state.logged.iter().filter(|logged| logged.1 == line).count();
    assert_eq!((lines(&whole, "in plain"), lines(&whole, "in deep")), (1, 1));
    for cut in 1..20 {
        let is_last = world.workflow("everything", "", &mut journal, 0, Some(cut)).is_some();
        assert_eq!(lines(&world, "in plain"), 1, "{cut}");
        if is_last {
            return;
        }
    }
    panic!("the workflow never ended");
}

#[test]
fn a_failed_saga_is_compensated_from_its_end() {
    let (result, world) = every_cut(booking, "saga", "", 0);
    assert_eq!(result.expect_err("aborts").detail.as_deref(), Some(r#"{"value":1000}"#));
    let mut world = World { state: world.state, ..booking() };
    let id = world.handler("s", "value");
    for key in [b"a", b"b", b"c"] {
        assert_eq!(world.call_id(id, key, b""), Ok("0".into()));
    }
}

#[test]
fn errors_of_steps_are_noted_with_their_codes() {
    let result = every_cut(booking, "failing", "", 0).0.expect("all are caught");
    let errors: serde_json::Value = serde_json::from_str(&result).expect("JSON");
    let row = |index: usize| errors[index].to_string();
    assert_eq!(row(0), r#"["abort",true,null,"no",{"why":1}]"#);
    assert!(row(1).starts_with(r#"["type",false,"function-failed","TypeError: bad (at s.ts:"#), "{}", row(1));
    assert!(row(2).starts_with(r#"["late",false,"function-failed","RangeError: late (at s.ts:"#), "{}", row(2));
    assert_eq!(row(3), r#"["callee",true,null,"too much",{"value":1000}]"#);
    assert!(row(4).contains("cannot be passed"), "{}", row(4));
    assert!(row(5).contains("in getter"), "{}", row(5));
    assert_eq!(errors.as_array().map(Vec::len), Some(6));
}

#[test]
fn a_workflow_has_no_fields() {
    for what in ["get", "set", "delete", "fields", "entries"] {
        let result = booking().workflow("state", &format!("\"{what}\""), &mut Journal::default(), 0, None);
        let error = result.expect("ends").expect_err("refused");
        assert_eq!(error.code, ErrorCode::FunctionFailed);
        let place = error.message.strip_prefix("a workflow changes state through the handlers it calls");
        assert!(place.is_some_and(|place| place.starts_with(" (at s.ts:")), "{error}");
    }
}

#[test]
fn a_wait_that_times_out_throws() {
    assert_eq!(every_cut(booking, "timeout", "", 0).0, Ok("\"wait-limit\"".into()));
}

#[test]
fn code_that_does_not_follow_its_journal_is_told() {
    let (mut world, mut journal) = (booking(), Journal::default());
    assert_eq!(world.workflow("counts", "", &mut journal, 0, Some(1)), None);
    // The module's variable has changed, which no workflow should depend on.
    let error = world.workflow("counts", "", &mut journal, 0, None).expect("ends").expect_err("diverges");
    assert_eq!(error.code, ErrorCode::Diverged);
    assert!(error.message.contains("step run 2"), "{error}");
}

#[test]
fn other_handlers_have_none_of_it() {
    let mut world = common::handlers(
        "sleep(ctx) { return ctx.sleep(1); }, wait(ctx) { return ctx.wait('a'); }, step(ctx) { return ctx.step('a', () => 1); },
         compensate(ctx) { ctx.compensate('s', 'k', 'sleep'); }, fetch(ctx) { return ctx.fetch('http://a/'); },
         result(ctx) { return ctx.result('order-17'); },
         id(ctx) { return [ctx.id === undefined]; }, signal(ctx) { return [ctx.signal('i', 'n', { a: 1 }), ctx.send('s', 'k', 'id')].length; },",
    );
    for handler in ["sleep", "wait", "result", "step", "compensate", "fetch"] {
        let message = world.fails(handler, "", ErrorCode::FunctionFailed);
        assert!(message.contains(&format!("ctx.{handler} is for")), "{message}");
    }
    assert_eq!(world.call("id", ""), Ok("[true]".into()));
    assert_eq!(world.call("signal", ""), Ok("2".into()));
    assert_eq!(world.state.signals[0], ("i".into(), "n".into(), Bytes::from_static(br#"{"a":1}"#)));
}

/// A workflow with this body.
fn flow(body: &str) -> World {
    limited(
        &format!("one() {{ return 1; }},\nflow: workflow(async (ctx, input) => {{ {body} }}),"),
        Limits { cpu_ms: 200, ..Limits::default() },
    )
}

fn run(body: &str) -> Result<String, Error> {
    flow(body).workflow("flow", "", &mut Journal::default(), 0, None).unwrap_or_else(|| panic!("{body} waits for ever"))
}

#[test]
fn wrong_arguments_say_why() {
    for (body, why) in [
        ("await ctx.sleep();", "the time to sleep must be a number of milliseconds"),
        ("await ctx.sleep(-1);", "milliseconds"),
        ("await ctx.sleep('1');", "milliseconds"),
        ("await ctx.sleep(1e15);", "ten years"),
        ("await ctx.sleep(315360000001);", "from 0 to 315360000000 (ten years)"),
        ("await ctx.wait('a', { timeoutMs: 315360000001 });", "from 0 to 315360000000 (ten years)"),
        ("await ctx.wait();", "a signal's name must be a string"),
        ("await ctx.wait('');", "1 to 256 bytes"),
        ("await ctx.wait('x'.repeat(257));", "1 to 256 bytes, not 257"),
        ("await ctx.wait('a', 5);", "{ timeoutMs }"),
        ("await ctx.wait('a', { timeout: 5 });", "only the options timeoutMs"),
        ("await ctx.wait('a', { timeoutMs: -5 });", "timeoutMs must be"),
        ("await ctx.result();", "an invocation's id must be a string"),
        ("await ctx.result('a', { timeout: 5 });", "ctx.result has only the options timeoutMs"),
        ("await ctx.fetch('http://a/', { retries: 101 });", "retries must be a whole number from 0 to 100"),
        ("await ctx.fetch('http://a/', { retries: -1 });", "from 0 to 100"),
        (
            "await ctx.fetch('http://a/', { retry: 1 });",
            "ctx.fetch has only the options method, headers, body, timeoutMs, retries",
        ),
        ("await ctx.step('a');", "a name and a function"),
        ("await ctx.step(() => 1);", "a step's name must be a string"),
        ("ctx.signal('', 'a');", "an invocation's id has 1 to"),
        ("ctx.signal('a');", "a signal's name"),
        ("ctx.signal('a', 'b', () => 1);", "function or symbol"),
        ("ctx.compensate('s', 'k', 'nope');", "no handler"),
        ("ctx.compensate('s', 'k', 'one', 1n);", "BigInt"),
        ("await ctx.step.call({}, 'a', () => 1);", "not a ctx"),
    ] {
        let error = run(body).expect_err(body);
        assert!(error.message.contains(why), "{body}: {error}");
    }
}

#[test]
fn a_step_that_can_never_end_is_stalled() {
    for body in [
        "await ctx.step('a', () => new Promise(() => {}));",
        "await ctx.step('a', async () => { await ctx.call('s', 'k', 'one'); await new Promise(() => {}); });",
        "await Promise.all([ctx.step('a', () => 1), ctx.step('b', () => new Promise(() => {})), ctx.step('c', () => 1)]);",
        "let go; const gate = new Promise((r) => { go = r; }); await Promise.all([ctx.step('a', () => gate), gate.then(() => go)]);",
    ] {
        let error = run(body).expect_err(body);
        assert_eq!(error.code, ErrorCode::Stalled, "{body}: {error}");
    }
    // One that another can end is not.
    let body = "let go; const gate = new Promise((r) => { go = r; });
        return await Promise.all([ctx.step('a', () => gate), ctx.step('b', () => { go(5); return 6; })]);";
    assert_eq!(run(body), Ok("[5,6]".into()));
}

#[test]
fn a_steps_result_is_what_json_makes_of_it_in_every_run() {
    let body =
        "return await ctx.step('a', () => ({ m: new Map([[1, 2]]), n: NaN, d: new Date(5), b: new Uint8Array([7]) }));";
    let (result, _) = every_cut(|| flow(body), "flow", "", 0);
    assert_eq!(result, Ok(r#"{"m":{},"n":null,"d":"1970-01-01T00:00:00.005Z","b":{"0":7}}"#.into()));
    let error = run("return await ctx.step('a', () => new Uint8Array([7]));").expect_err("bytes");
    assert!(error.message.contains("base64"), "{error}");
}

#[test]
fn what_a_step_leaves_behind_can_start_nothing() {
    let body = "let late; let left;
        await ctx.step('a', () => { left = ctx.call('s', 'k', 'one').then(async () => { try { await ctx.call('s', 'k', 'one'); } catch (e) { late = e.message; } }); return 1; });
        await ctx.sleep(1); await ctx.sleep(1);
        return late;";
    let result = run(body).expect("ends");
    assert!(result.contains("a step that has ended"), "{result}");
}

/// A workflow with this body, and what it may start.
fn starter(function: &str) -> World {
    let source = format!(
        "add(ctx, n) {{ ctx.set('n', (ctx.get('n') ?? 0) + n); }},
         n(ctx) {{ return ctx.get('n') ?? 0; }},
         refuse(ctx) {{ throw new Abort('no'); }},
         flow: workflow({function}),"
    );
    let mut world = limited(&source, Limits::default());
    world.state.outside = Some(answer);
    world
}

#[test]
fn a_workflow_ends_when_all_that_it_started_has_ended() {
    let fetch = "ctx.fetch('https://outside.test/x', { method: 'POST' })";
    let add = "ctx.call('s', 'k', 'add', 1)";
    for (function, fetched, added) in [
        (format!("async (ctx) => {{ {fetch}; return 1; }}"), 1, 0),
        (format!("(ctx) => {{ {fetch}; {add}; return 1; }}"), 1, 1),
        (format!("(ctx) => {{ Promise.resolve().then(() => {add}); return 1; }}"), 0, 1),
        (format!("async (ctx) => {{ {fetch}.then(() => {add}); await ctx.sleep(1); return 1; }}"), 1, 1),
        (format!("async (ctx) => {{ {fetch}; await {add}; return 1; }}"), 1, 1),
        (format!("async (ctx) => {{ ctx.step('s', async () => {{ await {add}; }}); return 1; }}"), 0, 1),
        (format!("async (ctx) => {{ ctx.step('s', () => 1).then(() => {add}); return 1; }}"), 0, 1),
        (
            format!("async (ctx) => {{ (async () => {{ for (let i = 0; i < 3; i++) await {add}; }})(); return 1; }}"),
            0,
            3,
        ),
        (format!("async (ctx) => {{ crypto.argon2id.hash('x').then(() => {add}); return 1; }}"), 0, 1),
        // What only lets time pass is waited for while anything else goes on.
        (
            format!(
                "async (ctx) => {{ ctx.step('s', async () => {{ await ctx.sleep(1); await {add}; }}); return 1; }}"
            ),
            0,
            1,
        ),
    ] {
        for order in 0..3 {
            let (result, mut world) = every_cut(|| starter(&function), "flow", "", order);
            assert_eq!(result, Ok("1".into()), "{function}");
            assert_eq!(
                (world.state.fetched.len(), world.call("n", "")),
                (fetched, Ok(added.to_string())),
                "{function}"
            );
        }
    }
}

#[test]
fn a_sleep_or_wait_that_nobody_awaits_keeps_no_workflow() {
    for body in [
        "ctx.sleep(1000); ctx.wait('never'); return 1;",
        "ctx.sleep(1000).then(() => ctx.call('s', 'k', 'add', 1)); return 1;",
        "return await Promise.race([ctx.wait('never'), ctx.step('s', () => 1)]);",
    ] {
        let mut journal = Journal::default();
        let result = starter(&format!("async (ctx) => {{ {body} }}")).workflow("flow", "", &mut journal, 0, None);
        assert_eq!((result, journal.resumes.len() <= 1), (Some(Ok("1".into())), true), "{body}");
    }
}

#[test]
fn what_nobody_awaits_fails_unheard() {
    let body = "ctx.call('s', 'k', 'refuse'); ctx.step('s', () => { throw new Error('a'); });
        ctx.fetch('https://outside.test/x').then(() => { throw new Error('b'); }); return 1;";
    let (result, _) = every_cut(|| starter(&format!("async (ctx) => {{ {body} }}")), "flow", "", 0);
    assert_eq!(result, Ok("1".into()));
}

#[test]
fn a_workflow_that_has_thrown_goes_on_with_nothing() {
    let body = "ctx.step('s', () => { ctx.log('ran'); }); ctx.call('s', 'k', 'add', 1).then(() => ctx.log('ran')); throw new Abort('no');";
    let mut world = starter(&format!("async (ctx) => {{ {body} }}"));
    let result = world.workflow("flow", "", &mut Journal::default(), 0, None).expect("ends");
    assert_eq!(result.expect_err("throws").code, ErrorCode::Aborted);
    assert!(world.state.logged.is_empty());
    assert_eq!(world.call("n", ""), Ok("0".into()));
}

#[test]
fn cpu_is_counted_by_the_turn() {
    let spin = "const spin = (rounds) => { for (let i = 0; i < rounds; i++); };";
    let body = format!("{spin} for (let i = 0; i < 40; i++) {{ spin(3e6); await ctx.sleep(1); }} return 1;");
    assert_eq!(run(&body), Ok("1".into()), "more than the limit in all, less in each turn");
    for body in [
        "for (;;) {}",
        "await ctx.step('a', () => { for (;;) {} });",
        "await ctx.step('a', async () => { await ctx.sleep(1); for (;;) {} });",
    ] {
        let mut world = flow(body);
        let error = world.workflow("flow", "", &mut Journal::default(), 0, None).expect("ends").expect_err(body);
        assert_eq!(error.code, ErrorCode::CpuLimit, "{body}");
        assert_eq!(world.call("one", ""), Ok("1".into()), "after {body}");
    }
}

#[test]
fn steps_count_as_operations() {
    let mut world = limited(
        "flow: workflow(async (ctx, n) => (await Promise.all(Array.from({ length: n }, (_, i) => ctx.step(`${i}`, () => i)))).length),",
        Limits { pending_operations: 8, ..Limits::default() },
    );
    assert_eq!(world.workflow("flow", "8", &mut Journal::default(), 0, None), Some(Ok("8".into())));
    let error = world.workflow("flow", "9", &mut Journal::default(), 0, None).expect("ends").expect_err("refused");
    assert_eq!(error.code, ErrorCode::OperationLimit);
}

#[test]
fn a_waiting_workflow_can_be_cancelled_or_resumed_with_an_error() {
    let mut world = flow("await ctx.step('a', async () => { await ctx.sleep(1); await ctx.sleep(2); });");
    for cut in 0..2 {
        assert_eq!(world.workflow("flow", "", &mut Journal::default(), 0, Some(cut)), None);
    }
    let error = world.workflow("flow", "", &mut Journal::default(), 0, None);
    assert_eq!(error, Some(Ok("null".into())));
}

#[test]
fn kinds_and_schedules_are_reported() {
    let world = service(
        "import { service, workflow, type Schedules } from 'millrace';
         export default service({ sweep() {}, flow: workflow(async () => {}) });
         export const schedules: Schedules = {
           nightly: { cron: '0 3 * * *', handler: 'sweep', key: 'main', input: { a: [1] } },
           often: { cron: '@hourly', handler: 'flow', key: new Uint8Array([0, 255]) },
         };",
    );
    let services = world.engine.services(world.program);
    assert_eq!(services[0].handlers[1].1, HandlerKind::Workflow);
    let name = |text: &str| millrace_base::Name::new(text).expect("a name");
    let expected = [
        Schedule {
            name: name("nightly"),
            cron: "0 3 * * *".into(),
            key: b"main".to_vec(),
            handler: name("sweep"),
            input: Bytes::from_static(br#"{"a":[1]}"#),
        },
        Schedule {
            name: name("often"),
            cron: "@hourly".into(),
            key: vec![0, 255],
            handler: name("flow"),
            input: Bytes::from_static(b"null"),
        },
    ];
    assert_eq!(services[0].schedules, expected);
}

#[test]
fn wrong_schedules_are_refused() {
    let good = "cron: '0 3 * * *', handler: 'sweep', key: 'main'";
    for (schedules, why) in [
        ("5", "schedules is not an object"),
        ("{ a: 5 }", "schedule \"a\": it is not an object"),
        (&*format!("{{ '5a': {{ {good} }} }}"), "for its name"),
        (&*format!("{{ [Symbol('x')]: {{ {good} }} }}"), "for its name"),
        (&*format!("{{ a: {{ {good}, at: 5 }} }}"), "not at"),
        ("{ a: { cron: 5, handler: 'sweep', key: 'x' } }", "cron must be a string"),
        (
            "{ a: { cron: '* * *', handler: 'sweep', key: 'x' } }",
            "schedule \"a\": the cron \"* * *\" cannot be used: it needs five fields",
        ),
        ("{ a: { cron: '0 0 30 2 *', handler: 'sweep', key: 'x' } }", "none of its months"),
        ("{ a: { cron: '@daily', handler: 'nope', key: 'x' } }", "schedule \"a\": the service has no handler \"nope\""),
        ("{ a: { cron: '@daily', handler: 'toString', key: 'x' } }", "no handler"),
        ("{ a: { cron: '@daily', handler: '_help', key: 'x' } }", "no handler"),
        ("{ a: { cron: '@daily', handler: 'look', key: 'x' } }", "is a query"),
        ("{ a: { cron: '@daily', handler: 'sweep' } }", "needs the key"),
        ("{ a: { cron: '@daily', handler: 'sweep', key: 5 } }", "schedule \"a\": TypeError: an entity's key must be"),
        ("{ a: { cron: '@daily', handler: 'sweep', key: 'x'.repeat(1025) } }", "at most 1024 bytes"),
        ("{ a: { cron: '@daily', handler: 'sweep', key: 'x', input: () => 1 } }", "not JSON"),
        ("{ a: { cron: '@daily', handler: 'sweep', key: 'x', input: 'x'.repeat(5e6) } }", "an input has at most"),
        (
            &*format!("Object.fromEntries(Array.from({{ length: 257 }}, (_, i) => [`a${{i}}`, {{ {good} }}]))"),
            "at most 256",
        ),
    ] {
        let source = format!(
            "import {{ service, query }} from 'millrace';
             export default service({{ sweep() {{}}, look: query(() => 1), _help() {{}} }});
             export const schedules = {schedules};"
        );
        let error = refusal(&[("s.ts", &source)]);
        assert!(error.message.starts_with("s.ts"), "{schedules}: {error}");
        assert!(error.message.contains(why), "{schedules}: {error}");
    }
    let error =
        refusal(&[("s.ts", &format!("export const routes = {{}}; export const schedules = {{ a: {{ {good} }} }};"))]);
    assert!(error.message.contains("no handler"), "{error}");
}

#[test]
fn a_service_that_is_loaded_again_has_the_same_schedules() {
    let source = "import { service } from 'millrace';
        export default service({ sweep() { return 1; }, leak() { return new Uint8Array(1e9); } });
        export const schedules = { a: { cron: '@daily', handler: 'sweep', key: 'x' } };";
    let mut world = world(&[("s.ts", source)], Limits { memory_bytes: 8 << 20, ..Limits::default() });
    world.fails("leak", "", ErrorCode::MemoryLimit);
    assert_eq!(world.call("sweep", ""), Ok("1".into()));
}

/// A host that lets steps run and refuses their ends.
struct Cancelling(u32);
impl Host for Cancelling {
    fn get(&mut self, _: &[u8]) -> Result<Option<&millrace_base::Value>, Error> {
        Ok(None)
    }
    fn set(&mut self, _: &[u8], _: millrace_base::Value) -> Result<(), Error> {
        Ok(())
    }
    fn delete(&mut self, _: &[u8]) -> Result<bool, Error> {
        Ok(false)
    }
    fn scan(&mut self, _: &ScanRequest) -> Result<Vec<(Vec<u8>, millrace_base::Value)>, Error> {
        Ok(Vec::new())
    }
    fn keys(&mut self, _: u16, _: &[u8], _: Option<&[u8]>, _: usize) -> Result<Vec<Vec<u8>>, Error> {
        Ok(Vec::new())
    }
    fn operate(&mut self, _: BuiltInCall<'_>) -> Result<OperationId, Error> {
        Ok(OperationId(9))
    }
    fn call(&mut self, _: NestedCall) -> Result<OperationId, Error> {
        Ok(OperationId(9))
    }
    fn send(&mut self, _: Message) -> Result<Option<String>, Error> {
        Ok(None)
    }
    fn signal(&mut self, _: &str, _: &str, _: Bytes) -> Result<(), Error> {
        Ok(())
    }
    fn offload(&mut self, _: Offload) -> Result<OperationId, Error> {
        Ok(OperationId(9))
    }
    fn fetch(&mut self, _: FetchRequest) -> Result<OperationId, Error> {
        Ok(OperationId(9))
    }
    fn now(&self) -> millrace_base::UnixMillis {
        millrace_base::UnixMillis(0)
    }
    fn random(&mut self) -> u64 {
        4
    }
    fn log(&mut self, _: LogLevel, _: &str) {}

    fn flow(&mut self) -> Option<&mut dyn Flow> {
        Some(self)
    }
}

impl Flow for Cancelling {
    fn sleep(&mut self, _: u64) -> Result<OperationId, Error> {
        self.0 += 1;
        Ok(OperationId(self.0))
    }

    fn wait(&mut self, _: &str, _: Option<u64>) -> Result<OperationId, Error> {
        Ok(OperationId(9))
    }

    fn result(&mut self, _: &str, _: Option<u64>) -> Result<OperationId, Error> {
        Ok(OperationId(9))
    }

    fn begin_step(&mut self, _: &str) -> Result<StepStart, Error> {
        Ok(StepStart::Run(OperationId(0)))
    }

    fn end_step(&mut self, _: OperationId, _: Result<Bytes, Error>) -> Result<(), Error> {
        Err(Error::new(ErrorCode::SizeLimit, "the journal is full"))
    }

    fn compensate(&mut self, _: NestedCall) -> Result<(), Error> {
        Ok(())
    }

    fn invocation(&self) -> String {
        String::new()
    }
    fn retry_next(&mut self, _: RetryOptions) {}
    fn within_step(&mut self, _: Option<OperationId>) {}
}

#[test]
fn a_host_may_end_a_step_itself() {
    let world = flow(
        "try { await ctx.step('a', async () => { await ctx.sleep(1); await ctx.sleep(2); }); } catch (e) { await ctx.sleep(3); return e.code; }",
    );
    let id = world.handler("s", "flow");
    let start = || Start::Handler { id, key: b"k", input: b"" };
    let mut host = Cancelling(0);
    // The step's operation ends although its code has not: nobody waits for the code any more.
    assert!(matches!(world.engine.start(ActivationId(7), start(), &mut host), TurnResult::Waiting));
    let cancelled = Err(Error::new(ErrorCode::Cancelled, "cancelled"));
    assert!(matches!(world.engine.resume(ActivationId(7), OperationId(0), cancelled, &mut host), TurnResult::Waiting));
    let step = world.engine.resume(ActivationId(7), OperationId(1), Ok(Bytes::from_static(b"null")), &mut host);
    assert!(matches!(step, TurnResult::Waiting), "{step:?}");
    let step = world.engine.resume(ActivationId(7), OperationId(2), Ok(Bytes::from_static(b"null")), &mut host);
    assert!(
        matches!(&step, TurnResult::Done(Ok(millrace_func::Output::Value(value))) if &value[..] == b"\"cancelled\""),
        "{step:?}"
    );
    // A host that refuses a step's end ends the activation with its error.
    let mut host = Cancelling(0);
    assert!(matches!(world.engine.start(ActivationId(8), start(), &mut host), TurnResult::Waiting));
    assert!(matches!(
        world.engine.resume(ActivationId(8), OperationId(1), Ok(Bytes::new()), &mut host),
        TurnResult::Waiting
    ));
    let step = world.engine.resume(ActivationId(8), OperationId(2), Ok(Bytes::new()), &mut host);
    assert!(matches!(&step, TurnResult::Done(Err(error)) if error.message == "the journal is full"), "{step:?}");
}
