//! The paths of the server: the page's files, the list of what can be shown, events, turns, playgrounds.
//!
//! Every error is one line of text. Must not know sockets.

use crate::assets;
use crate::events;
use crate::feed::LiveFeed;
use crate::feeds::{FeedSet, MAIN};
use crate::guard::{self, Refusal};
use crate::places::{Answering, ConnectionPlace, SplitPlaces};
use crate::playground::{PlaygroundWish, Scenarios};
use crate::{AccessToken, WebLimits};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Extension, Path, Request, State};
use axum::http::header::{
    ALLOW, CONNECTION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
};
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use http_body_util::{BodyExt, Limited};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use waykeeper_view::{Turn, TurnError};

/// What all requests share.
#[derive(Debug)]
pub(crate) struct Desk {
    pub token: AccessToken,
    pub feeds: FeedSet,
    pub scenarios: Scenarios,
    /// Places of streams of events.
    pub streams: SplitPlaces,
    /// Places of histories: one takes megabytes until its client has it.
    pub histories: SplitPlaces,
    /// Places of requests for a playground: many at once must not take all connections.
    pub starts: Arc<Semaphore>,
    /// Places of those who make one.
    pub makers: Arc<Semaphore>,
    pub limits: WebLimits,
    /// Other machines may ask by this one's address.
    pub is_remote: bool,
}

type Shared = State<Arc<Desk>>;

/// Playgrounds that are made at a time. One takes 20 ms of a core.
const MAKERS: usize = 2;
/// Requests for one that wait meanwhile, some seconds at most.
const STARTS: usize = 64;
/// Histories that are sent at a time, to anyone and besides to holders of the token.
const HISTORIES: usize = 8;

impl Desk {
    /// A server without feeds.
    pub fn new(token: AccessToken, scenarios: Scenarios, limits: WebLimits, is_remote: bool) -> Desk {
        Desk {
            token,
            feeds: FeedSet::new(limits.playgrounds, limits.playground_idle),
            scenarios,
            streams: SplitPlaces::new(limits.streams, limits.holders_streams),
            histories: SplitPlaces::new(HISTORIES, HISTORIES),
            starts: Arc::new(Semaphore::new(STARTS)),
            makers: Arc::new(Semaphore::new(MAKERS)),
            limits,
            is_remote,
        }
    }
}

/// The server's paths.
pub(crate) fn router(desk: Arc<Desk>) -> Router {
    Router::new()
        .route("/api/catalogue", get(catalogue))
        .route("/api/events", get(events_of_pages))
        .route("/api/feeds/{id}", get(feed))
        .route("/api/feeds/{id}/events", get(feed_events))
        .route("/api/feeds/{id}/history", get(history))
        .route("/api/feeds/{id}/turn", post(turn))
        .route("/api/playgrounds", post(start_playground))
        .route("/api/playgrounds/{id}", delete(end_playground))
        .fallback(page)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn_with_state(desk.clone(), guarded))
        .with_state(desk)
}

/// What a connection gets that is one too many: the same answer to every request, and its end.
pub(crate) fn full() -> Router {
    Router::new().fallback(|| async {
        let why = "too many connections; the page tries again by itself";
        ([(CONNECTION, "close")], Refusal::new(StatusCode::SERVICE_UNAVAILABLE, why)).into_response()
    })
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = (self.status, self.why + "\n").into_response();
        let more = match self.status {
            StatusCode::UNAUTHORIZED => Some((WWW_AUTHENTICATE, "Bearer")),
            // A page may be closed at any time.
            StatusCode::SERVICE_UNAVAILABLE => Some((RETRY_AFTER, "2")),
            _ => None,
        };
        if let Some((name, value)) = more {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        response
    }
}

/// Checks every request, and protects every answer.
async fn guarded(State(desk): Shared, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let is_turn = parts.method == Method::POST || parts.method == Method::DELETE;
    let is_holder = guard::has_token(&parts.headers, &desk.token);
    let _answering = parts.extensions.get::<Arc<ConnectionPlace>>().map(|place| place.answer(is_holder));
    let checked = guard::check_sender(&parts, desk.is_remote)
        .and_then(|()| if is_turn { guard::check_turn(&parts, &desk.token) } else { Ok(()) });
    let mut response = match checked {
        Ok(()) => next.run(Request::from_parts(parts, body)).await,
        Err(refusal) => refusal.into_response(),
    };
    guard::protect(response.headers_mut());
    response
}

