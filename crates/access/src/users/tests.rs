//! The table of users: what it accepts, how it is kept, and that a failed change is none.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use millrace_base::limits;
use proptest::prelude::*;

use super::*;

/// What version 1 of the table looks like. A later build must read it.
const GOLDEN: &str = include_str!("golden.json");

/// Keeps the table in memory.
#[derive(Clone)]
struct Memory {
    bytes: Arc<Mutex<Option<Vec<u8>>>>,
    secret: [u8; 32],
    fails: Arc<AtomicBool>,
}

impl Memory {
    fn new() -> Self {
        Self { bytes: Arc::default(), secret: [9; 32], fails: Arc::default() }
    }

    fn with(bytes: &[u8]) -> Self {
        let store = Self::new();
        *store.bytes.lock().expect("whole") = Some(bytes.to_vec());
        store
    }

    fn kept(&self) -> Vec<u8> {
        self.bytes.lock().expect("whole").clone().expect("kept")
    }

    fn open(&self) -> Result<Arc<Users>, UserError> {
        // Each draw is other bytes, and each run the same.
        let next = AtomicU8::new(1);
        Users::open(self.clone(), move |bytes| bytes.fill(next.fetch_add(1, Ordering::Relaxed)))
    }
}

impl UserStore for Memory {
    fn read(&self) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.bytes.lock().expect("whole").clone())
    }

    fn replace(&self, _: u64, bytes: &[u8]) -> Result<(), StoreError> {
        if self.fails.load(Ordering::Relaxed) {
            return Err(io::Error::from(io::ErrorKind::StorageFull).into());
        }
        *self.bytes.lock().expect("whole") = Some(bytes.to_vec());
        Ok(())
    }

    fn data_key(&self) -> Result<DataKey, StoreError> {
        Ok(DataKey::derive(&self.secret))
    }
}

fn named(name: &str) -> NewUser {
    NewUser { name: name.to_owned(), ..NewUser::default() }
}

fn pair(access_key: &str, secret_key: &str) -> NewKey {
    NewKey { access_key: Some(access_key.to_owned()), secret_key: Some(secret_key.to_owned()) }
}

#[test]
fn the_kept_form_is_what_it_was() {
    let store = Memory::new();
    let users = store.open().expect("empty");
    let email = Some("Ann@example.com".to_owned());
    users.add_user(&NewUser { email, ..named("Ann Ä.") }, 1).expect("new");
    users.add_key("Ann Ä.", &pair("CHOSEN", "chosen/secret+="), 2).expect("new");
    users.revoke_key("Ann Ä.", "CHOSEN", 3).expect("there");
    users.add_user(&named("bob"), 4).expect("new");
    assert_eq!(String::from_utf8(store.kept()).expect("JSON"), GOLDEN);
    let again = Memory::with(GOLDEN.as_bytes()).open().expect("readable");
    assert_eq!(again.list(), users.list());
    let (ann, bob) = (&users.list()[0], &users.list()[1]);
    for user in [ann, bob] {
        let key = &user.keys[0].access_key;
        assert_eq!(again.view().find(key), users.view().find(key));
        assert!(again.view().find(key).is_some());
    }
}

#[test]
fn a_drawn_key_looks_as_those_of_aws_and_no_secret_is_at_rest() {
    let store = Memory::new();
    let users = store.open().expect("empty");
    let (user, secret) = users.add_user(&named("ann"), 1).expect("new");
    assert!(user.id.len() == 64 && user.email.is_empty());
    assert!(secret.access_key.len() == 20 && secret.access_key.starts_with("AKIA"));
    assert_eq!(secret.secret_key.len(), 40);
    let kept = String::from_utf8(store.kept()).expect("JSON");
    assert!(kept.contains(&secret.access_key) && !kept.contains(&secret.secret_key));
    let found = users.view().find(&secret.access_key).expect("active");
    assert_eq!((&*found.secret, &found.identity.id), (secret.secret_key.as_str(), &user.id));
    for shown in [format!("{found:?}"), format!("{secret:?}"), format!("{users:?}")] {
        assert!(!shown.contains(&secret.secret_key), "{shown}");
    }
}

