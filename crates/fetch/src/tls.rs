//! TLS to servers outside, by rustls with the provider that the HTTP front uses.

use std::sync::Arc;

use rustls_pki_types::ServerName;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

use millrace_func::FetchHost;

use crate::Roots;

/// Reads the certificate authorities. Takes milliseconds, and reads files.
pub(crate) fn load(roots: &Roots, offers_http2: bool) -> Result<TlsConnector, String> {
    let mut store = RootCertStore::empty();
    match roots {
        Roots::System => {
            let found = rustls_native_certs::load_native_certs();
            for error in &found.errors {
                tracing::warn!(%error, "a file of trusted certificates cannot be read");
            }
            store.add_parsable_certificates(found.certs);
        }
        Roots::Only(certificates) => {
            store.add_parsable_certificates(certificates.iter().cloned());
        }
    }
    if store.is_empty() {
        return Err(
            "this machine trusts no certificate authority: install its `ca-certificates`, or name a file with \
                    SSL_CERT_FILE"
                .to_owned(),
        );
    }
    let provider = Arc::new(crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(store)
        .with_no_client_auth();
    let offered: &[&[u8]] = if offers_http2 { &[b"h2", b"http/1.1"] } else { &[b"http/1.1"] };
    config.alpn_protocols = offered.iter().map(|name| name.to_vec()).collect();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// The name that the certificate must be for.
pub(crate) fn server_name(host: &FetchHost) -> Result<ServerName<'static>, String> {
    match host {
        FetchHost::Address(address) => Ok(ServerName::from(*address)),
        FetchHost::Name(name) => {
            ServerName::try_from(name.clone()).map_err(|_| "no certificate can be for this name".to_owned())
        }
    }
}
