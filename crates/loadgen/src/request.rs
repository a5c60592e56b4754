//! The bytes of a request with its changing parts.
//!
//! Promises: a request without changing parts is built once. Every request is well formed: its length is counted, and no
//! part can put a line break into the head.

use super::bson::DocumentTemplate;
use super::mongo;
use super::plan::BenchError;
use super::template::{Compiler, Scope, Template, push_decimal};

/// Headers that follow from the rest of the request.
const OWN_HEADERS: [&str; 3] = ["content-length", "transfer-encoding", "connection"];

/// An HTTP request as a user writes it; every text may hold template parts.
#[derive(Clone, Debug, Default)]
pub struct HttpRequest<'a> {
    /// `GET` if empty.
    pub method: &'a str,
    /// `http://host[:port]/path?query`; host and port hold no parts.
    pub url: &'a str,
    /// `Name: value`.
    pub headers: &'a [String],
    /// The body; JSON unless a header says otherwise.
    pub body: Option<&'a str>,
}

/// A compiled request.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestTemplate {
    content: Content,
    protocol: Protocol,
    is_bodyless: bool,
}

/// The protocol of requests and replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Http,
    Resp,
    Mongo,
}

#[derive(Clone, Debug, PartialEq)]
enum Content {
    /// All of the request.
    Whole(Template),
    /// A head that still lacks its length and the empty line, and a body.
    Measured { head: Template, body: Template },
    /// The words of a RESP command.
    Words(Vec<Template>),
    /// A command of MongoDB's protocol.
    Command(DocumentTemplate),
}

impl RequestTemplate {
    /// Compiles an HTTP request. Returns it with host and port.
    ///
    /// # Errors
    /// Names the part of the request that is wrong.
    pub fn http(request: &HttpRequest<'_>) -> Result<(Self, String, u16), BenchError> {
        let method = if request.method.is_empty() { "GET" } else { request.method };
        if !method.bytes().all(|byte| byte.is_ascii_uppercase()) {
            return Err(BenchError::Arguments(format!("{method:?} is not an HTTP method")));
        }
        let (authority, target) = split_url(request.url)?;
        let (host, port) = split_authority(authority)?;
        let mut compiler = Compiler::default();
        let mut head = Template::literal(format!("{method} ").as_bytes());
        let target = compile(&mut compiler, "the URL", target)?;
        if target.holds(|byte| byte <= b' ' || byte >= 0x7F) {
            return Err(BenchError::Arguments("the URL holds characters that must be percent-encoded".to_owned()));
        }
        head.push(&target);
        head.push_literal(b" HTTP/1.1\r\n");
        push_headers(&mut head, &mut compiler, request, authority)?;
        let body = request.body.map(|body| compile(&mut compiler, "the body", body)).transpose()?;
        let content = match body {
            None => {
                head.push_literal(b"\r\n");
                Content::Whole(head)
            }
            Some(body) => match body.as_literal() {
                Some(bytes) => {
                    head.push_literal(format!("Content-Length: {}\r\n\r\n", bytes.len()).as_bytes());
                    head.push_literal(bytes);
                    Content::Whole(head)
                }
                None => Content::Measured { head, body },
            },
        };
        Ok((Self { content, protocol: Protocol::Http, is_bodyless: method == "HEAD" }, host, port))
    }

    /// Compiles a RESP command.
    ///
    /// # Errors
    /// Names the word that is wrong.
    pub fn resp(words: &[&str]) -> Result<Self, BenchError> {
        if words.is_empty() {
            return Err(BenchError::Arguments("the command has no words".to_owned()));
        }
        let mut compiler = Compiler::default();
        let words: Result<Vec<_>, _> = words.iter().map(|word| compile(&mut compiler, "the command", word)).collect();
        let mut content = Content::Words(words?);
        if let Content::Words(words) = &content
            && words.iter().all(|word| word.as_literal().is_some())
        {
            content = content.built();
        }
        Ok(Self { content, protocol: Protocol::Resp, is_bodyless: false })
    }

    /// Compiles a command of MongoDB's protocol, written as relaxed Extended JSON, such as
    /// `{"ping": 1, "$db": "test"}`. Its texts may hold template parts. So may a number in the form
    /// `{"$numberInt": "{{uniform:0:60}}"}`.
    ///
    /// # Errors
    /// Names the error in it.
    pub fn mongo(command: &str) -> Result<Self, BenchError> {
        let command = DocumentTemplate::compile(command)?;
        let is_literal = command.is_literal();
        let content = Content::Command(command);
        let content = if is_literal { content.built() } else { content };
        Ok(Self { content, protocol: Protocol::Mongo, is_bodyless: false })
    }

