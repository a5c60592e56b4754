//! For fuzzing: a policy from a stranger, and what must be true of it.

use std::borrow::Cow;

use millrace_api::objects::Refusal;

use crate::access::Policy;
use crate::access::policy::{ConditionKey, Request, Verdict};

/// Somebody, whose request has any key of conditions with these values.
struct Asker<'a> {
    id: Option<&'a str>,
    value: Option<&'a str>,
}

impl Request for Asker<'_> {
    fn principal_id(&self) -> Option<&str> {
        self.id
    }

    fn principal_name(&self) -> &str {
        "ann"
    }

    fn values(&self, _: &ConditionKey) -> Option<Vec<Cow<'_, str>>> {
        self.value.map(|value| vec![Cow::Borrowed(value)])
    }
}

/// Reads a policy of the bucket `b`. One that is refused says why; one that is kept reads again as the same.
///
/// # Panics
/// If one of these is not so.
pub fn check_policy(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let policy = match Policy::parse(text, "b") {
        Ok(policy) => policy,
        Err(error) => {
            let refusal = Refusal::of(&error);
            assert!(matches!(refusal, Some(Refusal::MalformedPolicy | Refusal::PolicyTooLarge)), "{error:?}");
            assert!(!error.message.is_empty());
            return;
        }
    };
    let kept = Policy::kept(text);
    assert_eq!(policy.is_public(), kept.is_public());
    for (action, resource) in [("s3:GetObject", "b/k"), ("s3:PutObject", "b/"), ("s3:ListBucket", "b")] {
        for id in [None, Some("0123"), Some("ann")] {
            for value in [None, Some(""), Some("10.0.0.1"), Some("true"), Some("2026-01-01T00:00:00Z"), Some("7")] {
                let asker = Asker { id, value };
                let verdict = policy.evaluate(action, resource, &asker);
                assert_eq!(verdict, kept.evaluate(action, resource, &asker));
                // Nothing is said of other buckets.
                assert_ne!(policy.evaluate(action, "other/k", &asker), Verdict::Allow);
            }
        }
    }
}
