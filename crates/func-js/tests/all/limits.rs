//! Each limit of `millrace_func::Limits` that the engine enforces, at its edge.

use crate::common;

use crate::common::{handlers, limited};
use millrace_base::{ErrorCode, limits};
use millrace_func::{Limits, LogLevel};

#[test]
fn input_and_output_bytes() {
    let limits = Limits { input_bytes: 100, output_bytes: 100, ..Limits::default() };
    let mut world = limited(
        "size(ctx, text) { return text.length; }, make(ctx, n) { return 'x'.repeat(n); },
         async pass(ctx, n) { return await ctx.call('s', 'k', 'size', 'x'.repeat(n)); },",
        limits,
    );
    let text = |length: usize| format!("\"{}\"", "x".repeat(length));
    assert_eq!(world.call("size", &text(98)), Ok("98".into()));
    world.fails("size", &text(99), ErrorCode::TooLarge);
    assert_eq!(world.call("make", "98"), Ok(text(98)));
    world.fails("make", "99", ErrorCode::SizeLimit);
    assert_eq!(world.call("pass", "98"), Ok("98".into()));
    world.fails("pass", "99", ErrorCode::SizeLimit);
}

#[test]
fn value_bytes_names_and_keys() {
    let mut world = limited(
        "json(ctx, n) { ctx.set('a', 'x'.repeat(n)); return n; }, bytes(ctx, n) { ctx.set('a', new Uint8Array(n)); return n; },
         field(ctx, n) { ctx.set('f'.repeat(n), 1); return n; }, key(ctx, n) { ctx.send('s', 'k'.repeat(n), 'json'); return n; },",
        Limits { value_bytes: 100, ..Limits::default() },
    );
    for (handler, most) in [("json", 98), ("bytes", 100), ("field", 1024), ("key", 1024)] {
        assert_eq!(world.call(handler, &most.to_string()), Ok(most.to_string()), "{handler}");
        world.fails(handler, &(most + 1).to_string(), ErrorCode::SizeLimit);
    }
}

#[test]
fn pending_operations() {
    let mut world = limited(
        "one(ctx) { return 1; },
         async many(ctx, n) { const all = []; for (let i = 0; i < n; i++) all.push(ctx.call('s', `${i}`, 'one')); return (await Promise.all(all)).length; },
         async turns(ctx, n) { for (let i = 0; i < n; i++) await ctx.call('s', 'x', 'one'); return n; },",
        Limits { pending_operations: 8, ..Limits::default() },
    );
    assert_eq!(world.call("many", "8"), Ok("8".into()));
    world.fails("many", "9", ErrorCode::OperationLimit);
    assert_eq!(world.call("turns", "50"), Ok("50".into()));
}