fn json<T: Serialize>(value: &T) -> Response {
    match serde_json::to_vec(value) {
        Ok(bytes) => ([(CONTENT_TYPE, "application/json")], bytes).into_response(),
        Err(why) => Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, why.to_string()).into_response(),
    }
}

/// A file of the page.
async fn page(method: Method, uri: Uri) -> Response {
    if method != Method::GET && method != Method::HEAD {
        return wrong_method(method).await;
    }
    match assets::file(uri.path()) {
        Some(file) => ([(CONTENT_TYPE, file.media_type)], Bytes::from_static(file.bytes)).into_response(),
        None => {
            Refusal::new(StatusCode::NOT_FOUND, "there is no such page; the first one is /").into_response()
        }
    }
}

async fn wrong_method(method: Method) -> Response {
    let why = format!("the method {method} is not accepted here");
    let mut response = Refusal::new(StatusCode::METHOD_NOT_ALLOWED, why).into_response();
    response.headers_mut().entry(ALLOW).or_insert(HeaderValue::from_static("GET, HEAD"));
    response
}

async fn catalogue(State(desk): Shared) -> Response {
    let main = desk.feeds.has_main().then_some(MAIN);
    json(&json!({
        "version": env!("CARGO_PKG_VERSION"), "main": main, "scenarios": desk.scenarios.list(),
        "policies": Scenarios::policies(),
    }))
}

fn found(desk: &Desk, id: &str) -> Result<Arc<LiveFeed>, Refusal> {
    desk.feeds
        .get(id)
        .ok_or_else(|| Refusal::new(StatusCode::NOT_FOUND, "there is no such source; it may have ended"))
}

async fn feed(State(desk): Shared, Path(id): Path<String>) -> Result<Response, Refusal> {
    found(&desk, &id)?;
    Ok(json(&json!({ "id": id })))
}

/// What an answer keeps for as long as it is sent: one of `places`, and that of its connection.
fn held(
    desk: &Desk,
    places: &SplitPlaces,
    connection: &Arc<ConnectionPlace>,
    headers: &HeaderMap,
    what: &str,
) -> Result<(OwnedSemaphorePermit, Answering), Refusal> {
    let is_holder = guard::has_token(headers, &desk.token);
    let full = || {
        let more = if is_holder { "" } else { ", or open the address with the token" };
        let why = format!("too many {what} are sent at the same time; close a page{more}");
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, why)
    };
    Ok((places.take(is_holder).ok_or_else(full)?, connection.answer(is_holder)))
}

const STREAMS: &str = "streams of events";

async fn feed_events(
    State(desk): Shared,
    Path(id): Path<String>,
    Extension(connection): Extension<Arc<ConnectionPlace>>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let feed = found(&desk, &id)?;
    let held = held(&desk, &desk.streams, &connection, &headers, STREAMS)?;
    Ok(([(CONTENT_TYPE, "text/event-stream")], events::body(feed.viewer(true), held)).into_response())
}

/// One stream for all pages of a browser: `?seen=ID,ID&hidden=ID`. It ends with the last of these feeds.
async fn events_of_pages(
    State(desk): Shared,
    uri: Uri,
    Extension(connection): Extension<Arc<ConnectionPlace>>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let mut wanted = BTreeMap::new();
    for part in uri.query().unwrap_or_default().split('&') {
        let (kind, ids) = part.split_once('=').unwrap_or((part, ""));
        if kind != "seen" && kind != "hidden" {
            let why = "write the ids of sources as ?seen=ID,ID&hidden=ID";
            return Err(Refusal::new(StatusCode::BAD_REQUEST, why));
        }
        for id in ids.split(',').filter(|id| !id.is_empty()) {
            *wanted.entry(id.to_owned()).or_insert(false) |= kind == "seen";
        }
    }
    let held = held(&desk, &desk.streams, &connection, &headers, STREAMS)?;
    let viewer = |id: &str, is_seen| desk.feeds.get(id).map(|feed| feed.viewer(is_seen));
    let feeds = wanted.into_iter().map(|(id, is_seen)| {
        let viewer = viewer(&id, is_seen);
        (id, viewer)
    });
    let body = events::merged_body(feeds.collect(), held);
    Ok(([(CONTENT_TYPE, "text/event-stream")], body).into_response())
}

