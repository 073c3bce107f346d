//! A connection that fails when its peer takes nothing for too long: a stuck viewer must not hold a place forever.
//!
//! Must not know what is sent.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// A stream whose writes fail after a time without progress.
pub struct StallLimited<S> {
    stream: S,
    patience: Duration,
    /// Ends when the patience does; only while a write waits.
    deadline: Pin<Box<Sleep>>,
    is_waiting: bool,
}

impl<S> StallLimited<S> {
    /// `stream` with this limit.
    pub fn new(stream: S, patience: Duration) -> StallLimited<S> {
        StallLimited { stream, patience, deadline: Box::pin(sleep(patience)), is_waiting: false }
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

impl<S: AsyncRead + Unpin> AsyncRead for StallLimited<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for StallLimited<S> {
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
        let written = Pin::new(&mut self.stream).poll_shutdown(context);
        self.limit(context, written)
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
            let mut ours = StallLimited::new(ours, patience);
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
