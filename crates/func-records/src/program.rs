//! A loaded version of the built-in app: its types, compiled, and its services.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use millrace_api::{AppFile, Form, HandlerKind, READ_HANDLER, SHARD_SERVICE, SWEEP_HANDLER, WRITE_HANDLER};
use millrace_avpath::Path;
use millrace_avro::{Resolution, Schema};
use millrace_base::{Error, ErrorCode, Name, fingerprint, limits};
use millrace_func::{App, HandlerId, Program, Service};
use millrace_registry::{Create, Registry, When};

use crate::rows::index_row;
use crate::stored::Stored;
use crate::{triggers, values};

/// Handlers of a type's service, in their order.
pub(crate) const READ: u16 = 0;
pub(crate) const WRITE: u16 = 1;
pub(crate) const EXPIRE: u16 = 2;
pub(crate) const MIGRATE: u16 = 3;
/// As [`WRITE`], by a trigger. Its depth, one byte, stands before the operation.
pub(crate) const FOLLOW: u16 = 4;

/// Handlers of `T--shard`, in their order.
pub(crate) const APPLY: u16 = 0;
pub(crate) const SCAN: u16 = 1;
pub(crate) const CHANGES: u16 = 2;
pub(crate) const SWEEP: u16 = 3;
pub(crate) const PROGRESS: u16 = 4;

/// The file of the registry. Every version of the built-in app has it, except an empty one.
const REGISTRY: &str = "registry.json";

/// The handler of a type that deletes a record when it expires.
const EXPIRE_HANDLER: &str = "_expire";

/// The service that keeps a type's index rows, changes and sweeps.
#[must_use]
pub fn shard_service(type_name: &str) -> String {
    format!("{type_name}{SHARD_SERVICE}")
}

/// What a service of the program stands for.
#[derive(Clone, Copy)]
pub(crate) enum ServiceRole {
    /// A type, by its index.
    Type(usize),
    /// Its `T--shard`.
    Shard(usize),
    /// Its triggers.
    Triggers { inner_service: u16 },
}

/// How long changes are kept.
#[derive(Clone)]
pub(crate) struct ChangesKept {
    pub retention_ms: u64,
    pub count: u64,
}

/// A secondary index.
pub(crate) struct Index {
    pub number: u16,
    pub name: String,
    pub path: Path,
    pub ignore_case: bool,
    /// It has one row for each record.
    pub is_single: bool,
    /// A fingerprint of its definition.
    pub definition: u64,
}

/// A trigger.
pub(crate) struct Trigger {
    pub name: String,
    pub path: Path,
    pub is_before: bool,
    /// Its handler in `T--triggers`.
    pub handler: u16,
}

/// A type of records.
pub(crate) struct RecordType {
    pub name: Name,
    pub service: u16,
    pub shard_service: u16,
    pub triggers_service: Option<u16>,
    pub schema_id: u32,
    pub schema: Arc<Schema>,
    /// The value of records that nobody has written, if they are made on touch.
    touched: Option<Vec<u8>>,
    pub ttl_ms: Option<u64>,
    pub indexes: Vec<Index>,
    pub triggers: Vec<Trigger>,
    pub changes: Option<ChangesKept>,
    /// Tells the stream of changes from earlier ones of the type.
    pub stream: u16,
    /// Differs between settings that need all records and rows to be looked at again.
    records_target: u64,
    /// The version of the app before this one had no such type.
    pub is_new: bool,
}

/// Schemas that records may have, by their registry ids, which are never given twice.
pub(crate) type Schemas = RefCell<BTreeMap<u32, Arc<Schema>>>;

/// How records of one schema become those of another, or why they cannot.
type Known = Result<Rc<Resolution>, Error>;

/// A loaded version of the built-in app.
pub(crate) struct RecordProgram {
    pub number: Program,
    pub types: Vec<RecordType>,
    pub services: Vec<Service>,
    places: Vec<ServiceRole>,
    /// The wrapped engine's program of the triggers, if there are any. Programs with the same triggers share it.
    pub inner: Option<Program>,
    /// Its sources.
    pub triggers_app: Option<Rc<App>>,
    /// How long a transaction of the version before may still run.
    pub wait_ms: u64,
    /// Whether it was loaded at the start: no transaction of another version has begun since.
    pub is_first: bool,
    /// Types that the version before has and this one does not, except those deleted by force. They have to be without
    /// records when this version serves.
    pub emptied: Vec<Name>,
    registry: Registry,
    /// Schemas of all versions, also of later ones, because an activation that still runs here may meet their records.
    schemas: Rc<Schemas>,
    resolutions: RefCell<BTreeMap<(u32, u32), Known>>,
}

