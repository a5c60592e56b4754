//! What engines of built-in apps ask of a shard beyond others: scans over entities, bodies that are let go, and the look
//! at an entity beside the one that is asked.

use bytes::Bytes;
use millrace_api::objects::OBJECTS_APP;
use millrace_base::{EntityKey, Error, ErrorCode, Name, ShardId, TransactionId, Value};
use millrace_func::{
    ActivationId, Answer, App, Engine, EntityRows, EntityScan, HandlerId, HandlerKind, Host, NestedCall, OperationId,
    Output, Program, Reader, Service, Start, TurnResult, Visit,
};

use crate::input::Input;
use crate::peer::{Begin, PeerBody, PeerCall, ToParticipation};
use crate::request::RequestInfo;
use crate::testing::{RUN, START, TestWorld, keys, options, store};
use crate::typed_reply::ReplyTo;
use crate::{Invoke, PeerMessage, Reply, Shard, Token};

/// The query of [`Commands`].
const READ: HandlerId = HandlerId { handler: 1, ..RUN };

/// Runs commands, one a line:
///
/// | command | what |
/// |---|---|
/// | `set field json`, `delete field`, `release number`, `fail` | what they say. |
/// | `scan prefix from>behind field limit …` | `-` is nothing; `*` behind a field makes it a beginning. Then what the
/// visitor says: `key` stops at that key, `key>to` seeks from it. |
/// | `call key commands` | the last one, with `;` for a line's end; any result will do. |
///
/// It answers the query `beside key field` at once.
struct Commands;

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

fn bytes(text: &str) -> Vec<u8> {
    if text == "-" { Vec::new() } else { text.replace("\\0", "\0").into_bytes() }
}

fn number(text: &str) -> usize {
    text.parse().expect("a number")
}

fn shown(entity: &EntityRows) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace('\0', "\\0");
    let values: Vec<String> = entity.fields.iter().map(|(_, value)| text(value.content())).collect();
    format!("{}={}", text(&entity.key), values.join(","))
}

fn run(id: HandlerId, input: &str, host: &mut dyn Host) -> Result<Option<String>, Error> {
    let mut output = "null".to_owned();
    for line in input.lines() {
        let mut words = line.split(' ');
        let mut word = || words.next().expect("a word");
        match word() {
            "set" => host.set(&bytes(word()), Value::json(word()))?,
            "delete" => drop(host.delete(&bytes(word()))?),
            "release" => host.built_in()?.release_body(number(word()) as u64)?,
            "scan" => {
                let (prefix, from, field) = (bytes(word()), word(), word());
                let (from, behind) = from.split_once('>').unwrap_or((from, "-"));
                let (from, behind_field) = (bytes(from), bytes(behind));
                let (field, is_prefix) = field.strip_suffix('*').map_or((field, false), |field| (field, true));
                let (field, fields_limit) = (bytes(field), number(word()));
                let next = words.by_ref().map(|word| match word.split_once('>') {
                    Some((at, to)) => (at, Visit::Seek(bytes(to))),
                    None => (word, Visit::Stop),
                });
                let next: Vec<_> = next.collect();
                let scan = EntityScan { service: 0, prefix, from, behind_field, field, is_prefix, fields_limit };
                let mut found = Vec::new();
                host.built_in()?.visit_entities(&scan, &mut |entity| {
                    found.push(shown(&entity));
                    let own = |(at, _): &&(&str, Visit)| at.as_bytes() == entity.key;
                    next.iter().find(own).map_or(Visit::Next, |(_, next)| next.clone())
                })?;
                output = found.join(" ");
            }
            "call" => {
                let (key, rest) = (bytes(word()), words.collect::<Vec<_>>().join(" ").replace(';', "\n"));
                host.call(NestedCall { handler: id, key, input: Bytes::from(rest) })?;
                return Ok(None);
            }
            _ => return Err(Error::new(ErrorCode::FunctionFailed, "as it was told")),
        }
    }
    Ok(Some(output))
}

