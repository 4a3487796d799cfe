//! TLS of a native client: the server is checked against the roots that the system trusts. Knows
//! nothing of what it carries.

use std::io;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{self, crypto::ring};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::env::variable;

/// The client's side of a TLS handshake with `host`. A failure says why, and whether it would be
/// the same next time.
///
/// The system's roots are meant, or those that `SSL_CERT_FILE` and `SSL_CERT_DIR` name.
pub(super) async fn secure(
    stream: TcpStream,
    host: &str,
) -> Result<TlsStream<TcpStream>, (String, bool)> {
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| (format!("'{host}' is not a name that a certificate could have"), true))?;
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = found.errors.first().map_or_else(|| "none".into(), ToString::to_string);
        let why = format!(
            "the system has no trusted root certificates ({why}); {} or {} names some",
            variable::SSL_CERT_FILE,
            variable::SSL_CERT_DIR
        );
        return Err((why, true));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| (error.to_string(), true))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connected = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    connected.map_err(|error| {
        let is_final = error.kind() == io::ErrorKind::InvalidData;
        let advice = if speaks_no_tls(&error) { NO_TLS } else { "" };
        (format!("TLS handshake failed: {error}{advice}"), is_final)
    })
}

/// What is said of a server that does not answer as one with a certificate does.
const NO_TLS: &str = ". The server may speak no TLS: a store does if it was started with \
                      a certificate (`polyrank store --certificate FILE --key FILE`); else write \
                      ws://";

/// Whether a handshake failed as it does where nobody expects one.
fn speaks_no_tls(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(inner, Some(rustls::Error::InvalidMessage(_)))
        || matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset)
}
