//! One client: it performs operations on objects, one after the other, and checks every reply.

use std::fmt::Write as _;
use std::sync::Arc;

use super::body::{Body, Bytes, VARIANTS};
use super::connection::{Connection, Head, Reply};
use super::counts::{Kind, Wrong};
use super::plan::{Settings, Target};
use super::xml;
use millrace_signing::{Signer, UNSIGNED, Unsigned, encode, hex};
use sha2::{Digest, Sha256};

/// Objects of one group; a listing with a delimiter shows the groups.
const GROUP: u64 = 1000;
/// What a listing asks for.
pub(super) const PAGE: u64 = 1000;
/// The most of a reply that is kept to be looked at: a page of 1,000 keys is far smaller.
const KEPT: usize = 16 << 20;
/// Bodies up to this size are hashed for the signature; hashing longer ones would measure the client.
const HASHED: u64 = 16 << 20;

/// Hashes of bodies, by size and variant.
#[derive(Clone, Default)]
pub(super) struct Hashes(Arc<std::sync::Mutex<std::collections::BTreeMap<(u64, u64), String>>>);

impl Hashes {
    /// The hash to sign. Every client takes it from here, so a size's bodies are hashed once.
    fn of(&self, bytes: &Bytes, variant: u64, length: u64) -> String {
        let key = (length, variant % VARIANTS);
        let mut known = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        known.entry(key).or_insert_with(|| bytes.body(variant, 0, length).sha256()).clone()
    }
}

pub(super) struct Client<'a> {
    target: &'a Target,
    settings: &'a Settings,
    bytes: Bytes,
    hashes: Hashes,
    signer: Signer,
    pub connection: Connection,
    head: String,
}

/// A request of this client.
struct Request<'a> {
    method: &'a str,
    path: &'a str,
    query: &'a str,
    body: Body<'a>,
    payload: &'a str,
}

/// The key of an object that is only read.
pub(super) fn read_key(size: u64, number: u64) -> String {
    format!("get/{size}/{:05}/{number:08}", number / GROUP)
}

impl<'a> Client<'a> {
    pub(super) fn new(target: &'a Target, settings: &'a Settings, bytes: &Bytes, hashes: &Hashes) -> Self {
        Self {
            target,
            settings,
            bytes: bytes.clone(),
            hashes: hashes.clone(),
            signer: Signer::new(target.credentials.clone()),
            connection: Connection::new(target.address, settings.timeout),
            head: String::new(),
        }
    }

    fn path(&self, key: &str) -> String {
        format!("/{}/{key}", self.settings.bucket)
    }

    /// Sends a request and hands the body of a 200 on. With another status it fails, with the server's words.
    fn send(
        &mut self,
        request: &Request<'_>,
        wanted: &[u16],
        sink: &mut dyn FnMut(&Head, u64, &[u8]),
    ) -> Result<Reply, Wrong> {
        let Request { method, path, query, body, payload } = *request;
        self.head.clear();
        self.signer.write_head(&Unsigned { method, path, query, host: &self.target.host, payload }, &mut self.head);
        let mut said = Vec::new();
        let reply = self.connection.exchange(&self.head, body, method != "HEAD", &mut |head, position, piece| {
            if wanted.contains(&head.status) {
                sink(head, position, piece);
            } else if said.len() < 1024 {
                said.extend(&piece[..piece.len().min(1024)]);
            }
        });
        let reply = reply
            .map_err(|(kind, text)| Wrong { kind: Kind::Failed(kind), text: format!("{method} {path}: {text}") })?;
        if wanted.contains(&reply.head.status) {
            return Ok(reply);
        }
        let said = String::from_utf8_lossy(&said);
        Err(Wrong { kind: Kind::Status, text: format!("{method} {path}: {} {said}", reply.head.status) })
    }

    /// As `send`, for a request with a small body and a small reply, which is returned.
    fn send_small(
        &mut self,
        (method, path, query): (&str, &str, &str),
        body: &[u8],
        wanted: &[u16],
    ) -> Result<(Reply, Vec<u8>), Wrong> {
        let mut found = Vec::new();
        let payload = hex(&Sha256::digest(body));
        let request = Request { method, path, query, body: Body::of(body), payload: &payload };
        let reply = self.send(&request, wanted, &mut |_, _, piece| {
            found.extend(&piece[..piece.len().min(KEPT.saturating_sub(found.len()))]);
        })?;
        Ok((reply, found))
    }

    /// Reads a whole object and compares every byte.
    pub(super) fn get(&mut self, key: &str, variant: u64, size: u64) -> Result<Reply, Wrong> {
        let path = self.path(key);
        let bytes = self.bytes.clone();
        let body = bytes.body(variant, 0, size);
        let mut is_right = true;
        let payload = hex(&Sha256::digest(b""));
        let request = Request { method: "GET", path: &path, query: "", body: Body::of(b""), payload: &payload };
        let reply = self.send(&request, &[200], &mut |_, position, piece| {
            is_right = is_right && body.has_at(position, piece);
        })?;
        if is_right && reply.body_bytes == size {
            return Ok(reply);
        }
        Err(wrong_body(&path, &format!("{} bytes that are not the object's {size}", reply.body_bytes)))
    }

    /// Writes an object, in parts if it is longer than one request may be.
    pub(super) fn put(&mut self, key: &str, variant: u64, size: u64) -> Result<Reply, Wrong> {
        if size > self.settings.part_bytes {
            return self.put_parts(key, variant, size);
        }
        let path = self.path(key);
        self.put_body((&path, ""), variant, 0, size)
    }