    /// The protocol of the replies.
    pub(super) fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Whether replies have no body: the method is HEAD.
    pub(super) fn is_bodyless(&self) -> bool {
        self.is_bodyless
    }

    /// The bytes of every request, if all are the same.
    pub(super) fn fixed(&self) -> Option<&[u8]> {
        match &self.content {
            Content::Whole(whole) => whole.as_literal(),
            _ => None,
        }
    }

    /// Appends the bytes of the scope's current request.
    pub(super) fn render(&self, scope: &mut Scope, scratch: &mut Vec<u8>, out: &mut Vec<u8>) {
        self.content.render(scope, scratch, out);
    }
}

impl Content {
    /// The same, built once, because nothing in it changes.
    fn built(&self) -> Self {
        let mut whole = Vec::new();
        self.render(&mut Scope::new(0, 0, 1), &mut Vec::new(), &mut whole);
        Content::Whole(Template::literal(&whole))
    }

    fn render(&self, scope: &mut Scope, scratch: &mut Vec<u8>, out: &mut Vec<u8>) {
        match self {
            Content::Whole(whole) => whole.render(scope, out),
            Content::Measured { head, body } => {
                head.render(scope, out);
                scratch.clear();
                body.render(scope, scratch);
                out.extend_from_slice(b"Content-Length: ");
                push_decimal(out, scratch.len() as u64);
                out.extend_from_slice(b"\r\n\r\n");
                out.extend_from_slice(scratch);
            }
            Content::Words(words) => {
                out.push(b'*');
                push_decimal(out, words.len() as u64);
                out.extend_from_slice(b"\r\n");
                for word in words {
                    scratch.clear();
                    word.render(scope, scratch);
                    out.push(b'$');
                    push_decimal(out, scratch.len() as u64);
                    out.extend_from_slice(b"\r\n");
                    out.extend_from_slice(scratch);
                    out.extend_from_slice(b"\r\n");
                }
            }
            Content::Command(command) => mongo::render(command, scope, scratch, out),
        }
    }
}

fn push_headers(
    head: &mut Template,
    compiler: &mut Compiler,
    request: &HttpRequest<'_>,
    authority: &str,
) -> Result<(), BenchError> {
    let mut names = Vec::new();
    for header in request.headers {
        let refuse = |why: &str| BenchError::Arguments(format!("the header {header:?} {why}"));
        let (name, value) = header.split_once(':').ok_or_else(|| refuse("has no colon"))?;
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.!#$%&'*+^`|~".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_name) {
            return Err(refuse("has a name that no header may have"));
        }
        let lower = name.to_ascii_lowercase();
        if OWN_HEADERS.contains(&lower.as_str()) {
            return Err(refuse("follows from the request and cannot be set"));
        }
        let value = compile(compiler, &format!("the header {name}"), value.trim())?;
        if value.holds(|byte| byte < b' ' || byte == 0x7F) {
            return Err(refuse("holds control characters"));
        }
        head.push_literal(format!("{name}: ").as_bytes());
        head.push(&value);
        head.push_literal(b"\r\n");
        names.push(lower);
    }
    let has = |name: &str| names.iter().any(|known| known == name);
    if !has("host") {
        head.push_literal(format!("Host: {authority}\r\n").as_bytes());
    }
    if request.body.is_some() && !has("content-type") {
        head.push_literal(b"Content-Type: application/json\r\n");
    }
    Ok(())
}

fn compile(compiler: &mut Compiler, what: &str, text: &str) -> Result<Template, BenchError> {
    compiler.compile(text).map_err(|error| BenchError::Arguments(format!("{what} cannot be used: {error}")))
}

/// Authority and target (`/path?query`).
fn split_url(url: &str) -> Result<(&str, &str), BenchError> {
    let refuse = |why: &str| BenchError::Arguments(format!("the URL {url:?} {why}"));
    let rest = match url.split_once("://") {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => rest,
        Some((scheme, _)) if scheme.eq_ignore_ascii_case("https") => {
            return Err(refuse("has TLS, which the load generator does not speak: it loads plain http only"));
        }
        Some(_) => return Err(refuse("is not plain http")),
        None => return Err(refuse("must look like http://host:port/path")),
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, target) = rest.split_at(end);
    match target.as_bytes().first() {
        None => Ok((authority, "/")),
        Some(b'/') => Ok((authority, target)),
        Some(_) => Err(refuse("needs a / after its host and port")),
    }
}

