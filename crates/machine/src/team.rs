//! State that the threads of a `memload` workload share. It is on the bus, so that a fork of the machine copies it.
//!
//! Must not know the commands of a load or what they cost.

use waykeeper_load::Limiter;

/// State that the threads of one load share.
#[derive(Clone, Debug)]
pub(crate) struct Team {
    /// Number of its buffer in the array.
    pub buffer: u32,
    /// Position of the next command in the pattern.
    pub position: u32,
    /// Its limits of rates, and the load of the array that they follow.
    pub limiter: Limiter,
    pub load: f64,
    /// For each unit that is zeroed at once, whether it exists.
    pub present: Vec<bool>,
    /// The buffer was filled or read once, if the load requires it.
    pub ready: bool,
    /// Commands and blocks, as counted, that were sent.
    pub commands: u64,
    pub blocks: u64,
    /// When the first command was allowed, ns.
    pub begun_ns: Option<f64>,
    /// No more commands will be sent.
    pub ended: bool,
}

impl Team {
    /// The first call starts the load's clock; later ones end the load `after_ns` after it.
    pub fn at(&mut self, now_ns: f64, after_ns: Option<f64>) {
        let begun_ns = *self.begun_ns.get_or_insert(now_ns);
        self.ended |= after_ns.is_some_and(|after_ns| now_ns >= begun_ns + after_ns);
    }

    /// When the load's time ends, ns.
    pub fn over_ns(&self, after_ns: Option<f64>) -> f64 {
        self.begun_ns.zip(after_ns).map_or(f64::INFINITY, |(begun_ns, after_ns)| begun_ns + after_ns)
    }
}
