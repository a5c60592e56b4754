//! Frames that a server sends.

use bytes::Bytes;

use super::header::put_frame;
use super::payload::{PayloadReader, put_bytes, put_error, put_length, put_result, put_value};
use super::{FrameError, FrameHeader, FrameResult, FrameValue, WORKER_FRAME_HEADER_BYTES, WorkerFrameError};

const START: u8 = 0x01;
const RESULT: u8 = 0x02;
const CANCEL: u8 = 0x03;
const PING: u8 = 0x04;
const READY: u8 = 0x05;
const FIELDS: u8 = 0x06;

const WHOLE: u8 = 1;
const DECLARED: u8 = 2;
const IS_SET: u8 = 1;
const REST_IS_VOID: u8 = 1;

/// Where `seen` stands in START: behind the token, the kind and the deadline.
const SEEN_OFFSET: usize = WORKER_FRAME_HEADER_BYTES + 16 + 1 + 4;

/// Names an attempt.
pub type AttemptToken = [u8; 16];

/// What an attempt runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptKind {
    /// A handler that may write.
    Transaction,
    /// A handler that only reads.
    Query,
    /// A workflow.
    Workflow,
    /// A route.
    Route,
}

const KINDS: [AttemptKind; 4] =
    [AttemptKind::Transaction, AttemptKind::Query, AttemptKind::Workflow, AttemptKind::Route];

/// START: everything a handler needs to begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartFrame {
    /// Names the attempt.
    pub attempt: AttemptToken,
    /// What it runs.
    pub kind: AttemptKind,
    /// How long the server waits for it.
    pub deadline_ms: u32,
    /// Frames of this attempt that the server has already.
    pub seen: u32,
    /// The service.
    pub service: String,
    /// The handler; a route's method and path pattern.
    pub handler: String,
    /// The entity's key.
    pub key: Bytes,
    /// A workflow's id.
    pub invocation: String,
    /// The time of the invocation, Unix milliseconds.
    pub now_ms: u64,
    /// Of random numbers.
    pub seed: [u8; 16],
    /// JSON text.
    pub input: Bytes,
    /// Whether `fields` are all that the entity has.
    pub is_whole: bool,
    /// Whether all declared fields that are set are among `fields`.
    pub has_declared: bool,
    /// Fields of the entity.
    pub fields: Vec<(Bytes, FrameValue)>,
}

/// A frame from the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerFrame {
    /// An attempt begins.
    Start(Box<StartFrame>),
    /// What became of an operation. `is_set` is for GET: whether the field is set.
    Result {
        /// Which.
        operation: u32,
        /// Of GET: the field is set.
        is_set: bool,
        /// What it gave.
        result: FrameResult,
    },
    /// The attempt is over.
    Cancel(FrameError),
    /// Is the worker there?
    Ping,
    /// Others have changed the handler's entity. `is_rest_void`: what else the worker knows of it counts no more.
    Fields {
        /// Whether fields that do not appear may have changed.
        is_rest_void: bool,
        /// Fields, with their values if they are set.
        fields: Vec<(Bytes, Option<FrameValue>)>,
    },
    /// A worker that has dialled in serves this deployment from now on.
    Ready(String),
}

