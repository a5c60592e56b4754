//! Who asks, and what they may do.

use std::fmt;
use std::sync::Arc;

/// One thing a principal may do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Everything.
    Admin,
    /// Deploy, replace and remove apps, and list them.
    Deploy,
    /// Call handlers, send to them, use routes and read state of one service, or of every
    /// service of an app (`service` is `None`), or of every app (`app` is `None` as well).
    Call {
        /// The app, or any.
        app: Option<String>,
        /// The service, or any of the app.
        service: Option<String>,
    },
}

/// A text that is not a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleError(pub String);

impl fmt::Display for RoleError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?} is not a role: use admin, deploy, call:*, call:<app>/* or call:<app>/<service>", self.0)
    }
}

impl std::error::Error for RoleError {}

impl Role {
    /// Reads `admin`, `deploy`, `call:*`, `call:<app>/*` or `call:<app>/<service>`.
    ///
    /// # Errors
    /// [`RoleError`] for any other text.
    pub fn parse(text: &str) -> Result<Self, RoleError> {
        let refused = || RoleError(text.to_owned());
        match text {
            "admin" => return Ok(Role::Admin),
            "deploy" => return Ok(Role::Deploy),
            "call:*" => return Ok(Role::Call { app: None, service: None }),
            _ => {}
        }
        let scope = text.strip_prefix("call:").ok_or_else(refused)?;
        let (app, service) = scope.split_once('/').ok_or_else(refused)?;
        let is_name = millrace_base::Name::is_valid;
        if !is_name(app) || !(service == "*" || is_name(service)) {
            return Err(refused());
        }
        let service = (service != "*").then(|| service.to_owned());
        Ok(Role::Call { app: Some(app.to_owned()), service })
    }
}

impl fmt::Display for Role {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Role::Admin => formatter.write_str("admin"),
            Role::Deploy => formatter.write_str("deploy"),
            Role::Call { app: None, .. } => formatter.write_str("call:*"),
            Role::Call { app: Some(app), service } => {
                write!(formatter, "call:{app}/{}", service.as_deref().unwrap_or("*"))
            }
        }
    }
}

/// What an operation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission<'a> {
    /// Metrics and everything else that shows the whole node.
    Admin,
    /// Deploying and listing apps.
    Deploy,
    /// Calling `service` of `app`.
    Call {
        /// The app's name.
        app: &'a str,
        /// The service's name.
        service: &'a str,
    },
}

/// Who asks. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Principal {
    roles: Option<Arc<[Role]>>,
}

impl Principal {
    /// A principal with exactly these roles.
    #[must_use]
    pub fn with_roles(roles: Vec<Role>) -> Self {
        Self { roles: Some(roles.into()) }
    }

    /// The principal of a listener without keys: it may do everything.
    #[must_use]
    pub fn unrestricted() -> Self {
        Self { roles: None }
    }

    /// Whether this principal may call any service of an app, known or not.
    #[must_use]
    pub fn may_call_something_of(&self, wanted: &str) -> bool {
        let reaches = |role: &Role| match role {
            Role::Admin => true,
            Role::Call { app, .. } => app.as_deref().is_none_or(|app| app == wanted),
            Role::Deploy => false,
        };
        self.roles.as_ref().is_none_or(|roles| roles.iter().any(reaches))
    }

    /// Whether this principal may do what needs `permission`.
    #[must_use]
    pub fn may(&self, permission: Permission<'_>) -> bool {
        let Some(roles) = &self.roles else {
            return true;
        };
        roles.iter().any(|role| match (role, permission) {
            (Role::Admin, _) | (Role::Deploy, Permission::Deploy) => true,
            (Role::Call { app, service }, Permission::Call { app: wanted_app, service: wanted_service }) => {
                app.as_deref().is_none_or(|app| app == wanted_app)
                    && service.as_deref().is_none_or(|service| service == wanted_service)
            }
            _ => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_read_back_as_written_and_others_are_refused() {
        for text in ["admin", "deploy", "call:*", "call:bank/*", "call:bank/account"] {
            assert_eq!(Role::parse(text).map(|role| role.to_string()), Ok(text.to_owned()));
        }
        for text in ["", "root", "call:", "call:bank", "call:*/account", "call:a/b/c", "call:/x"] {
            assert!(Role::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_call_role_reaches_its_service_only() {
        let roles = vec![Role::parse("call:bank/account").expect("a role")];
        let principal = Principal::with_roles(roles);
        assert!(principal.may(Permission::Call { app: "bank", service: "account" }));
        assert!(!principal.may(Permission::Call { app: "bank", service: "audit" }));
        assert!(!principal.may(Permission::Call { app: "shop", service: "account" }));
        assert!(!principal.may(Permission::Deploy));
        assert!(principal.may_call_something_of("bank") && !principal.may_call_something_of("shop"));
        assert!(!principal.may(Permission::Admin));
        assert!(Principal::unrestricted().may(Permission::Admin));
        assert!(!Principal::with_roles(vec![]).may(Permission::Call { app: "a", service: "b" }));
    }
}
