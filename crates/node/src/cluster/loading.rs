//! What guidance says is deployed, loaded on this node.
//!
//! An app that may replace another one is loaded first and serves later. So all nodes have it before any node sends
//! requests to it. Services that would go with the other one are closed meanwhile (`docs/internals/records.md`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millrace_api::is_built_in;
use millrace_base::ShardId;
use millrace_func::App;
use millrace_guidance::{Guidance, KeptApp};

use super::{Cluster, locked, rows};
use crate::apps::app_of_tar;
use crate::built_in_apps::{Swept, note_replaced};
use crate::core::{ForWorkflows, NodeMessage, Shared, SharedCore};
use crate::deploy::{self, Prepared};

/// See the module's documentation.
pub(super) struct Loading {
    core: SharedCore,
    shared: Arc<Shared>,
    cluster: Arc<Cluster>,
    meta: ShardId,
    /// The deployment of each app that this node has loaded, or could not load.
    loaded: BTreeMap<String, u32>,
    /// What may replace an app.
    waiting: BTreeMap<String, (u32, Prepared)>,
    /// Services whose state has to be brought to what serves now.
    sweeps: BTreeSet<Swept>,
    /// Deployments that guidance keeps and that this node could not load.
    missed: BTreeSet<u32>,
}

impl Loading {
    pub(super) fn new(core: SharedCore, shared: Arc<Shared>, cluster: Arc<Cluster>, meta: ShardId) -> Self {
        let (loaded, waiting) = (BTreeMap::new(), BTreeMap::new());
        let (sweeps, missed) = (BTreeSet::new(), BTreeSet::new());
        Self { core, shared, cluster, meta, loaded, waiting, sweeps, missed }
    }

    /// The services that are to be swept since this was asked last.
    pub(super) fn take_sweeps(&mut self) -> Vec<Swept> {
        std::mem::take(&mut self.sweeps).into_iter().collect()
    }

    /// Loads what is deployed and not loaded, and removes what is not deployed any more.
    pub(super) async fn follow(&mut self, guidance: &Guidance) {
        self.keep(guidance).await;
        let gone: Vec<String> = self.loaded.keys().filter(|name| !guidance.apps.contains_key(*name)).cloned().collect();
        for name in gone {
            self.loaded.remove(&name);
            if let Err(error) = deploy::remove_here(&self.shared, &name).await {
                tracing::warn!(app = name, %error, "an app that was removed could not be unloaded");
            }
        }
        for (name, entry) in &guidance.apps {
            if entry.deployment > 0 && self.loaded.get(name) != Some(&entry.deployment) {
                if let Err(reason) = self.serve(name, entry.deployment, &entry.content).await {
                    tracing::error!(
                        app = name,
                        reason,
                        "this node could not load an app that is deployed; calls to it fail here"
                    );
                }
                self.loaded.insert(name.clone(), entry.deployment);
            }
        }
        self.forget_waiting(guidance);
        for (name, entry) in &guidance.apps {
            let Some(next) = entry.next.as_ref().filter(|_| !self.waiting.contains_key(name)) else { continue };
            match self.prepare(name, next.deployment, &next.content).await {
                Ok(prepared) => {
                    self.waiting.insert(name.clone(), (next.deployment, prepared));
                }
                Err(reason) => tracing::error!(app = name, reason, "this node could not load what may replace an app"),
            }
        }
    }

    /// Loads the versions that guidance keeps for workflows, and has none of them unloaded.
    async fn keep(&mut self, guidance: &Guidance) {
        let deployments: BTreeSet<u32> = guidance.kept.iter().map(|kept| kept.deployment).collect();
        for core in 0..self.shared.cores.len() {
            let keep = ForWorkflows::Keep { deployments: deployments.clone() };
            self.shared.send(core, NodeMessage::ForWorkflows(keep));
        }
        self.missed.retain(|deployment| deployments.contains(deployment));
        for KeptApp { app, deployment, content } in &guidance.kept {
            let is_loaded = self.core.borrow().programs.loaded(*deployment).is_some();
            if is_loaded || self.missed.contains(deployment) {
                continue;
            }
            if let Err(reason) = self.load_kept(app, *deployment, content).await {
                self.missed.insert(*deployment);
                tracing::error!(app, reason, "this node could not load a version that workflows run in");
            }
        }
    }

