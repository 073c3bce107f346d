//! One connection to the server over memory, for `fuzz-targets`: the client sends all its bytes and reads what is
//! answered until the server closes.
//!
//! Guard, paths, feed and hyper are those of a running server; only the listener is left out, and the limits on time are
//! short. Must not know what the bytes are.

use crate::places::ConnectionPlace;
use crate::playground::Scenarios;
use crate::routes::{self, Desk};
use crate::server;
use crate::{AccessToken, WebError, WebLimits};
use axum::Router;
use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex, split};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use waykeeper_view::Source;

/// A request that is not whole ends its connection after this time, as after 5 s on a real server.
const HEAD: Duration = Duration::from_millis(4);
/// A client of events leaves after this time without one.
const QUIET: Duration = Duration::from_millis(8);
/// A connection that lasts longer is stuck. Other programs use the machine too.
const LONGEST: Duration = Duration::from_secs(20);
/// Bytes on the way in each direction.
const ON_THE_WAY: usize = 64 << 10;
const EVENTS: &[u8] = b"text/event-stream";

/// A server without a listener.
pub struct ServerInMemory {
    runtime: Runtime,
    router: Router,
    token: AccessToken,
    limits: WebLimits,
}

impl fmt::Debug for ServerInMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerInMemory").finish_non_exhaustive()
    }
}

impl ServerInMemory {
    /// A server that shows `main`. Its playground has no scenarios: no input starts a simulation.
    ///
    /// # Errors
    /// If there is no thread, or the system gives no random numbers.
    pub fn new(main: Box<dyn Source>) -> Result<ServerInMemory, WebError> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (token, limits) = (AccessToken::random()?, WebLimits { head: HEAD, ..WebLimits::default() });
        let desk = Desk::new(token.clone(), Scenarios::default(), limits, false);
        desk.feeds.add_main(main)?;
        Ok(ServerInMemory { runtime, router: routes::router(Arc::new(desk)), token, limits })
    }

    /// The token that allows to turn knobs.
    pub fn token(&self) -> &AccessToken {
        &self.token
    }

    /// What a client gets that sends these bytes.
    ///
    /// # Panics
    /// If the connection does not end.
    pub fn converse(&self, bytes: &[u8]) -> Vec<u8> {
        self.runtime.block_on(async {
            let (client, served) = duplex(ON_THE_WAY);
            let talk = async {
                let (mut reading, mut writing) = split(client);
                let send = async {
                    // A server that closes before it has read everything breaks the connection.
                    let _ = writing.write_all(bytes).await;
                    // The client leaves its side open: the server has to end the connection.
                    pending::<()>().await;
                };
                let mut answer = Vec::new();
                let read = async {
                    loop {
                        match timeout(QUIET, reading.read_buf(&mut answer)).await {
                            Ok(Ok(0) | Err(_)) => return,
                            Ok(Ok(_)) => {}
                            Err(_) if answer.windows(EVENTS.len()).any(|part| part == EVENTS) => return,
                            Err(_) => {}
                        }
                    }
                };
                tokio::select! {
                    () = read => {}
                    () = send => {}
                }
                answer
            };
            let serve =
                server::serve(served, self.router.clone(), self.limits, Arc::<ConnectionPlace>::default());
            let both = async { tokio::join!(talk, serve).0 };
            timeout(LONGEST, both).await.expect("a connection that ends")
        })
    }
}
