//! Objects that functions read: metadata and all of the content in one answer.

use std::rc::Rc;

use millrace_api::objects::{Content, ObjectOperation, ObjectReply, ObjectRequest, PartBody, Refusal};
use millrace_base::{Error, ErrorCode, limits};
use millrace_func::Offload;

use crate::access::Ask;
use crate::object_read;
use crate::settings::Settings;
use crate::turn::{Progress, Turn};

/// How often a read begins again because the object was replaced between its metadata and its bodies. Only a query can
/// come to that: it holds no lock.
const ATTEMPTS: usize = 8;

/// A read under way.
pub(crate) struct Reading {
    settings: Rc<Settings>,
    /// The request as it came.
    input: Vec<u8>,
    attempts: usize,
    /// Where the content was that could not be read.
    failed: Option<Content>,
}

impl Reading {
    pub(crate) fn new(settings: Rc<Settings>, input: Vec<u8>) -> Self {
        Self { settings, input, attempts: 0, failed: None }
    }
}

/// Reads the object, and has the bodies read that its content lies in.
pub(crate) fn read(turn: &mut Turn<'_>, reading: Reading) -> Result<Progress, Error> {
    let request = ObjectRequest::from_bytes(&reading.input)?;
    let ObjectOperation::GetWhole(conditions) = &request.operation else {
        return Err(Refusal::InvalidRequest.error("this does not read an object whole"));
    };
    let ask = Ask { settings: &reading.settings, request: &request, now_ms: turn.host.now().0 };
    let (reply, inline) = object_read::get(turn.host, &ask, conditions, false)?;
    let ObjectReply::Object { info, content } = &reply else {
        return Err(Error::new(ErrorCode::Internal, "a read of an object was answered with something else"));
    };
    if info.size_bytes > limits::OBJECT_READ_BYTES as u64 {
        let (has, most) = (info.size_bytes, limits::OBJECT_READ_BYTES);
        let message = format!("a function reads objects of at most {most} bytes; this one has {has}");
        return Err(Error::new(ErrorCode::SizeLimit, message));
    }
    let numbers = match content {
        Content::Inline => return Ok(Progress::Done(reply.to_bytes(&inline))),
        Content::Body(number) => vec![*number],
        Content::Parts { parts, .. } => parts.iter().map(|(_, PartBody { number, .. })| *number).collect(),
    };
    let (content, attempts) = (content.clone(), reading.attempts + 1);
    let operation = turn.host.offload(Offload::ReadBodies { numbers })?;
    Ok(Turn::then_all(vec![operation], move |turn, mut results| {
        match results.pop().expect("one operation has one result") {
            Ok(bytes) => Ok(Progress::Done(reply.to_bytes(&bytes))),
            // A body that is still the object's is damaged. Otherwise the object was replaced.
            Err(error) if attempts == ATTEMPTS || reading.failed.as_ref() == Some(&content) => Err(error),
            Err(_) => read(turn, Reading { attempts, failed: Some(content), ..reading }),
        }
    }))
}