fn internal(message: String) -> Error {
    Error::new(ErrorCode::Internal, message)
}

fn name(text: &str) -> Result<Name, Error> {
    Name::new(text).map_err(|error| Error::new(ErrorCode::AppRefused, error.to_string()))
}

fn service(text: &str, handlers: &[(&str, HandlerKind)]) -> Result<Service, Error> {
    let handlers: Result<_, Error> = handlers.iter().map(|(text, kind)| Ok((name(text)?, *kind))).collect();
    Ok(Service { name: name(text)?, handlers: handlers?, routes: Vec::new(), schedules: Vec::new() })
}

fn parse_path(type_name: &str, what: &str, text: &str) -> Result<Path, Error> {
    Path::parse(text)
        .map_err(|error| Error::new(ErrorCode::AppRefused, format!("type {type_name:?}: {what}: path {text}: {error}")))
}

impl RecordProgram {
    /// Reads the registry, which is the app's source. Schemas that the version before has are not compiled again. Also
    /// returns the app of the triggers, if there are any.
    ///
    /// # Errors
    /// `app-refused`.
    pub(crate) fn read(
        app: &App,
        number: Program,
        schemas: &Rc<Schemas>,
        before: Option<&Self>,
    ) -> Result<(Self, Option<App>), Error> {
        let files: Vec<AppFile> =
            app.files.iter().map(|(path, content)| AppFile { path: path.clone(), content: content.clone() }).collect();
        if !app.files.is_empty() && !app.files.contains_key(REGISTRY) {
            let message = format!(
                "the app {:?} that is kept is a user's own, and its name is the built-in app's now: serve it with the \
                 program that it was deployed to, deploy it there under another name and remove this one",
                app.name.as_str()
            );
            return Err(Error::new(ErrorCode::AppRefused, message));
        }
        let registry = Registry::from_files_with(&files, before.map(|before| &before.registry))
            .map_err(|error| Error::new(ErrorCode::AppRefused, Error::from(error).message))?;
        let mut program = Self {
            number,
            types: Vec::new(),
            services: Vec::new(),
            places: Vec::new(),
            inner: None,
            triggers_app: None,
            wait_ms: app.limits.wait_ms,
            is_first: before.is_none(),
            emptied: Vec::new(),
            registry: Registry::default(),
            schemas: Rc::clone(schemas),
            resolutions: RefCell::new(BTreeMap::new()),
        };
        let mut triggers_app = triggers::empty_app(app);
        let mut has_triggers = false;
        for of in registry.types() {
            has_triggers |= program.add_type(&of, &mut triggers_app, before)?;
            for version in of.versions() {
                let known = version.schema.schema();
                schemas.borrow_mut().entry(version.schema.id()).or_insert_with(|| Arc::clone(known));
            }
        }
        if let Some(before) = before {
            let is_emptied = |name: &&Name| {
                registry.record_type(name.as_str()).is_err() && !registry.may_leave_records(name.as_str())
            };
            program.emptied = before.types.iter().map(|of| &of.name).filter(is_emptied).cloned().collect();
        }
        program.registry = registry;
        if program.services.len() > usize::from(u16::MAX) {
            return Err(Error::new(ErrorCode::AppRefused, "there are too many types"));
        }
        Ok((program, has_triggers.then_some(triggers_app)))
    }

    /// Adds a type and its services. Returns whether it has triggers.
    fn add_type(
        &mut self,
        of: &millrace_registry::RecordType<'_>,
        app: &mut App,
        before: Option<&Self>,
    ) -> Result<bool, Error> {
        use HandlerKind::{Query, Transaction};
        let index = self.types.len();
        let handlers = [
            (READ_HANDLER, Query),
            (WRITE_HANDLER, Transaction),
            (EXPIRE_HANDLER, Transaction),
            ("_migrate", Transaction),
            ("_follow", Transaction),
        ];
        let of_type = self.add_service(service(of.name, &handlers)?, ServiceRole::Type(index));
        let handlers = [
            ("_apply", Transaction),
            ("_scan", Query),
            ("_changes", Query),
            (SWEEP_HANDLER, Transaction),
            ("_progress", Query),
        ];
        let of_shard = self.add_service(service(&shard_service(of.name), &handlers)?, ServiceRole::Shard(index));
        let mut compiled = RecordType::read(of)?;
        compiled.is_new = before.is_some_and(|before| before.types.iter().all(|known| known.name != compiled.name));
        (compiled.service, compiled.shard_service) = (of_type, of_shard);
        let triggers = &of.settings.triggers;
        if !triggers.is_empty() {
            let sources: Vec<triggers::Source<'_>> = triggers
                .iter()
                .map(|trigger| triggers::Source { name: &trigger.name, text: &trigger.source })
                .collect();
            triggers::add_to(app, of.name, &sources);
            // Private: only the type's own writes call them.
            let names: Vec<String> = triggers.iter().map(|trigger| format!("_{}", trigger.name)).collect();
            let handlers: Vec<(&str, HandlerKind)> = names.iter().map(|name| (name.as_str(), Transaction)).collect();
            let service = service(&triggers::service_name(of.name), &handlers)?;
            compiled.triggers_service =
                Some(self.add_service(service, ServiceRole::Triggers { inner_service: u16::MAX }));
        }
        self.types.push(compiled);
        Ok(!triggers.is_empty())
    }

