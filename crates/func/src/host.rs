//! What a running function can ask of the world: its own entity, other entities, the time.

use bytes::Bytes;
use millrace_base::{Error, ErrorCode, UnixMillis, Value};

use crate::{AttemptToken, BuiltInCall, FetchRequest, HandlerId, Offload, RetryOptions, WorkerTurn};

/// Fields with their values, in order.
pub type FieldRows = Vec<(Vec<u8>, Value)>;

/// One thing an activation awaits. Unique within its activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId(pub u32);

/// `ctx.call`: the callee joins the caller's transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NestedCall {
    /// The callee, in the caller's app; the engine has resolved its name.
    pub handler: HandlerId,
    /// The entity's key.
    pub key: Vec<u8>,
    /// JSON text.
    pub input: Bytes,
}

/// `ctx.send`: a call that happens after the transaction commits, exactly once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The callee, in the sender's app; the engine has resolved its name.
    pub handler: HandlerId,
    /// The entity's key.
    pub key: Vec<u8>,
    /// JSON text.
    pub input: Bytes,
    /// How long to wait after the commit.
    pub delay_ms: u64,
    /// The id that the workflow is to have which the message starts.
    pub id: Option<String>,
}

/// An ordered scan of the entity's fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanRequest {
    /// Only fields that start with this.
    pub prefix: Vec<u8>,
    /// Only fields after this one.
    pub after: Option<Vec<u8>>,
    /// At most so many; bounded by `limits::SCAN_ROWS`.
    pub limit: usize,
}

/// A scan over entities of a service that lie in one shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntityScan {
    /// The service, an index into those of the scanning app.
    pub service: u16,
    /// Only keys that start with this.
    pub prefix: Vec<u8>,
    /// Only this key and those behind it.
    pub from: Vec<u8>,
    /// Of the entity of exactly the key `from`: only fields behind this, unless it is empty.
    pub behind_field: Vec<u8>,
    /// The field to give of each entity, or how the names of those to give begin.
    pub field: Vec<u8>,
    /// Whether `field` is how names begin.
    pub is_prefix: bool,
    /// At most so many fields of an entity.
    pub fields_limit: usize,
}

/// One entity of a scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntityRows {
    /// Its key.
    pub key: Vec<u8>,
    /// The fields that were asked for, in order: at least one.
    pub fields: Vec<(Vec<u8>, Value)>,
}

/// What a visitor of entities wants next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Visit {
    /// The next entity.
    Next,
    /// The first entity whose key is not before this one. Many keys are passed over at the cost of one.
    Seek(Vec<u8>),
    /// No more.
    Stop,
}

/// Gets one entity after another.
pub type EntityVisitor<'a> = dyn FnMut(EntityRows) -> Visit + 'a;

/// What a workflow that comes to a `ctx.step` has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepStart {
    /// Run the step's code, then report with [`Flow::end_step`].
    Run(OperationId),
    /// Its result is known: the activation will be resumed with it.
    Known(OperationId),
}

/// How loud `ctx.log` and `console.*` are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// For whoever is looking for a mistake.
    Debug,
    /// Worth knowing.
    Info,
    /// Somebody should look at it.
    Warn,
    /// Something failed.
    Error,
}

/// The world of one activation during one turn. Reads see the transaction's own writes. Every method
/// that changes something fails in a query, and every field method fails in a route.
pub trait Host {
    /// One field of the activation's entity.
    fn get(&mut self, field: &[u8]) -> Result<Option<&Value>, Error>;

    /// Sets a field; takes effect when the transaction commits.
    fn set(&mut self, field: &[u8], value: Value) -> Result<(), Error>;

    /// Deletes a field; says whether it was there.
    fn delete(&mut self, field: &[u8]) -> Result<bool, Error>;

    /// Fields in the order of their bytes.
    fn scan(&mut self, request: &ScanRequest) -> Result<Vec<(Vec<u8>, Value)>, Error>;

