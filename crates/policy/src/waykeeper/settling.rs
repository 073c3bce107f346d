//! Decides when the layout in force has been measured long enough. It must not know layouts.

use super::progress::Progress;
use super::running_mean;
use super::server::Server;

/// The measurement of the layout in force.
pub(super) struct Settling {
    /// The progress of the last interval under the layout, and the number of intervals under it.
    last: Option<(Progress, u32)>,
    /// Running mean of the change between two intervals that agree.
    noise: f64,
}

impl Settling {
    pub fn new(server: &Server) -> Settling {
        Settling { last: None, noise: server.config.settle_tolerance / 2.0 }
    }

    /// A change of progress that noise alone may cause.
    pub fn tolerance(&self) -> f64 {
        2.0 * self.noise
    }

    /// Starts again: the layout in force changed, or its earlier intervals do not count.
    pub fn restart(&mut self) {
        self.last = None;
    }

    /// The progress under the layout in force, once two intervals agree or after `settle_max` intervals.
    pub fn step(&mut self, progress: &Progress, server: &Server) -> Option<Progress> {
        let intervals = self.last.as_ref().map_or(1, |(_, intervals)| intervals + 1);
        let (before, _) = self.last.replace((progress.clone(), intervals))?;
        let moved = progress.gain(&before, &server.groups, &server.config).all.abs();
        let agree = moved <= server.config.settle_tolerance.max(self.tolerance());
        if agree {
            self.noise = running_mean(self.noise, moved);
        }
        (agree || intervals >= server.config.settle_max).then(|| progress.mixed(&before))
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{progress, server};
    use super::*;

    #[test]
    fn two_intervals_that_agree_are_enough_and_four_always_are() {
        let server = server(1);
        let mut settling = Settling::new(&server);
        assert_eq!(settling.step(&progress(&server, &[1.0]), &server), None);
        // ln 1.002 is less than the tolerance, 0.01; the result is the mean of both.
        let settled = settling.step(&progress(&server, &[1.002]), &server);
        assert_eq!(settled, Some(progress(&server, &[1.001])));
        settling.restart();
        let restless = [1.0, 1.1, 1.0, 1.1].map(|ipc| settling.step(&progress(&server, &[ipc]), &server));
        assert_eq!(restless.map(|settled| settled.is_some()), [false, false, false, true]);
    }

    #[test]
    fn noise_is_the_running_mean_of_changes_that_agree() {
        let server = server(1);
        let mut settling = Settling::new(&server);
        // Half of settle_tolerance, 0.005, at first; then four fifths of it, as the change is 0.
        assert_eq!(settling.tolerance(), 0.01);
        settling.step(&progress(&server, &[1.0]), &server);
        settling.step(&progress(&server, &[1.0]), &server);
        assert!((settling.tolerance() - 0.008).abs() < 1e-12);
    }
}