#[test]
fn a_view_sees_each_change_at_its_next_look() {
    let users = Memory::new().open().expect("empty");
    let view = users.view();
    let email = Some("Ann@Example.com".to_owned());
    let (ann, first) = users.add_user(&NewUser { email, ..named("ann") }, 1).expect("new");
    assert_eq!(view.of_id(&ann.id).expect("there").name, "ann");
    assert_eq!(view.of_email("ann@example.COM").expect("there").id, ann.id);
    let second = users.add_key("ann", &NewKey::default(), 2).expect("new");
    assert!(view.find(&first.access_key).is_some() && view.find(&second.access_key).is_some());
    users.revoke_key(&ann.id, &first.access_key, 3).expect("there");
    assert!(view.find(&first.access_key).is_none() && view.find(&second.access_key).is_some());
    users.revoke_key(&ann.id, &first.access_key, 4).expect("again");
    let status: Vec<_> = users.keys("ann").expect("there").iter().map(|key| key.status).collect();
    assert_eq!(status, [KeyStatus::Revoked, KeyStatus::Active]);
    users.remove_user("ann").expect("there");
    assert!(view.find(&second.access_key).is_none() && view.of_id(&ann.id).is_none());
    assert!(view.of_email("ann@example.com").is_none() && users.list().is_empty());
}

#[test]
fn what_is_taken_wrong_or_unknown_is_refused_and_changes_nothing() {
    let store = Memory::new();
    let users = store.open().expect("empty");
    let ann = NewUser { email: Some("a@b".to_owned()), ..named("ann") };
    users.add_user(&ann, 1).expect("new");
    users.add_key("ann", &pair("CHOSEN", "12345678"), 1).expect("new");
    users.revoke_key("ann", "CHOSEN", 1).expect("there");
    let kept = store.kept();
    let new = |name: &str, email: Option<&str>, access_key: Option<&str>, secret_key: Option<&str>| NewUser {
        name: name.to_owned(),
        email: email.map(str::to_owned),
        access_key: access_key.map(str::to_owned),
        secret_key: secret_key.map(str::to_owned),
    };
    for taken in [
        new("ann", None, None, None),
        new("bob", Some("A@b"), None, None),
        new("bob", None, Some("CHOSEN"), Some("12345678")),
    ] {
        assert!(matches!(users.add_user(&taken, 2), Err(UserError::Taken(_))));
    }
    let (long, id) = ("x".repeat(129), "0".repeat(64));
    for wrong in [
        new("", None, None, None),
        new(" ann", None, None, None),
        new("a\nb", None, None, None),
        new("a\"b", None, None, None),
        new("a\\b", None, None, None),
        new(&long, None, None, None),
        new(&id, None, None, None),
        new("bob", Some("b"), None, None),
        new("bob", Some("@b"), None, None),
        new("bob", Some("a@b@c"), None, None),
        new("bob", Some("a b@c"), None, None),
        new("bob", Some(&format!("{long}@{long}")), None, None),
        new("bob", None, Some("KEY"), None),
        new("bob", None, None, Some("12345678")),
        new("bob", None, Some("AB"), Some("12345678")),
        new("bob", None, Some("A/B"), Some("12345678")),
        new("bob", None, Some(&long), Some("12345678")),
        new("bob", None, Some("KEY"), Some("1234567")),
        new("bob", None, Some("KEY"), Some("1234 5678")),
        new("bob", None, Some("KEY"), Some(&long)),
    ] {
        let error = users.add_user(&wrong, 2).expect_err("wrong");
        assert!(matches!(&error, UserError::Refused(message) if message.len() < 400), "{error}");
    }
    assert!(matches!(users.remove_user("bob"), Err(UserError::Unknown(_))));
    assert!(matches!(users.keys(&long), Err(UserError::Unknown(_))));
    assert!(matches!(users.add_key("bob", &NewKey::default(), 2), Err(UserError::Unknown(_))));
    assert!(matches!(users.revoke_key("ann", "OTHER", 2), Err(UserError::Unknown(_))));
    assert_eq!(store.kept(), kept);
}

