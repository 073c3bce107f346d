//! `GET /metrics` over HTTP/1.1.
//!
//! Uses hyper without a framework: there is one page, and frameworks hide the deadlines that are needed here. Each
//! connection has one request and time limits for its head and for all of it; a new connection replaces the oldest. The
//! page is written once per step. Must not know its content.

use super::format::MetricsFormat;
use crate::socket::{ACCEPT_ERROR_PAUSE, ACCEPT_PAUSE};
use crate::{Published, PublishedState};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HOST, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use waykeeper_units::{is_name_of, names_this_machine, shown};

/// Limits for clients of the metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScrapeLimits {
    /// Connections at a time. Clients of an address cannot be distinguished, so one connection more replaces the
    /// oldest: idle connections cannot block others. A flood displaces only clients that need longer than it takes to
    /// accept as many connections (a millisecond each).
    pub connections: usize,
    /// Time for the head of a request.
    pub head: Duration,
    /// Time for the whole connection.
    pub whole: Duration,
}

impl Default for ScrapeLimits {
    /// 128 connections are replaced in an eighth of a second, while a scrape over loopback takes milliseconds
    /// (assumption); Prometheus itself gives up after 10 s.
    fn default() -> ScrapeLimits {
        ScrapeLimits { connections: 128, head: Duration::from_secs(3), whole: Duration::from_secs(10) }
    }
}

/// Longest head of a request, bytes; the smallest value that hyper allows.
const LONGEST_HEAD: usize = 8 * 1024;

/// The page and the step for which it was written.
#[derive(Debug)]
pub struct MetricsPage {
    published_state: Arc<PublishedState>,
    registry: Registry,
    written: Mutex<Option<(Arc<Published>, [Bytes; 2])>>,
}

impl MetricsPage {
    /// The page about this published state.
    pub fn new(published_state: Arc<PublishedState>) -> MetricsPage {
        let mut registry = Registry::with_prefix("waykeeper");
        registry.register_collector(Box::new(super::collect::Metrics(published_state.clone())));
        MetricsPage { published_state, registry, written: Mutex::new(None) }
    }

    /// The page of the latest step.
    pub fn page(&self, format: MetricsFormat) -> Bytes {
        let now = self.published_state.read();
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let index = usize::from(format == MetricsFormat::Text);
        if let Some((step, pages)) = written.as_ref()
            && Arc::ptr_eq(step, &now)
        {
            return pages[index].clone();
        }
        let mut page = String::new();
        // Writing into a string does not fail.
        let _ = text::encode(&mut page, &self.registry);
        let both = [MetricsFormat::OpenMetrics, MetricsFormat::Text];
        let pages = both.map(|format| Bytes::from(format.write(page.clone())));
        let asked = pages[index].clone();
        *written = Some((now, pages));
        asked
    }
}

/// Where connections are accepted.
#[derive(Debug)]
pub enum Listener {
    /// An address.
    Tcp(TcpListener),
    /// A socket in the file system; its mode controls access.
    Unix(UnixListener),
}

/// From where a listener can be reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reach {
    /// By who may open a file; no browser does.
    File,
    /// From this machine, its browsers among it.
    Loopback,
    /// From other machines too.
    Network,
}

impl Reach {
    /// The host of a request that may come from a page of another site (DNS rebinding). A browser always sends a host.
    fn refused<B>(self, request: &Request<B>) -> Option<String> {
        let is_remote = match self {
            Reach::File => return None,
            Reach::Loopback => false,
            Reach::Network => true,
        };
        let machine = rustix::system::uname();
        let own_name = machine.nodename().to_string_lossy();
        let is_own =
            |host: &str| names_this_machine(host, is_remote) || is_remote && is_name_of(host, &own_name);
        let named = request.uri().authority().map(|authority| authority.as_str());
        let sent = request.headers().get_all(HOST).iter().map(|host| host.to_str().unwrap_or("?"));
        let host = named.into_iter().chain(sent).find(|host| !is_own(host))?;
        let way = if is_remote { "an address or the name of this machine" } else { "127.0.0.1 or localhost" };
        Some(format!("the host `{}` is refused; ask by {way}\n", shown(host)))
    }
}

