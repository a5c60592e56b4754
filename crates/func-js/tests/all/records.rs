//! `ctx.record` and `ctx.records`: what they ask the host for, and what its answers become.

use crate::common;

use crate::common::journal::every_cut;
use crate::common::{RecordCall, World, handlers, service};
use bytes::Bytes;
use millrace_api::{
    Form, PathOperation, PathOperationKind, RecordChange, RecordOperation, RecordQuery, RecordReply, RecordWrite,
};
use millrace_base::{Error, ErrorCode};
use millrace_func_js::type_definitions;

/// Answers as records would, for one record `7` with two phones.
fn records(asked: &RecordCall) -> Result<RecordReply, Error> {
    let body = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    let missing = || Error::new(ErrorCode::UnknownRecord, "no such record");
    let is_there = asked.id == b"7";
    Ok(match asked.operation() {
        RecordOperation::Get { .. } if is_there => {
            RecordReply { body: body(r#"{"name":"Ada"}"#), ..Default::default() }
        }
        RecordOperation::Select { path: ".bad", .. } => {
            return Err(Error::new(ErrorCode::InvalidPath, "no path: bad"));
        }
        RecordOperation::Select { .. } => RecordReply { matched: 2, body: body(r#"["1","2"]"#), ..Default::default() },
        RecordOperation::Write(RecordWrite { change, .. }) => match change {
            RecordChange::Put { .. } => RecordReply { created: !is_there, ..Default::default() },
            RecordChange::Patch { operations, .. } if operations[0].path == ".none" => {
                return Err(Error::new(ErrorCode::NoMatch, "nothing matches"));
            }
            RecordChange::Patch { operations, .. } => {
                RecordReply { matched: operations.len() as u32, ..Default::default() }
            }
            RecordChange::Delete if !is_there => return Err(missing()),
            _ => RecordReply::default(),
        },
        RecordOperation::Find(_) => {
            RecordReply { matched: 1, body: body(r#"{"records":[{"id":"7","record":{}}]}"#), ..Default::default() }
        }
        RecordOperation::GetMany { .. } => {
            RecordReply { body: body(r#"{"records":[{"id":"7","record":{"name":"Ada"}}]}"#), ..Default::default() }
        }
        _ => return Err(missing()),
    })
}

fn world(code: &str) -> World {
    let mut world = handlers(&format!("async run(ctx, input) {{ const r = ctx.record('person', '7'); {code} }}"));
    world.state.records = Some(records);
    world
}

/// What the handler gives, and the one operation it asked for.
fn asked(code: &str) -> (String, RecordCall) {
    let mut world = world(code);
    let output = world.call("run", "null").expect("succeeds");
    let [asked] = &world.state.asked[..] else { panic!("{:?}", world.state.asked) };
    (output, asked.clone())
}

#[test]
fn reading_asks_for_what_is_read() {
    let (output, one) = asked("return await r.get();");
    assert_eq!(output, r#"{"name":"Ada"}"#);
    assert_eq!((one.name.as_str(), &one.id[..]), ("person", &b"7"[..]));
    assert_eq!(one.operation(), RecordOperation::Get { form: Form::Json });
    let (output, one) = asked("return await r.select('.phones.*', { low: 3 });");
    assert_eq!(output, r#"["1","2"]"#);
    let select = RecordOperation::Select { path: ".phones.*", parameters: r#"{"low":3}"#, form: Form::Json };
    assert_eq!(one.operation(), select);
    let (output, one) = asked("return await ctx.record('person', new Uint8Array([0, 255])).get();");
    assert_eq!((output.as_str(), &one.id[..]), ("null", &[0, 255][..]), "a record that is not there is null");
}

#[test]
fn writing_asks_for_what_is_written() {
    let write = |change| RecordOperation::Write(RecordWrite { change, ..RecordWrite::default() });
    let (output, one) = asked("return await r.put({ name: 'Bob' });");
    assert_eq!(output, "false");
    assert_eq!(one.operation(), write(RecordChange::Put { form: Form::Json, value: br#"{"name":"Bob"}"# }));
    let (output, one) = asked("return await r.update('.name', null, { a: 1 });");
    assert_eq!(output, "1");
    let set = PathOperation { kind: PathOperationKind::Set, path: ".name".into(), value: Some("null") };
    assert_eq!(one.operation(), write(RecordChange::Patch { operations: vec![set], parameters: r#"{"a":1}"# }));
    let code = r#"return await r.patch([
        { op: "increment", path: '.n["\n"]', value: 1.5 }, { op: "clear", path: ".m" }, { op: "test", path: ".x", value: null },
    ]);"#;
    let (output, one) = asked(code);
    assert_eq!(output, "3");
    let step = |kind, path: &'static str, value| PathOperation { kind, path: path.into(), value };
    let operations = vec![
        step(PathOperationKind::Increment, ".n[\"\n\"]", Some("1.5")),
        step(PathOperationKind::Clear, ".m", None),
        step(PathOperationKind::Test, ".x", Some("null")),
    ];
    assert_eq!(one.operation(), write(RecordChange::Patch { operations, parameters: "" }));
    let (output, one) = asked("return [await r.delete()];");
    assert_eq!((output.as_str(), one.operation()), ("[true]", write(RecordChange::Delete)));
    assert_eq!(asked("return await ctx.record('person', 'x').delete();").0, "false", "nothing to delete");
    assert_eq!(asked("return await r.update('.none', 1);").0, "0", "nothing to set");
    assert_eq!(asked("return await ctx.record('person', 'x').put({});").0, "true", "a new record");
}

#[test]
fn types_are_searched() {
    let code = "return await ctx.records('person').find({ where: '.age > $low', parameters: { low: 3 }, order: '-.age', \
                prefix: 'a', cursor: 'c', limit: 7 });";
    let (output, one) = asked(code);
    assert_eq!(output, r#"{"records":[{"id":"7","record":{}}]}"#);
    let query = RecordQuery {
        predicate: ".age > $low",
        parameters: r#"{"low":3}"#,
        order: "-.age",
        prefix: b"a",
        cursor: "c",
        limit: 7,
        ..RecordQuery::default()
    };
    assert_eq!(one.operation(), RecordOperation::Find(query));
    let (_, one) = asked("return await ctx.records('person').find();");
    assert_eq!(one.operation(), RecordOperation::Find(RecordQuery { limit: 50, ..RecordQuery::default() }));
    let (output, one) = asked("return await ctx.records('person').getMany(['7', new Uint8Array([1])]);");
    assert_eq!(output, r#"[{"id":"7","record":{"name":"Ada"}}]"#);
    assert_eq!(one.operation(), RecordOperation::GetMany { ids: vec![b"7", &[1]], form: Form::Json });
}

#[test]
fn errors_have_their_codes() {
    let caught = |code: &str| {
        let mut world = world(&format!("try {{ {code} }} catch (error) {{ return error.code ?? error.name; }}"));
        world.call("run", "null").expect("caught")
    };
    assert_eq!(caught("return await r.select('.bad');"), "\"invalid-path\"");
    assert_eq!(caught("return await r.patch([{ op: 'set', path: '.none', value: 1 }]);"), "\"no-match\"");
    for wrong in [
        "ctx.record('person')",
        "ctx.record(7, '7')",
        "ctx.records()",
        "r.select()",
        "r.select('.a', 'x')",
        "r.select('.a', [1])",
        "r.put()",
        "r.put(new Uint8Array(3))",
        "r.update('.a')",
        "r.patch({})",
        "r.patch([{ op: 'sit', path: '.a' }])",
        "r.patch([{ op: 'set' }])",
        "r.patch([{ op: 'set', path: '.a', valeu: 1 }])",
        "ctx.records('person').find({ were: '.a' })",
        "ctx.records('person').find({ limit: 0 })",
        "ctx.records('person').find(7)",
        "ctx.records('person').getMany('7')",
        "ctx.records('person').getMany([7])",
        "ctx.records('person').getMany(Array(1001).fill('7'))",
        "r.get.call({})",
    ] {
        assert_eq!(caught(&format!("await {wrong}; return 'fine';")), "\"TypeError\"", "{wrong}");
    }
}

#[test]
fn queries_read_only() {
    let mut world = handlers(
        "read: query((ctx) => ctx.record('person', '7').get()), write: query((ctx) => ctx.record('person', '7').put({}))",
    );
    world.state.records = Some(records);
    assert_eq!(world.call("read", ""), Ok(r#"{"name":"Ada"}"#.into()));
    assert_eq!(world.call("write", "").expect_err("refused").code, ErrorCode::FunctionFailed);
}

#[test]
fn a_record_of_an_ended_call_cannot_be_used() {
    let mut world = handlers(
        "keep(ctx) { this._kept.r = ctx.record('person', '7'); }, use() { return this._kept.r.get(); }, _kept: {}",
    );
    world.state.records = Some(records);
    world.call("keep", "").expect("kept");
    let message = world.fails("use", "", ErrorCode::FunctionFailed);
    assert!(message.contains("belongs to a call that has ended"), "{message}");
}

#[test]
fn routes_use_records() {
    let mut world =
        service("export const routes = { 'GET /': async (ctx) => ({ body: await ctx.record('person', '7').get() }) };");
    world.state.records = Some(records);
    let reply = world.route(0, &common::Request::default()).expect("a reply");
    assert_eq!(&reply.body[..], br#"{"name":"Ada"}"#);
}

#[test]
fn workflows_note_what_records_gave() {
    let flow = || {
        let mut world = handlers(
            "flow: workflow(async (ctx) => {
                const before = await ctx.record('person', '7').get();
                const set = await ctx.step('set', () => ctx.record('person', '7').update('.n', ctx.random()));
                return [before, set, await ctx.record('person', 'x').put({}), await ctx.record('person', 'x').delete()];
            })",
        );
        world.state.records = Some(records);
        world
    };
    let (result, _) = every_cut(flow, "flow", "null", 0);
    assert_eq!(result, Ok(r#"[{"name":"Ada"},1,true,false]"#.into()));
}

#[test]
fn the_types_declare_it() {
    for name in ["record<Value = any>(", "records<Value = any>(", "interface RecordRef", "interface RecordsRef"] {
        assert!(type_definitions().contains(name), "{name}");
    }
}
