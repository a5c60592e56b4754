//! A forgotten `await` does not lose a failure, and does not store a promise.

use crate::common::{ActivationHost, Pending, Request, World, handlers, service};
use millrace_base::{Error, ErrorCode};
use millrace_func::{ActivationId, Engine, Host, OperationId, Output, Start, TurnResult};

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
         to(ctx) { class A { toJSON() { return { p: Promise.resolve(1) }; } } ctx.set('a', [new A()]); },
         proxy(ctx) { ctx.set('a', new Proxy({ p: Promise.resolve(1) }, {})); },
         deep(ctx) { let a = Promise.resolve(1); for (let i = 0; i < 100; i++) a = [a]; return a; },
         own(ctx) { return JSON.parse(JSON.stringify({ a: Promise.resolve(1) })); },
         meant(ctx) { const p = Promise.resolve(1); p.toJSON = () => 5; return [p]; },",
    );
    for handler in ["stored", "inside", "passed", "output", "to", "proxy", "deep"] {
        let error = world.call(handler, "").expect_err(handler);
        assert_eq!(error.code, ErrorCode::FunctionFailed, "{handler}: {error}");
        assert!(error.message.contains("a promise is no value: await it"), "{handler}: {error}");
    }
    assert_eq!(world.call("own", ""), Ok(r#"{"a":{}}"#.into()));
    assert_eq!(world.call("meant", ""), Ok("[5]".into()));
}

/// What a call that nobody awaits leads to belongs to its caller, like the call itself.
#[test]
fn what_nobody_awaits_is_done_to_its_end() {
    let mut world = service(
        "import { service, Abort } from 'millrace';
         export default service({
           add(ctx, n) { ctx.set('n', (ctx.get('n') ?? 0) + n); },
           fails() { throw new Abort('no'); },
           value(ctx) { return ctx.get('n') ?? 0; },
           async _move(ctx, from, to) { await ctx.call('s', from, 'add', -1); await ctx.call('s', to, 'add', 1); },
           async moves(ctx) { this._move(ctx, 'from', 'to'); return 'moved'; },
           movesAtOnce(ctx) { this._move(ctx, 'from', 'to'); return 'moved'; },
           each(ctx) { ['a', 'b'].forEach(async (key) => { await this._move(ctx, 'from', key); }); },
           later(ctx) { Promise.resolve().then(() => ctx.call('s', 'later', 'add', 5)).then(() => ctx.call('s', 'later', 'add', 6)); },
           async guarded(ctx) {
             (async () => { await ctx.call('s', 'to', 'value'); throw new Abort('not allowed'); })();
             return 'done';
           },
           any: (ctx) => Promise.any([ctx.call('s', 'a', 'value'), ctx.call('s', 'b', 'fails')]).then(() => 'any'),
           race: (ctx) => Promise.race([ctx.call('s', 'a', 'value'), ctx.call('s', 'b', 'fails')]).then(() => 'race'),
           async all(ctx) {
             try { await Promise.all([ctx.call('s', 'a', 'fails'), ctx.call('s', 'b', 'fails')]); } catch { return 'caught'; }
           },
         });
         export const routes = {
           'GET /': (ctx) => { (async () => { await ctx.call('s', 'r', 'add', 1); await ctx.call('s', 'r', 'add', 1); })(); return 'ok'; },
         };",
    );
    let value = |world: &mut World, key: &str| {
        let id = world.handler("s", "value");
        world.call_id(id, key.as_bytes(), b"").expect("a value")
    };
    assert_eq!(world.call("moves", ""), Ok(r#""moved""#.into()));
    assert_eq!(world.call("movesAtOnce", ""), Ok(r#""moved""#.into()));
    assert_eq!((value(&mut world, "from"), value(&mut world, "to")), ("-2".into(), "2".into()));
    assert_eq!(world.call("each", ""), Ok("null".into()));
    assert_eq!(["from", "a", "b"].map(|key| value(&mut world, key)), ["-4", "1", "1"]);
    assert_eq!(world.call("later", ""), Ok("null".into()));
    assert_eq!(value(&mut world, "later"), "11");
    assert_eq!(world.call("guarded", "").expect_err("guarded").message, "not allowed");
    for (handler, output) in [("any", r#""any""#), ("race", r#""race""#), ("all", r#""caught""#)] {
        assert_eq!(world.call(handler, ""), Ok(output.into()), "{handler}");
    }
    assert!(world.route(0, &Request::default()).is_ok());
    assert_eq!(value(&mut world, "r"), "2");
}

/// How a call that does not wait has ended.
type Ended = Option<Result<String, String>>;

/// Two calls of one service that wait at the same time.
struct Calls {
    world: World,
    pending: Vec<(OperationId, Pending)>,
}

impl Calls {
    fn turn(&mut self, turn: impl FnOnce(&World, &mut dyn Host) -> TurnResult) -> Ended {
        let mut state = std::mem::take(&mut self.world.state);
        let mut operations = self.world.operations;
        let mut host = ActivationHost {
            state: &mut state,
            entity: Some((0, b"k".to_vec())),
            is_query: false,
            pending: &mut self.pending,
            next_operation: &mut operations,
        };
        let step = turn(&self.world, &mut host);
        (self.world.state, self.world.operations) = (state, operations);
        match step {
            TurnResult::Waiting => None,
            TurnResult::Done(Ok(Output::Value(json))) => Some(Ok(String::from_utf8_lossy(&json).into_owned())),
            TurnResult::Done(Ok(Output::Response(_))) => panic!("a handler gives no response"),
            TurnResult::Done(Err(error)) => Some(Err(format!("{error}"))),
        }
    }

    fn start(&mut self, activation: u32, handler: &str) -> Ended {
        let id = self.world.handler("s", handler);
        self.turn(|world, host| {
            world.engine.start(ActivationId(activation), Start::Handler { id, key: b"k", input: b"" }, host)
        })
    }

    /// Ends the first operation that is open.
    fn end(&mut self, activation: u32, result: Result<&'static str, &str>) -> Ended {
        let (operation, _) = self.pending.remove(0);
        let result = result.map(|json| json.as_bytes().into()).map_err(|text| Error::new(ErrorCode::Aborted, text));
        self.turn(|world, host| world.engine.resume(ActivationId(activation), operation, result, host))
    }
}

#[test]
fn what_one_call_returned_is_no_failure_of_another() {
    let world = service(
        "import { service } from 'millrace';
         let shared;
         export default service({
           async first(ctx) {
             shared = ctx.call('s', 'a', 'any');
             try { return await shared; } catch { return 'caught'; }
           },
           async second(ctx) { const own = ctx.call('s', 'a', 'any'); await shared; await own; },
           async stalled(ctx) { await shared; },
           any() {},
         });",
    );
    let mut calls = Calls { world, pending: Vec::new() };
    assert_eq!(calls.start(1, "first"), None);
    assert_eq!(calls.start(2, "second"), None);
    let ended = calls.start(4, "stalled").expect("it ends").expect_err("it fails");
    assert!(ended.starts_with("stalled"), "{ended}");
    // It settles what both wait for, and so the second call's promise is rejected in the first one's turn.
    assert_eq!(calls.end(1, Err("no")), Some(Ok("\"caught\"".into())));
    assert_eq!(calls.end(2, Ok("1")), Some(Err("aborted: no".into())));
    // Nothing of it is left.
    assert_eq!(calls.start(3, "any"), Some(Ok("null".into())));
}