    fn add_service(&mut self, service: Service, place: ServiceRole) -> u16 {
        let index = self.services.len() as u16;
        self.services.push(service);
        self.places.push(place);
        index
    }

    /// Call this once the triggers have been loaded.
    pub(crate) fn set_inner(&mut self, inner: Program, services: &[Service], app: Rc<App>) {
        for (place, service) in self.places.iter_mut().zip(&self.services) {
            if let ServiceRole::Triggers { inner_service } = place
                && let Some(index) = services.iter().position(|known| known.name == service.name)
            {
                *inner_service = index as u16;
            }
        }
        self.inner = Some(inner);
        self.triggers_app = Some(app);
    }

    pub(crate) fn place(&self, service: u16) -> Option<ServiceRole> {
        self.places.get(usize::from(service)).copied()
    }

    /// The host's id of a handler of the wrapped engine's program.
    pub(crate) fn outer_handler(&self, id: HandlerId) -> Option<HandlerId> {
        if Some(id.program) != self.inner {
            return None;
        }
        let is_it = |place: &ServiceRole| matches!(place, ServiceRole::Triggers { inner_service } if *inner_service == id.service);
        let service = self.places.iter().position(is_it)?;
        Some(HandlerId { program: self.number, service: service as u16, handler: id.handler })
    }

    /// Whether to drop a message because its target is gone. A timer or a sweep of an unknown type is dropped: the
    /// sweep of the next type of its name finds what has expired, and what needs that type's settings. A run of an
    /// unknown trigger is dropped, because the trigger was removed on purpose.
    pub(crate) fn drops(&self, service: &str, handler: &str) -> bool {
        if triggers::is_service(service) {
            let known = self.services.iter().find(|known| known.name.as_str() == service);
            return known.is_none_or(|known| known.handlers.iter().all(|(name, _)| name.as_str() != handler));
        }
        let is_own = match handler {
            SWEEP_HANDLER => service.ends_with(SHARD_SERVICE),
            EXPIRE_HANDLER => !service.contains("--"),
            _ => false,
        };
        is_own && self.services.iter().all(|known| known.name.as_str() != service)
    }

    /// The services to sweep, and the target of each.
    pub(crate) fn sweeps(&self) -> Vec<(Name, u64)> {
        let name =
            |of: &RecordType| self.services.get(usize::from(of.shard_service)).map(|service| service.name.clone());
        let target = |of: &RecordType| fingerprint(&[of.sweep_target().as_bytes()]);
        self.types.iter().filter_map(|of| Some((name(of)?, target(of)))).collect()
    }

    /// The names of a trigger's type and of the trigger.
    pub(crate) fn trigger_names(&self, id: HandlerId) -> [&str; 2] {
        let of = self.types.iter().find(|of| of.triggers_service == Some(id.service));
        let trigger = of.and_then(|of| of.triggers.iter().find(|trigger| trigger.handler == id.handler));
        [of.map_or("", |of| of.name.as_str()), trigger.map_or("", |trigger| trigger.name.as_str())]
    }

    /// Why a trigger does not run if too many triggers led to it.
    pub(crate) fn too_deep(&self, id: HandlerId) -> Error {
        let [type_name, trigger] = self.trigger_names(id);
        let message = format!(
            "trigger {trigger:?} of the type {type_name:?} was led to by {} triggers, each by what the one before wrote: it \
             seems to run for ever, and is stopped here; a trigger that writes records has to come to an end, such \
             as by writing only what differs",
            limits::TRIGGER_DEPTH,
        );
        Error::new(ErrorCode::DepthLimit, message)
    }

