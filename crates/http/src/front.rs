//! What all cores share: options, keys, TLS settings, metrics.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::Bytes;
use millrace_access::{KeyAgreement, Keyring, Shared, Stamp, Users, needs_keys};
use millrace_records::{Turn, Turns};
use prometheus_client::registry::Registry;
use tokio_rustls::rustls::ServerConfig;

use crate::metrics::{CoreMetrics, FrontMetrics};
use crate::{Options, StartError, cors, origin, tls};

/// The front of one address: shared by the [`crate::serve`] of every core.
pub struct Front {
    pub(crate) options: Options,
    keyring: Option<Arc<Keyring>>,
    pub(crate) tls: Option<Arc<Shared<Arc<ServerConfig>>>>,
    /// The same for fronts that speak HTTP/1.1 only.
    tls_http1: Option<Arc<Shared<Arc<ServerConfig>>>>,
    /// Of S3, once they have been read.
    users: OnceLock<Arc<Users>>,
    /// In a cluster whose nodes agree on keys.
    agreement: OnceLock<Arc<KeyAgreement>>,
    registry: Registry,
    metrics: Arc<FrontMetrics>,
    openapi: OnceLock<Bytes>,
    pub(crate) turns: SchemaTurns,
    /// Of the TLS files as they were last read, so that each change is read once, whether it could be used or not.
    tls_stamps: Mutex<Option<[Stamp; 2]>>,
    is_watched: AtomicBool,
}

impl std::fmt::Debug for Front {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Front").field("options", &self.options).finish_non_exhaustive()
    }
}

/// The turns in which all cores change schemas. Holds nothing.
#[derive(Clone, Default)]
pub(crate) struct SchemaTurns(Arc<tokio::sync::Mutex<()>>);

impl Turns for SchemaTurns {
    fn next(&self) -> Pin<Box<dyn Future<Output = Turn>>> {
        let turns = Arc::clone(&self.0);
        Box::pin(async move {
            let turn: Turn = Box::new(turns.lock_owned().await);
            turn
        })
    }
}

impl Front {
    /// Reads the key file and the TLS files, and adds the front's metrics to `registry`, which
    /// `GET /metrics` shows from then on.
    ///
    /// # Errors
    /// [`StartError`] when a file cannot be used.
    pub fn new(options: Options, mut registry: Registry) -> Result<Arc<Self>, StartError> {
        if let Some(wrong) = options.allowed_hosts.iter().find(|name| !origin::is_host_name(name)) {
            return Err(StartError::AllowedHost(wrong.clone()));
        }
        if let Some(wrong) = options.cors_origins.iter().find(|origin| !cors::is_origin(origin)) {
            return Err(StartError::CorsOrigin(wrong.clone()));
        }
        if options.keys.is_none() && options.cors_origins.iter().any(|origin| origin == "*") {
            return Err(StartError::CorsWithoutKeys);
        }
        let tls_stamps = Mutex::new(tls_stamps(&options));
        let keyring = options.keys.as_deref().map(Keyring::open).transpose().map_err(StartError::Keys)?;
        let tls = options.tls.as_ref().map(tls::load).transpose()?;
        let tls_http1 = tls.as_ref().map(|config| Arc::new(Shared::new(tls::without_http2(config))));
        let tls = tls.map(|config| Arc::new(Shared::new(config)));
        let metrics = Arc::new(FrontMetrics::default());
        registry.register_collector(Box::new(Arc::clone(&metrics)));
        Ok(Arc::new(Self {
            options,
            keyring,
            tls,
            tls_http1,
            users: OnceLock::new(),
            agreement: OnceLock::new(),
            registry,
            metrics,
            openapi: OnceLock::new(),
            turns: SchemaTurns::default(),
            tls_stamps,
            is_watched: AtomicBool::new(false),
        }))
    }

    /// Whether there is at least one API key.
    #[must_use]
    pub fn has_keys(&self) -> bool {
        self.keyring.as_ref().is_some_and(|keyring| keyring.count() > 0)
    }

