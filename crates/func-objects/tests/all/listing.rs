//! Pages of lists: against hand-made cases, and against a model that sorts and cuts everything.

use std::collections::BTreeSet;

use millrace_api::objects::{ListPage, ListRequest};
use millrace_func_objects::listing::{Flow, Listing};
use proptest::prelude::*;

/// How a store answers: the keys after a position. Counts the keys that were read.
fn page(keys: &BTreeSet<(String, String)>, request: &ListRequest, seeks: bool) -> (ListPage<(String, String)>, usize) {
    let mut listing = Listing::new(request);
    let Some(mut position) = listing.start() else { return (listing.into_page(), 0) };
    let mut read = 0;
    let mut sorted: Vec<&(String, String)> = keys.iter().collect();
    sorted.sort();
    'pages: loop {
        let rows = sorted.iter().filter(|(key, _)| key.as_bytes() > position.as_slice());
        let mut is_sought = false;
        for (key, id) in rows {
            read += 1;
            let is_behind = *key != request.after || request.after_id.is_empty() || *id > request.after_id;
            if !is_behind {
                continue;
            }
            match listing.take(key, id, (key.clone(), id.clone())) {
                Flow::Next => {}
                Flow::SeekAfter(after) if seeks => {
                    position = after;
                    is_sought = true;
                    break;
                }
                Flow::SeekAfter(_) => {}
                Flow::Full => break 'pages,
            }
        }
        if !is_sought {
            break;
        }
    }
    (listing.into_page(), read)
}

/// The same, without any thought of cost.
fn model(keys: &BTreeSet<(String, String)>, request: &ListRequest) -> ListPage<(String, String)> {
    let ListRequest { prefix, delimiter, after, after_id, limit } = request;
    let mut shown: BTreeSet<(String, String, bool)> = BTreeSet::new();
    for (key, id) in keys {
        let Some(tail) = key.strip_prefix(prefix.as_str()) else { continue };
        match tail.find(delimiter.as_str()).filter(|_| !delimiter.is_empty()) {
            Some(at) => shown.insert((key[..prefix.len() + at + delimiter.len()].to_owned(), String::new(), true)),
            None => shown.insert((key.clone(), id.clone(), false)),
        };
    }
    let from = (after.clone(), after_id.clone());
    shown.retain(|(key, id, is_cut)| {
        if *is_cut || after_id.is_empty() {
            after.is_empty() || *key > *after
        } else {
            (key.clone(), id.clone()) > from
        }
    });
    let mut result = ListPage::default();
    let total = shown.len();
    let mut last = None;
    for (key, id, is_cut) in shown.into_iter().take(usize::from(*limit)) {
        last = Some((key.clone(), id.clone()));
        if is_cut { result.common_prefixes.push(key) } else { result.items.push((key, id)) }
    }
    result.next = last.filter(|_| total > usize::from(*limit));
    result
}

fn keys(text: &str) -> BTreeSet<(String, String)> {
    text.split_whitespace().map(|key| (key.to_owned(), "1".to_owned())).collect()
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
fn pages_follow_the_table() {
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
    let keys = keys("a/1 a/2 asdf b/1 b/2/3 c");
    for ((prefix, delimiter, after, limit), items, cut, next) in table {
        let request = request(prefix, delimiter, after, *limit);
        let (page, _) = page(&keys, &request, true);
        let shown: Vec<&str> = page.items.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(shown.join(" "), *items, "{request:?}");
        assert_eq!(page.common_prefixes.join(" "), *cut, "{request:?}");
        assert_eq!(page.next.map_or(String::new(), |(key, _)| key), *next, "{request:?}");
    }
}

#[test]
fn a_folder_of_many_keys_is_jumped_over() {
    let mut keys: BTreeSet<(String, String)> =
        (0..10_000).map(|index| (format!("a/{index:05}"), String::new())).collect();
    keys.extend((0..10).map(|index| (format!("b{index}"), String::new())));
    let (page, read) = page(&keys, &request("", "/", "", 5), true);
    assert_eq!((page.items.len(), page.common_prefixes.len()), (4, 1));
    assert!(read <= 7, "{read} keys were read");
}

/// Short keys of few letters, so that prefixes and delimiters meet; with the largest and the smallest characters.
fn key() -> impl Strategy<Value = String> {
    let letter = prop::sample::select(vec!['/', 'a', 'b', '\u{1}', 'é', '\u{10FFFF}', '0', '.']);
    prop::collection::vec(letter, 0..5).prop_map(|letters| letters.into_iter().collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn pages_are_those_of_the_model(
        keys in prop::collection::btree_set((key().prop_filter("no key is empty", |key| !key.is_empty()), "[xy]"), 0..40),
        prefix in key(),
        delimiter in key(),
        after in key(),
        after_id in prop::sample::select(vec!["", "x", "y"]),
        limit in 0_u16..8,
    ) {
        let mut request = request(&prefix, &delimiter, &after, limit);
        if !after.is_empty() {
            request.after_id = after_id.to_owned();
        }
        let expected = model(&keys, &request);
        for seeks in [true, false] {
            let (page, _) = page(&keys, &request, seeks);
            prop_assert_eq!(&page, &expected);
        }
    }

    #[test]
    fn pages_together_are_the_whole(
        keys in prop::collection::btree_set((key().prop_filter("no key is empty", |key| !key.is_empty()), "[xy]"), 0..40),
        prefix in key(),
        delimiter in key(),
        limit in 1_u16..5,
    ) {
        let whole = page(&keys, &request(&prefix, &delimiter, "", u16::MAX), true).0;
        let mut gathered: ListPage<(String, String)> = ListPage::default();
        let mut next = Some((String::new(), String::new()));
        while let Some((after, after_id)) = next {
            let mut request = request(&prefix, &delimiter, &after, limit);
            request.after_id = after_id;
            let part = page(&keys, &request, true).0;
            prop_assert!(part.next.is_none() || part.items.len() + part.common_prefixes.len() == usize::from(limit));
            gathered.items.extend(part.items);
            gathered.common_prefixes.extend(part.common_prefixes);
            next = part.next;
        }
        prop_assert_eq!(gathered, whole);
    }
}
