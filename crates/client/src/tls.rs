//! TLS towards the server, by rustls with the provider that the server uses.
//!
//! Promises: the server has a certificate for the URL's host from a trusted authority. Otherwise the error says what is
//! wrong and what would help.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::{CertificateError, ClientConfig, Error, RootCertStore, crypto};

use crate::ClientError;

/// The name that the server must prove, and the trusted authorities.
pub(crate) struct Tls {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl Tls {
    /// Reads the certificate authorities: those in `authorities`, or the operating system's.
    pub(crate) fn new(host: &str, authorities: Option<&Path>) -> Result<Self, ClientError> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| ClientError::Tls(format!("no certificate can be for the name {host:?}")))?;
        let roots = match authorities {
            Some(path) => from_file(path)
                .map_err(|why| ClientError::Tls(format!("the certificate authorities in {}: {why}", path.display())))?,
            None => of_the_system()?,
        };
        let provider = Arc::new(crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| ClientError::Tls(error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), name })
    }

    pub(crate) async fn connect(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        self.connector.connect(self.name.clone(), stream).await
    }

    /// The error of a failed handshake. It is [`ClientError::Connect`] only if a second attempt can help.
    pub(crate) fn explain(&self, error: &io::Error, host: &str, port: u16) -> ClientError {
        let place = format!("cannot connect to {host}:{port}");
        let Some(cause) = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) else {
            return ClientError::Connect(format!("{place}: {error}"));
        };
        let advice = match cause {
            Error::InvalidMessage(_) => "it does not speak TLS: is it a server that is asked by http://…?",
            // The last two: a trusted authority has this name but another key, for example after a renewal.
            Error::InvalidCertificate(
                CertificateError::UnknownIssuer
                | CertificateError::BadSignature
                | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. },
            ) => {
                "no authority that is trusted here has issued its certificate: if it is one of your own, give the \
                 authority's certificate (millrace: --ca FILE)"
            }
            // Its variant is in the verifier's own crate.
            Error::InvalidCertificate(CertificateError::Other(other))
                if other.to_string().contains("CaUsedAsEndEntity") =>
            {
                "its certificate is one of an authority, such as `openssl req -x509` makes unless told \
                 -addext basicConstraints=critical,CA:FALSE"
            }
            _ => return ClientError::Tls(format!("{place}: {cause}")),
        };
        ClientError::Tls(format!("{place}: {advice} ({cause})"))
    }
}

fn from_file(path: &Path) -> Result<RootCertStore, String> {
    // The file is opened here, so that the error does not have the parser's words.
    let file = File::open(path).map_err(|error| error.to_string())?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_reader_iter(file) {
        let certificate = certificate.map_err(|error| error.to_string())?;
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    if roots.is_empty() { Err("it holds no certificate (PEM)".to_owned()) } else { Ok(roots) }
}

fn of_the_system() -> Result<RootCertStore, ClientError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // An unreadable authority is not trusted. A caller that needs it gets an error then.
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        return Err(ClientError::Tls(
            "this machine trusts no certificate authority: install its `ca-certificates`, name a file with \
             SSL_CERT_FILE, or give your own authority's certificate (millrace: --ca FILE)"
                .to_owned(),
        ));
    }
    Ok(roots)
}
