//! What this front needs of a node: everything.

use millrace_api::objects::ObjectAdministration;
use millrace_api::{Backups, Calls, Deployments, Invocations, Records, Serving};

/// The traits that the front translates to. Each function here asks for those alone that it uses.
pub trait Backend: Serving + Calls + Invocations + Deployments + Records + ObjectAdministration + Backups {}

impl<T: Serving + Calls + Invocations + Deployments + Records + ObjectAdministration + Backups> Backend for T {}
