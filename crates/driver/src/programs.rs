//! The apps loaded on this core, and the numbers under which all cores know them.

use std::collections::{BTreeMap, BTreeSet};

use millrace_base::{Error, Lsn, Name, ShardId};
use millrace_func::{App, Catalog, Loaded, Program, Service};

use crate::core::Core;
use crate::platform::Platform;

/// How long a replaced program stays loaded at the least: requests that name it may still be on their way between cores.
/// Where it is known that none is, [`Core::settle`] ends it sooner.
const RETIRED_MS: u64 = 10_000;

/// Deployments are numbered for the whole node. A deployment's number is its program's number on every core.
#[derive(Default)]
pub struct Programs {
    /// What names mean.
    pub catalog: Catalog,
    loaded: BTreeSet<Program>,
    /// Replaced programs, each with the monotonic millisecond from which it may be unloaded.
    retired: Vec<(Program, u64)>,
    /// Replaced programs that stay loaded for workflows that may come from other nodes.
    kept: BTreeSet<Program>,
}

impl Programs {
    /// What a deployment has loaded on this core.
    #[must_use]
    pub fn loaded(&self, deployment: u32) -> Option<&Loaded> {
        self.catalog.program(Program(deployment))
    }

    fn forget(&mut self, program: Program) {
        self.loaded.remove(&program);
        self.catalog.remove(program);
    }
}

/// What one core knows of the versions of apps that are needed.
#[derive(Clone, Debug, Default)]
pub struct CoreVersions {
    /// App and version of each.
    pub needed: BTreeSet<(Name, u64)>,
    /// The logs of the core's shards.
    pub logs: Vec<ShardLog>,
}

/// The log of a shard that serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardLog {
    /// The shard.
    pub shard: ShardId,
    /// Which opening of it this is. In a cluster: in which epoch.
    pub incarnation: u64,
    /// How far the log goes.
    pub appended: Lsn,
    /// How far it is durable.
    pub durable: Lsn,
}

impl<P: Platform> Core<P> {
    /// Loads an app under a deployment's number, without sending requests to it. `check` may refuse it for its services.
    ///
    /// # Errors
    /// `app-refused`, from the engine; what `check` answers.
    pub fn load(
        &mut self,
        deployment: u32,
        (app, version): (&App, u64),
        check: impl FnOnce(&mut P, Program, &[Service]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let program = Program(deployment);
        self.engine.load(program, app)?;
        let services = self.engine.services(program);
        if let Err(error) = check(&mut self.platform, program, &services) {
            self.engine.unload(program);
            return Err(error);
        }
        self.programs.catalog.add(program, Loaded::new(app, version, services));
        self.programs.loaded.insert(program);
        Ok(())
    }

    /// Closes the services that go with what a loaded app replaces, and gives their names.
    pub fn close(&mut self, deployment: u32) -> Vec<Name> {
        let program = self.programs.loaded.get(&Program(deployment));
        program.map_or_else(Vec::new, |program| self.engine.close(*program))
    }

    /// Sends new requests to a loaded app. Gives the services whose state has to be brought to another definition than the
    /// program before had.
    pub fn activate(&mut self, deployment: u32) -> Vec<Name> {
        let Some(program) = self.programs.loaded.get(&Program(deployment)).copied() else {
            return Vec::new();
        };
        let replaced = self.programs.catalog.activate(program);
        let before: BTreeMap<Name, u64> =
            replaced.map_or_else(Vec::new, |replaced| self.engine.sweeps(replaced)).into_iter().collect();
        self.retire(replaced);
        let sweeps = self.engine.sweeps(program).into_iter();
        sweeps.filter(|(service, to)| before.get(service) != Some(to)).map(|(service, _)| service).collect()
    }

    /// Forgets an app that was loaded in vain. Gives its program.
    pub fn discard(&mut self, deployment: u32) -> Option<Program> {
        let program = self.programs.loaded.get(&Program(deployment)).copied()?;
        self.engine.reopen(program);
        self.engine.unload(program);
        self.programs.forget(program);
        Some(program)
    }

    /// Versions that only workflows run in go when those have ended, as replaced ones do. The first `served` deployments are
    /// not among them.
    pub fn retire_pinned(&mut self, served: usize) {
        let is_pinned = |program: &&Program| program.0 as usize > served;
        let pinned: Vec<Program> = self.programs.loaded.iter().filter(is_pinned).copied().collect();
        for program in pinned {
            self.retire(Some(program));
        }
    }

    /// Sends no requests to an app that was just loaded: workflows of shards that come may run in it.
    pub fn load_for_workflows(&mut self, deployment: u32) {
        let program = self.programs.loaded.get(&Program(deployment)).copied();
        self.retire(program);
    }

    /// Which programs stay loaded though nothing of this core's shards runs in them.
    pub fn keep_loaded(&mut self, deployments: &BTreeSet<u32>) {
        self.programs.kept = deployments.iter().copied().map(Program).collect();
    }

    /// Sends no more requests to an app. Says whether it was there.
    pub fn remove(&mut self, app: &str) -> bool {
        let removed = self.programs.catalog.deactivate(app);
        self.retire(removed);
        self.programs.catalog.remove_missing(app) || removed.is_some()
    }

    fn retire(&mut self, program: Option<Program>) {
        if let Some(program) = program {
            let from_ms = self.monotonic_ms() + RETIRED_MS;
            self.programs.retired.push((program, from_ms));
        }
    }

    /// Everything has ended, on all cores, that began before the deployment of this number served: programs with lower
    /// numbers that were replaced may go as soon as nothing here runs in them.
    pub fn settle(&mut self, deployment: u32) {
        let settled = self.programs.retired.iter_mut().filter(|(program, _)| program.0 < deployment);
        settled.for_each(|(_, from_ms)| *from_ms = 0);
    }

    /// Bytes of the programs that were replaced and are still loaded.
    #[must_use]
    pub fn replaced_bytes(&self) -> usize {
        self.programs.retired.iter().map(|(program, _)| self.engine.memory_bytes(*program)).sum()
    }

    /// Unloads replaced programs that nothing runs in any more.
    pub(crate) fn unload_retired(&mut self) {
        let now_ms = self.monotonic_ms();
        let (kept, unloaded): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.programs.retired).into_iter().partition(|(program, from_ms)| {
                *from_ms > now_ms || self.programs.kept.contains(program) || self.runs_in(*program)
            });
        self.programs.retired = kept;
        if unloaded.is_empty() {
            return;
        }
        let unloaded: Vec<Program> = unloaded.into_iter().map(|(program, _)| program).collect();
        for program in &unloaded {
            self.engine.unload(*program);
            self.programs.forget(*program);
        }
        self.platform.unloaded(&unloaded);
    }

