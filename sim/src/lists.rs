//! Transactions over lists and registers: the workloads whose replies tell in which order transactions took
//! effect. They leave no marks; all that is known of them is what clients were told (`judge`).
//!
//! Each looks at some keys and puts something into some, in one of several shapes: one after
//! another, at the same time, each from within the one before, perhaps with a part that fails and is
//! caught. Its reply holds what it found, by key.

use std::collections::VecDeque;

use millrace_base::ShardId;
use millrace_history::{Access, Found, Value};
use serde_json::Value as Json;

use crate::ledger::Kind;
use crate::random::Rng;
use crate::script::{Callee, Script};
use crate::workload::{key, pause, tag};

/// The service of lists and registers, and the field that is one.
const SERVICE: &str = "note";
const FIELD: &str = "held";

/// Values put by one operation have numbers of their own; the last one is that of a part that fails.
const VALUES_OF_ONE: usize = 8;

#[derive(Clone, Copy)]
enum Family {
    Lists,
    Registers,
}

#[derive(Clone, Copy, PartialEq)]
enum Act {
    Look,
    Put,
    Both,
}

/// One key, and what is done to it.
struct Piece {
    family: Family,
    key: String,
    act: Act,
    value: usize,
}

impl Piece {
    fn script(&self) -> Script {
        let script = match (self.family, self.act) {
            (_, Act::Look) => Script::new().get(FIELD).tag(&self.key),
            (Family::Lists, Act::Put) => Script::new().push(FIELD, self.value),
            (Family::Lists, Act::Both) => Script::new().push(FIELD, self.value).tag(&self.key),
            (Family::Registers, Act::Put) => Script::new().set(FIELD, self.value),
            (Family::Registers, Act::Both) => Script::new().get(FIELD).tag(&self.key).keep().set(FIELD, self.value),
        };
        script.keep()
    }

    fn steps(&self) -> Vec<Access> {
        let (key, value) = (self.key.as_str(), i64::try_from(self.value).expect("few operations"));
        match (self.family, self.act) {
            (Family::Lists, Act::Look) => vec![Access::read_list(key)],
            (Family::Lists, Act::Put) => vec![Access::append(key, value)],
            (Family::Lists, Act::Both) => vec![Access::append(key, value), Access::read_list(key)],
            (Family::Registers, Act::Look) => vec![Access::read(key)],
            (Family::Registers, Act::Put) => vec![Access::write(key, value)],
            (Family::Registers, Act::Both) => vec![Access::read(key), Access::write(key, value)],
        }
    }

    fn callee(&self, is_query: bool, script: Script) -> Callee {
        if is_query { Callee::read(SERVICE, &self.key, script) } else { Callee::run(SERVICE, &self.key, script) }
    }
}

/// The next one, number `id`.
pub fn draw(rng: &mut Rng, shard_count: u16, id: usize) -> (Kind, Script) {
    let (family, name) = if rng.chance(3, 5) { (Family::Lists, "list") } else { (Family::Registers, "register") };
    let mut parts: Vec<Piece> = Vec::new();
    let (count, only_looks) = (1 + rng.index(3), rng.chance(1, 5));
    while parts.len() < count {
        let key = key(rng, name, 2, shard_count);
        let act = if only_looks { Act::Look } else { [Act::Look, Act::Put, Act::Both][rng.index(3)] };
        if parts.iter().all(|part| part.key != key) {
            parts.push(Piece { family, key, act, value: id * VALUES_OF_ONE + parts.len() });
        }
    }
    let shape = rng.below(4);
    let is_query = parts.iter().all(|part| part.act == Act::Look) && rng.chance(1, 2);
    let failing =
        Piece { family, key: key(rng, name, 2, shard_count), act: Act::Put, value: (id + 1) * VALUES_OF_ONE - 1 };
    let mut drawing = Drawing { rng, is_query, failing: Some(failing) };
    let (root, script) = match shape {
        0 => (None, drawing.of_a_stranger(&parts)),
        1 => (Some(parts[0].key.clone()), drawing.own_first(&parts)),
        2 => (Some(parts[count - 1].key.clone()), drawing.own_last(&parts)),
        _ => (Some(parts[0].key.clone()), drawing.nested(&mut parts)),
    };
    let script = if !is_query && rng.chance(1, 10) { script.abort("planned") } else { script.kept() };
    let steps = parts.iter().flat_map(Piece::steps).collect();
    let is_bare = root.is_none();
    let root = root.unwrap_or_else(|| key(rng, "asker", 1, shard_count));
    (Kind::Steps { root, is_bare, is_query, steps }, script)
}

/// The list of a shard that clients use where owners change.
pub fn list_in(shard: ShardId, shard_count: u16) -> String {
    format!("{}list0", tag(u64::from(shard.0), shard_count))
}

/// Operation `id`: looks at a list, puts something into some, and into the last of them at the very end.
pub fn look_and_put(rng: &mut Rng, looked: Option<&str>, put: &[String], id: usize) -> (Kind, Script) {
    let looked = looked.map(|key| (key.to_owned(), Act::Look));
    let keys = looked.into_iter().chain(put.iter().map(|key| (key.clone(), Act::Put)));
    let piece = |(at, (key, act))| Piece { family: Family::Lists, key, act, value: id * VALUES_OF_ONE + at };
    let parts: Vec<Piece> = keys.enumerate().map(piece).collect();
    let (own, others) = parts.split_last().expect("there is one at least");
    let mut drawing = Drawing { rng, is_query: false, failing: None };
    let script = drawing.calls(Script::new(), others).join(drawing.own(own)).kept();
    let steps = parts.iter().flat_map(Piece::steps).collect();
    (Kind::Steps { root: own.key.clone(), is_bare: false, is_query: false, steps }, script)
}

