//! How far a type's indexes are: in how many shards each is complete.

use std::rc::Rc;

use bytes::Bytes;
use millrace_api::RecordReply;
use millrace_base::Error;
use millrace_func::OperationId;
use serde_json::{Map, json};

use crate::program::{PROGRESS, RecordProgram};
use crate::rows::{complete_field, read_number};
use crate::turn::{Calls, Progress, Task, Turn};
use crate::wire::{decode, encode};

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
    let mut calls = Calls::default();
    for key in turn.shared.shard_keys.clone() {
        calls.push(turn.call((program.types[type_index].shard_service, PROGRESS), &key, Bytes::new())?);
    }
    Ok(Progress::Wait(Box::new(Gather { program, type_index, calls })))
}

struct Gather {
    program: Rc<RecordProgram>,
    type_index: usize,
    calls: Calls,
}

impl Task for Gather {
    fn resume(
        mut self: Box<Self>,
        _: &mut Turn<'_>,
        operation: OperationId,
        result: Result<Bytes, Error>,
    ) -> Result<Progress, Error> {
        let Some(results) = self.calls.ended(operation, result)? else {
            return Ok(Progress::Wait(self));
        };
        let mut shards = Vec::with_capacity(results.len());
        for result in results {
            shards.push(decode::<Vec<u16>>(&result?)?);
        }
        let mut body = Map::new();
        for index in &self.program.types[self.type_index].indexes {
            let complete = shards.iter().filter(|shard| shard.contains(&index.number)).count();
            body.insert(index.name.clone(), json!({ "complete_shards": complete, "shards": shards.len() }));
        }
        let body = Bytes::from(serde_json::Value::Object(body).to_string());
        Ok(Progress::Done(RecordReply { body, ..RecordReply::default() }.to_bytes()))
    }
}
