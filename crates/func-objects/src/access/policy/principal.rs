//! For whom a statement is.
//!
//! Every user of this server is an account of their own. So `arn:aws:iam::ID:root`, `arn:aws:iam::ID:user/NAME`,
//! `arn:aws:iam:::user/NAME` and `ID` name the same user, where ID is the canonical id.

use super::Request;

/// `Principal` or `NotPrincipal`.
#[derive(Clone, Debug)]
pub struct Principals {
    /// Whether those who are named are left out.
    pub is_negated: bool,
    /// Who is named.
    pub named: Vec<Principal>,
}

/// One that is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Principal {
    /// `*`: also without a signature.
    Everybody,
    /// By canonical id.
    Id(String),
    /// A user by name, and if the account is not empty, by it as well.
    User {
        /// The canonical id, or empty.
        account: String,
        /// The name, or the canonical id.
        name: String,
    },
    /// Somebody who never asks here: a service, a federated user, a role.
    Stranger,
}

impl Principals {
    pub(super) fn fit(&self, request: &dyn Request) -> bool {
        self.named.iter().any(|principal| principal.is(request)) != self.is_negated
    }
}

impl Principal {
    /// Reads a value of the kind `AWS`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text == "*" {
            return Ok(Self::Everybody);
        }
        let invalid = || format!("Invalid principal in policy: \"{text}\"");
        if !text.starts_with("arn:") {
            let is_id =
                !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
            return if is_id { Ok(Self::Id(text.to_owned())) } else { Err(invalid()) };
        }
        let mut parts = text.splitn(6, ':');
        let mut next = || parts.next().ok_or_else(invalid);
        let (_, partition, service, region) = (next()?, next()?, next()?, next()?);
        let (account, who) = (next()?, next()?);
        if !partition.starts_with("aws") || !region.is_empty() || account.contains(['*', '?']) {
            return Err(invalid());
        }
        let kind = who.split_once('/');
        match (service, who, kind) {
            ("iam", "root", _) if !account.is_empty() => Ok(Self::Id(account.to_owned())),
            ("iam", _, Some(("user", path))) => {
                // A path may stand before the name.
                let name = path.rsplit('/').next().unwrap_or_default();
                let is_name = !name.is_empty() && !name.contains(['*', '?']);
                let user = Self::User { account: account.to_owned(), name: name.to_owned() };
                if is_name { Ok(user) } else { Err(invalid()) }
            }
            ("iam", _, Some(("role", name))) | ("sts", _, Some(("assumed-role" | "federated-user", name)))
                if !name.is_empty() && !name.contains(['*', '?']) =>
            {
                Ok(Self::Stranger)
            }
            ("cloudfront", ..) => Ok(Self::Stranger),
            _ if service == "iam" && account == "cloudfront" => Ok(Self::Stranger),
            _ => Err(invalid()),
        }
    }

    fn is(&self, request: &dyn Request) -> bool {
        let id = request.principal_id();
        match self {
            Self::Everybody => true,
            Self::Id(own) => id == Some(own.as_str()),
            Self::User { account, name } => id.is_some_and(|id| {
                (account.is_empty() || account == id) && (name == id || name == request.principal_name())
            }),
            Self::Stranger => false,
        }
    }
}