/// A query of one list, which needs no lock.
pub fn look(key: &str) -> (Kind, Script) {
    let script = Script::new().get(FIELD).tag(key).keep().kept();
    (Kind::Steps { root: key.to_owned(), is_bare: false, is_query: true, steps: vec![Access::read_list(key)] }, script)
}

/// A query of all these lists, registers and counters, at once.
pub fn look_at_all(lists: &[String], registers: &[String], counters: &[String]) -> (Kind, Script) {
    let look = |service: &'static str, field: &'static str| {
        move |key: &String| Callee::read(service, key, Script::new().get(field).tag(key))
    };
    let held = lists.iter().chain(registers).map(look(SERVICE, FIELD));
    let script = Script::new().all(held.chain(counters.iter().map(look("counter", "n"))));
    let steps = lists.iter().map(Access::read_list).chain(registers.iter().map(Access::read));
    let steps = steps.chain(counters.iter().map(Access::count)).collect();
    (Kind::Steps { root: "auditor".to_owned(), is_bare: true, is_query: true, steps }, script)
}

struct Drawing<'a> {
    rng: &'a mut Rng,
    is_query: bool,
    /// What a part of the transaction does that then fails.
    failing: Option<Piece>,
}

impl Drawing<'_> {
    fn of_a_stranger(&mut self, parts: &[Piece]) -> Script {
        let script = self.fail_first(Script::new(), "");
        self.calls(script, parts)
    }

    fn own_first(&mut self, parts: &[Piece]) -> Script {
        let script = self.own(&parts[0]);
        let script = self.fail_first(script, &parts[0].key);
        self.calls(script, &parts[1..])
    }

    fn own_last(&mut self, parts: &[Piece]) -> Script {
        let (own, others) = parts.split_last().expect("there is one at least");
        let script = self.fail_first(Script::new(), &own.key);
        let script = self.calls(script, others);
        script.join(self.own(own))
    }

    /// Each calls the next; the last one perhaps looks at the first once more.
    fn nested(&mut self, parts: &mut Vec<Piece>) -> Script {
        if self.rng.chance(1, 3) {
            let (family, key) = (parts[0].family, parts[0].key.clone());
            parts.push(Piece { family, key, act: Act::Look, value: 0 });
        }
        let (first, others) = parts.split_first().expect("there is one at least");
        let mut inner: Option<Callee> = None;
        for part in others.iter().rev() {
            let mut script = self.own(part);
            if let Some(inner) = inner {
                script = script.call(inner).keep();
            }
            inner = Some(part.callee(self.is_query, script.kept()));
        }
        let script = self.own(first);
        match inner {
            Some(inner) => script.call(inner).keep(),
            None => script,
        }
    }

    fn own(&mut self, part: &Piece) -> Script {
        pause(self.rng, Script::new()).join(part.script())
    }

    /// What is caught leaves nothing: nobody may ever see it.
    fn fail_first(&mut self, script: Script, root: &str) -> Script {
        let Some(failing) = self.failing.as_ref().filter(|failing| !self.is_query && failing.key != root) else {
            return script;
        };
        if !self.rng.chance(1, 5) {
            return script;
        }
        script.try_call(failing.callee(false, pause(self.rng, failing.script()).fail("planned")))
    }

    fn calls(&mut self, mut script: Script, parts: &[Piece]) -> Script {
        let mut callees = Vec::new();
        for part in parts {
            let is_query = self.is_query || part.act == Act::Look && self.rng.chance(2, 3);
            callees.push(part.callee(is_query, self.own(part).kept()));
        }
        if callees.is_empty() {
            return script;
        }
        if self.rng.chance(1, 2) {
            return script.all(callees).keep();
        }
        for callee in callees {
            script = script.call(callee).keep();
        }
        script
    }
}

/// What a reply holds for each step; `None` if it does not fit them.
pub fn found(steps: &[Access], reply: &Json) -> Option<Vec<Found>> {
    let mut tagged = VecDeque::new();
    gather(reply, &mut tagged);
    let mut take = |key: &String| tagged.pop_front().filter(|(name, _)| *name == key).map(|(_, json)| json);
    let mut found = Vec::new();
    for step in steps {
        found.push(match step {
            Access::ReadList(key) => {
                let list = take(key)?;
                Found::List(list.as_array().into_iter().flatten().map(Value::from).collect())
            }
            Access::Read(key) => Found::Value(Some(take(key)?).filter(|json| !json.is_null()).map(Value::from)),
            Access::Count(key) => Found::Number(take(key)?.as_i64().unwrap_or(0)),
            _ => Found::Done,
        });
    }
    tagged.is_empty().then_some(found)
}

/// What was tagged, in the order in which it was found.
fn gather<'a>(reply: &'a Json, tagged: &mut VecDeque<(&'a String, &'a Json)>) {
    match reply {
        Json::Object(object) => tagged.extend(object.iter()),
        Json::Array(parts) => parts.iter().for_each(|part| gather(part, tagged)),
        _ => {}
    }
}
