//! Who asks, and what they may do.

use std::fmt;
use std::sync::Arc;

use millrace_base::{Error, ErrorCode};

/// One thing a principal may do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Everything.
    Admin,
    /// Deploy, replace and remove apps, and list them.
    Deploy,
    /// Dial in as a worker, which makes what it serves an app: of this name, or of any.
    Worker(Option<String>),
    /// Call handlers, send to them, use routes and read state.
    Call(Scope),
    /// Call queries and read state.
    Read(Scope),
}

/// One service, or every service of an app, or every service of every app.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scope {
    /// The app, or any.
    pub app: Option<String>,
    /// The service, or any of the app; any if the app is any.
    pub service: Option<String>,
}

impl Scope {
    /// Reads what stands behind `call:`: `*`, `<app>/*` or `<app>/<service>`.
    fn parse(text: &str) -> Option<Self> {
        if text == "*" {
            return Some(Self { app: None, service: None });
        }
        let (app, service) = text.split_once('/')?;
        let is_name = millrace_base::Name::is_valid;
        if !is_name(app) || !(service == "*" || is_name(service)) {
            return None;
        }
        Some(Self { app: Some(app.to_owned()), service: (service != "*").then(|| service.to_owned()) })
    }

    fn holds(&self, app: &str, service: &str) -> bool {
        self.reaches(app) && self.service.as_deref().is_none_or(|own| own == service)
    }

    /// Whether it holds any service of the app.
    fn reaches(&self, app: &str) -> bool {
        self.app.as_deref().is_none_or(|own| own == app)
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.app {
            None => formatter.write_str("*"),
            Some(app) => write!(formatter, "{app}/{}", self.service.as_deref().unwrap_or("*")),
        }
    }
}

/// A text that is not a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleError(pub String);

