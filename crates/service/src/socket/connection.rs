//! One connection: reads a request, answers it, and so on, each with a time limit.
//!
//! If a client does not read its answers, the daemon stops reading its requests and closes the connection. A connection
//! holds at most one request and one answer in memory. Must not know how connections are accepted.

use super::access::Right;
use super::limits::{SocketLimits, TokenBucket};
use super::view::View;
use crate::protocol::{
    ControlCommand, LONGEST_REQUEST, OrderResult, PolicyState, ProtocolError, ProtocolErrorKind, Request,
    Tenants, line, parse,
};
use crate::recorder::StreamWriter;
use crate::{Order, OrderError, Pause, Published, Sender};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

/// The longest time to wait for an order, however long the period. Assumption: below our client's time limit.
const MAX_ORDER_TIMEOUT: Duration = Duration::from_secs(100);

/// How long a client may go on sending after the last answer, and how many bytes. Assumption: a client that reads meanwhile
/// needs less.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES: usize = 16 << 20;

/// What all connections share.
#[derive(Debug)]
pub struct SocketState {
    /// The published state with the last decisions.
    pub view: Arc<View>,
    /// The queue of orders.
    pub sender: Sender,
    /// Permits for orders in progress.
    pub orders: Arc<Semaphore>,
    /// The limits.
    pub limits: SocketLimits,
    /// Every step as it appears in the published state.
    pub steps: watch::Receiver<Arc<Published>>,
}

/// What a connection beyond the limits is for.
#[derive(Debug)]
pub struct OrdersOnly {
    /// The limit that is reached: why nothing but orders is answered.
    pub full: String,
    /// An order is carried out.
    pub has_order: Arc<AtomicBool>,
}

/// An accepted connection.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    right: Right,
    only_orders: Option<OrdersOnly>,
    /// Received bytes that were not parsed yet; at most a request and a read.
    buffer: Vec<u8>,
    /// The client sends no more; it may still read.
    ended: bool,
}

/// The next input of a client.
enum Incoming {
    Line(Vec<u8>),
    Fault(ProtocolError),
    End,
}

fn too_long() -> Incoming {
    let text = format!("a request is at most {LONGEST_REQUEST} bytes long");
    Incoming::Fault(ProtocolError::new(ProtocolErrorKind::TooLong, text))
}

impl Connection {
    /// A connection with this right, perhaps for orders alone.
    pub fn new(stream: UnixStream, right: Right, only_orders: Option<OrdersOnly>) -> Connection {
        Connection { stream, right, only_orders, buffer: Vec::new(), ended: false }
    }

    /// Answers until the client disconnects or is too slow. An error affects only this client.
    pub async fn serve(mut self, shared: &SocketState) -> io::Result<()> {
        let mut bucket = TokenBucket::new(&shared.limits, Instant::now());
        loop {
            let bytes = match self.next(&shared.limits).await? {
                Incoming::Line(bytes) => bytes,
                Incoming::Fault(fault) => {
                    return self.finish(&line::<()>(None, Err(&fault)), &shared.limits).await;
                }
                Incoming::End => return Ok(()),
            };
            tokio::time::sleep(bucket.next(&shared.limits, Instant::now())).await;
            let answer = match parse(&bytes) {
                Err((id, fault)) => line::<()>(id.as_ref(), Err(&fault)),
                Ok(Request { id, command, .. }) if self.only_orders.is_some() && !command.is_order() => {
                    let full = self.only_orders.as_ref().map_or("", |only| only.full.as_str());
                    let text = format!("{full}; until then only orders are taken");
                    let fault = ProtocolError::new(ProtocolErrorKind::Busy, text);
                    return self.finish(&line::<()>(id.as_ref(), Err(&fault)), &shared.limits).await;
                }
                Ok(request) if matches!(request.command, ControlCommand::Watch | ControlCommand::Steps) => {
                    return self.follow(&request, shared).await;
                }
                Ok(request) => {
                    self.note_order(true);
                    let answer = answer(request, self.right, shared).await;
                    self.note_order(false);
                    answer
                }
            };
            self.send(&answer, &shared.limits).await?;
        }
    }

    fn note_order(&self, is_carried_out: bool) {
        if let Some(only) = &self.only_orders {
            only.has_order.store(is_carried_out, Ordering::Relaxed);
        }
    }

