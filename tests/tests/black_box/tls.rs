//! TLS: served with a certificate, which can be replaced while the server runs.

use std::path::{Path, PathBuf};
use std::process::Command;

use millrace_tests::{Server, ServerOptions, free_address, has_programs, wait_until};
use tempfile::TempDir;

/// The files that a server is told, and the program that asks it.
pub(crate) struct Tls {
    folder: TempDir,
}

impl Tls {
    /// Returns `None` and prints a line that says so where the programs are missing that make certificates and ask.
    pub(crate) fn new() -> Option<Self> {
        has_programs(&["openssl", "curl"]).then(|| Self { folder: tempfile::tempdir().expect("a folder") })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Makes a self-signed certificate, `{name}.pem`, and its key, `{name}.key`.
    pub(crate) fn make(&self, name: &str) {
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"])
            .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"])
            .args(["-addext", "basicConstraints=critical,CA:FALSE"])
            .arg("-keyout")
            .arg(self.path(&format!("{name}.key")))
            .arg("-out")
            .arg(self.path(&format!("{name}.pem")))
            .output()
            .expect("run");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }

    /// Puts a copy of a file in the place of another at once, as tools that renew certificates do.
    fn replace(&self, from: &str, to: &str) {
        std::fs::copy(self.path(from), self.path("new")).expect("copied");
        std::fs::rename(self.path("new"), self.path(to)).expect("renamed");
    }

    pub(crate) fn options(&self, certificate: &str, key: &str) -> ServerOptions {
        let options = ServerOptions { address: Some(free_address()), ..ServerOptions::examples(&["counter"]) };
        let text = |name: &str| self.path(name).to_str().expect("text").to_owned();
        options.with(&["--tls-certificate", &text(certificate), "--tls-key", &text(key)])
    }

    /// One call on a connection of its own that trusts this certificate only. Returns its output, or why there is
    /// none.
    fn call(&self, server: &Server, trusted: &Path, version: &str) -> Result<String, String> {
        let url = format!("https://localhost:{}/call/counter/k/add", server.address().port());
        let curl = Command::new("curl")
            .args(["-sS", version, "-d", "1", "-w", " %{http_code}", "--cacert"])
            .arg(trusted)
            .arg(&url)
            .output()
            .expect("run");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if curl.status.success() { Ok(text(&curl.stdout)) } else { Err(text(&curl.stderr)) }
    }

    fn accepts(&self, server: &Server, name: &str) -> bool {
        let called = self.call(server, &self.path(name), "--http1.1");
        match &called {
            Ok(out) => assert!(out.ends_with(" 200"), "{out}"),
            // No other error may happen to a connection meanwhile.
            Err(error) => assert!(error.contains("certificate"), "{error}"),
        }
        called.is_ok()
    }
}

#[test]
fn tls_is_served_with_a_certificate_and_nothing_else_on_that_port() {
    let Some(tls) = Tls::new() else { return };
    tls.make("own");
    let errors = Server::refuses(tls.options("own.pem", "own.pem"));
    assert!(errors.contains("own.pem"), "{errors}");
    let server = Server::start_tls(tls.options("own.pem", "own.key"));
    for version in ["--http1.1", "--http2"] {
        let called = tls.call(&server, &tls.path("own.pem"), version).expect(version);
        assert!(called.ends_with(" 200"), "{version}: {called}");
    }
    let plain = server.connect().request("GET", "/healthz", &[], b"").expect("a reply without TLS");
    assert!(plain.status == 400 && plain.text().contains("https://"), "plain HTTP: {} {}", plain.status, plain.text());
}

/// `docs/guide/operations.md`: "Replace the files to renew them; the node notices, without a restart."
#[test]
fn a_replaced_certificate_is_served_and_a_broken_one_changes_nothing() {
    let Some(tls) = Tls::new() else { return };
    for name in ["old", "new-year"] {
        tls.make(name);
    }
    tls.replace("old.pem", "used.pem");
    tls.replace("old.key", "used.key");
    let mut server = Server::start_tls(tls.options("used.pem", "used.key"));
    assert!(tls.accepts(&server, "old.pem"));
    assert!(!tls.accepts(&server, "new-year.pem"), "curl trusts whatever it is shown");

    tls.replace("new-year.key", "used.key");
    tls.replace("new-year.pem", "used.pem");
    wait_until("the new certificate is served", || tls.accepts(&server, "new-year.pem"));
    assert!(!tls.accepts(&server, "old.pem"));
    // The server may have seen one of the two files before the other. That depends on the moment at which it looked.
    let refusals = || server.errors().matches("changed TLS files cannot be used").count();
    let before = refusals();

    std::fs::write(tls.path("broken"), "no key").expect("written");
    tls.replace("broken", "used.key");
    wait_until("the log tells that the new key is broken", || refusals() > before);
    let told = server.errors();
    let line = told.lines().rfind(|line| line.contains("changed TLS files cannot be used")).expect("told");
    assert!(line.contains("ERROR") && line.contains("used.key"), "{line}");
    assert!(tls.accepts(&server, "new-year.pem"), "what cannot be read changes nothing");

    tls.replace("old.pem", "used.pem");
    tls.replace("old.key", "used.key");
    wait_until("a repaired one is served", || tls.accepts(&server, "old.pem"));
    assert!(server.stop(), "{}", server.errors());
}
