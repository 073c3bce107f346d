//! Waiting for a condition, with one limit for all tests.
//!
//! A test waits for what must happen; it asserts no time, because a busy machine may take long for anything. Must not know
//! what is waited for.

use std::time::{Duration, Instant};

/// How long a test waits for something that must happen. Assumption: no machine is so busy that this is too short.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Pause between two looks: a test that waits takes no time from what it waits for.
const PAUSE: Duration = Duration::from_millis(10);

/// Waits until it is so.
///
/// # Panics
/// With `what` if it is not so within [`PATIENCE`].
#[track_caller]
pub fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    wait_for_some(what, || is_so().then_some(()));
}

/// Waits until there is a value, and returns it.
///
/// # Panics
/// With `what` if there is none within [`PATIENCE`].
#[track_caller]
pub fn wait_for_some<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "waited for {what} in vain");
        std::thread::sleep(PAUSE);
    }
}