    async fn next(&mut self, limits: &SocketLimits) -> io::Result<Incoming> {
        // Others may need a place for an order.
        let idle = if self.only_orders.is_some() { limits.idle.min(limits.line) } else { limits.idle };
        let mut deadline = None;
        let mut searched = 0;
        loop {
            if let Some(end) = self.buffer[searched..].iter().position(|byte| *byte == b'\n') {
                let rest = self.buffer.split_off(searched + end + 1);
                let whole = std::mem::replace(&mut self.buffer, rest);
                return Ok(if whole.len() > LONGEST_REQUEST { too_long() } else { Incoming::Line(whole) });
            }
            searched = self.buffer.len();
            if searched >= LONGEST_REQUEST {
                return Ok(too_long());
            }
            if self.ended {
                return Ok(Incoming::End);
            }
            // The time limit starts with the first byte and is for the whole line.
            let now = Instant::now();
            let (left, what) = match deadline {
                _ if self.buffer.is_empty() => (idle, "no request was sent"),
                None => (limits.line, "no complete request was sent"),
                Some(at) => (Instant::saturating_duration_since(&at, now), "no complete request was sent"),
            };
            if deadline.is_none() && !self.buffer.is_empty() {
                deadline = Some(now + limits.line);
            }
            match timeout(left, self.stream.read_buf(&mut self.buffer)).await {
                Ok(Ok(0)) => self.ended = true,
                Ok(Ok(_)) => {}
                Ok(Err(why)) => return Err(why),
                Err(_) => {
                    let waited = if self.buffer.is_empty() { idle } else { limits.line };
                    let text = format!("{what} within {} s", waited.as_secs_f64());
                    return Ok(Incoming::Fault(ProtocolError::new(ProtocolErrorKind::TooSlow, text)));
                }
            }
        }
    }