    /// The keys, which other fronts of the node use too.
    #[must_use]
    pub fn keyring(&self) -> Option<&Arc<Keyring>> {
        self.keyring.as_ref()
    }

    /// The TLS settings, kept up to date, for fronts of the node that speak HTTP/1.1 only.
    #[must_use]
    pub fn tls_http1(&self) -> Option<Arc<Shared<Arc<ServerConfig>>>> {
        self.tls_http1.clone()
    }

    /// Whose users `/s3/users` manages: to be called once, before the front serves. Later calls change nothing.
    pub fn manage_users(&self, users: Arc<Users>) {
        let _ = self.users.set(users);
    }

    /// The keys that `/cluster/keys` manages: to be called once, before the front serves. Later calls change nothing.
    pub fn manage_keys(&self, agreement: Arc<KeyAgreement>) {
        let _ = self.agreement.set(agreement);
    }

    pub(crate) fn agreement(&self) -> Option<&Arc<KeyAgreement>> {
        self.agreement.get()
    }

    pub(crate) fn users(&self) -> Option<&Arc<Users>> {
        self.users.get()
    }

    /// The options it was made with.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Reads key file and TLS files again if they changed. A file that cannot be used leaves what
    /// was there in force. Blocks on the disk; [`crate::serve`] calls it now and then.
    pub fn reload_changed(&self) {
        if let Some(keyring) = &self.keyring {
            keyring.reload_changed();
        }
        let (Some(files), Some(tls)) = (&self.options.tls, &self.tls) else {
            return;
        };
        let now = tls_stamps(&self.options);
        let mut stamps = self.tls_stamps.lock().unwrap_or_else(PoisonError::into_inner);
        if *stamps == now {
            return;
        }
        match tls::load(files) {
            Ok(config) => {
                tracing::info!("TLS certificate read again");
                if let Some(tls_http1) = &self.tls_http1 {
                    tls_http1.replace(tls::without_http2(&config));
                }
                tls.replace(config);
            }
            Err(error) => tracing::error!(%error, "changed TLS files cannot be used; the old ones stay in force"),
        }
        *stamps = now;
    }

    /// True for the first caller: one core watches the files for all.
    pub(crate) fn claim_watch(&self) -> bool {
        (self.options.keys.is_some() || self.options.tls.is_some()) && !self.is_watched.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn core_metrics(&self) -> Arc<CoreMetrics> {
        self.metrics.add_core()
    }

    /// The text of `GET /metrics`.
    ///
    /// # Errors
    /// When a collector fails to write itself.
    pub fn metrics_text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)?;
        Ok(text)
    }

    pub(crate) fn openapi(&self) -> Bytes {
        self.openapi.get_or_init(|| Bytes::from(crate::openapi::document().to_string())).clone()
    }
}

fn tls_stamps(options: &Options) -> Option<[Stamp; 2]> {
    options.tls.as_ref().map(|files| [Stamp::of(&files.certificate), Stamp::of(&files.key)])
}

/// Whether a listener on `address` may start: whoever can reach it needs a key, unless only this
/// machine can.
///
/// # Errors
/// [`StartError::KeysNeeded`].
pub fn check_listener(address: SocketAddr, has_keys: bool) -> Result<(), StartError> {
    if has_keys || !needs_keys(address) { Ok(()) } else { Err(StartError::KeysNeeded(address)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_may_go_without_keys() {
        for (address, has_keys, may_start) in [
            ("127.0.0.1:80", false, true),
            ("127.9.9.9:80", false, true),
            ("[::1]:80", false, true),
            ("0.0.0.0:80", false, false),
            ("[::]:80", false, false),
            ("10.0.0.1:80", false, false),
            ("10.0.0.1:80", true, true),
        ] {
            let address: SocketAddr = address.parse().expect("an address");
            assert_eq!(check_listener(address, has_keys).is_ok(), may_start, "{address}");
        }
    }
}
