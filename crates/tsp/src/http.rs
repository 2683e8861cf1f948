//! The protocol's addresses. Loopback only: the Host header and the Origin are checked, so that no page of another site
//! reaches the server by a name that resolves to this machine.

use std::{
    future::Future,
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use axum::{
    Router,
    body::Bytes,
    extract::{Path, Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Json, Response},
    routing::{get, post},
};
use hodo_store::{Budget, Error};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;
use tokio::{net::TcpListener, runtime::Builder, signal, sync::Semaphore, task};

use crate::{
    Service,
    model::{
        AnnotationsParameters, Answer, ArrowsParameters, Body, ExperimentParameters, Failure,
        LinesParameters, RequestedParameters, TooltipParameters, TraceParameters, TreeParameters,
    },
    output::{Kind, Outcome},
    style,
};

/// The prefix of all paths.
pub const PREFIX: &str = "/tsp/api";
/// Queries that run at a time; others wait.
const MOST_QUERIES: usize = 4;
/// The version of the protocol.
const VERSION: &str = "0.6.0";

/// What handlers share.
#[derive(Clone, Debug)]
pub(crate) struct App {
    service: Arc<Service>,
    permits: Arc<Semaphore>,
}

/// Serves until it is interrupted. `ready` receives the address; port 0 is any free port.
///
/// # Errors
/// If the port is in use, or the system refuses.
pub fn serve(service: Service, port: u16, ready: impl FnOnce(SocketAddr)) -> io::Result<()> {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let served = runtime.block_on(async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        ready(listener.local_addr()?);
        let interrupted = async { drop(signal::ctrl_c().await) };
        tokio::select! {
            served = axum::serve(listener, router(service)) => served,
            () = interrupted => Ok(()),
        }
    });
    runtime.shutdown_background();
    served
}

/// Returns the routes of the protocol for a store.
pub fn router(service: Service) -> Router {
    let app = App::new(service);
    let outputs = Router::new()
        .route("/", get(outputs))
        .route("/markerSets", get(marker_sets))
        .route("/timeGraph/{output}/tree", post(time_graph_tree))
        .route("/timeGraph/{output}/states", post(states))
        .route("/timeGraph/{output}/arrows", post(arrows))
        .route("/timeGraph/{output}/tooltip", post(tooltip))
        .route("/XY/{output}/tree", post(chart_tree))
        .route("/XY/{output}/xy", post(chart))
        .route("/table/{output}/columns", post(columns))
        .route("/table/{output}/lines", post(lines))
        .route("/data/{output}/tree", post(statistics))
        .route("/{output}", get(output))
        .route("/{output}/style", post(styles))
        .route("/{output}/annotations", get(categories).post(annotations));
    let api = Router::new()
        .route("/health", get(|| async { Json(json!({ "status": "UP" })) }))
        .route("/identifier", get(|| async { Json(identifier()) }))
        .route("/config/types", get(|| async { Json(json!([])) }))
        .route("/traces", get(traces).post(open_trace))
        .route("/traces/{uuid}", get(trace).delete(close_trace))
        .route("/experiments", get(experiments).post(open_experiment))
        .route("/experiments/{experiment}", get(experiment).delete(experiment))
        .route("/experiments/{experiment}/bookmarks", get(bookmarks))
        .nest("/experiments/{experiment}/outputs", outputs)
        .fallback(|| async { failure(StatusCode::NOT_FOUND, "there is no such address", None) });
    Router::new().nest(PREFIX, api).layer(middleware::from_fn(guard)).with_state(app)
}

fn identifier() -> serde_json::Value {
    let version = env!("CARGO_PKG_VERSION");
    json!({
        "version": version,
        "os": std::env::consts::OS,
        "osArch": std::env::consts::ARCH,
        "productId": "hodoscope",
        "tspVersion": VERSION,
    })
}

/// Returns whether a host, with or without a port, is this machine.
fn is_local(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    matches!(name, "localhost" | "127.0.0.1" | "[::1]")
}

