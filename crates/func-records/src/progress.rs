//! The progress of a type's indexes, and of the sweep that brings its records to the present settings: in how many
//! shards each is complete.

use std::rc::Rc;

use bytes::Bytes;
use millrace_api::RecordReply;
use millrace_base::Error;
use serde::{Deserialize, Serialize};
use serde_json::{Map, json};

use crate::program::{PROGRESS, RecordProgram};
use crate::rows::{complete_field, read_number};
use crate::sweep;
use crate::turn::{Calls, Gathers, Progress, Turn};
use crate::wire::{decode_all, encode};

/// What is complete in one shard.
#[derive(Serialize, Deserialize)]
struct Complete {
    /// Numbers of indexes.
    indexes: Vec<u16>,
    is_swept: bool,
}

/// The name for the sweep among the names of indexes.
const SWEEP: &str = "";

/// `T--shard/_progress`
pub(crate) fn of_shard(turn: &mut Turn<'_>, type_index: usize) -> Result<Progress, Error> {
    let program = Rc::clone(turn.program);
    let of = &program.types[type_index];
    let mut complete = Complete { indexes: Vec::new(), is_swept: sweep::is_done(turn.host, of)? };
    for index in &of.indexes {
        if read_number(turn.host, &complete_field(index.number))? == Some(index.definition) {
            complete.indexes.push(index.number);
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
        let shards: Vec<Complete> = decode_all(results)?;
        let progress = |is_complete: &dyn Fn(&Complete) -> bool| {
            let complete = shards.iter().filter(|shard| is_complete(shard)).count();
            json!({ "complete_shards": complete, "shards": shards.len() })
        };
        let mut body = Map::from_iter([(SWEEP.to_owned(), progress(&|shard| shard.is_swept))]);
        for index in &self.program.types[self.type_index].indexes {
            body.insert(index.name.clone(), progress(&|shard| shard.indexes.contains(&index.number)));
        }
        let body = Bytes::from(serde_json::Value::Object(body).to_string());
        Ok(Progress::Done(RecordReply { body, ..RecordReply::default() }.to_bytes()))
    }
}
