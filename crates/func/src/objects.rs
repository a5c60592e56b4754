//! Which buckets may tell an app's handlers what happens in them: the `[objects]` of its `millrace.toml`.

use millrace_api::{Error, ErrorCode};
use millrace_base::limits;
use serde::Deserialize;

/// Buckets whose rules may name an app's handlers; none, unless its `millrace.toml` says so. Whoever may set the rules of
/// such a bucket makes the handlers run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "Section")]
pub struct ObjectPolicy {
    /// Names, or how they begin with a star behind.
    buckets: Vec<String>,
}

/// `[objects]` as written.
#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct Section {
    notifications: Lines,
}

/// `notifications` by itself, so that what is wrong with it has its place in the file.
#[derive(Deserialize, Default)]
#[serde(try_from = "Vec<String>")]
struct Lines(ObjectPolicy);

impl TryFrom<Vec<String>> for Lines {
    type Error = String;

    fn try_from(lines: Vec<String>) -> Result<Self, String> {
        ObjectPolicy::new(lines).map(Self)
    }
}

impl From<Section> for ObjectPolicy {
    fn from(section: Section) -> Self {
        section.notifications.0
    }
}

impl ObjectPolicy {
    /// Allows these buckets; a star at the end stands for any rest.
    ///
    /// # Errors
    /// More lines than one app may have, and names that no bucket can have.
    pub fn new(buckets: Vec<String>) -> Result<Self, String> {
        if buckets.len() > limits::NOTIFYING_BUCKETS {
            let most = limits::NOTIFYING_BUCKETS;
            return Err(format!("objects.notifications has {} lines; {most} are allowed", buckets.len()));
        }
        let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
        let is_name = |name: &String| {
            let start = name.strip_suffix('*').unwrap_or(name);
            !name.is_empty() && start.len() <= 63 && start.bytes().all(is_part)
        };
        match buckets.iter().find(|name| !is_name(name)) {
            Some(wrong) => Err(format!("objects.notifications: {wrong:?} cannot be the name of a bucket")),
            None => Ok(Self { buckets }),
        }
    }

    /// Whether a bucket may tell the app.
    ///
    /// # Errors
    /// `forbidden`, naming the setting that would allow it.
    pub fn allows(&self, bucket: &str) -> Result<(), Error> {
        let is_allowed = self.buckets.iter().any(|allowed| match allowed.strip_suffix('*') {
            Some(start) => bucket.starts_with(start),
            None => allowed == bucket,
        });
        if is_allowed {
            return Ok(());
        }
        let message = format!(
            "the app does not let the bucket {bucket:?} call its handlers; to allow it, add {bucket:?} to `notifications` \
             under `[objects]` in the app's millrace.toml"
        );
        Err(Error::new(ErrorCode::Forbidden, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_named_buckets_are_allowed() {
        let policy = ObjectPolicy::new(vec!["photos".to_owned(), "logs-*".to_owned()]).expect("names");
        for (bucket, is_allowed) in
            [("photos", true), ("photos2", false), ("logs-", true), ("logs-a", true), ("logs", false), ("", false)]
        {
            assert_eq!(policy.allows(bucket).is_ok(), is_allowed, "{bucket}");
        }
        assert!(ObjectPolicy::default().allows("photos").is_err());
        assert!(ObjectPolicy::new(vec!["*".to_owned()]).expect("any").allows("photos").is_ok());
        for wrong in ["", "Photos", "a*b", "a/b"] {
            assert!(ObjectPolicy::new(vec![wrong.to_owned()]).is_err(), "{wrong:?}");
        }
    }
}
