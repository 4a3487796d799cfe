//! The lighthouse as people and programs see it over HTTP, and who is let in.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State as Shared};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::header::{self, HeaderName};
use http::{HeaderMap, Method, StatusCode, Version};
use tonic::service::Routes;

use super::service::Service;
use super::state::State;
use super::{metrics, status};
use crate::proto::lighthouse_service_server::LighthouseServiceServer;
use crate::serve::Connection;
use crate::{access, kill, member};

/// The page, which asks for `/status` again and again.
const PAGE: &str = include_str!("page.html");
/// What the page may do: nothing from elsewhere, and in nobody's frame.
const POLICY: &str = "default-src 'none'; connect-src 'self'; img-src data:; style-src \
                      'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'";
/// Where replicas ask.
const SERVICE: &str = "/torchft.LighthouseService/";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// How long a manager may take to be told that it has to end.
const KILL_LIMIT: Duration = Duration::from_secs(10);

type Known = Shared<Arc<State>>;

/// All that is served.
pub(super) fn router(state: Arc<State>) -> Router {
    let service = LighthouseServiceServer::new(Service { state: state.clone() })
        .max_decoding_message_size(member::MAX_REQUEST);
    let pages = Router::new()
        .route("/", get(|| async { page() }))
        .route("/status", get(show_status))
        .route("/metrics", get(show_metrics))
        .route("/replica/{replica_id}/kill", post(end_replica))
        .with_state(state.clone());
    let routes = Routes::from(pages).add_service(service).prepare();
    routes.into_axum_router().layer(middleware::from_fn_with_state(state, let_in))
}

fn page() -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (headers, PAGE).into_response()
}

fn fresh(kind: &'static str, text: String) -> Response {
    let headers: [(HeaderName, &str); 3] = [
        (header::CONTENT_TYPE, kind),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (headers, text).into_response()
}

async fn show_status(Shared(state): Known) -> Response {
    match serde_json::to_string(&status::of(&state)) {
        Ok(text) => fresh("application/json", text),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn show_metrics(Shared(state): Known) -> Response {
    let counts = state.lock().counts;
    fresh(OPEN_METRICS, metrics::text(&status::of(&state), &counts))
}

/// Has a replica end: its manager is asked to.
async fn end_replica(Shared(state): Known, Path(replica_id): Path<String>) -> Response {
    let Some(address) = state.manager_of(&replica_id) else {
        let message = format!("{replica_id} asks for no quorum, and is not in the last one\n");
        return (StatusCode::NOT_FOUND, message).into_response();
    };
    tracing::warn!("lighthouse: {replica_id} is killed over HTTP, by its manager at {address}");
    let token = state.options.token.as_ref();
    match kill::kill(&address, token, "killed from the lighthouse's page", KILL_LIMIT).await {
        Ok(()) => {
            state.lock().counts.kills += 1;
            fresh("text/plain; charset=utf-8", format!("{replica_id} was told to end\n"))
        }
        Err(error) => {
            let message = format!("the manager of {replica_id} cannot be told: {error}\n");
            (StatusCode::BAD_GATEWAY, message).into_response()
        }
    }
}

/// Lets in who has the token; without one, who does not come from another site's page.
async fn let_in(Shared(state): Known, request: Request, next: Next) -> Response {
    if let Some(denial) = denial(&state, &request) {
        state.lock().counts.denied += 1;
        return denial;
    }
    if let Some(connection) = request.extensions().get::<Connection>() {
        connection.admit();
    }
    next.run(request).await
}

fn denial(state: &State, request: &Request) -> Option<Response> {
    let headers = request.headers();
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let is_of_service = request.uri().path().starts_with(SERVICE);
    let is_grpc = is_of_service && request.version() == Version::HTTP_2;
    if let Some(token) = &state.options.token {
        let given = text(header::AUTHORIZATION);
        if !given.is_some_and(|given| token.is_in(given)) {
            return Some(unauthenticated(is_grpc, given.is_some()));
        }
    }
    // Browsers speak HTTP/2 only where it is encrypted, which this is not: no page sent this. What
    // a request says of its content is no proof, as pages may say it, too.
    if is_grpc {
        return None;
    }
    if is_of_service {
        let message = "replicas are served over HTTP/2 only\n";
        return Some((StatusCode::HTTP_VERSION_NOT_SUPPORTED, message).into_response());
    }
    let host = authority(request, headers);
    let is_local = state.options.address.ip().to_canonical().is_loopback();
    if is_local && state.options.token.is_none() && !access::is_own_host(host) {
        let message = format!("this lighthouse is for its own host, which is not called {host}\n");
        return Some((StatusCode::FORBIDDEN, message).into_response());
    }
    let origin = text(header::ORIGIN).filter(|_| request.method() != Method::GET)?;
    let own = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    if own.is_some_and(|own| own.eq_ignore_ascii_case(host)) {
        return None;
    }
    let message = format!("pages of {origin} may not change anything here\n");
    Some((StatusCode::FORBIDDEN, message).into_response())
}

/// Whom the client thinks it asks: HTTP/2 has it in the target, HTTP/1 in a header.
fn authority<'request>(request: &'request Request, headers: &'request HeaderMap) -> &'request str {
    let named = request.uri().authority().map(http::uri::Authority::as_str);
    let header = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    named.or(header).unwrap_or_default()
}

fn unauthenticated(is_grpc: bool, is_wrong: bool) -> Response {
    let message = if is_wrong {
        "this is not the token of the lighthouse"
    } else {
        "the lighthouse wants its token: set POLYRANK_TOKEN to what it was started with"
    };
    if is_grpc {
        return tonic::Status::unauthenticated(message).into_http::<Body>();
    }
    let ask = "Basic realm=\"polyrank lighthouse: the token is the password\", charset=\"UTF-8\"";
    let headers = [(header::WWW_AUTHENTICATE, ask)];
    (StatusCode::UNAUTHORIZED, headers, format!("{message}\n")).into_response()
}