impl Engine for Commands {
    fn load(&self, _: Program, _: &App) -> Result<(), Error> {
        Ok(())
    }

    fn services(&self, _: Program) -> Vec<Service> {
        let handlers = vec![(name("run"), HandlerKind::Transaction), (name("read"), HandlerKind::Query)];
        vec![Service { name: name("counter"), handlers, routes: Vec::new(), schedules: Vec::new() }]
    }

    fn unload(&self, _: Program) {}

    fn answer(&self, _: HandlerId, input: &[u8], reader: &mut dyn Reader) -> Option<Result<Answer, Error>> {
        let text = std::str::from_utf8(input).expect("text");
        let (key, field) = text.strip_prefix("beside ")?.split_once(' ')?;
        let found = reader.get_beside(0, key.as_bytes(), field.as_bytes()).transpose()?;
        Some(found.map(|value| {
            let content = value.map_or_else(|| b"none".to_vec(), |value| value.content().to_vec());
            Answer::Value(Bytes::from(content))
        }))
    }

    fn start(&self, _: ActivationId, start: Start<'_>, host: &mut dyn Host) -> TurnResult {
        let Start::Handler { id, input, .. } = start else { panic!("no routes") };
        match run(id, std::str::from_utf8(input).expect("text"), host) {
            Ok(None) => TurnResult::Waiting,
            Ok(Some(output)) => TurnResult::Done(Ok(Output::Value(Bytes::from(output)))),
            Err(error) => TurnResult::Done(Err(error)),
        }
    }

    fn resume(&self, _: ActivationId, _: OperationId, _: Result<Bytes, Error>, _: &mut dyn Host) -> TurnResult {
        TurnResult::Done(Ok(Output::Value(Bytes::from_static(b"null"))))
    }

    fn cancel(&self, _: ActivationId) {}
}

struct Rig {
    shard: Shard,
    world: TestWorld,
    calls: u64,
}

impl Rig {
    fn new(shard_count: u16) -> Self {
        Self::of_app(OBJECTS_APP, shard_count)
    }

    fn of_app(app: &str, shard_count: u16) -> Self {
        let shard = Shard::new(options(shard_count), store()).expect("no rows");
        Self { shard, world: TestWorld::of_app(app, Commands), calls: 0 }
    }

    fn begin(&mut self, handler: HandlerId, key: &str, input: &str) -> Token {
        self.calls += 1;
        let token = Token(self.calls);
        let info = RequestInfo { time: START, began_ms: 0, nonce: self.calls << 32, idempotency_key: None };
        let (key, input) = (key.as_bytes().into(), Bytes::from(input.to_owned()));
        let invoke = Invoke { info, handler, key, input };
        self.shard.handle(Input::Invoke(ReplyTo::of(token), invoke), &mut self.world.world());
        token
    }

    fn sync(&mut self) {
        let lsn = self.shard.store().lsn();
        self.shard.handle(Input::Durable(lsn), &mut self.world.world());
    }

    fn call(&mut self, handler: HandlerId, key: &str, input: &str) -> Result<String, Error> {
        let token = self.begin(handler, key, input);
        self.sync();
        let (_, result) = self.world.outputs.replies.iter().find(|(of, _)| *of == token).expect("answered").clone();
        result.map(|reply| match reply {
            Reply::Value(output) => String::from_utf8(output.to_vec()).expect("text"),
            other => panic!("{other:?}"),
        })
    }

    fn run(&mut self, key: &str, input: &str) -> String {
        self.call(RUN, key, input).expect("succeeds")
    }

    fn released(&mut self) -> Vec<u64> {
        let released = std::mem::take(&mut self.world.outputs.released);
        released.into_iter().map(|(shard, number)| if shard == ShardId(0) { number } else { u64::MAX }).collect()
    }

