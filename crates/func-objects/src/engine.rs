//! The engine: activations of the built-in app, and what they wait for.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use bytes::Bytes;
use millrace_api::objects::{ObjectOperation, ObjectRequest, Requester};
use millrace_base::{Error, ErrorCode};
use millrace_func::{
    ActivationId, Answer, App, Engine, HandlerId, Host, OperationId, Output, Program, Reader, Service, Start,
    TurnResult,
};

use crate::access::Ask;
use crate::names::{
    ACCOUNT, BUCKET, ERASE, EXPIRE, NOTIFY, OBJECT, READ, SETTINGS, SLICE, SLICE_USAGE, UPLOAD, WRITE, bucket_key,
    place_of, services, upload_key,
};
use crate::rows::{INFO, PartRow, from_value, part_field};
use crate::settings::SettingsCache;
use crate::turn::{Progress, Turn, Waiting};
use crate::wire::{ChangeInput, ChangeOutput, SettingsOutput, decode, encode};
use crate::{account, bucket, expire, lifecycle, notify, object, object_read, slices, upload, whole};

/// Runs operations on objects. See the crate's documentation.
pub struct ObjectsEngine {
    programs: RefCell<BTreeSet<Program>>,
    settings: SettingsCache,
    /// Activations that wait.
    activations: RefCell<BTreeMap<u32, Waits>>,
}

struct Waits {
    program: Program,
    key: Rc<[u8]>,
    waiting: Waiting,
}

impl Default for ObjectsEngine {
    fn default() -> Self {
        Self::with_day(lifecycle::DAY_MS)
    }
}

fn unknown() -> Error {
    Error::new(ErrorCode::Internal, "the engine has no such program, service or handler")
}

impl ObjectsEngine {
    /// With a day of lifecycle rules of so many milliseconds: by a short one, rules can be tried.
    #[must_use]
    pub fn with_day(day_ms: u64) -> Self {
        Self { programs: RefCell::default(), settings: SettingsCache::new(day_ms), activations: RefCell::default() }
    }

    fn start_own(
        &self,
        activation: ActivationId,
        id: HandlerId,
        (key, input): (&[u8], &[u8]),
        host: &mut dyn Host,
    ) -> TurnResult {
        let mut turn = Turn { host, program: id.program, settings: &self.settings, key };
        let progress = run(&mut turn, (id.service, id.handler), input);
        self.progressed(activation, id.program, key, progress)
    }

    fn progressed(
        &self,
        activation: ActivationId,
        program: Program,
        key: &[u8],
        progress: Result<Progress, Error>,
    ) -> TurnResult {
        match progress {
            Ok(Progress::Done(output)) => TurnResult::Done(Ok(Output::Value(output))),
            Ok(Progress::Wait(waiting)) => {
                self.activations.borrow_mut().insert(activation.0, Waits { program, key: key.into(), waiting });
                TurnResult::Waiting
            }
            Err(error) => TurnResult::Done(Err(error)),
        }
    }
}

/// Runs one handler until it ends or waits.
fn run(turn: &mut Turn<'_>, handler: (u16, u16), input: &[u8]) -> Result<Progress, Error> {
    let key = turn.key;
    if handler.0 != ACCOUNT && place_of(key).is_none() {
        return Err(unknown());
    }
    match handler {
        (BUCKET, READ) => bucket::read(turn, input),
        (BUCKET, WRITE) => bucket::write(turn, input),
        (BUCKET, SETTINGS) => {
            let settings = bucket::settings(turn)?;
            Ok(Progress::Done(encode(&settings.output())))
        }
        (BUCKET, EXPIRE) => expire::run(turn, input),
        (BUCKET, NOTIFY) => {
            notify::run(turn, turn.bucket(), input)?;
            Ok(Progress::Done(Bytes::new()))
        }
        (BUCKET, SLICE) => slices::run(turn, input),
        (BUCKET, SLICE_USAGE) => Ok(Progress::Done(encode(&bucket::usage(turn)?))),
        (OBJECT | UPLOAD, READ) => read_with_settings(turn, handler.0, input),
        (OBJECT | UPLOAD, WRITE) => change(turn, handler.0, input),
        (UPLOAD, ERASE) => {
            upload::erase(turn, !input.is_empty())?;
            Ok(Progress::Done(Bytes::new()))
        }
        (ACCOUNT, READ) => account::read(turn, key, input),
        (ACCOUNT, WRITE) => account::write(turn, input),
        _ => Err(unknown()),
    }
}

/// Asks the bucket for its settings first.
fn read_with_settings(turn: &mut Turn<'_>, service: u16, input: &[u8]) -> Result<Progress, Error> {
    let call = turn.call((BUCKET, SETTINGS), bucket_key(turn.place()), Bytes::new())?;
    let input = input.to_vec();
    Ok(Turn::then(call, move |turn, output| {
        let settings = turn.settings.told(decode::<SettingsOutput>(&output)?);
        let request = ObjectRequest::from_bytes(&input)?;
        if let Some(elsewhere) = slices::elsewhere(turn, &settings, &request, (service, READ), &input)? {
            return Ok(elsewhere);
        }
        if service == UPLOAD {
            let reply = upload::read(turn, &settings, &request)?;
            return Ok(Progress::Done(reply.to_bytes(b"")));
        }
        if let ObjectOperation::GetWhole(_) = &request.operation {
            return whole::read(turn, whole::Reading::new(settings, input));
        }
        let ask = Ask { settings: &settings, request: &request, now_ms: turn.host.now().0 };
        if let Some(read) = object_read::read(turn.host, &ask, &request.operation) {
            return object_read::with_checksum(turn, &request, read?);
        }
        object_read::read_more(turn, &ask, &request, &input)
    }))
}