    fn put_body(&mut self, (path, query): (&str, &str), variant: u64, from: u64, length: u64) -> Result<Reply, Wrong> {
        let bytes = self.bytes.clone();
        let is_hashed = self.settings.signs_bodies && from == 0 && query.is_empty() && length <= HASHED;
        let payload = if is_hashed { self.hashes.of(&bytes, variant, length) } else { UNSIGNED.to_owned() };
        let body = bytes.body(variant, from, length);
        let request = Request { method: "PUT", path, query, body, payload: &payload };
        let reply = self.send(&request, &[200], &mut |_, _, _| {})?;
        if reply.head.etag.is_none() {
            return Err(wrong_body(path, "a reply without an ETag"));
        }
        Ok(reply)
    }

    /// The times of the reply are from the first request to the last.
    fn put_parts(&mut self, key: &str, variant: u64, size: u64) -> Result<Reply, Wrong> {
        let start = std::time::Instant::now();
        let path = self.path(key);
        let (_, created) = self.send_small(("POST", &path, "uploads="), b"", &[200])?;
        let id = xml::first(&created, "UploadId").ok_or_else(|| wrong_body(&path, "a reply without an upload id"))?;
        let id = encode(&id);
        let mut complete = "<CompleteMultipartUpload>".to_owned();
        for (index, from) in (0..size).step_by(self.settings.part_bytes.max(1) as usize).enumerate() {
            let query = format!("partNumber={}&uploadId={id}", index + 1);
            let length = self.settings.part_bytes.min(size - from);
            let reply = self.put_body((&path, &query), variant, from, length)?;
            let etag = reply.head.etag.unwrap_or_default().replace('"', "&quot;");
            let _ = write!(complete, "<Part><PartNumber>{}</PartNumber><ETag>{etag}</ETag></Part>", index + 1);
        }
        complete.push_str("</CompleteMultipartUpload>");
        let query = format!("uploadId={id}");
        let (mut reply, found) = self.send_small(("POST", &path, &query), complete.as_bytes(), &[200])?;
        // The status is sent before the work is done, so a failure may come behind it.
        if xml::first(&found, "ETag").is_none() {
            return Err(wrong_body(&path, &String::from_utf8_lossy(&found)));
        }
        let total = start.elapsed();
        reply.first_byte += total - reply.total;
        reply.total = total;
        Ok(reply)
    }

    pub(super) fn delete(&mut self, key: &str) -> Result<Reply, Wrong> {
        let path = self.path(key);
        self.send_small(("DELETE", &path, ""), b"", &[204]).map(|(reply, _)| reply)
    }

    /// Lists the page of read objects behind number `after`, of which there are `objects`.
    pub(super) fn list(&mut self, size: u64, after: u64, objects: u64) -> Result<Reply, Wrong> {
        let start = encode(&read_key(size, after));
        let query =
            format!("list-type=2&max-keys={PAGE}&prefix={}&start-after={start}", encode(&format!("get/{size}/")));
        let wanted = (after + 1..objects).take(PAGE as usize).map(|number| read_key(size, number));
        self.list_page(&query, "Key", wanted)
    }

    /// Lists the groups behind that of number `after`.
    pub(super) fn list_groups(&mut self, size: u64, after: u64, objects: u64) -> Result<Reply, Wrong> {
        let prefix = format!("get/{size}/");
        // A zero sorts behind the slash: behind the whole group, and before the next one.
        let start = encode(&format!("{prefix}{:05}0", after / GROUP));
        let prefix_encoded = encode(&prefix);
        let query = format!("delimiter=%2F&list-type=2&max-keys={PAGE}&prefix={prefix_encoded}&start-after={start}");
        let groups = (after / GROUP + 1..objects.div_ceil(GROUP)).take(PAGE as usize);
        // The first is the prefix that was asked for.
        let wanted = std::iter::once(prefix.clone()).chain(groups.map(|group| format!("{prefix}{group:05}/")));
        self.list_page(&query, "Prefix", wanted)
    }

    fn list_page(&mut self, query: &str, element: &str, wanted: impl Iterator<Item = String>) -> Result<Reply, Wrong> {
        let path = format!("/{}", self.settings.bucket);
        let (reply, found) = self.send_small(("GET", &path, query), b"", &[200])?;
        if xml::all(&found, element).eq(wanted) {
            return Ok(reply);
        }
        Err(wrong_body(&path, &format!("not the page that {query} asks for")))
    }

    /// Makes the bucket; one that the user has already is as good.
    pub(super) fn make_bucket(&mut self) -> Result<(), Wrong> {
        let path = format!("/{}", self.settings.bucket);
        match self.send_small(("PUT", &path, ""), b"", &[200, 409])? {
            (reply, found) if reply.head.status == 409 => match xml::first(&found, "Code").as_deref() {
                Some("BucketAlreadyOwnedByYou") => Ok(()),
                other => Err(wrong_body(&path, &format!("{other:?}"))),
            },
            _ => Ok(()),
        }
    }

    pub(super) fn remove_bucket(&mut self) -> Result<(), Wrong> {
        let path = format!("/{}", self.settings.bucket);
        self.send_small(("DELETE", &path, ""), b"", &[204]).map(|_| ())
    }

    /// Up to 1,000 keys of the bucket with this prefix.
    pub(super) fn some_keys(&mut self, prefix: &str) -> Result<Vec<String>, Wrong> {
        let path = format!("/{}", self.settings.bucket);
        let query = format!("list-type=2&prefix={}", encode(prefix));
        let (_, found) = self.send_small(("GET", &path, &query), b"", &[200])?;
        Ok(xml::all(&found, "Key").collect())
    }
}

fn wrong_body(path: &str, text: &str) -> Wrong {
    Wrong { kind: Kind::Body, text: format!("{path}: {text}") }
}