impl ServerFrame {
    /// Appends the frame, with stream 0.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Start(start) => start.encode(out),
            Self::Result { operation, is_set, result } => {
                put_frame(out, RESULT, if *is_set { IS_SET } else { 0 }, |out| {
                    out.extend_from_slice(&operation.to_be_bytes());
                    put_result(out, result);
                });
            }
            Self::Cancel(error) => put_frame(out, CANCEL, 0, |out| put_error(out, error)),
            Self::Ping => put_frame(out, PING, 0, |_| {}),
            Self::Fields { is_rest_void, fields } => {
                put_frame(out, FIELDS, if *is_rest_void { REST_IS_VOID } else { 0 }, |out| {
                    put_length(out, fields.len());
                    for (name, value) in fields {
                        put_bytes(out, name);
                        out.push(u8::from(value.is_some()));
                        value.iter().for_each(|value| put_value(out, value));
                    }
                });
            }
            Self::Ready(deployment) => put_frame(out, READY, 0, |out| put_bytes(out, deployment.as_bytes())),
        }
    }

    /// Reads the payload that came with `header`.
    ///
    /// # Errors
    /// It is not such a frame.
    pub fn decode(header: FrameHeader, payload: Bytes) -> Result<Self, WorkerFrameError> {
        if payload.len() != header.payload_bytes as usize {
            return Err(WorkerFrameError::Length);
        }
        let known = match header.kind {
            START => WHOLE | DECLARED,
            RESULT => IS_SET,
            FIELDS => REST_IS_VOID,
            _ => 0,
        };
        let mut reader = PayloadReader::new(payload);
        let frame = match header.kind {
            START => Self::Start(Box::new(StartFrame::decode(header.flags, &mut reader)?)),
            RESULT => {
                let is_set = header.flags & IS_SET != 0;
                Self::Result { operation: reader.u32()?, is_set, result: reader.result()? }
            }
            CANCEL => Self::Cancel(reader.error()?),
            PING => Self::Ping,
            READY => Self::Ready(reader.text()?),
            FIELDS => {
                // A name's length, and whether there is a value.
                let count = reader.count(4 + 1)?;
                let mut fields = Vec::with_capacity(count);
                for _ in 0..count {
                    fields.push((reader.bytes()?, reader.optional(PayloadReader::value)?));
                }
                Self::Fields { is_rest_void: header.flags & REST_IS_VOID != 0, fields }
            }
            kind => return Err(WorkerFrameError::Kind(kind)),
        };
        reader.end()?;
        if header.flags & !known == 0 { Ok(frame) } else { Err(WorkerFrameError::Flags(header.flags)) }
    }
}

impl StartFrame {
    fn encode(&self, out: &mut Vec<u8>) {
        let flag = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        let flags = flag(self.is_whole, WHOLE) | flag(self.has_declared, DECLARED);
        put_frame(out, START, flags, |out| {
            out.extend_from_slice(&self.attempt);
            out.push(self.kind as u8);
            out.extend_from_slice(&self.deadline_ms.to_be_bytes());
            out.extend_from_slice(&self.seen.to_be_bytes());
            put_bytes(out, self.service.as_bytes());
            put_bytes(out, self.handler.as_bytes());
            put_bytes(out, &self.key);
            put_bytes(out, self.invocation.as_bytes());
            out.extend_from_slice(&self.now_ms.to_be_bytes());
            out.extend_from_slice(&self.seed);
            put_bytes(out, &self.input);
            put_length(out, self.fields.len());
            for (name, value) in &self.fields {
                put_bytes(out, name);
                put_value(out, value);
            }
        });
    }

    fn decode(flags: u8, reader: &mut PayloadReader) -> Result<Self, WorkerFrameError> {
        let attempt = reader.array()?;
        let kind = reader.byte()?;
        let kind = *KINDS.get(usize::from(kind)).ok_or(WorkerFrameError::Form(kind))?;
        let (deadline_ms, seen) = (reader.u32()?, reader.u32()?);
        let (service, handler, key, invocation) = (reader.text()?, reader.text()?, reader.bytes()?, reader.text()?);
        let (now_ms, seed, input) = (reader.u64()?, reader.array()?, reader.bytes()?);
        // A name's length, and a value's kind and length.
        let count = reader.count(4 + 1 + 4)?;
        let mut fields = Vec::with_capacity(count);
        for _ in 0..count {
            fields.push((reader.bytes()?, reader.value()?));
        }
        let (is_whole, has_declared) = (flags & WHOLE != 0, flags & DECLARED != 0);
        Ok(Self {
            attempt,
            kind,
            deadline_ms,
            seen,
            service,
            handler,
            key,
            invocation,
            now_ms,
            seed,
            input,
            is_whole,
            has_declared,
            fields,
        })
    }
}

/// Changes how many frames and how much time the START frame at the beginning of `frames` speaks of.
pub fn set_seen(frames: &mut [u8], seen: u32, deadline_ms: u32) {
    if let Some(fields) = frames.get_mut(SEEN_OFFSET - 4..SEEN_OFFSET + 4) {
        fields[..4].copy_from_slice(&deadline_ms.to_be_bytes());
        fields[4..].copy_from_slice(&seen.to_be_bytes());
    }
}