/// Returns whether a page of this origin may send requests: a page of this machine, or of VS Code itself.
fn is_allowed(origin: &str) -> bool {
    match origin.split_once("://") {
        Some(("http" | "https", host)) => is_local(host),
        Some(("vscode-webview" | "vscode-file", _)) => true,
        _ => false,
    }
}

/// Refuses other hosts and origins, and lets pages of allowed origins read the answers.
async fn guard(request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    if !host.is_some_and(is_local) {
        return failure(StatusCode::FORBIDDEN, "the Host header names another machine", None);
    }
    let Some(origin) = request.headers().get(header::ORIGIN).cloned() else {
        return next.run(request).await;
    };
    if !origin.to_str().is_ok_and(is_allowed) {
        return failure(StatusCode::FORBIDDEN, "pages of this origin may not ask", None);
    }
    let mut response = match *request.method() {
        Method::OPTIONS => StatusCode::NO_CONTENT.into_response(),
        _ => next.run(request).await,
    };
    allow(response.headers_mut(), origin);
    response
}

fn allow(headers: &mut HeaderMap, origin: HeaderValue) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, PUT, DELETE"));
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static("accept, content-type"));
    headers.insert(header::VARY, HeaderValue::from_static("Origin"));
}

fn failure(status: StatusCode, title: &str, detail: Option<String>) -> Response {
    (status, Json(Failure { title: title.to_owned(), detail })).into_response()
}

/// Reads the parameters of a request, or says what is wrong with them.
fn parameters<T: DeserializeOwned>(body: &Bytes) -> Result<T, Box<Response>> {
    serde_json::from_slice::<Body<T>>(body).map(|body| body.parameters).map_err(|error| {
        Box::new(failure(StatusCode::BAD_REQUEST, "the parameters can't be read", Some(error.to_string())))
    })
}

impl App {
    pub(crate) fn new(service: Service) -> App {
        App { service: Arc::new(service), permits: Arc::new(Semaphore::new(MOST_QUERIES)) }
    }

    /// Returns the number of an output's table, or why there is none.
    fn find(&self, experiment: &str, output: &str, kind: Kind) -> Result<usize, Box<Response>> {
        self.check_experiment(experiment)?;
        match self.service.output(output) {
            Some((own, table)) if own == kind => Ok(table),
            Some(_) => {
                Err(Box::new(failure(StatusCode::METHOD_NOT_ALLOWED, "the output is of another kind", None)))
            }
            None => Err(Box::new(failure(StatusCode::NOT_FOUND, "there is no such output", None))),
        }
    }

    /// Refuses an unknown output.
    fn check_output(&self, experiment: &str, output: &str) -> Result<(), Box<Response>> {
        self.check_experiment(experiment)?;
        match self.service.output(output) {
            Some(_) => Ok(()),
            None => Err(Box::new(failure(StatusCode::NOT_FOUND, "there is no such output", None))),
        }
    }

    /// Refuses an unknown experiment.
    fn check_experiment(&self, experiment: &str) -> Result<(), Box<Response>> {
        if self.service.experiment.uuid != experiment {
            return Err(Box::new(failure(StatusCode::NOT_FOUND, "there is no such experiment", None)));
        }
        Ok(())
    }

    /// Runs a query on a thread of its own. Its work is bounded, and stops when the client disconnects.
    pub(crate) fn answer<T: Serialize + Send + 'static>(
        self,
        work: impl FnOnce(&Service, &Budget) -> Outcome<T> + Send + 'static,
    ) -> impl Future<Output = Response> {
        let App { service, permits } = self;
        async move {
            let permit = permits.acquire_owned().await;
            let stop = Arc::new(AtomicBool::new(false));
            let _stop_on_drop = StopOnDrop(Arc::clone(&stop));
            let work = task::spawn_blocking(move || {
                let outcome = work(&service, &Budget { stop: Some(stop), ..Budget::default() });
                drop(permit);
                outcome
            });
            match work.await {
                Ok(outcome) => outcome_response(outcome),
                Err(_) => failure(StatusCode::INTERNAL_SERVER_ERROR, "the query failed", None),
            }
        }
    }
}

/// Stops a query when it is dropped: when the client disconnects, the server drops the future of the answer, which holds
/// this.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