fn change(turn: &mut Turn<'_>, service: u16, input: &[u8]) -> Result<Progress, Error> {
    match decode(input)? {
        ChangeInput::Operation { settings, request, refusal_is_answer } => {
            let settings = turn.settings.told(settings);
            let raw = request;
            let request = ObjectRequest::from_bytes(&raw)?;
            if service == UPLOAD {
                return upload::change(turn, &settings, &request, &raw);
            }
            let output = match object::change(turn, &settings, &request) {
                // Nothing has been written yet where an operation is refused.
                Err(error) if refusal_is_answer && error.code == ErrorCode::ObjectRefused => {
                    let code =
                        millrace_api::objects::Refusal::of(&error).map_or("InternalError", |refusal| refusal.as_str());
                    ChangeOutput {
                        objects: 0,
                        size_bytes: 0,
                        is_repeated: false,
                        reply: Err((code.to_owned(), error.message)),
                    }
                }
                other => other?,
            };
            Ok(Progress::Done(encode(&output)))
        }
        ChangeInput::Expire { settings, bucket, key } => {
            let settings = turn.settings.told(settings);
            // Nobody asks: the node itself does it.
            let requester = Requester { is_system: true, ..Requester::default() };
            let operation = ObjectOperation::HeadBucket;
            let request = ObjectRequest { requester, bucket: &bucket, key: &key, operation, body: Bytes::new() };
            let ask = Ask { settings: &settings, request: &request, now_ms: turn.host.now().0 };
            let output = if service == UPLOAD { upload::expire(turn, &ask)? } else { object::expire(turn, &ask)? };
            Ok(Progress::Done(encode(&output)))
        }
        ChangeInput::Completed { settings, request: raw, row } => {
            let settings = turn.settings.told(settings);
            let request = ObjectRequest::from_bytes(&raw)?;
            let output = object::completed(turn, &settings, &request, *row)?;
            Ok(Progress::Done(encode(&output)))
        }
    }
}

/// Answers a read of an object at once, if its own fields and the bucket's say enough.
fn answer(cache: &SettingsCache, input: &[u8], reader: &mut dyn Reader) -> Option<Result<Answer, Error>> {
    let request = ObjectRequest::from_bytes(input).ok()?;
    if !matches!(request.operation, ObjectOperation::Get(_)) {
        return None;
    }
    let place = place_of(reader.key())?.to_owned();
    let key = bucket_key(&place);
    let read = || -> Result<Option<Bytes>, Error> {
        let Some(row) = reader.get_beside(BUCKET, &key, INFO)? else { return Ok(None) };
        let row = row.ok_or_else(|| slices::absent(&place))?;
        let Some(settings) = cache.read(request.bucket, &row, |field| reader.get_beside(BUCKET, &key, field))? else {
            return Ok(None);
        };
        if settings.row.slices.place(request.bucket, request.key) != place {
            return Ok(None);
        }
        let ask = Ask { settings: &settings, request: &request, now_ms: reader.now().0 };
        let Some(read) = object_read::read(reader, &ask, &request.operation) else { return Ok(None) };
        let (mut reply, body) = read?;
        if let Some((upload, number)) = object_read::lacks_checksum(&reply) {
            let upload = upload_key(&place, request.key, upload);
            let Some(row) = reader.get_beside(UPLOAD, &upload, &part_field(number))? else { return Ok(None) };
            let row: Option<PartRow> = row.as_ref().map(from_value).transpose()?;
            object_read::add_checksum(&mut reply, row.and_then(|row| row.checksum));
        }
        Ok(Some(reply.to_bytes(&body)))
    };
    let mut read = read;
    read().transpose().map(|answer| answer.map(Answer::Value))
}

impl Engine for ObjectsEngine {
    fn load(&self, program: Program, _app: &App) -> Result<(), Error> {
        self.programs.borrow_mut().insert(program);
        Ok(())
    }

    fn services(&self, program: Program) -> Vec<Service> {
        if self.programs.borrow().contains(&program) { services() } else { Vec::new() }
    }

    fn unload(&self, program: Program) {
        self.programs.borrow_mut().remove(&program);
        self.activations.borrow_mut().retain(|_, waits| waits.program != program);
    }

    fn answer(&self, query: HandlerId, input: &[u8], reader: &mut dyn Reader) -> Option<Result<Answer, Error>> {
        match (query.service, query.handler) {
            (OBJECT, READ) => answer(&self.settings, input, reader),
            _ => None,
        }
    }

    fn start(&self, activation: ActivationId, start: Start<'_>, host: &mut dyn Host) -> TurnResult {
        match start {
            Start::Handler { id, key, input } if self.programs.borrow().contains(&id.program) => {
                self.start_own(activation, id, (key, input), host)
            }
            _ => TurnResult::Done(Err(unknown())),
        }
    }

    fn resume(
        &self,
        activation: ActivationId,
        operation: OperationId,
        result: Result<Bytes, Error>,
        host: &mut dyn Host,
    ) -> TurnResult {
        let waits = self.activations.borrow_mut().remove(&activation.0);
        let Some(Waits { program, key, waiting }) = waits else {
            return TurnResult::Done(Err(unknown()));
        };
        let mut turn = Turn { host, program, settings: &self.settings, key: &key };
        let progress = waiting.resume(&mut turn, operation, result);
        self.progressed(activation, program, &key, progress)
    }

    fn cancel(&self, activation: ActivationId) {
        self.activations.borrow_mut().remove(&activation.0);
    }
}
