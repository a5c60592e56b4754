//! Which operation a method and a path mean. Matches against [`OPERATIONS`]; allocates nothing.

use http::Method;
use millrace_api::RESERVED_SERVICES;

use crate::operations::{Kind, OPERATIONS, Operation, Parameter, Segment};

/// Parts of a path that are looked at; the longest template has fewer, so a longer path is no
/// operation (but may be an app route, whose rest is not split).
const PARTS: usize = 7;

/// The variable parts of a path, still percent-encoded. Small, because every request's future
/// holds one: parameters that no path has together share a place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Captures<'a> {
    places: [&'a str; PLACES],
    /// Which parameters are there: a bit for each.
    present: u32,
}

const PLACES: usize = 5;

const _: () = assert!(Parameter::COUNT <= 32, "a parameter is a bit of a u32");

/// Where a parameter's text is. A classic URL's type is the service of the app route it may be.
fn place(parameter: Parameter) -> usize {
    match parameter {
        Parameter::App => 0,
        Parameter::Service | Parameter::Type | Parameter::Subject | Parameter::User | Parameter::Bucket => 1,
        Parameter::Key
        | Parameter::Id
        | Parameter::Code
        | Parameter::RecordId
        | Parameter::SchemaId
        | Parameter::Version
        | Parameter::Script
        | Parameter::AccessKey => 2,
        Parameter::Handler | Parameter::Field => 3,
        Parameter::Path => 4,
    }
}

impl<'a> Captures<'a> {
    /// The text of `parameter`; `None` when the template has no such part.
    #[must_use]
    pub fn get(&self, parameter: Parameter) -> Option<&'a str> {
        (self.present >> parameter as u32 & 1 == 1).then(|| self.places[place(parameter)])
    }

    fn set(&mut self, parameter: Parameter, text: &'a str) {
        self.places[place(parameter)] = text;
        self.present |= 1 << parameter as u32;
    }
}

/// What a path means.
#[derive(Clone, Copy, Debug)]
pub enum Found<'a> {
    /// This operation, with the variable parts of its path. For [`Kind::Route`] the captured
    /// [`Parameter::Path`] starts with `/`.
    Operation(&'static Operation, Captures<'a>),
    /// There are operations at the path, but not with this method.
    WrongMethod(Rows),
    /// Nothing is there.
    Nothing,
}

impl Found<'_> {
    /// The kind, for metrics.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Found::Operation(row, _) => row.kind,
            Found::WrongMethod(_) | Found::Nothing => Kind::None,
        }
    }
}

/// A set of rows of [`OPERATIONS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows(u128);

impl Rows {
    fn next(&mut self) -> Option<usize> {
        let index = self.0.trailing_zeros();
        self.0 &= self.0.wrapping_sub(1);
        (index < u128::BITS).then_some(index as usize)
    }

    /// The value of `Allow`.
    #[must_use]
    pub fn allow(mut self) -> String {
        let mut allow = String::new();
        while let Some(index) = self.next() {
            let Operation { method, kind, .. } = &OPERATIONS[index];
            // A path may be that of several rows, `/records/{type}/changes` of a record, too.
            if !allow.contains(method) {
                allow.push_str(method);
                allow.push_str(if *method == "GET" && !kind.is_get_that_changes() { ", HEAD, " } else { ", " });
            }
        }
        allow.push_str("OPTIONS");
        allow
    }
}

const _: () = assert!(OPERATIONS.len() <= 128, "a row is a bit of a u128");

/// For each first byte of a path's first part, the rows that can match: so an app route is known
/// to be none of the fixed operations after one look, usually.
const CANDIDATES: [u128; 256] = rows_by_literal(0);

/// The rows of the path `/`, whose only part is empty.
const ROOT: u128 = {
    let mut rows = 0;
    let mut index = 0;
    while index < OPERATIONS.len() {
        if let [Segment::Literal(literal)] = OPERATIONS[index].path
            && literal.is_empty()
        {
            rows |= 1 << index;
        }
        index += 1;
    }
    rows
};

/// For each first byte of a path's second part, the classic rows that can match.
const CLASSIC: [u128; 256] = rows_by_literal(1);