    async fn send(&mut self, text: &str, limits: &SocketLimits) -> io::Result<()> {
        match timeout(limits.write, self.stream.write_all(text.as_bytes())).await {
            Ok(done) => done,
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    /// Sends the last answer and closes.
    async fn finish(&mut self, text: &str, limits: &SocketLimits) -> io::Result<()> {
        self.send(text, limits).await?;
        linger(&mut self.stream).await;
        Ok(())
    }

    /// Sends a status or the lines of the stream, now and after every step. A slow client skips to the latest step.
    async fn follow(&mut self, request: &Request, shared: &SocketState) -> io::Result<()> {
        let mut steps = shared.steps.clone();
        let mut writer = StreamWriter::default();
        let mut scrap = [0; 64];
        let mut sent: Option<Arc<Published>> = None;
        loop {
            steps.mark_unchanged();
            // The published state may be ahead of `steps`; then this step was sent already.
            let now = shared.view.read();
            if sent.as_ref().is_none_or(|sent| !Arc::ptr_eq(sent, &now)) {
                let id = request.id.as_ref();
                let text = match request.command {
                    ControlCommand::Steps => {
                        let lines = writer.lines(&now);
                        lines.iter().map(|one| line(id, Ok(one))).collect()
                    }
                    _ => line(id, Ok(&shared.view.status(&now))),
                };
                self.send(&text, &shared.limits).await?;
            }
            sent = Some(now);
            loop {
                tokio::select! {
                    changed = steps.changed() => match changed {
                        Ok(()) => break,
                        // The servers' thread is ending.
                        Err(_) => return Ok(()),
                    },
                    read = self.stream.read(&mut scrap), if !self.ended => match read? {
                        0 => self.ended = true,
                        _ => {
                            let text = "a connection that watches takes no more requests; open another one";
                            let fault = ProtocolError::new(ProtocolErrorKind::BadRequest, text);
                            return self.finish(&line::<()>(request.id.as_ref(), Err(&fault)), &shared.limits).await;
                        }
                    },
                }
            }
        }
    }
}

/// Closes a connection for writing, and reads for a while what its client still sends. A client that is sending when the
/// connection is closed has an error, and may never read the answer.
pub async fn linger(stream: &mut UnixStream) {
    if stream.shutdown().await.is_err() {
        return;
    }
    let read = async {
        let (mut scrap, mut left) = ([0; 1024], LINGER_BYTES);
        while let Ok(count) = stream.read(&mut scrap).await
            && count > 0
            && count <= left
        {
            left -= count;
        }
    };
    // The client has had its time.
    let _ = timeout(LINGER, read).await;
}

/// The answer to all commands except `watch` and `steps`.
async fn answer(request: Request, right: Right, shared: &SocketState) -> String {
    let id = request.id.as_ref();
    if request.command.is_order() && right < Right::Order {
        let text = "only root and the daemon's own user may give orders; other users may read";
        return line::<()>(id, Err(&ProtocolError::new(ProtocolErrorKind::NotPermitted, text)));
    }
    let order = match request.command {
        // `serve` handles the two that follow the steps.
        ControlCommand::Status | ControlCommand::Watch | ControlCommand::Steps => {
            return line(id, Ok(&shared.view.status(&shared.view.read())));
        }
        ControlCommand::Tenants => return line(id, Ok(&Tenants::of(&shared.view.read()))),
        ControlCommand::Policy => return line(id, Ok(&PolicyState::of(&shared.view.read()))),
        ControlCommand::SetPolicy { name, settings } => Order::SetPolicy { name, settings },
        ControlCommand::Pause { release } => Order::Pause(if release { Pause::Release } else { Pause::Hold }),
        ControlCommand::Resume => Order::Resume,
        ControlCommand::Reload => Order::Reload,
        ControlCommand::HandOver { within_s } => match hand_over(within_s) {
            Ok(order) => order,
            Err(fault) => return line::<()>(id, Err(&fault)),
        },
    };
    match carry_out(order, shared).await {
        Ok(text) => line(id, Ok(&OrderResult { text })),
        Err(fault) => line::<()>(id, Err(&fault)),
    }
}

/// Longest time of a hand-over, in seconds. Assumption: a day is enough to replace a program; knobs without a daemon
/// suit the load less and less.
const LONGEST_HAND_OVER_S: f64 = 86_400.0;

/// The order to hand over within so many seconds.
fn hand_over(within_s: f64) -> Result<Order, ProtocolError> {
    match Duration::try_from_secs_f64(within_s) {
        Ok(within) if within_s > 0.0 && within_s <= LONGEST_HAND_OVER_S => Ok(Order::HandOver(within)),
        _ => {
            let text = format!(
                "hand-over: `within_s` is {within_s}; give a number above 0, at most {LONGEST_HAND_OVER_S}"
            );
            Err(ProtocolError::new(ProtocolErrorKind::BadRequest, text))
        }
    }
}

/// Sends an order to the control thread, and waits on a separate thread.
async fn carry_out(order: Order, shared: &SocketState) -> Result<String, ProtocolError> {
    let Ok(permit) = shared.orders.clone().try_acquire_owned() else {
        let text = format!("{} orders are waiting already; ask again later", shared.limits.orders);
        return Err(ProtocolError::new(ProtocolErrorKind::Busy, text));
    };
    let period = Duration::from_nanos(shared.view.read().period_ns);
    // Assumption: an order takes at most two steps, and a sample of a busy host a few seconds.
    let order_timeout =
        (period.saturating_mul(2)).saturating_add(Duration::from_secs(10)).min(MAX_ORDER_TIMEOUT);
    let sender = shared.sender.clone();
    let waiting = tokio::task::spawn_blocking(move || {
        let _under_way = permit;
        sender.ask(order, order_timeout)
    });
    let kind = match waiting.await {
        Ok(Ok(text)) => return Ok(text),
        Ok(Err(why)) => {
            let kind = match &why {
                OrderError::Refused(_) => ProtocolErrorKind::Refused,
                OrderError::Incomplete(_) => ProtocolErrorKind::Incomplete,
                OrderError::Full => ProtocolErrorKind::Busy,
                OrderError::Ending => ProtocolErrorKind::Ending,
                OrderError::Late(_) => ProtocolErrorKind::Late,
            };
            return Err(ProtocolError::new(kind, why.to_string()));
        }
        // The waiting thread is cancelled only when the daemon ends.
        Err(_) => ProtocolErrorKind::Ending,
    };
    Err(ProtocolError::new(kind, OrderError::Ending.to_string()))
}
