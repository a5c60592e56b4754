//! Bucket policies: JSON in, decisions out.
//!
//! A policy is read once and asked often. What is malformed is refused with the reason when it is put, so that a policy
//! that is kept means what its author wrote. Evaluation asks a [`Request`] and nothing else: it must not know how
//! objects or buckets are stored.
//!
//! Statements are judged as S3 documents it: a `Deny` that fits counts more than every `Allow`.

mod actions;
mod condition;
mod date;
mod keys;
mod parse;
mod pattern;
mod principal;
mod public;

use std::borrow::Cow;

use condition::Condition;
use pattern::Pattern;
use principal::Principals;

/// What a policy says about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A statement allows it, and none denies it.
    Allow,
    /// A statement denies it.
    Deny,
    /// No statement fits.
    Silent,
}

/// The name of a condition's key, such as `aws:SourceIp` or `s3:ExistingObjectTag/colour`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConditionKey {
    /// Lower case, up to the slash: names of keys ignore case.
    pub name: String,
    /// What stands behind the slash, as it was written: the key of a tag. Empty without one.
    pub argument: String,
}

impl ConditionKey {
    /// Reads the name of a key.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let (name, argument) = text.split_once('/').unwrap_or((text, ""));
        Self { name: name.to_ascii_lowercase(), argument: argument.to_owned() }
    }
}

/// A request as policies look at it.
pub trait Request {
    /// The canonical id of who asks; `None`: anonymous.
    fn principal_id(&self) -> Option<&str>;

    /// The name of who asks.
    fn principal_name(&self) -> &str;

    /// The values of a key; `None`: the request does not have it.
    fn values(&self, key: &ConditionKey) -> Option<Vec<Cow<'_, str>>>;
}

/// A policy that was read.
#[derive(Clone, Debug)]
pub struct Policy {
    statements: Vec<Statement>,
    is_public: bool,
}

#[derive(Clone, Debug)]
struct Statement {
    allows: bool,
    principals: Principals,
    actions: Matcher<String>,
    resources: Matcher<Pattern>,
    conditions: Vec<Condition>,
}

/// `Action` and `NotAction`, `Resource` and `NotResource`.
#[derive(Clone, Debug)]
struct Matcher<P> {
    /// Whether what matches is left out.
    is_negated: bool,
    patterns: Vec<P>,
}

impl Policy {
    /// What it says about an action, such as `s3:GetObject`, on a resource: `bucket`, or `bucket/key`.
    #[must_use]
    pub fn evaluate(&self, action: &str, resource: &str, request: &dyn Request) -> Verdict {
        let mut verdict = Verdict::Silent;
        let action = action.to_ascii_lowercase();
        for statement in &self.statements {
            // A statement that can change nothing is not looked at.
            if statement.allows && verdict == Verdict::Allow || !statement.fits(&action, resource, request) {
                continue;
            }
            if !statement.allows {
                return Verdict::Deny;
            }
            verdict = Verdict::Allow;
        }
        verdict
    }

    /// Whether it gives anything to everybody, as S3 documents the meaning of "public".
    #[must_use]
    pub fn is_public(&self) -> bool {
        self.is_public
    }
}

impl Statement {
    /// What stands in for a policy that cannot be read: nothing is left out of its patterns.
    fn denying_everything() -> Self {
        Self {
            allows: false,
            principals: Principals { is_negated: true, named: Vec::new() },
            actions: Matcher { is_negated: true, patterns: Vec::new() },
            resources: Matcher { is_negated: true, patterns: Vec::new() },
            conditions: Vec::new(),
        }
    }

    fn fits(&self, action: &str, resource: &str, request: &dyn Request) -> bool {
        self.actions.matches(|pattern| crate::access::glob::is_match(pattern, action))
            && self.principals.fit(request)
            && self.resources.matches(|pattern| pattern.matches(resource, request))
            && self.conditions.iter().all(|condition| condition.holds(request))
    }
}

impl<P> Matcher<P> {
    fn matches(&self, matches: impl Fn(&P) -> bool) -> bool {
        self.patterns.iter().any(matches) != self.is_negated
    }
}

#[cfg(test)]
mod tests;