/// For each number of parts, the rows that have so many.
const LENGTHS: [u128; PARTS + 1] = {
    let mut rows = [0u128; PARTS + 1];
    let mut index = 0;
    while index < OPERATIONS.len() {
        rows[OPERATIONS[index].path.len()] |= 1 << index;
        index += 1;
    }
    rows
};

/// For each method that rows have, those rows. A HEAD is a GET whose body stays here.
static METHODS: [(Method, u128); 6] = [
    (Method::GET, rows_by_method("GET")),
    (Method::PUT, rows_by_method("PUT")),
    (Method::POST, rows_by_method("POST")),
    (Method::PATCH, rows_by_method("PATCH")),
    (Method::DELETE, rows_by_method("DELETE")),
    (Method::HEAD, rows_by_method("GET")),
];

const fn rows_by_method(method: &str) -> u128 {
    let mut rows = 0;
    let mut index = 0;
    while index < OPERATIONS.len() {
        // No two methods begin with the same two letters.
        let (row, method) = (OPERATIONS[index].method.as_bytes(), method.as_bytes());
        if row[0] == method[0] && (row.len() < 2 || row[1] == method[1]) {
            rows |= 1 << index;
        }
        index += 1;
    }
    rows
}

/// The rows whose first literal is their part of this number, by that literal's first byte.
const fn rows_by_literal(part: usize) -> [u128; 256] {
    let mut rows = [0u128; 256];
    let mut index = 0;
    while index < OPERATIONS.len() {
        let path = OPERATIONS[index].path;
        let is_later = part > 0 && matches!(path[0], Segment::Literal(_));
        if !matches!(OPERATIONS[index].kind, Kind::Route)
            && !is_later
            && part < path.len()
            && let Segment::Literal(literal) = path[part]
            && !literal.is_empty()
        {
            rows[literal.as_bytes()[0] as usize] |= 1 << index;
        }
        index += 1;
    }
    rows
}

const fn route_row(length: usize) -> &'static Operation {
    let mut index = 0;
    // Evaluated while compiling: a table without the row does not compile.
    while !matches!(OPERATIONS[index].kind, Kind::Route) || OPERATIONS[index].path.len() != length {
        index += 1;
    }
    &OPERATIONS[index]
}

/// What answers a classic URL where a service has the type's name.
pub(crate) const ROUTE: &Operation = route_row(2);
const APP_ROUTE: &Operation = route_row(4);

/// Finds what `method` at `path` means.
#[must_use]
pub fn find<'a>(method: &Method, path: &'a str) -> Found<'a> {
    let Some(below_root) = path.strip_prefix('/') else {
        return Found::Nothing;
    };
    let candidates = below_root.as_bytes().first().map_or(ROOT, |byte| CANDIDATES[*byte as usize]);
    if candidates != 0 {
        match find_fixed(method, below_root, Rows(candidates)) {
            Found::Nothing => {}
            found => return found,
        }
    }
    find_route(method, below_root)
}

fn find_fixed<'a>(method: &Method, below_root: &'a str, candidates: Rows) -> Found<'a> {
    let mut parts = [""; PARTS];
    let Some(count) = split(below_root, &mut parts) else {
        return Found::Nothing;
    };
    // Classic URLs may end with a slash.
    let count = if count > 1 && parts[count - 1].is_empty() && is_classic_word(parts[0]) { count - 1 } else { count };
    let parts = &parts[..count];
    let candidates = candidates.0 & LENGTHS[count];
    let with_method = rows_of_method(method);
    let mut right = Rows(candidates & with_method);
    while let Some(index) = right.next() {
        let row = &OPERATIONS[index];
        if matches(row.path, parts) {
            return Found::Operation(row, capture(row.path, parts));
        }
    }
    let mut others = Rows(candidates & !with_method);
    let mut found = Rows(0);
    while let Some(index) = others.next() {
        if matches(OPERATIONS[index].path, parts) {
            found.0 |= 1 << index;
        }
    }
    if found.0 == 0 { Found::Nothing } else { Found::WrongMethod(found) }
}

/// The rows with a method.
fn rows_of_method(method: &Method) -> u128 {
    METHODS.iter().find(|(known, _)| known == method).map_or(0, |(_, rows)| *rows)
}

fn is_classic_word(first: &str) -> bool {
    matches!(first, "ping" | "putschema" | "delschema")
}