#[test]
fn keys_and_users_are_bounded() {
    let users = Memory::new().open().expect("empty");
    let (_, first) = users.add_user(&named("ann"), 1).expect("new");
    users.add_key("ann", &pair("K2", "12345678"), 2).expect_err("too short");
    users.add_key("ann", &pair("KEY-2", "12345678"), 2).expect("new");
    assert!(matches!(users.add_key("ann", &pair("KEY-3", "12345678"), 3), Err(UserError::Full(_))));
    let mut last = first.access_key.clone();
    for round in 3..10 {
        users.revoke_key("ann", &last, round).expect("there");
        last = format!("KEY-{round}");
        users.add_key("ann", &pair(&last, "12345678"), round).expect("new");
        let keys = users.keys("ann").expect("there");
        assert!(keys.len() <= limits::S3_KEYS);
        assert!(keys.iter().any(|key| key.access_key == "KEY-2" && key.status == KeyStatus::Active));
        assert_eq!(keys.last().map(|key| key.access_key.as_str()), Some(last.as_str()));
    }
    let user = |number: usize| format!(r#"{{"id":"{number:064x}","name":"user {number}","created_ms":1,"keys":[]}}"#);
    let text = |count: usize| {
        let list: Vec<String> = (0..count).map(user).collect();
        format!(r#"{{"format":1,"users":[{}]}}"#, list.join(","))
    };
    let full = Memory::with(text(limits::S3_USERS).as_bytes()).open().expect("as many as there may be");
    assert!(matches!(full.add_user(&named("one more"), 1), Err(UserError::Full(_))));
    assert!(Memory::with(text(limits::S3_USERS + 1).as_bytes()).open().is_err());
}

/// What the manifest may list, with every user and key as large as the limits let them be.
#[test]
fn the_largest_table_fits_into_a_listed_file() {
    let key = |revoked: bool| {
        let sealed = (12 + limits::S3_SECRET_KEY_BYTES.end() + 16).div_ceil(3) * 4;
        let common = r#"{"access_key":"","created_ms":1234567890123},"#.len() + limits::S3_ACCESS_KEY_BYTES.end();
        common + if revoked { r#","revoked_ms":1234567890123"#.len() } else { r#","sealed_secret":"""#.len() + sealed }
    };
    let (active, all) = (limits::S3_ACTIVE_KEYS, limits::S3_KEYS);
    // Nothing in names, addresses and keys is escaped in JSON.
    let user = r#"{"id":"","name":"","email":"","created_ms":1234567890123,"keys":[]},"#.len()
        + 64
        + limits::S3_USER_NAME_BYTES
        + limits::EMAIL_BYTES
        + active * key(false)
        + (all - active) * key(true);
    assert!(user * limits::S3_USERS <= 16 << 20, "{user} bytes a user");
}

#[test]
fn a_change_that_cannot_be_kept_is_none() {
    let store = Memory::new();
    let users = store.open().expect("empty");
    let (_, first) = users.add_user(&named("ann"), 1).expect("new");
    store.fails.store(true, Ordering::Relaxed);
    assert!(matches!(users.add_user(&named("bob"), 2), Err(UserError::Store(_))));
    assert!(matches!(users.revoke_key("ann", &first.access_key, 2), Err(UserError::Store(_))));
    assert!(users.view().find(&first.access_key).is_some());
    assert_eq!(users.list().len(), 1);
    store.fails.store(false, Ordering::Relaxed);
    users.add_user(&named("bob"), 3).expect("there is room again");
    assert_eq!(store.open().expect("readable").list(), users.list());
}

#[test]
fn a_table_that_is_not_whole_is_refused() {
    let store = Memory::new();
    let users = store.open().expect("empty");
    users.add_user(&named("ann"), 1).expect("new");
    users.add_user(&named("bob"), 1).expect("new");
    let text = String::from_utf8(store.kept()).expect("JSON");
    let other_secret = Memory { secret: [8; 32], ..store.clone() };
    assert!(matches!(other_secret.open(), Err(UserError::Malformed(_))));
    let sealed: Vec<&str> =
        text.split(r#""sealed_secret":""#).skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let swapped = text.replace(sealed[0], "first").replace(sealed[1], sealed[0]).replace("first", sealed[1]);
    for wrong in [
        String::new(),
        "{}".to_owned(),
        r#"{"format":2,"users":[]}"#.to_owned(),
        r#"{"format":1,"users":[],"more":1}"#.to_owned(),
        text[..text.len() / 2].to_owned(),
        text.replace("bob", "ann"),
        text.replace(r#""name":"bob""#, r#""name":"bob","email":"b""#),
        text.replace("sealed_secret", "secret"),
        text.replace(sealed[0], ""),
        text.replace(r#""keys":["#, r#""keys":[{"access_key":"KEY","created_ms":1},"#),
        swapped,
    ] {
        assert!(matches!(Memory::with(wrong.as_bytes()).open(), Err(UserError::Malformed(_))), "{wrong}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn secrets_come_back_and_changed_ones_do_not(
        secret in "[!-~]{8,128}", key in "[A-Z0-9]{3,128}", nonce in any::<[u8; 12]>(), place in any::<prop::sample::Index>()
    ) {
        let (data_key, user) = (DataKey::derive(&[1; 32]), "0".repeat(64));
        let sealed = data_key.seal(&user, &key, &secret, nonce);
        prop_assert_eq!(data_key.open(&user, &key, &sealed), Some(secret.clone()));
        prop_assert_eq!(data_key.open(&"1".repeat(64), &key, &sealed), None);
        prop_assert_eq!(data_key.open(&user, "OTHER-", &sealed), None);
        prop_assert_eq!(DataKey::derive(&[2; 32]).open(&user, &key, &sealed), None);
        let mut changed = sealed.into_bytes();
        let place = place.index(changed.len());
        changed[place] = if changed[place] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(changed).expect("ASCII");
        prop_assert_eq!(data_key.open(&user, &key, &changed), None);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), text in "\\PC{0,200}") {
        prop_assert!(Memory::with(&bytes).open().is_err());
        prop_assert_eq!(DataKey::derive(&[1; 32]).open("", "", &text), None);
        let users = Memory::new().open().expect("empty");
        let _ = users.add_user(&named(&text), 1);
        prop_assert!(users.view().find(&text).is_none());
    }
}

/// What several nodes keep together: it tells each of them of every table.
#[derive(Clone, Default)]
struct Common {
    kept: Arc<Mutex<(u64, Vec<u8>)>>,
    nodes: Arc<Mutex<Vec<Arc<Users>>>>,
}

impl UserStore for Common {
    fn read(&self) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(None)
    }

    fn replace(&self, before: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let mut kept = self.kept.lock().expect("whole");
        let is_taken = kept.0 == before;
        if is_taken {
            *kept = (before + 1, bytes.to_vec());
        }
        for node in &*self.nodes.lock().expect("whole") {
            node.hear(kept.0, &kept.1).expect("a table");
        }
        if is_taken { Ok(()) } else { Err(StoreError::Changed) }
    }

    fn data_key(&self) -> Result<DataKey, StoreError> {
        Ok(DataKey::derive(&[3; 32]))
    }
}

#[test]
fn a_change_rests_on_what_others_have_changed_meanwhile() {
    let common = Common::default();
    let open = |first: u8| {
        let next = AtomicU8::new(first);
        Users::open(common.clone(), move |bytes| bytes.fill(next.fetch_add(1, Ordering::Relaxed)))
    };
    let [ann, ben] = [1, 100].map(|first| open(first).expect("empty"));
    // This one has not heard of ann when it makes its change.
    common.nodes.lock().expect("whole").push(Arc::clone(&ann));
    ann.add_user(&named("ann"), 1).expect("new");
    common.nodes.lock().expect("whole").push(Arc::clone(&ben));
    let (_, secret) = ben.add_user(&named("ben"), 2).expect("new");
    assert_eq!(
        ben.add_user(&named("ann"), 3).expect_err("she is there").to_string(),
        "there is a user \"ann\" already"
    );
    for node in [&ann, &ben] {
        let names: Vec<String> = node.list().into_iter().map(|user| user.display_name).collect();
        assert_eq!(names, ["ann", "ben"]);
        let found = node.view().find(&secret.access_key).expect("every node knows the key");
        assert_eq!(found.secret.as_ref(), secret.secret_key);
    }
    let (_, bytes) = common.kept.lock().expect("whole").clone();
    ann.remove_user("ben").expect("he is there");
    ann.hear(2, &bytes).expect("a table");
    assert_eq!(ann.list().len(), 1, "an older table changes nothing");
}
