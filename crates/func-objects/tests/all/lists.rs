//! Pages of lists: against hand-made cases, and against a model that sorts and cuts everything.

use std::collections::BTreeSet;

use millrace_api::objects::{
    Configuration, DeleteOne, ListPage, ListRequest, ObjectOperation, ObjectReply, Refusal, UploadInput, Versioning,
};
use proptest::prelude::*;

use super::world::{World, with_slices};

fn world_with<'k>(keys: impl IntoIterator<Item = &'k str>) -> World {
    let mut world = World::default();
    world.bucket("alice", "photos");
    for key in keys {
        assert!(world.put("alice", "photos", key, UploadInput::default()).is_ok(), "{key:?}");
    }
    world
}

fn page(world: &mut World, request: &ListRequest) -> ListPage<String> {
    match world.ask("alice", "photos", "", ObjectOperation::List(request.clone())) {
        Ok(ObjectReply::Objects(page)) => ListPage {
            items: page.items.into_iter().map(|item| item.key).collect(),
            common_prefixes: page.common_prefixes,
            next: page.next,
        },
        other => panic!("{other:?}"),
    }
}

/// The same, without any thought of cost.
fn model(keys: &BTreeSet<String>, request: &ListRequest) -> ListPage<String> {
    let ListRequest { prefix, delimiter, after, limit, .. } = request;
    let mut shown: BTreeSet<(String, bool)> = BTreeSet::new();
    for key in keys {
        let Some(tail) = key.strip_prefix(prefix.as_str()) else { continue };
        match tail.find(delimiter.as_str()).filter(|_| !delimiter.is_empty()) {
            Some(at) => shown.insert((key[..prefix.len() + at + delimiter.len()].to_owned(), true)),
            None => shown.insert((key.clone(), false)),
        };
    }
    shown.retain(|(key, _)| after.is_empty() || key > after);
    let is_cut = shown.len() > usize::from(*limit) && *limit > 0;
    let mut result = ListPage::default();
    let mut last = None;
    for (key, is_prefix) in shown.into_iter().take(usize::from(*limit)) {
        last = Some((key.clone(), String::new()));
        if is_prefix { result.common_prefixes.push(key) } else { result.items.push(key) }
    }
    result.next = last.filter(|_| is_cut);
    result
}

fn request(prefix: &str, delimiter: &str, after: &str, limit: u16) -> ListRequest {
    ListRequest {
        prefix: prefix.to_owned(),
        delimiter: delimiter.to_owned(),
        after: after.to_owned(),
        after_id: String::new(),
        limit,
    }
}

