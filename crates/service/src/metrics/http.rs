//! `GET /metrics` over HTTP/1.1.
//!
//! hyper, without a framework above it: there is one page, and what a framework hides is what is needed here, that a
//! connection has an end. Each has one request, a few seconds for its head and a few more for all; the page is written
//! once a step, however many ask. Must not know what is on it.

use super::format::Format;
use crate::socket::{BREATH, SETBACK};
use crate::{Board, Published};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;
use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Connections at a time. There is no telling who is who on an address; more than these wait until one ends.
const CONNECTIONS: usize = 32;

/// For the head of a request.
const HEAD: Duration = Duration::from_secs(3);

/// For the whole of a connection. Prometheus gives up after 10 s itself.
const WHOLE: Duration = Duration::from_secs(10);

/// Bytes of a request's head that are taken; the smallest that hyper allows.
const LONGEST_HEAD: usize = 8 * 1024;

/// The page, and the step it was written for.
#[derive(Debug)]
pub struct Pages {
    board: Arc<Board>,
    registry: Registry,
    written: Mutex<Option<(Arc<Published>, [Bytes; 2])>>,
}

impl Pages {
    /// Pages of what hangs on `board`.
    pub fn new(board: Arc<Board>) -> Pages {
        let mut registry = Registry::with_prefix("waykeeper");
        registry.register_collector(Box::new(super::collect::Metrics(board.clone())));
        Pages { board, registry, written: Mutex::new(None) }
    }

    /// The page of the latest step.
    pub fn page(&self, format: Format) -> Bytes {
        let now = self.board.read();
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let index = usize::from(format == Format::Text);
        if let Some((step, pages)) = written.as_ref()
            && Arc::ptr_eq(step, &now)
        {
            return pages[index].clone();
        }
        let mut page = String::new();
        // Writing into a string does not fail.
        let _ = text::encode(&mut page, &self.registry);
        let both = [Format::OpenMetrics, Format::Text];
        let pages = both.map(|format| Bytes::from(format.write(page.clone())));
        let asked = pages[index].clone();
        *written = Some((now, pages));
        asked
    }
}

/// Where connections come from.
#[derive(Debug)]
pub enum Listener {
    /// An address.
    Tcp(TcpListener),
    /// A socket in the file system, whose mode says who may connect.
    Unix(UnixListener),
}

/// Serves metrics until it is dropped.
pub async fn serve(listener: Listener, board: Arc<Board>) {
    let pages = Arc::new(Pages::new(board));
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        // Never closed, so this does not fail.
        let Ok(permit) = room.clone().acquire_owned().await else { return };
        let pages = pages.clone();
        let come = match &listener {
            Listener::Tcp(listener) => {
                listener.accept().await.map(|(stream, _)| spawn(stream, pages, permit))
            }
            Listener::Unix(listener) => {
                listener.accept().await.map(|(stream, _)| spawn(stream, pages, permit))
            }
        };
        tokio::time::sleep(if come.is_ok() { BREATH } else { SETBACK }).await;
    }
}

fn spawn<S>(stream: S, pages: Arc<Pages>, permit: tokio::sync::OwnedSemaphorePermit)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    tokio::spawn(async move {
        let _inside = permit;
        let service = service_fn(|request| {
            let response = answer(&request, &pages);
            async { Ok::<_, Infallible>(response) }
        });
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(HEAD).keep_alive(false).max_buf_size(LONGEST_HEAD);
        // What goes wrong with a connection is over with it.
        let _ = timeout(WHOLE, http.serve_connection(TokioIo::new(stream), service)).await;
    });
}

fn answer(request: &Request<Incoming>, pages: &Pages) -> Response<Full<Bytes>> {
    let plain = |status: StatusCode, text: &'static str| {
        let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        response
    };
    if request.uri().path() != "/metrics" {
        return plain(StatusCode::NOT_FOUND, "metrics are at /metrics\n");
    }
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "metrics can be read only\n");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    let accepted = request.headers().get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let format = Format::accepted(&accepted.collect::<Vec<_>>().join(","));
    let mut response = Response::new(Full::new(pages.page(format)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(format.content_type()));
    response
}

/// A listener on an address, for a runtime to take.
///
/// # Errors
/// If the address is taken or is not this machine's.
pub fn bind(address: std::net::SocketAddr) -> io::Result<std::net::TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}