#[test]
fn cpu_ms_counts_over_all_turns() {
    let mut world = limited(
        "one(ctx) { return 1; },
         async spin(ctx, { turns, rounds }) { for (let i = 0; i < turns; i++) { for (let j = 0; j < rounds; j++); await ctx.call('s', 'x', 'one'); } return turns; },",
        Limits { cpu_ms: 40, ..Limits::default() },
    );
    assert_eq!(world.call("spin", r#"{"turns":3,"rounds":10000}"#), Ok("3".into()));
    world.fails("spin", r#"{"turns":100000,"rounds":100000}"#, ErrorCode::CpuLimit);
}

#[test]
fn cpu_ms_counts_over_all_that_is_called() {
    const SOURCE: &str =
        "work(ctx, rounds) { for (let j = 0; j < rounds; j++); return 1; },
         async sum(ctx, [calls, rounds]) { let sum = 0; for (let i = 0; i < calls; i++) sum += await ctx.call('s', 'x', 'work', rounds); return sum; },";
    let limits = || Limits { cpu_ms: 40, ..Limits::default() };
    let mut world = limited(SOURCE, limits());
    assert_eq!(world.call("sum", "[3, 10000]"), Ok("3".into()));
    // A callee uses some milliseconds, and each alone is far below the limit.
    world.fails("sum", "[100000, 100000]", ErrorCode::CpuLimit);
    // Neither caller nor callee does much here: the turn that begins without CPU time left ends all the same.
    let mut world = limited(SOURCE, limits());
    world.state.callee_ns = 15_000_000;
    world.fails("sum", "[100000, 0]", ErrorCode::CpuLimit);
    assert!(world.operations <= 3, "{} calls", world.operations);
}

#[test]
fn a_stack_within_the_limit_is_usable() {
    let mut world =
        limited("depth(ctx, n) { const f = (n) => (n === 0 ? 0 : 1 + f(n - 1)); return f(n); },", Limits::default());
    assert_eq!(world.call("depth", "500"), Ok("500".into()));
    world.fails("depth", "1000000", ErrorCode::StackLimit);
}

#[test]
fn an_isolate_needs_memory_to_begin_with() {
    use millrace_func::Engine;
    let app =
        common::app(&[("s.ts", "export const routes = {};")], Limits { memory_bytes: 64 << 10, ..Limits::default() });
    let error =
        millrace_func_js::JsEngine::new(common::clocks()).load(millrace_func::Program(0), &app).expect_err("refused");
    assert!(error.message.contains("memory"), "{error}");
    let app =
        common::app(&[("s.ts", "export const routes = {};")], Limits { memory_bytes: 1 << 20, ..Limits::default() });
    assert!(
        millrace_func_js::JsEngine::new(common::clocks()).load(millrace_func::Program(0), &app).is_ok(),
        "the smallest limit allowed"
    );
}

#[test]
fn a_scan_never_gives_fewer_fields_than_were_asked_for() {
    let mut world = handlers(
        "fill(ctx, [from, to]) { for (let i = from; i < to; i++) ctx.set(`f${String(i).padStart(5, '0')}`, i); },
         all(ctx) { return ctx.entries().length; },
         names(ctx, limit) { return ctx.fields({ limit }).length; },
         few(ctx) { return ctx.entries({ prefix: 'f0001' }).length; },
         pages(ctx) {
           let count = 0, after;
           for (;;) {
             const page = ctx.entries({ after, limit: 10000 });
             if (page.length === 0) return count;
             count += page.length;
             after = page.at(-1)[0];
           }
         },",
    );
    assert_eq!(world.call("fill", "[0,10000]"), Ok("null".into()));
    assert_eq!(world.call("all", ""), Ok("10000".into()));
    assert_eq!(world.call("fill", "[10000,10001]"), Ok("null".into()));
    world.fails("all", "", ErrorCode::SizeLimit);
    world.fails("names", "10001", ErrorCode::SizeLimit);
    assert_eq!(world.call("names", "10000"), Ok("10000".into()));
    assert_eq!(world.call("few", ""), Ok("10".into()));
    assert_eq!(world.call("pages", ""), Ok("10001".into()));
}

/// Whoever logs in a loop leaves room for others, and anybody may log again.
#[test]
fn lines_and_bytes_that_one_call_logs() {
    let mut world = limited(
        "lines(ctx, n) { for (let i = 0; i < n; i++) console.log(i); }, bytes(ctx, n) { for (let i = 0; i < n; i++) console.log('A'.repeat(20_000)); },
         async turns(ctx, n) { for (let i = 0; i < n; i++) { console.log('A'.repeat(16_384)); await crypto.argon2id.hash('x'); } },",
        Limits { cpu_ms: 5_000, ..Limits::default() },
    );
    let lines = limits::LOG_LINES_PER_CALL as usize;
    let full = limits::LOG_BYTES_PER_CALL / limits::LOG_LINE_BYTES;
    for (handler, count, written) in [
        ("lines", lines, lines),
        ("lines", lines + 1, lines + 1),
        ("lines", 5 * lines, lines + 1),
        ("bytes", full, full),
        ("bytes", 10 * full, full + 1),
        ("turns", full + 4, full + 1),
    ] {
        world.state.logged.clear();
        world.call(handler, &count.to_string()).expect("logging too much is no error");
        let logged = &world.state.logged;
        assert_eq!(logged.len(), written, "{handler} {count}");
        let (level, last) = logged.last().expect("some");
        let is_told = *level == LogLevel::Warn && last.contains("left out");
        assert_eq!(is_told, count > if handler == "lines" { lines } else { full }, "{handler} {count}: {last}");
    }
}
