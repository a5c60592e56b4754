//! The operation `GetMany`: several records from one consistent state, by nested calls.

use std::collections::VecDeque;

use bytes::Bytes;
use millrace_api::{Form, RecordOperation, RecordReply};
use millrace_base::{Error, ErrorCode, limits};
use serde_json::json;

use crate::effects::id_member;
use crate::program::READ;
use crate::read::{check_json, object_head};
use crate::turn::{Calls, Gathers, Progress, Turn};

/// Records asked for together, at most and at first.
const WAVE: usize = 64;
const FIRST_WAVE: usize = 16;

/// About as many bytes as the answers of one wave may have. They are in memory at once, beside the reply.
const WAVE_BYTES: usize = 4 << 20;

/// How many records to ask for next, after so many had so many bytes.
pub(crate) fn wave(records: usize, size_bytes: usize) -> usize {
    match size_bytes.checked_div(records) {
        None => FIRST_WAVE,
        Some(average) => (WAVE_BYTES / average.max(1)).clamp(1, WAVE),
    }
}

pub(crate) fn start(turn: &mut Turn<'_>, type_index: usize, ids: &[&[u8]], form: Form) -> Result<Progress, Error> {
    check_json(form)?;
    if ids.len() > limits::BATCH_RECORDS {
        let message = format!("{} records are asked for; {} are allowed", ids.len(), limits::BATCH_RECORDS);
        return Err(Error::new(ErrorCode::TooLarge, message));
    }
    let get = RecordOperation::Get { form }.to_bytes();
    let ids = ids.iter().map(|id| id.to_vec()).collect();
    let many = GetMany {
        type_index,
        get,
        ids,
        wave: Vec::new(),
        calls: Calls::default(),
        body: b"{\"records\":[".to_vec(),
        found: 0,
        read: 0,
    };
    many.next(turn)
}

struct GetMany {
    type_index: usize,
    get: Bytes,
    ids: VecDeque<Vec<u8>>,
    wave: Vec<Vec<u8>>,
    calls: Calls,
    body: Vec<u8>,
    found: u32,
    /// Records asked for so far.
    read: usize,
}

impl GetMany {
    fn next(mut self, turn: &mut Turn<'_>) -> Result<Progress, Error> {
        let most = wave(self.read, self.body.len());
        self.wave = self.ids.drain(..self.ids.len().min(most)).collect();
        self.read += self.wave.len();
        if self.wave.is_empty() {
            self.body.extend_from_slice(b"]}");
            let reply = RecordReply { matched: self.found, body: Bytes::from(self.body), ..RecordReply::default() };
            return Ok(Progress::Done(reply.to_bytes()));
        }
        let service = turn.record_type(self.type_index).service;
        for id in &self.wave {
            self.calls.push(turn.call((service, READ), id, self.get.clone())?);
        }
        Ok(Progress::Wait(Box::new(self)))
    }

    fn add(&mut self, id: &[u8], result: Result<Bytes, Error>) -> Result<(), Error> {
        if !self.body.ends_with(b"[") {
            self.body.push(b',');
        }
        self.body.push(b'{');
        match result {
            Ok(output) => {
                let reply = RecordReply::from_bytes(output)?;
                self.found += 1;
                self.body.extend_from_slice(&object_head(id, reply.tag.unwrap_or(0)));
                self.body.extend_from_slice(&reply.body);
            }
            // Only errors about this record; any other error concerns them all.
            Err(error) if matches!(error.code, ErrorCode::UnknownRecord | ErrorCode::WrongType) => {
                let said = json!({ "code": error.code.as_str(), "detail": error.message });
                self.body.extend_from_slice(format!("{},\"error\":{said}", id_member(id)).as_bytes());
            }
            Err(error) => return Err(error),
        }
        self.body.push(b'}');
        if self.body.len() > limits::PAGE_BYTES {
            let message = "the records have too many bytes for one reply: ask for fewer at a time";
            return Err(Error::new(ErrorCode::TooLarge, message));
        }
        Ok(())
    }
}

impl Gathers for GetMany {
    fn calls(&mut self) -> &mut Calls {
        &mut self.calls
    }

    fn gathered(
        mut self: Box<Self>,
        turn: &mut Turn<'_>,
        results: Vec<Result<Bytes, Error>>,
    ) -> Result<Progress, Error> {
        for (id, result) in std::mem::take(&mut self.wave).into_iter().zip(results) {
            self.add(&id, result)?;
        }
        self.next(turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_records_are_asked_for_one_by_one() {
        assert_eq!(wave(0, 12), FIRST_WAVE);
        assert_eq!(wave(16, 16 * 100), WAVE);
        assert_eq!(wave(16, 64 << 20), 1);
        assert_eq!(wave(5, 3), WAVE);
    }
}