    /// What the look beside `asked` gives; `None`: the query has to be run.
    fn beside(&mut self, asked: &str, key: &str) -> Option<String> {
        let input = format!("beside {key} x");
        let answer = self.shard.fast_read(READ, asked.as_bytes(), input.as_bytes(), &mut self.world.world())?;
        let output = answer.expect("no error").into_value();
        Some(String::from_utf8(output.to_vec()).expect("text"))
    }
}

/// Entities in one shard, `d/1`, `d/2` and `e` with a field `x`, `f` without.
fn filled() -> Rig {
    let mut rig = Rig::new(1);
    for (key, set) in [("d/1", "set x 1"), ("d/2", "set x 2"), ("e", "set x 3"), ("f", "set y 4\nset z 5")] {
        rig.run(key, set);
    }
    rig
}

#[test]
fn a_scan_gives_a_field_of_each_entity_in_order_of_keys() {
    let mut rig = filled();
    let mut scan = |what: &str| rig.call(READ, "any", &format!("scan {what}")).expect("a query may");
    assert_eq!(scan("- - x 9"), "d/1=1 d/2=2 e=3");
    assert_eq!(scan("d/ - x 9"), "d/1=1 d/2=2");
    assert_eq!(scan("- - y 9"), "f=4");
    assert_eq!(scan("- - * 9"), "d/1=1 d/2=2 e=3 f=4,5", "all fields");
    assert_eq!(scan("g - x 9"), "");
    // `0` is behind `/`: one seek passes over all that begins with `d/`.
    assert_eq!(scan("- d0 x 9"), "e=3");
    assert_eq!(scan("- d/2 x 9"), "d/2=2 e=3", "it begins with the key itself");
    assert_eq!(scan("d/ e x 9"), "");
}

#[test]
fn a_scan_stops_and_seeks_as_its_visitor_says() {
    let mut rig = filled();
    let mut scan = |what: &str| rig.call(READ, "any", &format!("scan {what}")).expect("a query may");
    assert_eq!(scan("- - x 9 d/2"), "d/1=1 d/2=2");
    assert_eq!(scan("- - x 9 d/1>d0"), "d/1=1 e=3");
    assert_eq!(scan("- - x 9 d/2>d"), "d/1=1 d/2=2 e=3", "it never goes back");
    assert_eq!(scan("- - x 0"), "");
    assert_eq!(scan("- f>y * 9"), "f=5", "in the first entity it begins behind a field");
    assert_eq!(scan("- e>y * 9"), "f=4,5", "the next one it gives from its first field on");
    assert_eq!(scan("- - * 1"), "d/1=1 d/2=2 e=3 f=4");
}

#[test]
fn a_scan_sees_what_its_own_transaction_has_written() {
    let mut rig = filled();
    assert_eq!(rig.run("e", "set x 9\nscan - - x 9"), "d/1=1 d/2=2 e=9");
    assert_eq!(rig.run("e", "delete x\nscan - - x 9"), "d/1=1 d/2=2");
    assert_eq!(rig.run("e0", "set x 5\nscan - e x 9"), "e0=5", "an entity that is new, and none that is empty");
    let rows = "set x 6\nset y 7\nscan - e0>x * 9";
    assert_eq!(rig.run("e0", rows), "e0=7 f=4,5");
    assert_eq!(rig.run("e1", "set x 8\nscan - - x 9 e0>e2"), "d/1=1 d/2=2 e0=6");
    assert_eq!(rig.run("e1", "delete x\nscan - e x 9 e0"), "e0=6");
}

#[test]
fn a_body_is_let_go_once_that_is_durable() {
    let mut rig = Rig::new(1);
    rig.begin(RUN, "a", "set x 1\nrelease 7\nrelease 8");
    assert!(rig.released().is_empty(), "a crash could still take the entry back");
    rig.sync();
    assert_eq!(rig.released(), [7, 8]);
    rig.sync();
    assert!(rig.released().is_empty(), "once");
}

