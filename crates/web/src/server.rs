//! The server: a thread with its own runtime, a bound on connections, deadlines for each of them.
//!
//! Must not know paths.

use crate::AccessToken;
use crate::client_stream::ClientStream;
use crate::feed::FeedPatience;
use crate::places::{ConnectionPlace, PlaceTable, Room};
use crate::playground::Scenarios;
use crate::routes::{self, Desk};
use axum::Router;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::net::sockopt::set_socket_send_buffer_size;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::runtime;
use tokio::sync::oneshot;
use tokio::time::sleep;
use waykeeper_view::Source;

/// Limits for clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WebLimits {
    /// Connections at a time. For one more, the one that has been silent for longest makes room; if none is silent, it is
    /// answered with 503.
    pub connections: usize,
    /// Streams of events at a time, which are fewer: strangers who keep streams leave places for requests.
    pub streams: usize,
    /// Further streams of events for holders of the token.
    pub holders_streams: usize,
    /// Virtual servers of playgrounds at a time.
    pub playgrounds: usize,
    /// How long a playground that no page has waits for the page that asked for it, and then for one that is loaded again.
    pub playground_idle: FeedPatience,
    /// Time for the head of a request, and for a body.
    pub head: Duration,
    /// Time in which a client must take something of what is sent.
    pub stall: Duration,
    /// Longest body, bytes.
    pub body_bytes: usize,
    /// Bytes that the kernel keeps for a client; it doubles this number. Else it keeps megabytes of old pictures for a
    /// viewer that takes none.
    pub send_buffer: usize,
}

impl Default for WebLimits {
    /// A browser opens up to six connections to one server, one of them for the events of all its pages, so 512 are enough
    /// for 85 browsers at once, each with any number of pages. Streams of events, histories and other answers that take long
    /// have less than 400 of them, so a page always loads. A turn has less than a kilobyte. Assumption: the times.
    ///
    /// A playground takes 11 MB (A4's mix of 11 tenants), 0.1 % of a core while no page shows it, and a tenth of a core at
    /// the speed of its clock. So 64 take 0.7 GB: 40 pages have room, and hidden pages give theirs to pages that are shown.
    fn default() -> WebLimits {
        WebLimits {
            connections: 512,
            streams: 256,
            holders_streams: 64,
            playgrounds: 64,
            playground_idle: FeedPatience { first: Duration::from_secs(30), next: Duration::from_secs(5) },
            head: Duration::from_secs(5),
            stall: Duration::from_secs(30),
            body_bytes: 16 << 10,
            // Six pictures of 11 tenants.
            send_buffer: 64 << 10,
        }
    }
}

/// Longest head of a request, and most bytes that wait for a client, besides one picture.
const BUFFER: usize = 16 << 10;
/// Pause after a failed accept, for example without file descriptors.
const ACCEPT_ERROR_PAUSE: Duration = Duration::from_millis(100);
/// Time that a silent connection still has when another one needs its place.
const LAST_CALL: Duration = Duration::from_millis(5);
/// Connections that are answered with 503 at a time; further ones are closed without an answer.
const REFUSED: usize = 64;

/// Where the server listens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WebListen {
    /// Address and port; port 0 is any free one.
    pub address: SocketAddr,
    /// Other machines may connect.
    pub allow_remote: bool,
}

impl WebListen {
    /// A port outside of those that Linux gives to clients and of 9100-9999, which exporters use. Assumption: the number
    /// itself; no registry assigns it.
    pub const PORT: u16 = 8642;

    /// The address by default.
    pub const DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), WebListen::PORT);
}

/// Why the server does not start.
#[derive(Debug, thiserror::Error)]
pub enum WebError {
    /// Other machines could connect, and this was not asked for.
    #[error("{0} can be reached by other machines; give --allow-remote too, or listen on 127.0.0.1")]
    NotLoopback(SocketAddr),
    /// The address is in use or not this machine's.
    #[error("cannot listen on {address}: {why}; choose another port with --listen 127.0.0.1:PORT")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's message.
        why: io::Error,
    },
    /// The system gives no thread.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] io::Error),
    /// The system gives no random numbers.
    #[error("no random numbers: {0}")]
    Random(#[from] getrandom::Error),
}

