//! The stream of events to one viewer (server-sent events): pictures as fast as it takes them, and a sign of life.
//!
//! Must not know who makes the pictures.

use crate::feed::FeedFrames;
use axum::body::{Body, Bytes};
use futures_util::stream;
use std::convert::Infallible;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

/// Least time between two pictures for a viewer. Assumption: people do not see more than ten changes in a second.
const SPACING: Duration = Duration::from_millis(100);
/// A sign of life is sent after this time without an event. The page counts the server as gone after three of them.
const ALIVE: Duration = Duration::from_secs(5);

const ALIVE_EVENT: &str = "event: alive\ndata: {}\n\n";

/// A stream for a viewer; it ends with the feed.
pub fn body(frames: watch::Receiver<FeedFrames>) -> Body {
    let viewer = Viewer { frames, pictures: 0, sources: 0, next_picture: Instant::now() };
    Body::from_stream(stream::unfold(viewer, |mut viewer| async move {
        viewer.next().await.map(|frame| (Ok::<_, Infallible>(frame), viewer))
    }))
}

struct Viewer {
    frames: watch::Receiver<FeedFrames>,
    /// Numbers of what was sent last.
    pictures: u64,
    sources: u64,
    next_picture: Instant,
}

impl Viewer {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            let waits = {
                let frames = self.frames.borrow_and_update();
                // A picture says that the source is there: what happened before it is sent before it.
                if frames.sources != self.sources {
                    self.sources = frames.sources;
                    return Some(frames.source.clone());
                }
                if frames.pictures != self.pictures && Instant::now() >= self.next_picture {
                    self.pictures = frames.pictures;
                    self.next_picture = Instant::now() + SPACING;
                    return Some(frames.picture.clone());
                }
                frames.pictures != self.pictures
            };
            if waits {
                sleep_until(self.next_picture).await;
                continue;
            }
            match timeout(ALIVE, self.frames.changed()).await {
                Err(_) => return Some(Bytes::from_static(ALIVE_EVENT.as_bytes())),
                Ok(Err(_)) => return None,
                Ok(Ok(())) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    fn frame(text: &str) -> Bytes {
        Bytes::from(text.to_owned())
    }

    async fn next(body: &mut Body) -> Option<Bytes> {
        body.frame().await.map(|frame| frame.unwrap().into_data().unwrap())
    }

    #[test]
    fn a_viewer_gets_the_latest_picture_after_what_happened_and_then_signs_of_life() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let (sender, receiver) = watch::channel(FeedFrames::default());
            let mut body = body(receiver);
            let show = |number| {
                sender.send_modify(|frames| {
                    (frames.picture, frames.pictures) = (frame(&format!("p{number}")), number)
                });
            };
            for number in 1..=3 {
                show(number);
            }
            sender.send_modify(|frames| (frames.source, frames.sources) = (frame("lost"), 1));
            assert_eq!(next(&mut body).await, Some(frame("lost")));
            assert_eq!(next(&mut body).await, Some(frame("p3")), "missed pictures are not sent");
            tokio::time::pause();
            let before = Instant::now();
            show(4);
            show(5);
            assert_eq!(next(&mut body).await, Some(frame("p5")));
            assert!((SPACING..2 * SPACING).contains(&before.elapsed()), "two pictures are this far apart");
            let before = Instant::now();
            assert_eq!(next(&mut body).await, Some(frame(ALIVE_EVENT)));
            assert!((ALIVE..2 * ALIVE).contains(&before.elapsed()));
            drop(sender);
            assert_eq!(next(&mut body).await, None);
        });
    }
}
