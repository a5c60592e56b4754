//! A forgotten `await` does not lose a failure, and does not store a promise.

mod common;

use common::{Request, handlers, service};
use millrace_base::ErrorCode;

const HANDLERS: &str = "
  refuses(ctx, text) { throw new Abort(text); },
  fine() { return 1; },
  async forgets(ctx) {
    ctx.call('s', 'a', 'refuses', 'first');
    ctx.call('s', 'b', 'refuses', 'second');
    await ctx.call('s', 'c', 'fine');
    await ctx.call('s', 'c', 'fine');
    return 'done';
  },
  async forgetsHelper(ctx) {
    const helper = async () => { throw new TypeError('helper'); };
    helper();
    return 'done';
  },
  atOnce(ctx) {
    Promise.reject(new Abort('at once'));
    return 'done';
  },
  async inToJson(ctx) {
    return { toJSON() { Promise.reject(new Abort('in toJSON')); return 1; } };
  },
  async late(ctx) {
    const call = ctx.call('s', 'a', 'refuses', 'x');
    await ctx.call('s', 'c', 'fine');
    await ctx.call('s', 'c', 'fine');
    return call.catch((error) => error.message);
  },
  async all(ctx) {
    const texts = [1, 2, 3].map(async (text) => { throw new Error(text); });
    await ctx.call('s', 'c', 'fine');
    const settled = await Promise.allSettled(texts);
    return settled.map((one) => one.reason.message);
  },
  async race(ctx) {
    const calls = [ctx.call('s', 'c', 'fine'), ctx.call('s', 'a', 'refuses', 'x')];
    const first = await Promise.race(calls);
    await ctx.call('s', 'c', 'fine');
    return first;
  },
  async silenced(ctx) {
    ctx.call('s', 'a', 'refuses', 'x').catch(() => {});
    await ctx.call('s', 'c', 'fine');
    return 'done';
  },
";

#[test]
fn a_failure_that_nobody_looked_at_fails_its_caller() {
    let mut world = handlers(HANDLERS);
    for (handler, code, message) in [
        ("forgets", ErrorCode::Aborted, "first"),
        ("forgetsHelper", ErrorCode::FunctionFailed, "TypeError: helper"),
        ("atOnce", ErrorCode::Aborted, "at once"),
        ("inToJson", ErrorCode::Aborted, "in toJSON"),
    ] {
        let error = world.call(handler, "").expect_err(handler);
        assert_eq!(error.code, code, "{handler}: {error}");
        assert!(error.message.starts_with(message), "{handler}: {error}");
    }
}

#[test]
fn a_failure_that_was_looked_at_does_not() {
    let mut world = handlers(HANDLERS);
    // Of the failures before, nothing is left.
    assert!(world.call("forgets", "").is_err());
    for (handler, output) in
        [("late", r#""x""#), ("all", r#"["1","2","3"]"#), ("race", "1"), ("silenced", r#""done""#), ("fine", "1")]
    {
        assert_eq!(world.call(handler, ""), Ok(output.into()), "{handler}");
    }
}

#[test]
fn a_route_hears_of_it_too() {
    let mut world = service(
        "import { service, Abort } from 'millrace';
         export default service({ refuses() { throw new Abort('no'); }, fine() {} });
         export const routes = {
           'GET /': async (ctx) => { ctx.call('s', 'a', 'refuses'); await ctx.call('s', 'a', 'fine'); return 'done'; },
         };",
    );
    let error = world.route(0, &Request::default()).expect_err("refused");
    assert_eq!((error.code, error.message.as_str()), (ErrorCode::Aborted, "no"));
}

#[test]
fn a_promise_is_no_value() {
    let mut world = handlers(
        "fine() { return 1; },
         stored(ctx) { ctx.set('a', ctx.call('s', 'a', 'fine')); },
         inside(ctx) { ctx.set('a', { b: [ctx.call('s', 'a', 'fine')] }); },
         async passed(ctx) { await ctx.call('s', 'a', 'fine', { x: ctx.call('s', 'a', 'fine') }); },
         async output(ctx) { return { rooms: [1, 2].map(async (n) => n) }; },
         own(ctx) { return JSON.parse(JSON.stringify({ a: Promise.resolve(1) })); },
         meant(ctx) { const p = Promise.resolve(1); p.toJSON = () => 5; return [p]; },",
    );
    for handler in ["stored", "inside", "passed", "output"] {
        let error = world.call(handler, "").expect_err(handler);
        assert_eq!(error.code, ErrorCode::FunctionFailed, "{handler}: {error}");
        assert!(error.message.contains("a promise is no value: await it"), "{handler}: {error}");
    }
    assert_eq!(world.call("own", ""), Ok(r#"{"a":{}}"#.into()));
    assert_eq!(world.call("meant", ""), Ok("[5]".into()));
}
