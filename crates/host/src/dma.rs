//! Cache events that devices cause, per kind of request, for comparing a known DMA load with the host's counters.
//!
//! Counts lines; must not know which load caused them.

use crate::{Host, HostError, Reading, SocketCounter};
use serde::Serialize;

/// Lines of one kind of request, cumulative or over a time.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Lines {
    /// Lines that were found in the caches.
    pub hits: Reading<u64>,
    /// Lines that were not.
    pub misses: Reading<u64>,
}

impl Lines {
    /// This host does not count them.
    pub const UNSUPPORTED: Lines = Lines { hits: Reading::Unsupported, misses: Reading::Unsupported };

    /// Hits and misses together.
    pub fn all(self) -> Reading<u64> {
        self.hits.zip_with(self.misses, u64::saturating_add)
    }

    /// The increase since `before`. A counter that runs backwards is `Unavailable`.
    fn since(self, before: Lines) -> Lines {
        let since = |now: Reading<u64>, before: Reading<u64>| match now.zip_with(before, u64::checked_sub) {
            Reading::Value(Some(count)) => Reading::Value(count),
            Reading::Value(None) => Reading::Unavailable,
            missing => missing.map(|_| 0),
        };
        Lines { hits: since(self.hits, before.hits), misses: since(self.misses, before.misses) }
    }
}

/// Requests of all devices of the managed socket.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct DmaCounters {
    /// Lines that devices read, whole or in part (PCIeRdCur).
    pub reads: Lines,
    /// Whole lines that they wrote (ItoM).
    pub writes: Lines,
    /// Lines that they wrote in part (RFO; ItoMCacheNear from Ice Lake on).
    pub partial_writes: Lines,
}

impl DmaCounters {
    /// Reads the counters now, cumulative.
    ///
    /// # Errors
    /// As [`Host::sample`].
    pub fn read(host: &mut dyn Host) -> Result<DmaCounters, HostError> {
        let socket = host.sample()?.socket;
        Ok(DmaCounters {
            reads: Lines {
                hits: socket[SocketCounter::DcaReadHits],
                misses: socket[SocketCounter::DcaReadMisses],
            },
            writes: Lines {
                hits: socket[SocketCounter::DcaWriteHits],
                misses: socket[SocketCounter::DcaWriteMisses],
            },
            partial_writes: host.partial_writes(),
        })
    }

    /// The increase since `before`.
    pub fn since(self, before: &DmaCounters) -> DmaCounters {
        DmaCounters {
            reads: self.reads.since(before.reads),
            writes: self.writes.since(before.writes),
            partial_writes: self.partial_writes.since(before.partial_writes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_since_keeps_the_reason_of_what_is_missing() {
        let lines = |hits, misses| Lines { hits: Reading::Value(hits), misses };
        let before = lines(10, Reading::Value(5));
        let since = lines(17, Reading::Value(6)).since(before);
        assert_eq!(
            (since.hits, since.misses, since.all()),
            (Reading::Value(7), Reading::Value(1), Reading::Value(8))
        );
        assert_eq!(lines(9, Reading::Value(6)).since(before).hits, Reading::Unavailable, "it ran backwards");
        let gone = lines(17, Reading::Unsupported).since(before);
        assert_eq!((gone.misses, gone.all()), (Reading::Unsupported, Reading::Unsupported));
    }
}
