//! TLS by rustls: reading certificate and key, offering HTTP/2 and HTTP/1.1.

use std::path::Path;
use std::sync::Arc;

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls;

use crate::{StartError, TlsFiles};

/// The same settings, without the offer of HTTP/2.
pub(crate) fn without_http2(config: &Arc<rustls::ServerConfig>) -> Arc<rustls::ServerConfig> {
    let mut own = rustls::ServerConfig::clone(config);
    own.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(own)
}

/// Reads the files; refuses a key that does not belong to the certificate.
pub(crate) fn load(files: &TlsFiles) -> Result<Arc<rustls::ServerConfig>, StartError> {
    let wrong = |path: &Path, reason: String| StartError::Tls(path.to_owned(), reason);
    let chain: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(&files.certificate).and_then(|certificates| certificates.collect());
    let chain = chain.map_err(|error| wrong(&files.certificate, error.to_string()))?;
    if chain.is_empty() {
        return Err(wrong(&files.certificate, "it holds no certificate".to_owned()));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| wrong(&files.key, error.to_string()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(&files.certificate, error.to_string()))?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| wrong(&files.key, error.to_string()))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