fn outcome_response<T: Serialize>(outcome: Outcome<T>) -> Response {
    let answer = match outcome {
        Ok((model, remark)) => Answer { model: Some(model), status: "COMPLETED", status_message: remark },
        Err(Error::Stopped) => {
            Answer { model: None, status: "CANCELLED", status_message: Error::Stopped.to_string() }
        }
        Err(error) => Answer { model: None, status: "FAILED", status_message: error.to_string() },
    };
    Json(answer).into_response()
}

/// Returns the answer of a query that always completes.
fn completed<T: Serialize>(model: T) -> Response {
    outcome_response(Ok((model, String::new())))
}

async fn traces(State(app): State<App>) -> Response {
    Json(&app.service.experiment.traces).into_response()
}

async fn trace(State(app): State<App>, Path(uuid): Path<String>) -> Response {
    match app.service.trace(&uuid) {
        Some(trace) => Json(trace).into_response(),
        None => failure(StatusCode::NOT_FOUND, "there is no such trace", None),
    }
}

/// Opens a trace by its path. The traces that are served are fixed, so any other trace is refused.
async fn open_trace(State(app): State<App>, body: Bytes) -> Response {
    match parameters::<TraceParameters>(&body) {
        Err(refused) => *refused,
        Ok(asked) => match app.service.trace_at(&asked.uri) {
            Some(trace) => Json(trace).into_response(),
            None => {
                let why = format!("start `hodo serve --tsp {}` to open it", asked.uri);
                failure(StatusCode::NOT_FOUND, "this server shows other traces", Some(why))
            }
        },
    }
}

async fn close_trace(State(app): State<App>, Path(uuid): Path<String>) -> Response {
    match app.service.trace(&uuid) {
        Some(trace) => {
            let title = "the trace is in use by the experiment that this server shows";
            (StatusCode::CONFLICT, Json(json!({ "title": title, "trace": trace }))).into_response()
        }
        None => failure(StatusCode::NOT_FOUND, "there is no such trace", None),
    }
}

async fn experiments(State(app): State<App>) -> Response {
    Json([&app.service.experiment]).into_response()
}

/// Opens an experiment of some traces. Only that of all traces exists: another choice of traces has no store.
async fn open_experiment(State(app): State<App>, body: Bytes) -> Response {
    let experiment = &app.service.experiment;
    match parameters::<ExperimentParameters>(&body) {
        Err(refused) => *refused,
        Ok(asked) if experiment.traces.iter().all(|trace| asked.traces.contains(&trace.uuid)) => {
            Json(experiment).into_response()
        }
        Ok(_) => failure(StatusCode::BAD_REQUEST, "an experiment of this server has all of its traces", None),
    }
}

/// Returns or closes the experiment; closing changes nothing, as it is what this server shows.
async fn experiment(State(app): State<App>, Path(experiment): Path<String>) -> Response {
    match app.check_experiment(&experiment) {
        Ok(()) => Json(&app.service.experiment).into_response(),
        Err(refused) => *refused,
    }
}

async fn bookmarks(State(app): State<App>, Path(experiment): Path<String>) -> Response {
    app.check_experiment(&experiment).map_or_else(|refused| *refused, |()| Json(json!([])).into_response())
}

async fn outputs(State(app): State<App>, Path(experiment): Path<String>) -> Response {
    app.check_experiment(&experiment)
        .map_or_else(|refused| *refused, |()| Json(app.service.outputs()).into_response())
}

/// The experiment and the output of an address.
type OutputPath = Path<(String, String)>;

async fn output(State(app): State<App>, Path((experiment, id)): OutputPath) -> Response {
    if let Err(refused) = app.check_experiment(&experiment) {
        return *refused;
    }
    match app.service.outputs().into_iter().find(|output| output.id == id) {
        Some(output) => Json(output).into_response(),
        None => failure(StatusCode::NOT_FOUND, "there is no such output", None),
    }
}

async fn marker_sets(State(app): State<App>, Path(experiment): Path<String>) -> Response {
    app.check_experiment(&experiment).map_or_else(|refused| *refused, |()| completed::<[(); 0]>([]))
}