/// Serves metrics until it is dropped.
pub async fn serve(listener: Listener, published_state: Arc<PublishedState>, limits: ScrapeLimits) {
    let pages = Arc::new(MetricsPage::new(published_state));
    let reach = match &listener {
        Listener::Unix(_) => Reach::File,
        // An address that cannot be read is held for the narrower one.
        Listener::Tcp(listener) => match listener.local_addr() {
            Ok(address) if !address.ip().is_loopback() => Reach::Network,
            _ => Reach::Loopback,
        },
    };
    let mut inside: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let pages = pages.clone();
        let come = match &listener {
            Listener::Tcp(listener) => {
                listener.accept().await.map(|(stream, _)| spawn(stream, pages, reach, limits))
            }
            Listener::Unix(listener) => {
                listener.accept().await.map(|(stream, _)| spawn(stream, pages, reach, limits))
            }
        };
        let pause = if come.is_ok() { ACCEPT_PAUSE } else { ACCEPT_ERROR_PAUSE };
        inside.retain(|connection| !connection.is_finished());
        inside.extend(come);
        if inside.len() > limits.connections {
            inside.pop_front().iter().for_each(AbortHandle::abort);
        }
        tokio::time::sleep(pause).await;
    }
}

fn spawn<S>(stream: S, pages: Arc<MetricsPage>, reach: Reach, limits: ScrapeLimits) -> AbortHandle
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let task = tokio::spawn(answer_one(stream, pages, reach, limits));
    task.abort_handle()
}

/// Reads one request and answers it. An error affects only this connection.
async fn answer_one<S>(stream: S, pages: Arc<MetricsPage>, reach: Reach, limits: ScrapeLimits)
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let service = service_fn(|request| {
        let response = answer(&request, &pages, reach);
        async { Ok::<_, Infallible>(response) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .keep_alive(false)
        .max_buf_size(LONGEST_HEAD);
    let _ = timeout(limits.whole, http.serve_connection(TokioIo::new(stream), service)).await;
}

/// Serves one connection, for `fuzz-targets`.
#[cfg(feature = "fuzzing")]
pub(crate) async fn converse(
    stream: tokio::net::UnixStream,
    published_state: Arc<PublishedState>,
    limits: ScrapeLimits,
) {
    answer_one(stream, Arc::new(MetricsPage::new(published_state)), Reach::Loopback, limits).await;
}

/// An answer of one line.
fn plain(status: StatusCode, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

fn answer(request: &Request<Incoming>, pages: &MetricsPage, reach: Reach) -> Response<Full<Bytes>> {
    if let Some(why) = reach.refused(request) {
        return plain(StatusCode::MISDIRECTED_REQUEST, why);
    }
    if request.uri().path() != "/metrics" {
        return plain(StatusCode::NOT_FOUND, "metrics are at /metrics\n");
    }
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "metrics can be read only\n");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    let accepted = request.headers().get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let format = MetricsFormat::accepted(&accepted.collect::<Vec<_>>().join(","));
    let mut response = Response::new(Full::new(pages.page(format)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(format.content_type()));
    response
}

/// Binds a non-blocking listener.
///
/// # Errors
/// If the address is in use or not this machine's.
pub fn bind(address: std::net::SocketAddr) -> io::Result<std::net::TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_machines_ask_by_an_address_or_by_the_machines_name() {
        let own_name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let refused = |reach: Reach, host: &str| {
            let request = Request::builder().uri("/metrics").header(HOST, host).body(()).unwrap();
            reach.refused(&request).is_some()
        };
        let with_domain = format!("{own_name}.cluster.example:19190");
        for host in ["10.0.0.1:19190", "[fe80::1]:19190", "localhost", &own_name, &with_domain] {
            assert!(!refused(Reach::Network, host), "{host}");
        }
        for host in ["attacker.example", "attacker.example:19190", "", "10.0.0.1.attacker.example"] {
            assert!(refused(Reach::Network, host) && refused(Reach::Loopback, host), "{host}");
            assert!(!refused(Reach::File, host), "{host}");
        }
        assert!(refused(Reach::Loopback, "10.0.0.1:19190"));
        // HTTP/1.0 without a host: no browser sends it.
        let bare = Request::builder().uri("/metrics").body(()).unwrap();
        assert_eq!(Reach::Loopback.refused(&bare), None);
    }
}
