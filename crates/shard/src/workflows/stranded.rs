//! Workflows whose code is not deployed.
//!
//! A workflow whose handler is not deployed when it is to be taken up again is *stranded*: it
//! keeps its rows, is listed, and is taken up once its handler is deployed.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use millrace_base::Name;
use millrace_format::WorkflowRecord;
use millrace_func::{HandlerId, Program};

use crate::request::Sequence;
use crate::world::World;

/// Stranded workflows taken up in one tick. They run as their turns come.
const TAKEN_UP_AT_ONCE: usize = 1_000;

/// Workflows that have begun, and are without their code.
#[derive(Default)]
pub(super) struct Stranded {
    records: BTreeMap<Sequence, WorkflowRecord>,
    /// What was deployed when they were last looked at.
    looked_at: Vec<(Name, Program)>,
}

impl Stranded {
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// A workflow's code is not deployed. Many of one kind come in a row, and give one line.
    pub(super) fn add(&mut self, id: Sequence, record: WorkflowRecord) {
        let names = |record: &WorkflowRecord| (record.app.clone(), record.service.clone(), record.handler.clone());
        let (app, service, handler) = names(&record);
        if self.records.last_key_value().is_none_or(|(_, last)| names(last) != names(&record)) {
            tracing::warn!(app, service, handler, "workflows wait for their app to be deployed");
        }
        self.records.insert(id, record);
    }

    /// The stranded workflow of that id.
    pub(super) fn get(&mut self, id: Sequence) -> Option<&mut WorkflowRecord> {
        self.records.get_mut(&id)
    }

    /// One is no workflow any more.
    pub(super) fn forget(&mut self, id: Sequence) {
        self.records.remove(&id);
    }

    /// Those after `after`, at most so many.
    pub(super) fn after(
        &self,
        after: Bound<Sequence>,
        limit: usize,
    ) -> impl Iterator<Item = (Sequence, WorkflowRecord)> {
        self.records.range((after, Bound::Unbounded)).take(limit).map(|(id, record)| (*id, record.clone()))
    }

    /// The app versions that they wait for.
    pub(super) fn versions(&self) -> BTreeSet<(Name, u64)> {
        let of = |record: &WorkflowRecord| Some((Name::new(&record.app).ok()?, record.version));
        self.records.values().filter_map(of).collect()
    }

    /// Takes out some of those whose code has been deployed since they were last looked at.
    pub(super) fn deployed(&mut self, world: &World<'_>) -> Vec<(Sequence, WorkflowRecord)> {
        if self.records.is_empty() {
            return Vec::new();
        }
        let deployed: Vec<(Name, Program)> =
            world.catalog.apps().map(|(name, program)| (name.clone(), program)).collect();
        if deployed == self.looked_at {
            return Vec::new();
        }
        let has_code = |(_, record): &(&Sequence, &WorkflowRecord)| code_of(record, world).is_some();
        let found = self.records.iter().filter(has_code).take(TAKEN_UP_AT_ONCE);
        let found: Vec<Sequence> = found.map(|(id, _)| *id).collect();
        if found.len() < TAKEN_UP_AT_ONCE {
            self.looked_at = deployed;
        }
        found.into_iter().filter_map(|id| self.records.remove_entry(&id)).collect()
    }
}

/// What a workflow runs in: its own version where that is loaded, otherwise the one served now; none while its own is kept and
/// could not be loaded, as it may be the next time.
pub(super) fn code_of(record: &WorkflowRecord, world: &World<'_>) -> Option<HandlerId> {
    let WorkflowRecord { version, app, service, handler, .. } = record;
    let own = world.catalog.find_version(app, *version, service, handler);
    if own.is_none() && world.catalog.is_missing(app, *version) {
        return None;
    }
    own.or_else(|| world.catalog.find(app, service, handler).ok())
}

/// What a stranded workflow waits for, for people.
pub(super) fn stranded_for(record: &WorkflowRecord) -> String {
    format!("the deployment of {}/{}/{}", record.app, record.service, record.handler)
}
