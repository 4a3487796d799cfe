//! Has a replica end, by its manager.

use std::error::Error;
use std::io::{self, ErrorKind};
use std::time::Duration;

use tokio::time::timeout;
use tonic::Status;

use crate::access::Token;
use crate::client::{chain, endpoint, with_token, words};
use crate::proto::KillRequest;
use crate::proto::manager_service_client::ManagerServiceClient;

/// How a connection ends under a request.
const ENDS: [ErrorKind; 4] = [
    ErrorKind::BrokenPipe,
    ErrorKind::ConnectionAborted,
    ErrorKind::ConnectionReset,
    ErrorKind::UnexpectedEof,
];

/// Has the replica of this manager end.
///
/// # Errors
/// It cannot be told, or says nothing to it; the reason in words.
pub(crate) async fn kill(
    address: &str,
    token: Option<&Token>,
    message: &str,
    limit: Duration,
) -> Result<(), String> {
    match timeout(limit, tell(address, token, message, limit)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(format!("{address}: no answer in {} s", limit.as_secs_f64())),
    }
}

async fn tell(
    address: &str,
    token: Option<&Token>,
    message: &str,
    limit: Duration,
) -> Result<(), String> {
    let said = |words: String| format!("{address}: {words}");
    // Nobody is waited for: who is not there needs not to be killed.
    let endpoint = endpoint(address).map_err(|error| error.to_string())?;
    let connected = endpoint.connect().await.map_err(|error| said(chain(&error)))?;
    // The clock here decides: the client's own would be no error that can be told from others.
    let request = with_token(KillRequest { msg: message.to_owned() }, token, limit * 2);
    match ManagerServiceClient::new(connected).kill(request).await {
        Ok(_) => Ok(()),
        Err(status) if has_ended(&status) => {
            tracing::debug!("{address} was told to end, and has: {}", words(&status));
            Ok(())
        }
        Err(status) => Err(said(words(&status))),
    }
}

/// Whether the connection ended under the request, as it does when the process ends before it could
/// answer. Silence, and an answer that is none, say nothing of the sort.
fn has_ended(status: &Status) -> bool {
    let mut cause = status.source();
    while let Some(error) = cause {
        if error.downcast_ref::<io::Error>().is_some_and(|it| ENDS.contains(&it.kind())) {
            return true;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::thread;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn told(listener: &TcpListener, limit: Duration) -> Result<(), String> {
        let address = listener.local_addr().unwrap().to_string();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(kill(&address, None, "", limit))
    }

    /// Somebody who does this with a connection, once a request is there.
    fn answered(answer: impl FnOnce(TcpStream) + Send + 'static) -> Result<(), String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.try_clone().unwrap();
        let other = thread::spawn(move || {
            let mut stream = own.accept().unwrap().0;
            // An empty frame of settings, as HTTP/2 begins.
            stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).unwrap();
            stream.read_exact(&mut [0; 24]).unwrap();
            let (mut head, mut kind) = ([0; 9], 0);
            // After its settings comes the request, which begins with headers.
            while kind != 1 {
                stream.read_exact(&mut head).unwrap();
                kind = head[3];
                let length = usize::from(head[1]) << 8 | usize::from(head[2]);
                stream.read_exact(&mut vec![0; length]).unwrap();
            }
            answer(stream);
        });
        let outcome = told(&listener, LONG);
        other.join().unwrap();
        outcome
    }

    #[test]
    fn silence_is_no_end() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let said = told(&listener, Duration::from_millis(200)).unwrap_err();
        assert!(said.ends_with(": no answer in 0.2 s"), "{said}");
    }

    #[test]
    fn a_connection_that_ends_under_the_request_is_an_end_and_nonsense_is_none() {
        answered(drop).unwrap();
        let said = answered(|mut stream| {
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
            // Until the client has gone.
            drop(stream.read_to_end(&mut Vec::new()));
        });
        let said = said.unwrap_err();
        assert!(said.contains("frame"), "{said}");
    }
}
