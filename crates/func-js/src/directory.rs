//! The names of a program's services and handlers.

use millrace_base::{Error, ErrorCode};
use millrace_func::{HandlerId, Program, Service};

/// Every service of a program, for finding a handler by name.
pub(crate) struct Directory {
    program: Program,
    services: Vec<Service>,
    /// For each service, its handlers' indexes in the order of their names.
    sorted: Vec<Vec<u16>>,
}

impl Directory {
    /// Of services in the order of their names, fewer than 65,536 with fewer handlers each.
    pub(crate) fn new(program: Program, services: Vec<Service>) -> Self {
        let sort = |service: &Service| {
            let mut indexes: Vec<u16> = (0..service.handlers.len() as u16).collect();
            indexes.sort_by(|a, b| service.handlers[usize::from(*a)].0.cmp(&service.handlers[usize::from(*b)].0));
            indexes
        };
        Self { program, sorted: services.iter().map(sort).collect(), services }
    }

    pub(crate) fn services(&self) -> &[Service] {
        &self.services
    }

    /// The handler of these names.
    ///
    /// # Errors
    /// `unknown-service` or `unknown-handler`.
    #[inline]
    pub(crate) fn find(&self, service: &[u8], handler: &[u8]) -> Result<HandlerId, Error> {
        let found = self.services.binary_search_by(|known| known.name.as_str().as_bytes().cmp(service));
        let index = found.map_err(|_| {
            let name = String::from_utf8_lossy(service);
            Error::new(ErrorCode::UnknownService, format!("the app has no service \"{}\"", shortened(&name)))
        })?;
        let handlers = &self.services[index].handlers;
        let name_of = |at: &u16| handlers[usize::from(*at)].0.as_str().as_bytes();
        let found = self.sorted[index].binary_search_by(|at| name_of(at).cmp(handler));
        let at = found.map_err(|_| self.services[index].no_handler(&String::from_utf8_lossy(handler)))?;
        Ok(HandlerId { program: self.program, service: index as u16, handler: self.sorted[index][at] })
    }
}

/// At most 64 characters of a text that a stranger chose.
fn shortened(text: &str) -> String {
    text.chars().take(64).collect()
}