/// Cuts at every slash. `None` for more parts than there is room for. Parts are short, so a plain
/// loop is quicker here than a searcher.
fn split<'a>(path: &'a str, parts: &mut [&'a str; PARTS]) -> Option<usize> {
    let mut rest = path;
    for (index, part) in parts.iter_mut().enumerate() {
        let Some(end) = rest.bytes().position(|byte| byte == b'/') else {
            *part = rest;
            return Some(index + 1);
        };
        *part = &rest[..end];
        rest = &rest[end + 1..];
    }
    None
}

/// Whether a path has the parts that a template of the same length asks for.
fn matches(template: &[Segment], parts: &[&str]) -> bool {
    template.iter().zip(parts).all(|(segment, part)| match segment {
        Segment::Literal(literal) => literal == part,
        // An empty key or field gets an error of its own; an empty name is just another path.
        Segment::Variable(Parameter::Key | Parameter::Field | Parameter::RecordId) => true,
        Segment::Variable(_) => !part.is_empty(),
    })
}

fn capture<'a>(template: &[Segment], parts: &[&'a str]) -> Captures<'a> {
    let mut captures = Captures::default();
    for (segment, part) in template.iter().zip(parts) {
        if let Segment::Variable(parameter) = segment {
            captures.set(*parameter, part);
        }
    }
    captures
}

/// The classic row for a path below a type. Its captures are those of the app route too, which it
/// is where a service has the type's name.
fn find_classic<'a>(method: &Method, path: &'a str, captures: &Captures<'a>) -> Option<Found<'a>> {
    let with_method = rows_of_method(method);
    let (index, mut found) = classic_rows(path).find(|(index, _)| with_method >> index & 1 == 1)?;
    for (parameter, from) in [
        (Parameter::Type, Parameter::Service),
        (Parameter::Service, Parameter::Service),
        (Parameter::Path, Parameter::Path),
    ] {
        found.set(parameter, captures.get(from).unwrap_or_default());
    }
    Some(Found::Operation(&OPERATIONS[index], found))
}

/// The classic rows that a path below a type (it starts with `/`) matches, whatever the method.
fn classic_rows(path: &str) -> impl Iterator<Item = (usize, Captures<'_>)> {
    let below = path.get(1..).unwrap_or_default();
    // A slash may end them, but what follows the operation's own is the id, if an empty one.
    let below = below.strip_suffix('/').filter(|below| below.contains('/')).unwrap_or(below);
    let mut parts = [""; PARTS];
    let candidates = below.as_bytes().first().map_or(0, |byte| CLASSIC[*byte as usize]);
    let count = if candidates == 0 { None } else { split(below, &mut parts) };
    let mut rows = Rows(count.and_then(|count| LENGTHS.get(count + 1)).map_or(0, |rows| rows & candidates));
    std::iter::from_fn(move || {
        while let Some(index) = rows.next() {
            let (template, parts) = (&OPERATIONS[index].path[1..], &parts[..count.unwrap_or_default()]);
            if matches(template, parts) {
                return Some((index, capture(template, parts)));
            }
        }
        None
    })
}

/// The methods of the classic operation at a path below a type; `None` where there is none.
pub(crate) fn classic_methods(path: &str) -> Option<Rows> {
    let mut rows = Rows(0);
    classic_rows(path).for_each(|(index, _)| rows.0 |= 1 << index);
    (rows.0 != 0).then_some(rows)
}

/// `/{service}/…` or `/apps/{app}/{service}/…`.
fn find_route<'a>(method: &Method, below_root: &'a str) -> Found<'a> {
    let (first, rest) = split_part(below_root);
    let mut captures = Captures::default();
    let (row, service, path) = if first == "apps" {
        let (app, rest) = split_part(rest.strip_prefix('/').unwrap_or_default());
        let (service, path) = split_part(rest.strip_prefix('/').unwrap_or_default());
        captures.set(Parameter::App, app);
        (APP_ROUTE, service, path)
    } else {
        (ROUTE, first, rest)
    };
    if service.is_empty() || is_reserved(service) {
        return Found::Nothing;
    }
    captures.set(Parameter::Service, service);
    captures.set(Parameter::Path, if path.is_empty() { "/" } else { path });
    if captures.get(Parameter::App).is_none()
        && let Some(found) = find_classic(method, path, &captures)
    {
        return found;
    }
    Found::Operation(row, captures)
}