/// A running server. It ends when this is dropped.
#[derive(Debug)]
pub struct WebServer {
    address: SocketAddr,
    token: AccessToken,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl WebServer {
    /// Starts a server that shows `main`, and the playground on `scenarios`.
    ///
    /// # Errors
    /// [`WebError`].
    pub fn start(
        listen: WebListen,
        limits: WebLimits,
        main: Option<Box<dyn Source>>,
        scenarios: Scenarios,
    ) -> Result<WebServer, WebError> {
        let wanted = listen.address;
        if !wanted.ip().is_loopback() && !listen.allow_remote {
            return Err(WebError::NotLoopback(wanted));
        }
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let failed = |why| WebError::Listen { address: wanted, why };
        let listener = runtime.block_on(TcpListener::bind(wanted)).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let token = AccessToken::random()?;
        let desk = Desk::new(token.clone(), scenarios, limits, listen.allow_remote);
        if let Some(source) = main {
            desk.feeds.add_main(source)?;
        }
        let (end, ended) = oneshot::channel();
        let work = move || {
            let router = routes::router(Arc::new(desk));
            runtime.block_on(async {
                tokio::select! {
                    () = accept(listener, router, limits) => {}
                    _ = ended => {}
                }
            });
            // Connections end with the runtime; a playground that is being made does not keep it.
            runtime.shutdown_background();
        };
        let thread = thread::Builder::new().name("waykeeper-web".to_owned()).spawn(work)?;
        Ok(WebServer { address, token, end: Some(end), thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The token that allows to turn knobs.
    pub fn token(&self) -> &AccessToken {
        &self.token
    }

    /// The address for a browser on this machine, with the token.
    pub fn link(&self) -> String {
        let mut address = self.address;
        if address.ip().is_unspecified() {
            let local = if address.is_ipv4() {
                IpAddr::V4(Ipv4Addr::LOCALHOST)
            } else {
                IpAddr::V6(Ipv6Addr::LOCALHOST)
            };
            address.set_ip(local);
        }
        format!("http://{address}/#token={}", self.token.text())
    }
}

impl Drop for WebServer {
    fn drop(&mut self) {
        // Dropped, it ends the accept loop.
        self.end.take();
        if let Some(thread) = self.thread.take() {
            // A panic was printed by its thread.
            let _ = thread.join();
        }
    }
}

async fn accept(listener: TcpListener, router: Router, limits: WebLimits) {
    let mut served = PlaceTable::new(limits.connections, PlaceTable::GRACE);
    let mut refused = PlaceTable::new(REFUSED, PlaceTable::GRACE);
    let full = routes::full();
    'accepting: loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(ACCEPT_ERROR_PAUSE).await;
            continue;
        };
        let (places, router) = loop {
            match served.make_room() {
                Room::Made => break (&mut served, &router),
                Room::Later(time) => sleep(time).await,
                Room::No if refused.make_room() == Room::Made => break (&mut refused, &full),
                Room::No => continue 'accepting,
            }
        };
        // Without it an order's answer may wait for an acknowledgement.
        let _ = stream.set_nodelay(true);
        let _ = set_socket_send_buffer_size(&stream, limits.send_buffer);
        let place = Arc::<ConnectionPlace>::default();
        let task = tokio::spawn(serve(stream, router.clone(), limits, place.clone()));
        places.take(place, task.abort_handle());
    }
}

/// Serves one connection. An error affects only it.
pub(crate) async fn serve<S>(stream: S, router: Router, limits: WebLimits, place: Arc<ConnectionPlace>)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(limits.head).max_buf_size(BUFFER);
    let io = TokioIo::new(ClientStream::new(stream, limits.stall));
    let router = TowerToHyperService::new(router);
    let own = place.clone();
    let answer = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(own.clone());
        router.call(request)
    });
    let mut connection = pin!(http.serve_connection(io, answer));
    tokio::select! {
        biased;
        _ = connection.as_mut() => return,
        () = place.has_to_leave() => {}
    }
    // A request that has come but was not read yet, because the server is busy, is read before this time is over.
    tokio::select! {
        biased;
        _ = connection.as_mut() => return,
        () = sleep(LAST_CALL) => {}
    }
    if !place.is_silent() {
        connection.as_mut().graceful_shutdown();
        let _ = connection.await;
    }
}