    /// A schema that records may have.
    fn schema(&self, id: u32) -> Result<Arc<Schema>, Error> {
        if let Ok(known) = self.registry.schema(id) {
            return Ok(Arc::clone(known.schema()));
        }
        let known = self.schemas.borrow().get(&id).cloned();
        known.ok_or_else(|| internal(format!("a record is written with schema {id}, which is not known")))
    }

    /// A record's value in the type's present schema.
    ///
    /// # Errors
    /// `wrong-type`, naming both versions, if the present schema cannot read it.
    #[inline]
    pub(crate) fn current_value<'a>(&self, of: &RecordType, stored: &Stored<'a>) -> Result<Cow<'a, [u8]>, Error> {
        if stored.schema_id == of.schema_id {
            return Ok(Cow::Borrowed(stored.value));
        }
        self.resolved_value(of, stored).map(Cow::Owned)
    }

    #[cold]
    fn resolved_value(&self, of: &RecordType, stored: &Stored<'_>) -> Result<Vec<u8>, Error> {
        let explain = |why: String| {
            let message = format!(
                "the record is written with {} of the type {:?} and cannot be read with {}: {why}; it can again with \
                 a schema that is compatible with both",
                self.version_text(of, stored.schema_id),
                of.name.as_str(),
                self.version_text(of, of.schema_id),
            );
            Error::new(ErrorCode::WrongType, message)
        };
        let key = (stored.schema_id, of.schema_id);
        let known = self.resolutions.borrow().get(&key).cloned();
        let resolution = match known {
            Some(known) => known?,
            None => {
                let writer = self.schema(stored.schema_id)?;
                let made = Resolution::new(&writer, &of.schema);
                let made = made.map(Rc::new).map_err(|error| explain(error.to_string()));
                self.resolutions.borrow_mut().insert(key, made.clone());
                made?
            }
        };
        let mut value = Vec::with_capacity(stored.value.len() + 16);
        resolution.apply(stored.value, &mut value).map_err(|error| explain(error.to_string()))?;
        Ok(value)
    }

    /// The value in the type's present schema. The caller wrote it with the schema of any version of the type.
    ///
    /// # Errors
    /// `unknown-schema` if no version of the type has the schema. `wrong-type` if it is not a value of that schema, or
    /// if the present schema cannot read it.
    pub(crate) fn value_written_with(&self, of: &RecordType, id: u32, bytes: &[u8]) -> Result<Vec<u8>, Error> {
        let known = self.registry.record_type(of.name.as_str())?;
        if !known.versions().any(|version| version.schema.id() == id) {
            let message = format!("no version of the type {:?} has schema {id}", of.name.as_str());
            return Err(Error::new(ErrorCode::UnknownSchema, message));
        }
        let writer = self.schema(id)?;
        let value = values::read_node(&writer, writer.root(), Form::Binary, bytes)?;
        if id == of.schema_id {
            return Ok(value);
        }
        self.resolved_value(
            of,
            &Stored { schema_id: id, expires_ms: None, is_said: false, timer_ms: None, value: &value },
        )
    }

    fn version_text(&self, of: &RecordType, id: u32) -> String {
        let known = self.registry.record_type(of.name.as_str());
        let version = known.ok().and_then(|known| known.versions().rfind(|version| version.schema.id() == id));
        match version {
            Some(version) => format!("version {} (schema {id})", version.version),
            None => format!("schema {id}"),
        }
    }

    /// The index rows of a stored record, in its own schema.
    pub(crate) fn stored_rows(&self, of: &RecordType, stored: &Stored<'_>, id: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        match self.schema(stored.schema_id) {
            Ok(schema) => Ok(of.rows(&schema, stored.value, id)?.0),
            // This program has never made rows for a value that nothing can read.
            Err(_) => Ok(Vec::new()),
        }
    }
}

