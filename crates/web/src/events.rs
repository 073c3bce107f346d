//! The streams of events to pages (server-sent events): pictures as fast as a page takes them, and a sign of life.
//!
//! A stream has one feed, or all feeds of the pages of one browser: browsers open six connections to a server, and a
//! page that waits for a seventh does not load. Must not know who makes the pictures.

use crate::feed::FeedViewer;
use axum::body::{Body, Bytes};
use futures_util::stream::{self, Stream, StreamExt};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout};

/// Least time between two pictures for a viewer. Assumption: people do not see more than ten changes in a second.
const SPACING: Duration = Duration::from_millis(100);
/// A sign of life is sent after this time without an event. The page counts the server as gone after three of them.
const ALIVE: Duration = Duration::from_secs(5);

const ALIVE_EVENT: &str = "event: alive\ndata: {}\n\n";
const ENDED_EVENT: &str = "event: ended\ndata: {}\n\n";

/// A stream for a viewer; it ends with the feed. `held` is dropped with the stream.
pub fn body(viewer: FeedViewer, held: impl Send + 'static) -> Body {
    with_life(frames(viewer), held)
}

/// A stream of several feeds; each event has the id of its feed. A feed that is not there or ends is reported as `ended`.
/// `held` is dropped with the stream.
pub fn merged_body(feeds: Vec<(String, Option<FeedViewer>)>, held: impl Send + 'static) -> Body {
    let of_feed = |(id, viewer): (String, Option<FeedViewer>)| {
        let begin = format!("id: {id}\n");
        let ended = stream::iter([Bytes::from_static(ENDED_EVENT.as_bytes())]);
        let events = stream::iter(viewer).flat_map(frames).chain(ended);
        events.map(move |event| Bytes::from([begin.as_bytes(), &event].concat()))
    };
    let mut streams: Vec<Pin<Box<dyn Stream<Item = Bytes> + Send>>> = Vec::new();
    streams.extend(feeds.into_iter().map(|feed| Box::pin(of_feed(feed)) as Pin<Box<_>>));
    let all = stream::poll_fn(move |context| {
        let mut at = 0;
        while at < streams.len() {
            match streams[at].as_mut().poll_next(context) {
                Poll::Ready(Some(event)) => {
                    // The others come first next time.
                    let last = streams.len() - 1;
                    streams[at..=last].rotate_left(1);
                    return Poll::Ready(Some(event));
                }
                Poll::Ready(None) => drop(streams.remove(at)),
                Poll::Pending => at += 1,
            }
        }
        if streams.is_empty() { Poll::Ready(None) } else { Poll::Pending }
    });
    with_life(all, held)
}

/// Bytes that are sent as one; `held` is dropped when they have been taken.
pub fn whole(bytes: Bytes, held: impl Send + 'static) -> Body {
    Body::from_stream(stream::unfold((Some(bytes), held), |(bytes, held)| async move {
        bytes.map(|bytes| (Ok::<_, Infallible>(bytes), (None, held)))
    }))
}

/// Events, and a sign of life where none comes.
fn with_life(events: impl Stream<Item = Bytes> + Send + 'static, held: impl Send + 'static) -> Body {
    Body::from_stream(stream::unfold((Box::pin(events), held), |(mut events, held)| async move {
        let next = timeout(ALIVE, events.next()).await;
        let next = next.unwrap_or(Some(Bytes::from_static(ALIVE_EVENT.as_bytes())));
        next.map(|event| (Ok::<_, Infallible>(event), (events, held)))
    }))
}

/// What a viewer gets of its feed.
fn frames(viewer: FeedViewer) -> impl Stream<Item = Bytes> + Send {
    let viewer = Viewer { viewer, pictures: 0, sources: 0, next_picture: Instant::now() };
    stream::unfold(viewer, |mut viewer| async move { viewer.next().await.map(|frame| (frame, viewer)) })
}

struct Viewer {
    viewer: FeedViewer,
    /// Numbers of what was sent last.
    pictures: u64,
    sources: u64,
    next_picture: Instant,
}

impl Viewer {
    async fn next(&mut self) -> Option<Bytes> {
        // The page of a viewer that is not seen asks anew when it is shown.
        while !self.viewer.is_seen {
            self.viewer.frames.changed().await.ok()?;
        }
        loop {
            let waits = {
                let frames = self.viewer.frames.borrow_and_update();
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
            self.viewer.frames.changed().await.ok()?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::FeedFrames;
    use http_body_util::BodyExt;
    use std::sync::Arc;
    use tokio::sync::watch;

    fn viewer(frames: watch::Receiver<FeedFrames>, is_seen: bool) -> FeedViewer {
        FeedViewer::new(frames, is_seen, Arc::default())
    }

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
            let mut body = body(viewer(receiver, true), ());
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

    #[test]
    fn one_stream_has_several_feeds_and_says_which_of_them_ends() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let (one, frames_of_one) = watch::channel(FeedFrames::default());
            let (other, frames_of_other) = watch::channel(FeedFrames::default());
            let (hidden, frames_of_hidden) = watch::channel(FeedFrames::default());
            let feeds = vec![
                ("one".to_owned(), Some(viewer(frames_of_one, true))),
                ("gone".to_owned(), None),
                ("other".to_owned(), Some(viewer(frames_of_other, true))),
                ("hidden".to_owned(), Some(viewer(frames_of_hidden, false))),
            ];
            let mut body = merged_body(feeds, ());
            let show = |of: &watch::Sender<FeedFrames>, number| {
                of.send_modify(|frames| {
                    (frames.picture, frames.pictures) = (frame(&format!("p{number}\n\n")), number)
                });
            };
            let ended = |id: &str| Some(frame(&format!("id: {id}\n{ENDED_EVENT}")));
            assert_eq!(next(&mut body).await, ended("gone"));
            show(&hidden, 1);
            show(&one, 1);
            show(&other, 2);
            tokio::time::pause();
            let mut come = [next(&mut body).await, next(&mut body).await];
            come.sort();
            assert_eq!(come, [Some(frame("id: one\np1\n\n")), Some(frame("id: other\np2\n\n"))]);
            // A hidden page gets no picture, but one sign of life as all have it.
            assert_eq!(next(&mut body).await, Some(frame(ALIVE_EVENT)));
            drop(hidden);
            assert_eq!(next(&mut body).await, ended("hidden"));
            drop(one);
            assert_eq!(next(&mut body).await, ended("one"));
            show(&other, 3);
            assert_eq!(next(&mut body).await, Some(frame("id: other\np3\n\n")));
            drop(other);
            assert_eq!(next(&mut body).await, ended("other"));
            assert_eq!(next(&mut body).await, None);
        });
    }
}