#[test]
pub fn pages_follow_the_table() {
    // Prefix, delimiter, after, limit; the items, the cut keys, where the next page begins.
    type Row = ((&'static str, &'static str, &'static str, u16), &'static str, &'static str, &'static str);
    let table: &[Row] = &[
        (("", "", "", 1000), "a/1 a/2 asdf b/1 b/2/3 c", "", ""),
        (("", "/", "", 1000), "asdf c", "a/ b/", ""),
        (("", "/", "", 1), "", "a/", "a/"),
        (("", "/", "a/", 1), "asdf", "", "asdf"),
        (("", "/", "asdf", 1), "", "b/", "b/"),
        (("", "/", "b/", 1), "c", "", ""),
        (("", "/", "b/2/3", 9), "c", "", ""),
        (("b/", "/", "", 9), "b/1", "b/2/", ""),
        (("b", "/", "", 9), "", "b/", ""),
        (("", "s", "", 9), "a/1 a/2 b/1 b/2/3 c", "as", ""),
        (("", "/", "zzz", 9), "", "", ""),
        (("x", "", "", 9), "", "", ""),
        (("", "", "", 0), "", "", ""),
        (("", "", "a/1", 2), "a/2 asdf", "", "asdf"),
        (("", "", "a/1x", 1), "a/2", "", "a/2"),
        (("b/", "", "a", 9), "b/1 b/2/3", "", ""),
        (("", "/2", "", 9), "a/1 asdf b/1 c", "a/2 b/2", ""),
    ];
    let mut world = world_with("a/1 a/2 asdf b/1 b/2/3 c".split(' '));
    for ((prefix, delimiter, after, limit), items, cut, next) in table {
        let request = request(prefix, delimiter, after, *limit);
        let page = page(&mut world, &request);
        assert_eq!(page.items.join(" "), *items, "{request:?}");
        assert_eq!(page.common_prefixes.join(" "), *cut, "{request:?}");
        assert_eq!(page.next.map_or(String::new(), |(key, _)| key), *next, "{request:?}");
    }
}

/// Short keys of few letters, so that prefixes and delimiters meet; with the largest and the smallest characters.
fn text() -> impl Strategy<Value = String> {
    let letter = prop::sample::select(vec!['/', 'a', 'b', '\u{1}', 'é', '\u{10FFFF}', '0', '.']);
    prop::collection::vec(letter, 0..5).prop_map(|letters| letters.into_iter().collect())
}

fn keys() -> impl Strategy<Value = BTreeSet<String>> {
    prop::collection::btree_set(text().prop_filter("no key is empty", |key| !key.is_empty()), 0..25)
}

/// Asks for pages until there are no more.
fn gathered<T>(mut page: impl FnMut(&ListRequest) -> ListPage<T>, mut request: ListRequest) -> ListPage<T> {
    let mut whole = ListPage::default();
    loop {
        let part = page(&request);
        let count = part.items.len() + part.common_prefixes.len();
        assert!(part.next.is_none() || count == usize::from(request.limit));
        whole.items.extend(part.items);
        whole.common_prefixes.extend(part.common_prefixes);
        let Some((after, after_id)) = part.next else { return whole };
        (request.after, request.after_id) = (after, after_id);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn pages_are_those_of_the_model(
        slices in 1_u16..4,
        keys in keys(),
        asked in prop::collection::vec((text(), text(), text(), 0_u16..8), 1..10),
        limit in 1_u16..5,
    ) {
        let mut world = with_slices(slices, || world_with(keys.iter().map(String::as_str)));
        for (prefix, delimiter, after, limit) in &asked {
            let request = request(prefix, delimiter, after, *limit);
            prop_assert_eq!(page(&mut world, &request), model(&keys, &request), "{:?}", request);
        }
        let (prefix, delimiter, ..) = &asked[0];
        let whole = page(&mut world, &request(prefix, delimiter, "", 1000));
        let pages = gathered(|request| page(&mut world, request), request(prefix, delimiter, "", limit));
        prop_assert_eq!(pages, whole);
    }

    #[test]
    fn pages_of_versions_together_are_the_whole(
        slices in 1_u16..4,
        keys in keys(),
        prefix in text(),
        delimiter in text(),
        counts in prop::collection::vec(0_usize..4, 25),
        limit in 1_u16..5,
    ) {
        let mut world = with_slices(slices, || world_with([]));
        let configuration = Configuration::Versioning(Versioning::Enabled);
        let enable = ObjectOperation::PutConfiguration { configuration, is_confirmed: false };
        prop_assert!(world.ask("alice", "photos", "", enable).is_ok());
        let mut expected = Vec::new();
        for (key, count) in keys.iter().zip(&counts) {
            let mut ids = Vec::new();
            for number in 0..*count {
                // Every third one is a delete marker.
                let reply = if number % 3 == 2 {
                    world.ask("alice", "photos", key, ObjectOperation::Delete(Default::default()))
                } else {
                    world.put("alice", "photos", key, UploadInput::default())
                };
                ids.push(match reply {
                    Ok(ObjectReply::Written { version, .. }) => version.expect("versions are kept"),
                    Ok(ObjectReply::Deleted(deleted)) => deleted.version.expect("versions are kept"),
                    other => panic!("{other:?}"),
                });
            }
            let is_shown = key.strip_prefix(&prefix)
                .is_some_and(|tail| delimiter.is_empty() || !tail.contains(&delimiter));
            if is_shown {
                expected.extend(ids.into_iter().rev().map(|id| (key.clone(), id)));
            }
        }
        let mut page = |request: &ListRequest| {
            match world.ask("alice", "photos", "", ObjectOperation::ListVersions(request.clone())) {
                Ok(ObjectReply::Versions(page)) => page,
                other => panic!("{other:?}"),
            }
        };
        let whole = page(&request(&prefix, &delimiter, "", 1000));
        let shown: Vec<_> = whole.items.iter().map(|item| (item.object.key.clone(), item.version.clone())).collect();
        prop_assert_eq!(shown, expected);
        let pages = gathered(page, request(&prefix, &delimiter, "", limit));
        prop_assert_eq!(pages, whole);
    }
}

fn version_of(reply: Result<ObjectReply, Refusal>) -> String {
    match reply {
        Ok(ObjectReply::Written { version, .. }) => version.expect("versions are kept"),
        Ok(ObjectReply::Deleted(deleted)) => deleted.version.expect("versions are kept"),
        other => panic!("{other:?}"),
    }
}

fn keep_versions(world: &mut World) {
    let configuration = Configuration::Versioning(Versioning::Enabled);
    let enable = ObjectOperation::PutConfiguration { configuration, is_confirmed: false };
    assert!(world.ask("alice", "photos", "", enable).is_ok());
}

/// The ids of all versions, a page of this many at a time.
fn versions(world: &mut World, limit: u16) -> Vec<String> {
    let page = |request: &ListRequest| match world.ask(
        "alice",
        "photos",
        "",
        ObjectOperation::ListVersions(request.clone()),
    ) {
        Ok(ObjectReply::Versions(page)) => page,
        other => panic!("{other:?}"),
    };
    gathered(page, request("", "", "", limit)).items.into_iter().map(|item| item.version).collect()
}

#[test]
pub fn a_folder_whose_objects_are_deleted_is_not_shown() {
    let mut world = world_with([]);
    keep_versions(&mut world);
    for key in ["a/1", "a/2", "b/1", "b/2"] {
        version_of(world.put("alice", "photos", key, UploadInput::default()));
    }
    for key in ["a/1", "a/2", "b/1"] {
        version_of(world.ask("alice", "photos", key, ObjectOperation::Delete(Default::default())));
    }
    assert_eq!(page(&mut world, &request("", "/", "", 9)).common_prefixes, ["b/"]);
    let all = world.ask("alice", "photos", "", ObjectOperation::ListVersions(request("", "/", "", 9)));
    let Ok(ObjectReply::Versions(all)) = all else { panic!("a list") };
    assert_eq!(all.common_prefixes, ["a/", "b/"]);
}

#[test]
pub fn pages_of_one_objects_versions_go_on_behind_any_of_them() {
    let mut world = world_with(["k"]);
    keep_versions(&mut world);
    let mut expected = vec!["null".to_owned()];
    for _ in 0..3 {
        expected.insert(0, version_of(world.put("alice", "photos", "k", UploadInput::default())));
    }
    for limit in 1..6 {
        assert_eq!(versions(&mut world, limit), expected, "{limit}");
    }
    // The version `null` is the newest.
    let configuration = Configuration::Versioning(Versioning::Suspended);
    let suspend = ObjectOperation::PutConfiguration { configuration, is_confirmed: false };
    assert!(world.ask("alice", "photos", "", suspend).is_ok());
    assert!(world.put("alice", "photos", "k", UploadInput::default()).is_ok());
    expected.rotate_right(1);
    assert_eq!(versions(&mut world, 1), expected);
    // A version that went between two pages still says where it lay.
    let gone = expected[1].clone();
    let delete = DeleteOne { version: Some(gone.clone()), ..Default::default() };
    assert!(world.ask("alice", "photos", "k", ObjectOperation::Delete(delete)).is_ok());
    let behind = ListRequest { after: "k".to_owned(), after_id: gone, ..request("", "", "", 9) };
    let Ok(ObjectReply::Versions(rest)) = world.ask("alice", "photos", "", ObjectOperation::ListVersions(behind))
    else {
        panic!("a list")
    };
    let rest: Vec<_> = rest.items.into_iter().map(|item| item.version).collect();
    assert_eq!(rest, expected[2..]);
}

#[test]
pub fn an_object_with_more_versions_than_a_scan_gives_is_listed_whole() {
    let mut world = world_with([]);
    keep_versions(&mut world);
    let mut expected = Vec::new();
    for _ in 0..10_050 {
        expected.push(version_of(world.put("alice", "photos", "k", UploadInput::default())));
    }
    expected.reverse();
    assert_eq!(versions(&mut world, 1000), expected);
}