    async fn load_kept(&self, name: &str, deployment: u32, content: &str) -> Result<(), String> {
        let app = self.app(name, content)?;
        let _one_at_a_time = self.shared.deploying.lock().await;
        let loaded = deploy::prepare_numbered(&self.shared, app.clone(), deployment).await;
        let app = Arc::new(app);
        for core in 0..self.shared.cores.len() {
            let message = match &loaded {
                Ok(_) => ForWorkflows::Loaded { deployment },
                Err(error) => ForWorkflows::Missed { deployment, app: Arc::clone(&app), error: error.clone() },
            };
            self.shared.send(core, NodeMessage::ForWorkflows(message));
        }
        loaded.map(drop).map_err(|error| error.to_string())
    }

    /// Forgets what was loaded and will not serve.
    fn forget_waiting(&mut self, guidance: &Guidance) {
        let wanted = |name: &str| guidance.apps.get(name)?.next.as_ref().map(|next| next.deployment);
        let (shared, cluster) = (&self.shared, &self.cluster);
        self.waiting.retain(|name, (deployment, prepared)| {
            let is_wanted = wanted(name) == Some(*deployment);
            if !is_wanted {
                locked(&cluster.going).remove(deployment);
                deploy::discard(shared, prepared);
            }
            is_wanted
        });
    }

    /// Loads an app under a deployment's number, and closes what would go with the one before.
    async fn prepare(&self, name: &str, deployment: u32, content: &str) -> Result<Prepared, String> {
        let app = self.app(name, content)?;
        let _one_at_a_time = self.shared.deploying.lock().await;
        let prepared = deploy::prepare_numbered(&self.shared, app, deployment).await;
        let prepared = prepared.map_err(|error| error.to_string())?;
        let going = deploy::close(&self.shared, &prepared).await.map_err(|error| error.to_string())?;
        locked(&self.cluster.going).insert(deployment, going);
        Ok(prepared)
    }

    /// Has an app serve, which may be loaded already.
    async fn serve(&mut self, name: &str, deployment: u32, content: &str) -> Result<(), String> {
        let waiting = self.waiting.remove(name);
        if let Some((loaded, _)) = &waiting {
            locked(&self.cluster.going).remove(loaded);
        }
        let prepared = match waiting {
            Some((loaded, prepared)) if loaded == deployment => prepared,
            other => {
                if let Some((_, prepared)) = other {
                    deploy::discard(&self.shared, &prepared);
                }
                let app = self.app(name, content)?;
                let _one_at_a_time = self.shared.deploying.lock().await;
                let prepared = deploy::prepare_numbered(&self.shared, app, deployment).await;
                prepared.map_err(|error| error.to_string())?
            }
        };
        let app = prepared.app();
        let mut state = self.shared.deploying.lock().await;
        let done = deploy::complete(&self.shared, &mut state, prepared).await.map_err(|error| error.to_string())?;
        self.sweeps.extend(done.sweeps);
        if is_built_in(name) {
            note_replaced(&self.shared, &app);
        }
        Ok(())
    }

    fn app(&self, name: &str, content: &str) -> Result<App, String> {
        let tar = {
            let mut core = self.core.borrow_mut();
            let store = core.hosted_store(self.meta).ok_or("the meta shard is being read again")?;
            rows::tar_of_app(store, name, content)?
        };
        Ok(App { is_kept: true, ..app_of_tar(name, &tar).map_err(|error| error.to_string())? })
    }
}
