//! The HTTP server.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    thread,
};

use axum::{
    Router,
    extract::{Query as Parameters, Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::{net::TcpListener, runtime, signal};

use crate::{
    Inputs,
    answer::{Answer, Endpoint, Failure, Query, Question},
    endpoints, guard, page,
    session::Session,
};

/// Threads that read and write connections; work has threads of its own.
const THREADS: usize = 2;
/// The header with the number of rows that a table lacks.
const LEFT_OUT: &str = "x-hodo-left-out";

/// Serves the page on a free port of 127.0.0.1 until Ctrl-C, and builds the store meanwhile. `ready` gets the address.
///
/// # Errors
/// The system's error if it gives no port or no random numbers.
pub fn serve(inputs: Arc<dyn Inputs>, ready: impl FnOnce(&str)) -> io::Result<()> {
    let runtime = runtime::Builder::new_multi_thread().worker_threads(THREADS).enable_all().build()?;
    let session = Arc::new(Session::new(inputs));
    let builder = {
        let session = Arc::clone(&session);
        thread::spawn(move || session.index.build(&*session.inputs, || !session.has_ended()))
    };
    let served = runtime.block_on(async {
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await?;
        let (token, port) = (guard::token()?, listener.local_addr()?.port());
        let router = router(&token, port, Arc::clone(&session))?;
        ready(&format!("http://127.0.0.1:{port}/{token}/"));
        tokio::select! {
            served = async { axum::serve(listener, router).await } => served,
            interrupted = signal::ctrl_c() => interrupted,
        }
    });
    session.end();
    // Connections are dropped, which stops their work.
    runtime.shutdown_background();
    // A panic of the builder was printed by its thread.
    let _ = builder.join();
    served
}

/// Makes the routes of a server: the page and the answers, all below the token.
pub(crate) fn router(token: &str, port: u16, session: Arc<Session>) -> io::Result<Router> {
    let nonce = guard::token()?;
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'unsafe-inline'; img-src data: blob:; \
         connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let policy = HeaderValue::try_from(policy).map_err(io::Error::other)?;
    let page = page::served(&nonce);
    let show = move || async move {
        let headers = [
            (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
            (header::CONTENT_SECURITY_POLICY, policy),
        ];
        (headers, page)
    };
    let mut router = Router::new().route(&format!("/{token}/"), get(show));
    for endpoint in endpoints::all() {
        let path = format!("/{token}/api/{}", endpoint.path);
        let ask = move |State(session): State<Arc<Session>>, Parameters(query): Parameters<Query>| {
            respond(endpoint, session, query)
        };
        router = router.route(&path, get(ask));
    }
    Ok(router.layer(middleware::from_fn_with_state(port, checked)).with_state(session))
}

/// Refuses requests under other names than the loopback interface's, and forbids others to keep or embed answers.
async fn checked(State(port): State<u16>, request: Request, next: Next) -> Response {
    if !guard::is_local(request.headers(), port) {
        return (StatusCode::FORBIDDEN, "expected the Host 127.0.0.1 with the port of hodo view\n")
            .into_response();
    }
    let mut response = next.run(request).await;
    let fixed = [
        (header::CACHE_CONTROL, "no-store"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    for (name, value) in fixed {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

async fn respond(endpoint: &'static Endpoint, session: Arc<Session>, query: Query) -> Response {
    let asked = Arc::clone(&session);
    let work = move |stop: &Arc<_>| (endpoint.answer)(&Question { session: &asked, query: &query, stop });
    match session.slots.run(endpoint.work, work).await {
        Ok(answer) => send(answer),
        Err(failure) => refuse(failure),
    }
}

fn send(answer: Answer) -> Response {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(answer.content.name()));
    headers.insert(LEFT_OUT, HeaderValue::from(answer.left_out));
    (headers, answer.bytes).into_response()
}

fn refuse(failure: Failure) -> Response {
    let status = match failure {
        Failure::Refused(_) => StatusCode::UNPROCESSABLE_ENTITY,
        // A browser reports statuses from 400 on as errors, and this is none.
        Failure::NotYet(_) => StatusCode::ACCEPTED,
        Failure::Stopped => StatusCode::SERVICE_UNAVAILABLE,
        Failure::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    (status, failure.to_string()).into_response()
}
