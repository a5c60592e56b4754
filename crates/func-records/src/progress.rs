//! How far a type's indexes are: in how many shards each is complete.

use std::rc::Rc;

use bytes::Bytes;
use millrace_api::RecordReply;
use millrace_base::Error;
use serde_json::{Map, json};

use crate::program::{PROGRESS, RecordProgram};
use crate::rows::{complete_field, read_number};
use crate::turn::{Calls, Gathers, Progress, Turn};
use crate::wire::{decode_all, encode};

/// `T--shard/_progress`: the numbers of the indexes that are complete here.
pub(crate) fn of_shard(turn: &mut Turn<'_>, type_index: usize) -> Result<Progress, Error> {
    let program = Rc::clone(turn.program);
    let mut complete: Vec<u16> = Vec::new();
    for index in &program.types[type_index].indexes {
        if read_number(turn.host, &complete_field(index.number))? == Some(index.definition) {
            complete.push(index.number);
        }
    }
    Ok(Progress::Done(encode(&complete)))
}

/// The operation `Indexes`.
pub(crate) fn start(turn: &mut Turn<'_>, type_index: usize) -> Result<Progress, Error> {
    let program = Rc::clone(turn.program);
    let handler = (program.types[type_index].shard_service, PROGRESS);
    let calls = turn.call_shards(handler, std::iter::repeat(Bytes::new()))?;
    Ok(Progress::Wait(Box::new(Gather { program, type_index, calls })))
}

struct Gather {
    program: Rc<RecordProgram>,
    type_index: usize,
    calls: Calls,
}

impl Gathers for Gather {
    fn calls(&mut self) -> &mut Calls {
        &mut self.calls
    }

    fn gathered(self: Box<Self>, _: &mut Turn<'_>, results: Vec<Result<Bytes, Error>>) -> Result<Progress, Error> {
        let shards: Vec<Vec<u16>> = decode_all(results)?;
        let mut body = Map::new();
        for index in &self.program.types[self.type_index].indexes {
            let complete = shards.iter().filter(|shard| shard.contains(&index.number)).count();
            body.insert(index.name.clone(), json!({ "complete_shards": complete, "shards": shards.len() }));
        }
        let body = Bytes::from(serde_json::Value::Object(body).to_string());
        Ok(Progress::Done(RecordReply { body, ..RecordReply::default() }.to_bytes()))
    }
}
