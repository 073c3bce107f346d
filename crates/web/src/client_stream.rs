//! A connection to a client, which ends well and in time: it fails when its peer takes nothing for too long, so that a stuck
//! viewer does not hold a place forever, and when it closes, the client can still read the answer.
//!
//! The kernel resets a connection that is closed while bytes of the client are unread, and the client loses the answer. So
//! it is closed only for writing at first, and what still comes is read for a while. Must not know what is sent.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// How long a client may go on sending after its answer, and how many bytes. Assumption: a client that reads meanwhile needs
/// less.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES: usize = 4 << 20;

/// A stream whose writes fail after a time without progress, and whose shutdown waits for the client.
pub struct ClientStream<S> {
    stream: S,
    patience: Duration,
    /// Ends when the patience does, while a write waits; when the lingering does, after the shutdown.
    deadline: Pin<Box<Sleep>>,
    is_waiting: bool,
    is_shut: bool,
    /// Bytes that came after the shutdown.
    lingered: usize,
}

impl<S> ClientStream<S> {
    /// `stream` with this limit.
    pub fn new(stream: S, patience: Duration) -> ClientStream<S> {
        let deadline = Box::pin(sleep(patience));
        ClientStream { stream, patience, deadline, is_waiting: false, is_shut: false, lingered: 0 }
    }

    /// The result of a write, or the end of the patience.
    fn limit<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.is_waiting = false;
            return written;
        }
        if !self.is_waiting {
            self.is_waiting = true;
            self.deadline.as_mut().reset(Instant::now() + self.patience);
        }
        ready!(self.deadline.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> ClientStream<S> {
    /// Reads what still comes, until the client closes or has had its time.
    fn linger(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut scrap = [0; 4096];
        loop {
            let mut into = ReadBuf::new(&mut scrap);
            let read = Pin::new(&mut self.stream).poll_read(context, &mut into);
            let come = into.filled().len();
            match read {
                Poll::Pending => return self.deadline.as_mut().poll(context),
                Poll::Ready(Ok(())) if come > 0 && self.lingered < LINGER_BYTES => self.lingered += come,
                Poll::Ready(_) => return Poll::Ready(()),
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ClientStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for ClientStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.limit(context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let written = Pin::new(&mut self.stream).poll_flush(context);
        self.limit(context, written)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.is_shut {
            let shut = Pin::new(&mut self.stream).poll_shutdown(context);
            ready!(self.limit(context, shut))?;
            self.is_shut = true;
            self.deadline.as_mut().reset(Instant::now() + LINGER);
        }
        self.linger(context).map(Ok)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.limit(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[test]
    fn a_peer_that_takes_nothing_ends_the_write_and_a_slow_one_does_not() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let patience = Duration::from_millis(80);
            let (ours, mut theirs) = tokio::io::duplex(8);
            let mut ours = ClientStream::new(ours, patience);
            let slow = tokio::spawn(async move {
                // Half the patience between two reads: 8 of them take four times as long as it.
                for _ in 0..8 {
                    tokio::time::sleep(Duration::from_millis(40)).await;
                    theirs.read_exact(&mut [0; 8]).await.unwrap();
                }
                theirs
            });
            ours.write_all(&[1; 64]).await.unwrap();
            let theirs = slow.await.unwrap();
            let stuck = ours.write_all(&[1; 64]).await.unwrap_err();
            assert_eq!(stuck.kind(), io::ErrorKind::TimedOut);
            drop(theirs);
        });
    }
}