#[test]
fn a_body_stays_where_nothing_was_committed() {
    let mut rig = Rig::new(1);
    assert!(rig.call(RUN, "a", "set x 1\nrelease 7\nfail").is_err());
    assert_eq!(rig.call(READ, "a", "release 7").expect_err("a query").code, ErrorCode::FunctionFailed);
    assert!(rig.released().is_empty());
    // A callee that failed takes back what was its own.
    rig.run("a", "set x 1\nrelease 1\ncall b set x 1;release 2;fail");
    assert_eq!(rig.released(), [1]);
    rig.run("a", "release 1\ncall b set x 1;release 2");
    assert_eq!(rig.released(), [1, 2]);
}

#[test]
fn other_apps_get_none_of_it() {
    let mut rig = Rig::of_app("shop", 1);
    for input in ["release 7", "scan - - x 9"] {
        assert_eq!(rig.call(RUN, "a", input).expect_err("refused").code, ErrorCode::Forbidden);
    }
    assert!(rig.released().is_empty());
}

#[test]
fn a_stopped_shard_lets_no_body_go() {
    let mut rig = Rig::new(1);
    rig.begin(RUN, "a", "set x 1\nrelease 7");
    rig.shard.handle(Input::Stop("the log failed".to_owned()), &mut rig.world.world());
    assert!(rig.released().is_empty());
}

#[test]
fn a_look_beside_gives_what_is_committed_and_durable() {
    let mut rig = Rig::new(2);
    let keys = keys(2);
    let (here, away) = (keys[&ShardId(0)].clone(), keys[&ShardId(1)].clone());
    let beside = format!("{{{here}}}b");
    rig.run(&here, "set x 1");
    assert_eq!(rig.beside(&here, &beside).as_deref(), Some("none"));
    rig.begin(RUN, &beside, "set x 2");
    assert_eq!(rig.beside(&here, &beside), None, "a crash could take it back");
    rig.sync();
    assert_eq!(rig.beside(&here, &beside).as_deref(), Some("2"));
    assert_eq!(rig.beside(&here, &away), None, "it lies in another shard");
}

#[test]
fn a_look_beside_waits_for_what_is_prepared() {
    let mut rig = Rig::new(2);
    let here = keys(2)[&ShardId(0)].clone();
    let beside = format!("{{{here}}}b");
    rig.run(&beside, "set x 2");
    let transaction = TransactionId { coordinator: ShardId(1), incarnation: 3, number: 4 };
    let begin = Begin { program: RUN.program, time: START, age: (1, 1), seed: 5 };
    let call = NestedCall { handler: RUN, key: beside.clone().into_bytes(), input: Bytes::from_static(b"set x 3") };
    let call = PeerCall { number: 1, depth: 1, call, once: None, callers: None };
    let hear = |rig: &mut Rig, body| {
        let message = PeerMessage { from: ShardId(1), transaction, body };
        rig.shard.handle(Input::Peer(message), &mut rig.world.world());
        rig.sync();
    };
    hear(&mut rig, PeerBody::ToParticipation(1, ToParticipation::Call(begin, call)));
    let participation_id = match &rig.world.outputs.peers.last().expect("it tells of the call").1.body {
        PeerBody::ToCoordinator(_, from) => from.participation_id,
        other => panic!("{other:?}"),
    };
    let prepare = ToParticipation::Prepare { participation_id, is_delegated: false, hold_ms: None, is_query: false };
    hear(&mut rig, PeerBody::ToParticipation(2, prepare));
    assert_eq!(rig.beside(&here, &beside), None, "it may have been seen committed elsewhere");
    hear(&mut rig, PeerBody::Commit);
    assert_eq!(rig.beside(&here, &beside).as_deref(), Some("3"));
    let entity = EntityKey::new(&name(OBJECTS_APP), &name("counter"), beside.as_bytes());
    assert!(rig.shard.store().get(&entity, b"x").expect("read").is_some());
}