fn split_authority(authority: &str) -> Result<(String, u16), BenchError> {
    let refuse = |why: &str| BenchError::Arguments(format!("the URL's host {authority:?} {why}"));
    if authority.contains("{{") {
        return Err(refuse("cannot hold template parts"));
    }
    if authority.contains('@') {
        return Err(refuse("holds a user name; send a header: -H 'Authorization: Basic {{base64:name:password}}'"));
    }
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => {
            (host, port.parse().map_err(|_| refuse("has a port that is not a number"))?)
        }
        _ => (authority, 80),
    };
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if host.is_empty() || host.bytes().any(|byte| byte <= b' ') {
        return Err(refuse("names no host"));
    }
    Ok((host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn http(method: &str, url: &str, headers: &[&str], body: Option<&str>) -> Result<RequestTemplate, BenchError> {
        let headers: Vec<String> = headers.iter().map(|header| (*header).to_owned()).collect();
        RequestTemplate::http(&HttpRequest { method, url, headers: &headers, body }).map(|parts| parts.0)
    }

    fn render(request: &RequestTemplate) -> String {
        let mut out = Vec::new();
        let mut scope = Scope::new(1, 0, 1);
        scope.next_request();
        request.render(&mut scope, &mut Vec::new(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_request_without_parts_is_built_once() {
        let request = http("", "http://127.0.0.1:8080/user/login?x=1", &["X-A:  b "], None).unwrap();
        let expected = "GET /user/login?x=1 HTTP/1.1\r\nX-A: b\r\nHost: 127.0.0.1:8080\r\n\r\n";
        assert_eq!(request.fixed(), Some(expected.as_bytes()));
        let request = http("POST", "http://h", &["host: other", "Content-Type: text/plain"], Some("abc")).unwrap();
        let expected = "POST / HTTP/1.1\r\nhost: other\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\r\nabc";
        assert_eq!(request.fixed(), Some(expected.as_bytes()));
    }

    #[test]
    fn lengths_follow_the_parts() {
        let request = http("POST", "http://h/call/{{k=seq:99}}/add", &["Idempotency-Key: {{$k}}"], Some("[{{$k}}0]"));
        let request = request.unwrap();
        assert_eq!(request.fixed(), None);
        assert_eq!(
            render(&request),
            "POST /call/99/add HTTP/1.1\r\nIdempotency-Key: 99\r\nHost: h\r\nContent-Type: application/json\r\n\
             Content-Length: 5\r\n\r\n[990]"
        );
        let request = RequestTemplate::resp(&["SET", "k{{seq:10}}", "v"]).unwrap();
        assert_eq!(render(&request), "*3\r\n$3\r\nSET\r\n$3\r\nk10\r\n$1\r\nv\r\n");
        let fixed = RequestTemplate::resp(&["PING"]).unwrap();
        assert_eq!(fixed.fixed(), Some(b"*1\r\n$4\r\nPING\r\n".as_slice()));
    }

    #[test]
    fn every_mistake_gets_its_own_error() {
        for (method, url, header, words) in [
            ("get", "http://h/", "a: b", "not an HTTP method"),
            ("", "h/", "a: b", "must look like"),
            ("", "https://h/", "a: b", "has TLS"),
            ("", "ftp://h/", "a: b", "plain http"),
            ("", "http://h?x", "a: b", "needs a /"),
            ("", "http:///x", "a: b", "names no host"),
            ("", "http://h:x/", "a: b", "port"),
            ("", "http://u:p@h/", "a: b", "user name"),
            ("", "http://{{seq}}/", "a: b", "template parts"),
            ("", "http://h/a b", "a: b", "percent-encoded"),
            ("", "http://h/{{pick:a b,c}}", "a: b", "percent-encoded"),
            ("", "http://h/{{nope}}", "a: b", "the URL cannot be used: at byte 1"),
            ("", "http://h/", "ab", "no colon"),
            ("", "http://h/", "a b: c", "no header may have"),
            ("", "http://h/", "a: {{pick:x\r\nb,c}}", "control"),
            ("", "http://h/", "Content-Length: 4", "cannot be set"),
        ] {
            let error = http(method, url, &[header], None).unwrap_err().to_string();
            assert!(error.contains(words), "{url} {header}: {error}");
        }
        let parts = RequestTemplate::http(&HttpRequest { url: "http://[::1]:9/x", ..HttpRequest::default() }).unwrap();
        assert_eq!((parts.1.as_str(), parts.2), ("::1", 9));
        assert!(RequestTemplate::resp(&[]).is_err());
    }
}