impl fmt::Display for RoleError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{:?} is not a role: use admin, deploy, worker, worker:<app>, call:*, call:<app>/* or call:<app>/<service>, or read: in place of \
             call: for queries alone; records of a type are the service records/<type>",
            self.0
        )
    }
}

impl std::error::Error for RoleError {}

impl Role {
    /// Reads `admin`, `deploy`, `worker`, `worker:<app>`, `call:*`, `call:<app>/*` or `call:<app>/<service>`, and the same with `read:`.
    ///
    /// # Errors
    /// [`RoleError`] for any other text.
    pub fn parse(text: &str) -> Result<Self, RoleError> {
        let role = match text.split_once(':') {
            None if text == "admin" => Some(Role::Admin),
            None if text == "deploy" => Some(Role::Deploy),
            None if text == "worker" => Some(Role::Worker(None)),
            Some(("worker", app)) => millrace_base::Name::is_valid(app).then(|| Role::Worker(Some(app.to_owned()))),
            Some(("call", scope)) => Scope::parse(scope).map(Role::Call),
            Some(("read", scope)) => Scope::parse(scope).map(Role::Read),
            _ => None,
        };
        role.ok_or_else(|| RoleError(text.to_owned()))
    }
}

impl fmt::Display for Role {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Role::Admin => formatter.write_str("admin"),
            Role::Deploy => formatter.write_str("deploy"),
            Role::Worker(None) => formatter.write_str("worker"),
            Role::Worker(Some(app)) => write!(formatter, "worker:{app}"),
            Role::Call(scope) => write!(formatter, "call:{scope}"),
            Role::Read(scope) => write!(formatter, "read:{scope}"),
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
    /// Dialling in as a worker of `app`.
    Worker {
        /// The app's name.
        app: &'a str,
    },
    /// Calling `service` of `app`.
    Call {
        /// The app's name.
        app: &'a str,
        /// The service's name.
        service: &'a str,
    },
    /// Calling queries of `service` of `app`, and reading its state.
    Read {
        /// The app's name.
        app: &'a str,
        /// The service's name.
        service: &'a str,
    },
}

/// The narrowest role that permits it.
impl fmt::Display for Permission<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Permission::Admin => formatter.write_str("admin"),
            Permission::Deploy => formatter.write_str("deploy"),
            Permission::Worker { app } => write!(formatter, "worker:{app}"),
            Permission::Call { app, service } => write!(formatter, "call:{app}/{service}"),
            Permission::Read { app, service } => write!(formatter, "read:{app}/{service}"),
        }
    }
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

    /// Whether this principal may read any service of an app, known or not.
    #[must_use]
    pub fn may_read_something_of(&self, app: &str) -> bool {
        let reaches = |role: &Role| match role {
            Role::Admin => true,
            Role::Call(scope) | Role::Read(scope) => scope.reaches(app),
            Role::Deploy | Role::Worker(_) => false,
        };
        self.roles.as_ref().is_none_or(|roles| roles.iter().any(reaches))
    }

    /// Whether there is anything that this principal may do.
    #[must_use]
    pub fn may_something(&self) -> bool {
        self.roles.as_ref().is_none_or(|roles| !roles.is_empty())
    }

    /// Refuses what this principal may not do.
    ///
    /// # Errors
    /// `forbidden`, with the role that is missing.
    pub fn require(&self, permission: Permission<'_>) -> Result<(), Error> {
        if self.may(permission) {
            return Ok(());
        }
        Err(Error::new(ErrorCode::Forbidden, format!("this needs the role {permission}")))
    }

    /// Whether this principal may do what needs `permission`.
    #[must_use]
    pub fn may(&self, permission: Permission<'_>) -> bool {
        let Some(roles) = &self.roles else {
            return true;
        };
        roles.iter().any(|role| match (role, permission) {
            (Role::Admin, _)
            | (Role::Deploy, Permission::Deploy | Permission::Worker { .. })
            | (Role::Worker(None), Permission::Worker { .. }) => true,
            (Role::Worker(Some(own)), Permission::Worker { app }) => own == app,
            (Role::Call(scope), Permission::Call { app, service })
            | (Role::Call(scope) | Role::Read(scope), Permission::Read { app, service }) => scope.holds(app, service),
            _ => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_read_back_as_written_and_others_are_refused() {
        for text in [
            "admin",
            "deploy",
            "worker",
            "worker:bank",
            "call:*",
            "call:bank/*",
            "call:bank/account",
            "read:*",
            "read:bank/account",
        ] {
            assert_eq!(Role::parse(text).map(|role| role.to_string()), Ok(text.to_owned()));
        }
        for text in [
            "",
            "root",
            "call:",
            "call:bank",
            "call:*/account",
            "call:a/b/c",
            "call:/x",
            "read:",
            "admin:*",
            "worker:",
            "worker:*",
        ] {
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
        assert!(principal.may(Permission::Read { app: "bank", service: "account" }));
        assert!(principal.may_read_something_of("bank") && !principal.may_read_something_of("shop"));
        assert!(!principal.may(Permission::Admin));
        assert!(Principal::unrestricted().may(Permission::Admin));
        assert!(!Principal::with_roles(vec![]).may(Permission::Call { app: "a", service: "b" }));
    }

    #[test]
    fn who_is_refused_is_told_the_role_that_is_missing() {
        let nobody = Principal::with_roles(vec![]);
        let (app, service) = ("bank", "account");
        for (permission, role) in [
            (Permission::Admin, "admin"),
            (Permission::Deploy, "deploy"),
            (Permission::Worker { app }, "worker:bank"),
            (Permission::Call { app, service }, "call:bank/account"),
            (Permission::Read { app, service }, "read:bank/account"),
        ] {
            let error = nobody.require(permission).expect_err("no roles");
            assert_eq!((error.code, error.message), (ErrorCode::Forbidden, format!("this needs the role {role}")));
            assert_eq!(Principal::unrestricted().require(permission), Ok(()));
        }
    }

    #[test]
    fn a_worker_role_reaches_its_app_only() {
        let bank = Principal::with_roles(vec![Role::parse("worker:bank").expect("a role")]);
        assert!(bank.may(Permission::Worker { app: "bank" }) && !bank.may(Permission::Worker { app: "shop" }));
        assert!(!bank.may(Permission::Deploy));
        let any = Principal::with_roles(vec![Role::Worker(None)]);
        assert!(any.may(Permission::Worker { app: "shop" }) && !any.may(Permission::Deploy));
    }

    #[test]
    fn a_read_role_calls_nothing() {
        let principal = Principal::with_roles(vec![Role::parse("read:bank/*").expect("a role")]);
        assert!(principal.may(Permission::Read { app: "bank", service: "account" }));
        assert!(!principal.may(Permission::Read { app: "shop", service: "account" }));
        assert!(!principal.may(Permission::Call { app: "bank", service: "account" }));
        assert!(!principal.may(Permission::Deploy) && !principal.may(Permission::Admin));
        assert!(principal.may_read_something_of("bank") && !principal.may_read_something_of("shop"));
    }
}
