//! TLS between nodes: version 1.3 only, and both sides show a certificate of the cluster's own authority.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use millrace_base::hex;
use millrace_replica::NodeId;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use sha2::{Digest as _, Sha256};
use tokio_rustls::rustls::client::{Resumption, verify_server_name};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::ids::{ClusterId, certificate_name};

/// What a node proves itself with.
pub struct Identity {
    /// The node's certificate.
    pub certificate: CertificateDer<'static>,
    /// Its private key.
    pub key: PrivateKeyDer<'static>,
    /// The certificate of the cluster's authority. No other one is trusted.
    pub authority: CertificateDer<'static>,
}

impl Clone for Identity {
    fn clone(&self) -> Self {
        Self { certificate: self.certificate.clone(), key: self.key.clone_key(), authority: self.authority.clone() }
    }
}

/// Shows no key.
impl fmt::Debug for Identity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Identity").finish_non_exhaustive()
    }
}

impl Identity {
    /// Reads the three files.
    ///
    /// # Errors
    /// Names the file and what is wrong with it.
    pub fn read(certificate: &Path, key: &Path, authority: &Path) -> Result<Self, String> {
        let wrong = |path: &Path, error: &dyn fmt::Display| format!("{}: {error}", path.display());
        Ok(Self {
            certificate: CertificateDer::from_pem_file(certificate).map_err(|error| wrong(certificate, &error))?,
            key: PrivateKeyDer::from_pem_file(key).map_err(|error| wrong(key, &error))?,
            authority: CertificateDer::from_pem_file(authority).map_err(|error| wrong(authority, &error))?,
        })
    }
}

/// What tells an authority's certificate from others: its SHA-256, as 64 hexadecimal digits.
#[must_use]
pub fn fingerprint(authority: &CertificateDer<'_>) -> String {
    hex(&Sha256::digest(authority))
}

/// The fingerprint of the certificate in a file.
///
/// # Errors
/// Names the file and what is wrong with it.
pub fn fingerprint_of_file(path: &Path) -> Result<String, String> {
    let certificate = CertificateDer::from_pem_file(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(fingerprint(&certificate))
}

/// Both directions of TLS.
#[derive(Clone)]
pub(crate) struct Tls {
    pub acceptor: TlsAcceptor,
    pub connector: TlsConnector,
}

impl Tls {
    /// # Errors
    /// What is wrong with the identity.
    pub(crate) fn new(cluster: ClusterId, node: NodeId, identity: &Identity) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        roots.add(identity.authority.clone()).map_err(|error| format!("the cluster's authority: {error}"))?;
        let roots = Arc::new(roots);
        let provider = Arc::new(provider());
        let own = |error: &dyn fmt::Display| format!("the node's certificate: {error}");
        if !is_for(&identity.certificate, cluster, node) {
            return Err(format!("the node's certificate is not for node {node} of cluster {cluster}"));
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
            .build()
            .map_err(|error| format!("the cluster's authority: {error}"))?;
        let chain = vec![identity.certificate.clone()];
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| own(&error))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain.clone(), identity.key.clone_key())
            .map_err(|error| own(&error))?;
        // Links live long: tickets to resume them would be of no use.
        (server.send_tls13_tickets, server.session_storage) = (0, Arc::new(NoServerSessionStorage {}));
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| own(&error))?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, identity.key.clone_key())
            .map_err(|error| own(&error))?;
        client.resumption = Resumption::disabled();
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(server)), connector: TlsConnector::from(Arc::new(client)) })
    }
}

/// AES with 128 bits comes first, because processors have instructions for it.
fn provider() -> CryptoProvider {
    let suites = vec![ring::cipher_suite::TLS13_AES_128_GCM_SHA256, ring::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256];
    CryptoProvider { cipher_suites: suites, ..ring::default_provider() }
}

/// The name that the certificate of a peer must be for.
pub(crate) fn server_name(cluster: ClusterId, node: NodeId) -> ServerName<'static> {
    ServerName::try_from(certificate_name(cluster, node)).expect("letters, digits, hyphens and dots")
}

/// Whether the certificate is for this node of this cluster. Who signed it is checked elsewhere.
pub(crate) fn is_for(certificate: &CertificateDer<'_>, cluster: ClusterId, node: NodeId) -> bool {
    let name = server_name(cluster, node);
    ParsedCertificate::try_from(certificate).is_ok_and(|parsed| verify_server_name(&parsed, &name).is_ok())
}
