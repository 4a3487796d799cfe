//! TLS of a store's server: its certificate and key. Knows nothing of what it carries.

use std::io;
use std::path::Path;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::server::TlsStream;

use crate::generated::error::{Error, Result};

/// Who the server proves to be.
#[derive(Clone)]
pub(in crate::store::tcp::server) struct Identity(TlsAcceptor);

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Identity")
    }
}

impl Identity {
    /// Reads PEM files: the certificate and those that lead to its root, and its private key.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] naming the file that cannot be used.
    pub(in crate::store::tcp::server) fn read(certificates: &Path, key: &Path) -> Result<Identity> {
        let wrong = |file: &Path, why: &dyn std::fmt::Display| Error::InvalidArgument {
            message: format!("{} cannot be used for TLS: {why}", file.display()),
        };
        let chain = CertificateDer::pem_file_iter(certificates)
            .and_then(Iterator::collect::<std::result::Result<Vec<_>, _>>)
            .map_err(|error| wrong(certificates, &error))?;
        let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| wrong(key, &error))?;
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|config| config.with_no_client_auth().with_single_cert(chain, secret))
            .map_err(|error| wrong(certificates, &error))?;
        Ok(Identity(TlsAcceptor::from(Arc::new(config))))
    }

    /// The server's side of a TLS handshake.
    pub(super) async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        self.0.accept(stream).await
    }
}