/// Runs a query with parameters on an output of a kind.
async fn query<P: DeserializeOwned + Send + 'static, T: Serialize + Send + 'static>(
    app: App,
    Path((experiment, output)): OutputPath,
    kind: Kind,
    body: Bytes,
    work: impl FnOnce(&Service, usize, &P, &Budget) -> Outcome<T> + Send + 'static,
) -> Response {
    let table = app.find(&experiment, &output, kind);
    match table.and_then(|table| Ok((table, parameters::<P>(&body)?))) {
        Ok((table, asked)) => app.answer(move |service, budget| work(service, table, &asked, budget)).await,
        Err(refused) => *refused,
    }
}

async fn time_graph_tree(State(app): State<App>, path: OutputPath, body: Bytes) -> Response {
    let work = |service: &Service, table, _: &TreeParameters, _: &Budget| {
        Ok((service.rows(table, Kind::TimeGraph), String::new()))
    };
    query(app, path, Kind::TimeGraph, body, work).await
}

async fn states(State(app): State<App>, path: OutputPath, body: Bytes) -> Response {
    query::<RequestedParameters, _>(app, path, Kind::TimeGraph, body, Service::states).await
}

async fn arrows(State(app): State<App>, path: OutputPath, body: Bytes) -> Response {
    let work = |service: &Service, table, asked: &ArrowsParameters, budget: &Budget| {
        service.arrows(table, asked.requested_timerange, budget)
    };
    query(app, path, Kind::TimeGraph, body, work).await
}

async fn tooltip(State(app): State<App>, path: OutputPath, body: Bytes) -> Response {
    query::<TooltipParameters, _>(app, path, Kind::TimeGraph, body, Service::tooltip).await
}

async fn chart_tree(State(app): State<App>, path: OutputPath, body: Bytes) -> Response {
    let work = |service: &Service, table, _: &TreeParameters, _: &Budget| {
        Ok((service.rows(table, Kind::Chart), String::new()))
    };
    query(app, path, Kind::Chart, body, work).await
}

async fn chart(State(app): State<App>, path: OutputPath, body: Bytes) -> Response {
    query::<RequestedParameters, _>(app, path, Kind::Chart, body, Service::chart).await
}

async fn columns(State(app): State<App>, Path((experiment, output)): OutputPath) -> Response {
    match app.find(&experiment, &output, Kind::Table) {
        Ok(table) => completed(app.service.headers(table)),
        Err(refused) => *refused,
    }
}

async fn lines(State(app): State<App>, path: OutputPath, body: Bytes) -> Response {
    if let Ok(LinesParameters { table_search_expressions: Some(search), .. }) = parameters(&body)
        && !search.is_empty()
    {
        return failure(StatusCode::BAD_REQUEST, "this server does not search in tables", None);
    }
    query::<LinesParameters, _>(app, path, Kind::Table, body, Service::lines).await
}

async fn statistics(State(app): State<App>, path: OutputPath, body: Bytes) -> Response {
    let work = |service: &Service, table, asked: &TreeParameters, budget: &Budget| {
        service.statistics(table, asked.requested_timerange, budget)
    };
    query(app, path, Kind::DataTree, body, work).await
}

async fn styles(State(app): State<App>, Path((experiment, output)): OutputPath) -> Response {
    match app.check_output(&experiment, &output) {
        Ok(()) => completed(style::all()),
        Err(refused) => *refused,
    }
}

async fn categories(State(app): State<App>, Path((experiment, output)): OutputPath) -> Response {
    match app.check_output(&experiment, &output) {
        Ok(()) => completed(app.service.categories()),
        Err(refused) => *refused,
    }
}

async fn annotations(
    State(app): State<App>,
    Path((experiment, output)): OutputPath,
    body: Bytes,
) -> Response {
    match app.check_output(&experiment, &output).and_then(|()| parameters::<AnnotationsParameters>(&body)) {
        Ok(asked) => app.answer(move |service, budget| service.annotations(&asked, budget)).await,
        Err(refused) => *refused,
    }
}