/// The first part, and the rest from its `/` on.
fn split_part(path: &str) -> (&str, &str) {
    path.split_at(path.bytes().position(|byte| byte == b'/').unwrap_or(path.len()))
}

/// Whether no service may have this name. Names cannot hold a dot, so `openapi.json` is out of
/// their reach anyway.
#[must_use]
pub fn is_reserved(name: &str) -> bool {
    RESERVED_SERVICES.contains(&name) || name.contains('.')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn operation<'a>(method: &str, path: &'a str) -> (Kind, Captures<'a>) {
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        match find(&method, path) {
            Found::Operation(row, captures) => (row.kind, captures),
            other => panic!("{path}: {other:?}"),
        }
    }

    #[test]
    fn every_row_is_found_by_its_own_template() {
        for row in OPERATIONS {
            let method = if row.method == "*" { "PATCH" } else { row.method };
            let path = row.template().replace(['{', '}'], "_");
            let (kind, captures) = operation(method, &path);
            assert_eq!(kind, row.kind, "{path}");
            for segment in row.path {
                if let Segment::Variable(parameter) = segment {
                    let text = captures.get(*parameter).expect("captured");
                    assert_eq!(text.trim_start_matches('/'), format!("_{}_", parameter.as_str()));
                }
            }
        }
    }

    #[test]
    fn keys_may_be_encoded_and_routes_keep_their_rest() {
        let (_, captures) = operation("POST", "/call/counter/a%2Fb/add");
        assert_eq!(captures.get(Parameter::Key), Some("a%2Fb"));
        for (path, app, service, rest) in [
            ("/user", None, "user", "/"),
            ("/user/", None, "user", "/"),
            ("/calls/x", None, "calls", "/x"),
            ("/user/a/b//c", None, "user", "/a/b//c"),
            ("/a/1/2/3/4/5/6/7/8/9", None, "a", "/1/2/3/4/5/6/7/8/9"),
            ("/apps/shop/cart", Some("shop"), "cart", "/"),
            ("/apps/shop/cart/1/2/3/4/5/6/7/8", Some("shop"), "cart", "/1/2/3/4/5/6/7/8"),
        ] {
            let (kind, captures) = operation("GET", path);
            assert_eq!(kind, Kind::Route);
            assert_eq!(captures.get(Parameter::App), app);
            assert_eq!(captures.get(Parameter::Service), Some(service));
            assert_eq!(captures.get(Parameter::Path), Some(rest), "{path}");
        }
    }

    #[test]
    fn what_is_not_there_is_not_found() {
        for path in [
            "",
            "*",
            "//",
            "/call",
            "/call/a/b",
            "/call/a/b/c/d",
            "/apps/",
            "/apps/a/",
            "/apps/a/call/b/c",
            "/apps/a/state",
            "/state/a",
            "/healthz/",
            "/metrics/x",
            "/errors",
            "/favicon.ico",
            "/apps/a/metrics/x",
        ] {
            assert!(matches!(find(&Method::POST, path), Found::Nothing), "{path}");
        }
    }

    #[test]
    fn a_wrong_method_names_the_right_ones() {
        for (method, path, allow) in [
            (Method::GET, "/call/a/b/c", "POST, OPTIONS"),
            (Method::POST, "/apps/a", "PUT, DELETE, OPTIONS"),
            (Method::POST, "/healthz", "GET, HEAD, OPTIONS"),
            (Method::POST, "/", "GET, HEAD, OPTIONS"),
            (Method::OPTIONS, "/apps/x/state/a/b", "GET, HEAD, OPTIONS"),
        ] {
            match find(&method, path) {
                Found::WrongMethod(rows) => assert_eq!(rows.allow(), allow),
                other => panic!("{path}: {other:?}"),
            }
        }
        assert!(matches!(find(&Method::HEAD, "/healthz"), Found::Operation(..)));
    }

    proptest! {
        #[test]
        fn no_path_makes_the_router_panic(path in "\\PC*", parts in proptest::collection::vec("[a-z%/]{0,4}", 0..12)) {
            let _ = find(&Method::GET, &path);
            let _ = find(&Method::POST, &format!("/apps/{}", parts.join("/")));
            let _ = find(&Method::PUT, &format!("/{}", parts.join("/")));
        }
    }
}
