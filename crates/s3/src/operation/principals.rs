//! Whom a bucket policy names. A name that belongs to nobody is refused: it might be a slip, and whoever gets the name
//! later would get the access. What else is wrong with a policy, the store finds.

use serde_json::Value;

use crate::error::{Code, S3Error};
use crate::users::Users;

/// Refuses a policy that names a user that is not there.
///
/// # Errors
/// `MalformedPolicy`.
pub fn check(policy: &str, users: &impl Users) -> Result<(), S3Error> {
    let Ok(document) = serde_json::from_str::<Value>(policy) else { return Ok(()) };
    let statements = match &document["Statement"] {
        Value::Array(statements) => statements.as_slice(),
        statement => std::slice::from_ref(statement),
    };
    for named in statements.iter().flat_map(|statement| [&statement["Principal"], &statement["NotPrincipal"]]) {
        for kind in ["AWS", "CanonicalUser"] {
            for text in texts(&named[kind]) {
                if !is_there(text, users) {
                    let message = format!("Invalid principal in policy: \"{kind}\": \"{text}\" is nobody here");
                    return Err(S3Error::new(Code::MalformedPolicy, message).with("Detail", text));
                }
            }
        }
    }
    Ok(())
}

/// A text, or a list of texts.
fn texts(value: &Value) -> impl Iterator<Item = &str> {
    let list = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
    list.iter().filter_map(Value::as_str)
}

fn is_there(text: &str, users: &impl Users) -> bool {
    if text == "*" {
        return true;
    }
    let is_id = |id: &str| users.display_name(id).is_some();
    let Some(arn) = text.strip_prefix("arn:") else { return is_id(text) };
    // Partition, service, region, account, and who it is there.
    let mut parts = arn.splitn(5, ':').skip(1);
    let (service, _, account, who) = (parts.next(), parts.next(), parts.next(), parts.next());
    let (Some("iam"), Some(account), Some(who)) = (service, account, who) else { return false };
    match who.split_once('/') {
        // Ids are drawn at random and never given again: nobody can get this one later.
        None => who == "root",
        Some(("user", path)) => {
            let name = path.rsplit('/').next().unwrap_or_default();
            match users.id_of_name(name) {
                Some(id) => account.is_empty() || account == id,
                None => is_id(name) && (account.is_empty() || account == name),
            }
        }
        Some(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::users::KnownUser;

    /// Knows the user Bob with the id `b0b`.
    #[derive(Clone)]
    struct OnlyBob;

    impl Users for OnlyBob {
        fn find(&self, _: &str) -> Option<KnownUser> {
            None
        }

        fn display_name(&self, id: &str) -> Option<String> {
            (id == "b0b").then(|| "Bob".to_owned())
        }

        fn id_of_name(&self, name: &str) -> Option<String> {
            (name == "Bob").then(|| "b0b".to_owned())
        }

        fn id_of_email(&self, _: &str) -> Option<String> {
            None
        }
    }

    #[test]
    fn only_users_that_are_there_can_be_named() {
        for (principal, is_valid) in [
            (r#""*""#, true),
            (r#"{"AWS": "*"}"#, true),
            (r#"{"AWS": "b0b"}"#, true),
            (r#"{"CanonicalUser": "b0b"}"#, true),
            (r#"{"AWS": ["b0b", "arn:aws:iam::b0b:root"]}"#, true),
            (r#"{"AWS": "arn:aws:iam:::user/Bob"}"#, true),
            (r#"{"AWS": "arn:aws:iam::b0b:user/team/Bob"}"#, true),
            (r#"{"AWS": "arn:aws:iam::b0b:user/b0b"}"#, true),
            (r#"{"Service": "logging.s3.amazonaws.com"}"#, true),
            (r#"{"AWS": "eve"}"#, false),
            (r#"{"CanonicalUser": "eve"}"#, false),
            (r#"{"AWS": ["b0b", "eve"]}"#, false),
            (r#"{"AWS": "arn:aws:iam::eve:root"}"#, true),
            (r#"{"AWS": "arn:aws:iam::eve:leaf"}"#, false),
            (r#"{"AWS": "arn:aws:iam:::user/Eve"}"#, false),
            (r#"{"AWS": "arn:aws:iam::eve:user/Bob"}"#, false),
            (r#"{"AWS": "arn:aws:iam::b0b:role/reader"}"#, false),
            (r#"{"AWS": "arn:aws:sts::b0b:assumed-role/reader/x"}"#, false),
        ] {
            for key in ["Principal", "NotPrincipal"] {
                let policy = format!(r#"{{"Statement": [{{"{key}": {principal}}}]}}"#);
                assert_eq!(check(&policy, &OnlyBob).is_ok(), is_valid, "{policy}");
                let alone = format!(r#"{{"Statement": {{"{key}": {principal}}}}}"#);
                assert_eq!(check(&alone, &OnlyBob).is_ok(), is_valid, "{alone}");
            }
        }
        for other in ["", "{", "[]", "{}", r#"{"Statement": 7}"#, r#"{"Statement": [{"Principal": {"AWS": 7}}]}"#] {
            assert!(check(other, &OnlyBob).is_ok(), "{other}");
        }
    }
}
