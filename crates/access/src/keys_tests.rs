//! The key file: what it accepts, what a key may do, and that no token makes it panic.

use super::*;
use crate::Permission;
use proptest::prelude::*;

fn role(text: &str) -> Role {
    Role::parse(text).expect("a role")
}

fn file_with_key() -> (KeyFile, String) {
    let mut file = KeyFile::default();
    let token = file.add("ci-1", &[7; 32], &[role("deploy")], 5).expect("a new key");
    (file, token)
}

#[test]
fn a_token_is_known_and_a_changed_one_is_not() {
    let (file, token) = file_with_key();
    assert!(token.starts_with("mr_ci-1_"));
    let keys = KeySet::new(&file).expect("valid");
    assert!(keys.verify(&token).is_some_and(|who| who.may(Permission::Deploy) && !who.may(Permission::Admin)));
    for index in 0..token.len() {
        let mut changed = token.clone().into_bytes();
        changed[index] = if changed[index] == b'x' { b'y' } else { b'x' };
        let changed = String::from_utf8(changed).expect("ASCII");
        assert!(keys.verify(&changed).is_none(), "{changed}");
    }
    for wrong in
        ["", "mr_", "mr_ci-1_", "mr_ci-1", &token[..token.len() - 1], &format!("{token}A"), &format!("{token}=")]
    {
        assert!(keys.verify(wrong).is_none(), "{wrong}");
    }
}

#[test]
fn the_file_keeps_no_secret_and_reads_back() {
    let (mut file, token) = file_with_key();
    file.anonymous = vec!["call:shop/login".to_owned()];
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("keys.json");
    file.save(&path).expect("written");
    let text = fs::read_to_string(&path).expect("readable");
    assert!(!text.contains(token.rsplit('_').next().expect("a secret")));
    assert_eq!(KeyFile::load(&path).expect("valid"), file);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
    }
    assert!(file.remove("ci-1") && !file.remove("ci-1"));
    assert_eq!(KeySet::new(&file).expect("valid").count(), 0);
}

#[test]
fn nobody_may_do_anything_unless_the_file_says_so() {
    let (mut file, _) = file_with_key();
    let login = Permission::Call { app: "shop", service: "login" };
    assert!(!KeySet::new(&file).expect("valid").anonymous().may(login));
    file.anonymous.push("call:shop/login".to_owned());
    let keys = KeySet::new(&file).expect("valid");
    assert!(keys.anonymous().may(login) && !keys.anonymous().may(Permission::Deploy));
}

#[test]
fn wrong_records_are_refused_with_their_id() {
    let (mut file, _) = file_with_key();
    assert!(file.add("ci-1", &[8; 32], &[role("admin")], 0).is_err(), "taken");
    assert!(file.add("no_underscore", &[8; 32], &[role("admin")], 0).is_err());
    assert!(file.add("", &[8; 32], &[role("admin")], 0).is_err());
    assert!(file.add("empty", &[8; 32], &[], 0).is_err());
    for break_it in [
        (|key| key.roles.push("root".to_owned())) as fn(&mut KeyRecord),
        |key| key.secret_sha256.truncate(62),
        |key| key.secret_sha256.replace_range(0..1, "g"),
    ] {
        let mut broken = file.clone();
        break_it(&mut broken.keys[0]);
        let error = KeySet::new(&broken).expect_err("broken").to_string();
        assert!(error.contains("ci-1"), "{error}");
    }
    let mut twice = file.clone();
    twice.keys.push(file.keys[0].clone());
    assert!(KeySet::new(&twice).is_err());
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("keys.json");
    assert!(matches!(KeyFile::load(&path), Err(KeyError::Io(..))));
    for text in ["", "7", "{\"keys\": 1}", "{\"kyes\": []}", "{\"anonymous\": [\"root\"]}"] {
        fs::write(&path, text).expect("written");
        assert!(matches!(KeyFile::load(&path), Err(KeyError::Malformed(..))), "{text}");
    }
}

proptest! {
    #[test]
    fn only_the_token_itself_is_accepted(secret in any::<[u8; 32]>(), other in "\\PC{0,80}") {
        let mut file = KeyFile::default();
        let token = file.add("a", &secret, &[role("admin")], 0).expect("a new key");
        let keys = KeySet::new(&file).expect("valid");
        prop_assert!(keys.verify(&token).is_some());
        prop_assert_eq!(keys.verify(&other).is_some(), other == token);
        let forged = format!("mr_a_{}", other);
        prop_assert_eq!(keys.verify(&forged).is_some(), forged == token);
    }
}