impl RecordType {
    fn read(of: &millrace_registry::RecordType<'_>) -> Result<Self, Error> {
        let settings = of.settings;
        let schema = Arc::clone(of.schema.schema());
        let touched = match settings.create {
            Create::Explicit => None,
            Create::Touch => Some(schema.default_value().map_err(|error| {
                Error::new(ErrorCode::AppRefused, format!("type {:?}: the defaults of its fields: {error}", of.name))
            })?),
        };
        let mut indexes = Vec::new();
        for index in of.indexes() {
            let number = index.number;
            let millrace_registry::IndexSettings { name, path: path_text, ignore_case } = index.settings.clone();
            let path = parse_path(of.name, &format!("index {name:?}"), &path_text)?;
            let definition = fingerprint(&[path_text.as_bytes(), &[u8::from(ignore_case)], &number.to_be_bytes()]);
            // The only brackets in simple paths are those of `[*]`, unless within a quoted name.
            let is_single = !path.text().contains('[');
            indexes.push(Index { number, name, path, ignore_case, is_single, definition });
        }
        let mut triggers = Vec::new();
        for (handler, trigger) in (0_u16..).zip(&settings.triggers) {
            let path = parse_path(of.name, &format!("trigger {:?}", trigger.name), &trigger.path)?;
            triggers.push(Trigger {
                name: trigger.name.clone(),
                path,
                is_before: trigger.when == When::Before,
                handler,
            });
        }
        let mut definitions = vec![of.schema_id().to_be_bytes().to_vec()];
        // Records may have changed while there was no such type, so they have to be looked at.
        definitions.extend((of.began > 0).then(|| of.began.to_be_bytes().to_vec()));
        definitions.extend(indexes.iter().map(|index| index.definition.to_be_bytes().to_vec()));
        let definitions: Vec<&[u8]> = definitions.iter().map(Vec::as_slice).collect();
        Ok(Self {
            name: name(of.name)?,
            service: 0,
            shard_service: 0,
            triggers_service: None,
            schema_id: of.schema_id(),
            records_target: fingerprint(&definitions),
            stream: of.stream,
            is_new: false,
            schema,
            touched,
            ttl_ms: settings.ttl_ms,
            indexes,
            triggers,
            changes: settings.changes.map(|changes| ChangesKept {
                retention_ms: changes.retention_ms,
                count: changes.retention_count.unwrap_or(u64::MAX),
            }),
        })
    }

    /// Differs between settings that need a sweep. It has the target of records and rows. Behind a `-` it has the
    /// number of the stream of changes, if there was an earlier stream, whose changes have to be deleted.
    pub(crate) fn sweep_target(&self) -> String {
        match self.stream {
            0 => format!("{:016x}", self.records_target),
            stream => format!("{:016x}-{stream:x}", self.records_target),
        }
    }

    /// How a record reads that nobody has written.
    #[inline]
    pub(crate) fn touched_value(&self) -> Option<&[u8]> {
        self.touched.as_deref()
    }

    /// A record's tag: a fingerprint of the present schema's id and of the value as that schema encodes it. So it names
    /// what a reader gets, not how it is stored. A sweep that brings a stored record to the present schema does not
    /// change its tag. A new schema, which may give the same bytes another meaning, changes all tags.
    #[inline]
    pub(crate) fn tag(&self, value: &[u8]) -> u64 {
        fingerprint(&[&self.schema_id.to_le_bytes(), value])
    }

    /// The index rows of a value of a schema, in order. If an index would need too many rows for one record, none of
    /// its rows is included. The first such index is returned with them.
    pub(crate) fn rows(
        &self,
        schema: &Schema,
        value: &[u8],
        id: &[u8],
    ) -> Result<(Vec<Vec<u8>>, Option<&Index>), Error> {
        let mut rows = Vec::with_capacity(self.indexes.len());
        let mut unfit = None;
        for index in &self.indexes {
            let keys = values::order_keys(&index.path, schema, value, (index.ignore_case, index.is_single))?;
            match keys {
                Some(keys) => rows.extend(keys.iter().map(|key| index_row(index.number, key, id))),
                None => unfit = unfit.or(Some(index)),
            }
        }
        rows.sort_unstable();
        rows.dedup();
        Ok((rows, unfit))
    }

    /// The index rows of a new value.
    ///
    /// # Errors
    /// `too-large` if an index would need too many rows.
    pub(crate) fn new_rows(&self, value: &[u8], id: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        match self.rows(&self.schema, value, id)? {
            (rows, None) => Ok(rows),
            (_, Some(index)) => {
                let message = format!(
                    "the record has more than {} values at {}, which its index {:?} does not take",
                    limits::INDEX_ROWS_PER_RECORD,
                    index.path.text(),
                    index.name,
                );
                Err(Error::new(ErrorCode::TooLarge, message))
            }
        }
    }

    /// The index that has all records in the order of a path, if there is one.
    pub(crate) fn index_in_order_of(&self, path: &Path) -> Option<usize> {
        self.indexes.iter().position(|index| index.path == *path && index.is_single && !index.ignore_case)
    }
}
