//! What this front needs of a node: everything.

use millrace_api::objects::ObjectAdministration;
use millrace_api::{Calls, Deployments, Invocations, Records, Serving};

/// The traits that the front translates to. Each function here asks for those alone that it uses.
pub trait Backend: Serving + Calls + Invocations + Deployments + Records + ObjectAdministration {}

impl<T: Serving + Calls + Invocations + Deployments + Records + ObjectAdministration> Backend for T {}
