//! What each tenant and each root port does per second, as plain numbers.
//!
//! Must not know counters, nor what is made of the rates.

use waykeeper_units::WayMask;

/// What a tenant's cores do per second.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct TenantFlow {
    pub mask: WayMask,
    /// Own lines that they find in the LLC.
    pub own_hits: f64,
    /// Own lines that they read from memory.
    pub own_misses: f64,
    /// Device data that they find in the LLC.
    pub device_hits: f64,
    /// Device data that they read from memory.
    pub device_misses: f64,
    /// LLC lines that it holds, of the sampled sets; `None` where that is not counted.
    pub held_lines: Option<f64>,
    /// Lines that its MLCs can hold, of the sampled sets.
    pub mlc_lines: usize,
    /// Ports of its devices, with the lines per second that are written for it behind each.
    pub ports_with_lines: Vec<(usize, f64)>,
}

impl TenantFlow {
    /// What its MLCs miss, per second.
    pub fn references(&self) -> f64 {
        self.own_hits + self.own_misses + self.device_hits + self.device_misses
    }

    /// Lines that devices write for it, per second.
    pub fn written(&self) -> f64 {
        self.ports_with_lines.iter().map(|(_, lines)| lines).sum()
    }
}

/// What the devices behind a port do per second.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct PortFlow {
    /// Lines that they write.
    pub writes: f64,
    /// Whether they write into the LLC.
    pub dca: bool,
    /// Whether a NIC is behind the port.
    pub is_network: bool,
    /// The part of these writes that find the line in a cache.
    pub hit_ratio: f64,
    /// Lines that they read from a cache.
    pub reads: f64,
    /// The part of what they write that a core reads.
    pub read_ratio: f64,
    /// The part of the lines that a core read which they read afterwards.
    pub sent_ratio: f64,
    /// Whether cores write the lines of theirs that they read, as a program that forwards packets writes their headers.
    pub is_written: bool,
    /// Tenants that use them, by number.
    pub users: Vec<usize>,
}

/// The rates of all.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Flows {
    pub tenants: Vec<TenantFlow>,
    pub ports: Vec<PortFlow>,
    pub dca_ways: WayMask,
    /// The ways whose lines may also be in an MLC; `None` in an inclusive LLC.
    pub inclusive_ways: Option<WayMask>,
}

impl Flows {
    /// Events per second that a play draws from: of each tenant own hits, own misses, device hits and misses, then of
    /// each port its writes.
    pub fn rates(&self) -> Vec<f64> {
        let of_tenants = self.tenants.iter().flat_map(|tenant| {
            [tenant.own_hits, tenant.own_misses, tenant.device_hits, tenant.device_misses]
        });
        of_tenants.chain(self.ports.iter().map(|port| port.writes)).collect()
    }
}
