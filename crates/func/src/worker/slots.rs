//! How many transactions may run on workers at once.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use millrace_base::limits;
use serde::Deserialize;

use super::{Discovery, WorkerDocument};

/// What an app's `millrace.toml` says of its workers. It overrides what they say themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkerSettings {
    /// How many root transactions one worker runs at once.
    pub concurrency: Option<usize>,
    /// The same for one service, over all workers.
    pub services: BTreeMap<String, usize>,
}

/// How many root transactions may run at once. Nested calls do not count, so they never wait for their own caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Concurrency {
    /// On one worker.
    pub of_worker: usize,
    /// Of each service, over all workers, in the order of the discovery document.
    pub of_services: Vec<Option<usize>>,
}

impl Concurrency {
    /// What the deployment of a document allows. Where workers dial in, an earlier version's settings are kept: limits of services
    /// that this version does not have are passed over then.
    ///
    /// # Errors
    /// As [`Concurrency::new`].
    pub fn of_document(document: &WorkerDocument, settings: &WorkerSettings) -> Result<Self, String> {
        let mut settings = settings.clone();
        if document.dials_in() {
            let has = |name: &String| document.discovery.services.iter().any(|service| service.name == *name);
            settings.services.retain(|name, _| has(name));
        }
        Self::new(&document.discovery, &settings)
    }

    /// What a deployment allows.
    ///
    /// # Errors
    /// A limit of 0, or one of a service that there is not.
    pub fn new(discovery: &Discovery, settings: &WorkerSettings) -> Result<Self, String> {
        let unknown = |name: &&String| !discovery.services.iter().any(|service| service.name == **name);
        if let Some(name) = settings.services.keys().find(unknown) {
            return Err(format!("workers.services names {name:?}, which is no service of the worker"));
        }
        let of_worker = settings.concurrency.or(discovery.concurrency).unwrap_or(limits::WORKER_CONCURRENCY);
        let of_service =
            |service: &super::WorkerService| settings.services.get(&service.name).copied().or(service.concurrency);
        let of_services: Vec<_> = discovery.services.iter().map(of_service).collect();
        if of_worker == 0 || of_services.contains(&Some(0)) {
            return Err("a concurrency of 0 would let nothing run".to_owned());
        }
        Ok(Self { of_worker, of_services })
    }
}

/// A place for one root transaction. It is free again when its last clone is dropped.
#[derive(Clone, Default)]
pub struct WorkerSlot {
    held: Option<Arc<dyn Any + Send + Sync>>,
}

impl WorkerSlot {
    /// Keeps `held` until the transaction has ended.
    #[must_use]
    pub fn new(held: Arc<dyn Any + Send + Sync>) -> Self {
        Self { held: Some(held) }
    }
}

impl fmt::Debug for WorkerSlot {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "WorkerSlot({})", if self.held.is_some() { "taken" } else { "none needed" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn discovery(text: &str) -> Discovery {
        Discovery::from_json(text.as_bytes()).expect("valid")
    }

    #[test]
    fn the_deployment_overrides_what_the_worker_says() {
        let said = discovery(
            r#"{"protocol":{"min":1,"max":1},"concurrency":9,"services":[{"name":"a","concurrency":2},{"name":"b"}]}"#,
        );
        let none = WorkerSettings::default();
        let read = Concurrency::new(&said, &none).expect("valid");
        assert_eq!(read, Concurrency { of_worker: 9, of_services: vec![Some(2), None] });
        let settings = WorkerSettings { concurrency: Some(4), services: [("b".to_owned(), 1)].into() };
        let read = Concurrency::new(&said, &settings).expect("valid");
        assert_eq!(read, Concurrency { of_worker: 4, of_services: vec![Some(2), Some(1)] });
        let silent = discovery(r#"{"protocol":{"min":1,"max":1},"services":[]}"#);
        assert_eq!(Concurrency::new(&silent, &none).expect("valid").of_worker, limits::WORKER_CONCURRENCY);
    }

    #[test]
    fn limits_that_let_nothing_run_are_refused() {
        let said = discovery(r#"{"protocol":{"min":1,"max":1},"services":[{"name":"a"}]}"#);
        let zero = WorkerSettings { concurrency: Some(0), ..WorkerSettings::default() };
        assert!(Concurrency::new(&said, &zero).is_err());
        for services in [("a".to_owned(), 0), ("c".to_owned(), 1)] {
            let settings = WorkerSettings { concurrency: None, services: [services].into() };
            assert!(Concurrency::new(&said, &settings).is_err());
        }
    }

    #[test]
    fn a_version_that_dials_in_passes_over_limits_of_services_that_it_does_not_have() {
        let document = |address: &str| {
            let text = format!(
                r#"{{"address":{address},"discovery":{{"protocol":{{"min":1,"max":1}},"services":[{{"name":"basket","handlers":[]}}]}}}}"#
            );
            WorkerDocument::from_json(text.as_bytes()).expect("valid")
        };
        let services = [("basket".to_owned(), 3), ("cart".to_owned(), 2)].into();
        let settings = WorkerSettings { concurrency: None, services };
        let read = Concurrency::of_document(&document(r#""dial-in""#), &settings).expect("valid");
        assert_eq!(read.of_services, [Some(3)]);
        assert!(Concurrency::of_document(&document(r#"{"url":"http://localhost:1"}"#), &settings).is_err());
    }
}
