//! A server must prove that it is the one that the URL names.

use std::sync::Arc;

use crate::support::{Server, answer, failure, get};
use millrace_fetch::{HttpFetcher, Options, Roots};
use rcgen::{CertificateParams, CertifiedIssuer, KeyPair, date_time_ymd};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::{ServerConfig, crypto};

pub fn acceptor(chain: Vec<CertificateDer<'static>>, key: &KeyPair) -> TlsAcceptor {
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    let mut config = ServerConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider has them")
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .expect("the key is the certificate's");
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("valid");
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Self { issuer: CertifiedIssuer::self_signed(params, key).expect("valid") }
    }

    fn root(&self) -> CertificateDer<'static> {
        self.issuer.der().clone()
    }

    async fn server(&self, name: &str, is_expired: bool) -> Server {
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        if is_expired {
            params.not_after = date_time_ymd(2020, 1, 1);
        }
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("valid");
        Server::with(Arc::default(), Some(acceptor(vec![certificate.der().clone()], &key))).await
    }
}

fn trusting(roots: Vec<CertificateDer<'static>>) -> HttpFetcher {
    HttpFetcher::new(&Options { roots: Roots::Only(roots), ..Options::default() })
}

fn url(host: &str, server: &Server) -> String {
    format!("https://{host}:{}/echo", server.address.port())
}

#[tokio::test]
async fn a_server_with_a_trusted_certificate_is_fetched_from() {
    let authority = Authority::new();
    let server = authority.server("localhost", false).await;
    let fetcher = trusting(vec![authority.root()]);
    for _ in 0..10 {
        let response = answer(&fetcher, get(&url("localhost", &server))).await;
        assert!(response.body.starts_with(b"GET /echo HTTP/1.1\r\n"));
    }
    assert_eq!((server.counts.requests(), server.counts.accepted()), (10, 1));
    let by_address = authority.server("127.0.0.1", false).await;
    answer(&fetcher, get(&url("127.0.0.1", &by_address))).await;
}

#[tokio::test]
async fn a_server_that_cannot_prove_its_name_is_told_nothing() {
    let authority = Authority::new();
    let key = KeyPair::generate().expect("a key");
    let own = CertificateParams::new(vec!["localhost".to_owned()]).and_then(|params| params.self_signed(&key));
    let own = own.expect("valid").der().clone();
    let self_signed = Server::with(Arc::default(), Some(acceptor(vec![own], &key))).await;
    let other = Authority::new().server("localhost", false).await;
    let named = authority.server("example.com", false).await;
    let expired = authority.server("localhost", true).await;
    let right = authority.server("localhost", false).await;
    let fetcher = trusting(vec![authority.root()]);
    for (host, server) in [
        ("localhost", &self_signed),
        ("localhost", &other),
        ("localhost", &named),
        ("localhost", &expired),
        ("127.0.0.1", &right),
    ] {
        let message = failure(&fetcher, get(&url(host, server))).await;
        assert!(message.contains("no TLS connection: invalid peer certificate"), "{message}");
        assert_eq!(server.counts.requests(), 0);
    }
    answer(&fetcher, get(&url("localhost", &right))).await;
}

#[tokio::test]
async fn the_systems_authorities_do_not_trust_a_stranger() {
    let server = Authority::new().server("localhost", false).await;
    let message = failure(&HttpFetcher::new(&Options::default()), get(&url("localhost", &server))).await;
    assert!(message.contains("certificate"), "{message}");
    let message = failure(&trusting(vec![]), get(&url("localhost", &server))).await;
    assert!(message.contains("ca-certificates"), "{message}");
    assert_eq!(server.counts.requests(), 0);
}

#[tokio::test]
async fn tls_and_plain_do_not_mix() {
    let authority = Authority::new();
    let fetcher = trusting(vec![authority.root()]);
    let (plain, tls) = (Server::start().await, authority.server("127.0.0.1", false).await);
    failure(&fetcher, millrace_func::FetchRequest { timeout_ms: 500, ..get(&url("127.0.0.1", &plain)) }).await;
    failure(&fetcher, tls.get("/echo")).await;
    assert_eq!((plain.counts.requests(), tls.counts.requests()), (0, 0));
}