    /// Keys of a service's entities that lie in the activation's shard and have a field. `service` is an index into the
    /// services of the activation's own app. The keys start with `prefix`, come after `after`, and are in the order of
    /// their bytes. They are at most `limit` and never more than `limits::SCAN_ROWS`.
    ///
    /// It gives what is committed and what this transaction has written itself. It also gives entities that a
    /// transaction is about to write whose outcome this shard has yet to hear. What such a key names may turn out not
    /// to be there, and a call of it waits for the outcome. It locks nothing, so an entity made later by somebody else
    /// is missed, also by a transaction that goes on. Refused in routes and workflows, which have no shard.
    fn keys(&mut self, service: u16, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<Vec<Vec<u8>>, Error>;

    /// `ctx.record`: an operation of a built-in app joins the transaction, as a call does; in a workflow it is one of its
    /// own. The activation will be resumed with the operation's reply, as the built-in app encodes it.
    ///
    /// # Errors
    /// `forbidden` when the activation's app may not ask for it; in the built-in app's terms when there is no such service.
    fn operate(&mut self, call: BuiltInCall<'_>) -> Result<OperationId, Error>;

    /// Calls another entity inside this transaction. The activation will be resumed with its output.
    fn call(&mut self, call: NestedCall) -> Result<OperationId, Error>;

    /// Sends a message if the transaction commits. A message that starts a workflow has an
    /// invocation id, which is returned; other messages have none.
    fn send(&mut self, message: Message) -> Result<Option<String>, Error>;

    /// Sends a signal to a workflow, if the transaction commits. `payload` is JSON text.
    fn signal(&mut self, invocation: &str, name: &str, payload: Bytes) -> Result<(), Error>;

    /// Starts work too slow for a core (argon2id). The activation will be resumed with its result.
    fn offload(&mut self, work: Offload) -> Result<OperationId, Error>;

    /// `ctx.fetch`, in routes before their first call and in workflows. The activation will be resumed
    /// with JSON text `{"status":…,"headers":[[name,value]…],"body":"base64"}`.
    fn fetch(&mut self, request: FetchRequest) -> Result<OperationId, Error>;

    /// CPU time that the activation's transaction has used before this turn: of all its activations, as far as this host knows.
    fn cpu_spent_ns(&self) -> u64 {
        0
    }

    /// The turn has ended, and used that much CPU time. Engines that measure it say so, once a turn.
    fn spend_cpu(&mut self, _turn_ns: u64) {}

    /// What only the engine of a built-in app may ask for.
    ///
    /// # Errors
    /// `forbidden` in other apps.
    fn built_in(&mut self) -> Result<&mut dyn BuiltInHost, Error> {
        Err(not_built_in())
    }

    /// What only the engine of workers may ask for.
    ///
    /// # Errors
    /// `forbidden` when this host has no workers.
    fn worker(&mut self) -> Result<&mut dyn WorkerHost, Error> {
        Err(Error::new(ErrorCode::Forbidden, "this host has no workers"))
    }

    /// What only a workflow may ask for; `None` in other handlers.
    fn flow(&mut self) -> Option<&mut dyn Flow> {
        None
    }

    /// The time of the invocation: the same through all its activations and retries.
    fn now(&self) -> UnixMillis;

    /// 64 random bits from the invocation's seed: the same in a retry.
    fn random(&mut self) -> u64;

    /// Writes a line to the node's log.
    fn log(&mut self, level: LogLevel, line: &str);
}

/// What an app is told that asks for what only built-in apps get.
#[must_use]
pub fn not_built_in() -> Error {
    Error::new(ErrorCode::Forbidden, "only a built-in app reaches what belongs to another app")
}

/// What the engine of a built-in app may ask of the world beyond others.
pub trait BuiltInHost {
    /// Gives entities that [`Host::keys`] would name to `visit`, in the order of their keys, until it stops: those that
    /// have a field that is asked for.
    ///
    /// # Errors
    /// As for [`Host::keys`].
    fn visit_entities(&mut self, scan: &EntityScan, visit: &mut EntityVisitor<'_>) -> Result<(), Error>;

    /// Once the transaction is durable, the body of this number in the activation's shard is referred to no more. A crash may
    /// forget it: then a later look at all bodies finds it.
    ///
    /// # Errors
    /// As for [`Host::set`].
    fn release_body(&mut self, number: u64) -> Result<(), Error>;

    /// How many shards there are: with it, [`millrace_base::shard_of_key`] says where an entity is.
    fn shard_count(&self) -> u16;

    /// The handler of that name, `[app, service, handler]`, in another app. What belongs to a built-in app belongs to no
    /// app, and what it sets off is some app's business. `on_behalf_of` names what sets it off, where the other app has to
    /// allow that.
    ///
    /// # Errors
    /// `forbidden`, or what names that mean nothing give.
    fn find(&mut self, names: [&str; 3], on_behalf_of: Option<&str>) -> Result<HandlerId, Error>;
}

/// What the engine of workers may ask of the world beyond others.
pub trait WorkerHost {
    /// Sends frames to a worker of the activation's app. The activation will be resumed with the worker's turn. Of each
    /// activation at most one exchange is under way.
    ///
    /// # Errors
    /// When the activation's handler has ended.
    fn exchange(&mut self, turn: WorkerTurn) -> Result<OperationId, Error>;

    /// Names this run of the activation: no other has the same, not even one that is a repetition of it.
    fn attempt(&mut self) -> AttemptToken;

    /// How long the activation may still take, which may take `timeout_ms` by itself: the invocation that it is part of may end
    /// sooner.
    fn left_ms(&mut self, timeout_ms: u64) -> u64;

    /// Counts the changes of the activation's entity in this transaction, whoever made them. 0 where the activation has no entity.
    fn entity_changes(&self) -> u64;

    /// All fields of the activation's entity, if names and values have at most `max_bytes` together.
    ///
    /// # Errors
    /// As for [`Host::get`].
    fn whole(&mut self, max_bytes: usize) -> Result<Option<FieldRows>, Error>;
}

/// What a workflow may ask of the world beyond other handlers.
pub trait Flow {
    /// `ctx.sleep`. The activation will be resumed with `null`.
    fn sleep(&mut self, delay_ms: u64) -> Result<OperationId, Error>;

    /// `ctx.wait`. The activation will be resumed with the payload of the next signal of that name that
    /// nobody has taken yet. If none comes in time, it is resumed with `wait-limit`.
    fn wait(&mut self, name: &str, timeout_ms: Option<u64>) -> Result<OperationId, Error>;

    /// `ctx.result`. The activation will be resumed with the output of that workflow of the same app once it has ended,
    /// or with its error. If it does not end in time, it is resumed with `wait-limit`.
    fn result(&mut self, invocation: &str, timeout_ms: Option<u64>) -> Result<OperationId, Error>;

    /// How the next call or step is tried again, if it fails.
    fn retry_next(&mut self, options: RetryOptions);

    /// `ctx.step`: asks whether the step's code has to run.
    fn begin_step(&mut self, name: &str) -> Result<StepStart, Error>;

    /// A step's code has ended with JSON text or an error, which is noted. The activation will be
    /// resumed for `operation` with what was noted.
    fn end_step(&mut self, operation: OperationId, result: Result<Bytes, Error>) -> Result<(), Error>;

    /// Whose operations the next ones are: those of the code of the step with this operation, or
    /// the workflow's own. A turn begins with the workflow's own. A replay that knows a step's
    /// result never runs its code, so what that code asked for must not be counted as the workflow's.
    fn within_step(&mut self, step: Option<OperationId>);

    /// `ctx.compensate`: a call to make if the workflow fails or is cancelled; the
    /// last one first.
    fn compensate(&mut self, call: NestedCall) -> Result<(), Error>;

    /// The id of the running workflow's invocation.
    fn invocation(&self) -> String;
}

impl dyn Host + '_ {
    /// What only a workflow may ask for, for `ctx.` and this name.
    ///
    /// # Errors
    /// In other handlers.
    pub fn in_workflow(&mut self, name: &str) -> Result<&mut dyn Flow, Error> {
        let refused = || Error::new(ErrorCode::FunctionFailed, format!("ctx.{name} is for workflows only"));
        self.flow().ok_or_else(refused)
    }
}

/// One entity as somebody sees it who only reads its fields: every [`Host`], and less than one.
pub trait Reader {
    /// As [`Host::now`].
    fn now(&self) -> UnixMillis;

    /// As [`Host::get`].
    ///
    /// # Errors
    /// Those of [`Host::get`].
    fn get(&mut self, field: &[u8]) -> Result<Option<&Value>, Error>;

    /// The entity's key. Empty: it cannot be said here, so the query has to be run.
    fn key(&self) -> &[u8] {
        b""
    }

    /// A field of another entity of the same shard and app; the service is an index into the app's. `None`: it cannot be
    /// said here, so the query has to be run.
    ///
    /// # Errors
    /// Those of [`Host::get`].
    fn get_beside(&mut self, _service: u16, _key: &[u8], _field: &[u8]) -> Result<Option<Option<Value>>, Error> {
        Ok(None)
    }
}

impl<H: Host + ?Sized> Reader for H {
    #[inline]
    fn now(&self) -> UnixMillis {
        Host::now(self)
    }

    #[inline]
    fn get(&mut self, field: &[u8]) -> Result<Option<&Value>, Error> {
        Host::get(self, field)
    }
}