async fn history(
    State(desk): Shared,
    Path(id): Path<String>,
    Extension(connection): Extension<Arc<ConnectionPlace>>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let feed = found(&desk, &id)?;
    let held = held(&desk, &desk.histories, &connection, &headers, "histories")?;
    let columns = feed.history().await.unwrap_or_default();
    // Writing it takes as long as thousands of answers.
    let written = tokio::task::spawn_blocking(move || serde_json::to_vec(&columns)).await;
    let failed = |why: String| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, why);
    let bytes = written.map_err(|why| failed(why.to_string()))?.map_err(|why| failed(why.to_string()))?;
    Ok(([(CONTENT_TYPE, "application/json")], events::whole(bytes.into(), held)).into_response())
}

async fn turn(State(desk): Shared, Path(id): Path<String>, body: Body) -> Result<Response, Refusal> {
    let feed = found(&desk, &id)?;
    let turn: Turn = read(&desk, body, "a turn").await?;
    let text = feed.turn(turn).await.map_err(|why| {
        let status = match &why {
            TurnError::Unsupported(_) => StatusCode::CONFLICT,
            TurnError::Refused(_) => StatusCode::BAD_REQUEST,
            // This server answers; what is behind it does not.
            TurnError::Lost(_) => StatusCode::BAD_GATEWAY,
        };
        Refusal::new(status, why.to_string())
    })?;
    Ok(json(&json!({ "text": text })))
}

async fn start_playground(State(desk): Shared, body: Body) -> Result<Response, Refusal> {
    let wish: PlaygroundWish = read(&desk, body, "a playground").await?;
    let full = |why: String| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, why);
    let Ok(_start) = desk.starts.clone().try_acquire_owned() else {
        return Err(full(format!("{STARTS} starts of virtual servers wait already; try again")));
    };
    // The semaphore is never closed.
    let maker = desk.makers.clone().acquire_owned().await;
    let (reservation, place) = desk.feeds.reserve().await.map_err(|why| full(why.to_string()))?;
    let opening = desk.clone();
    // Making a server takes as long as thousands of answers. The place is kept until the server has ended, also if the
    // client leaves before it is made.
    let make = move || {
        let _maker = maker;
        opening.scenarios.open(&wish, place)
    };
    let opened = tokio::task::spawn_blocking(make).await;
    let opened = opened.map_err(|why| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, why.to_string()))?;
    let source = opened.map_err(|why| Refusal::new(StatusCode::BAD_REQUEST, why.to_string()))?;
    let id = desk.feeds.add_playground(source, reservation).map_err(|why| full(why.to_string()))?;
    Ok(json(&json!({ "id": id })))
}

async fn end_playground(State(desk): Shared, Path(id): Path<String>) -> Result<Response, Refusal> {
    if !desk.feeds.end_playground(&id) {
        return Err(Refusal::new(StatusCode::NOT_FOUND, "there is no such playground; it may have ended"));
    }
    Ok(json(&json!({ "id": id })))
}

/// Reads a body of JSON, within a size and a time.
async fn read<T: DeserializeOwned>(desk: &Desk, body: Body, what: &str) -> Result<T, Refusal> {
    let most = desk.limits.body_bytes;
    let late = |_| Refusal::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time");
    let bytes = timeout(desk.limits.head, Limited::new(body, most).collect()).await.map_err(late)?;
    let bytes = bytes.map_err(|_| {
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the body is broken or longer than {most} bytes"))
    })?;
    serde_json::from_slice(&bytes.to_bytes())
        .map_err(|why| Refusal::new(StatusCode::BAD_REQUEST, format!("not {what}: {why}")))
}