    /// Whether anything here runs in a program, or may.
    fn runs_in(&self, program: Program) -> bool {
        self.unplaced.values().any(|(unplaced, _)| unplaced.program() == program)
            || self.shards().any(|shard| shard.needs_program(program))
    }

    /// How many transactions run here in each loaded version of an app. Those of routes that have called nothing yet are among
    /// them. A transaction of several shards counts on each.
    #[must_use]
    pub fn transactions_by_version(&self, app: &str) -> Vec<(u64, usize)> {
        let count = |program: Program| {
            let unplaced = self.unplaced.values().filter(|(unplaced, _)| unplaced.program() == program).count();
            unplaced + self.shards().map(|shard| shard.transactions_in(program)).sum::<usize>()
        };
        let versions = self.programs.catalog.versions_of(app);
        versions.map(|(program, loaded)| (loaded.version, count(program))).collect()
    }

    /// The versions that this core needs. `None` where it is not known yet: workflows of an earlier run have not all been
    /// looked at.
    pub fn versions(&mut self) -> Option<CoreVersions> {
        let now_ms = self.monotonic_ms();
        let is_idle = |(program, from_ms): &&(Program, u64)| {
            self.programs.kept.contains(program) && *from_ms <= now_ms && !self.runs_in(*program)
        };
        let idle: BTreeSet<Program> =
            self.programs.retired.iter().filter(is_idle).map(|(program, _)| *program).collect();
        let needed = self.programs.catalog.versions_without(&idle).collect();
        let mut versions = CoreVersions { needed, logs: Vec::new() };
        for (id, shard) in (0u16..).map(ShardId).zip(&mut self.shards) {
            if let Some(shard) = shard {
                versions.needed.extend(shard.versions_waited_for()?);
                let (incarnation, appended, durable) = (shard.incarnation(), shard.store().lsn(), shard.durable_lsn());
                versions.logs.push(ShardLog { shard: id, incarnation, appended, durable });
            }
        }
        Some(versions)
    }
}
