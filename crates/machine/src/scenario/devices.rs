//! `[[nic]]` and `[[storage]]`: the devices of a scenario. Must not simulate them.
//!
//! Marks: docs/reference/README.md#marks.

use super::error::ScenarioError;
use super::keys::{Keys, LATEST_S};
use crate::nic::{BUFFER_BYTES, FlowOrder, MempoolSpec, OUTSIDE_NS, Pace, Steering, TrafficSpec, usual_link};
use crate::ssd::ArraySpec;
use waykeeper_inputs::{ETHERNET_BYTES, SHORTEST_FRAME};
use waykeeper_silicon::{ChipSpec, LlcKind, Pages, PayloadTarget, Placement};

/// Placements of packets; the first is that of real servers.
const PLACEMENTS: [&str; 6] = ["ddio", "dram", "llc", "mlc", "headers", "idio"];

/// The DSCP of traffic that needs low latency (RFC 3246). The paper does not say which DSCPs IDIO treats as critical
/// (ours).
const EXPEDITED_FORWARDING: u8 = 46;

/// Buffers of a mempool, for all queues together (A: A4's FastClick, NB_MBUF).
const MEMPOOL_BUFFERS: u32 = 65_535;

/// Maximum size of a mempool cache, buffers (D: DPDK, RTE_MEMPOOL_CACHE_MAX_SIZE).
const MEMPOOL_CACHE_MOST: u32 = 512;

/// The MTU of Ethernet without jumbo frames (IEEE 802.3), and the largest that NICs of today have (D: mlx5 and ice take
/// more than 9000, and few more than 9216).
const USUAL_MTU: u32 = 1500;
const MTU_MOST: u32 = 9216;

/// The wire of a NIC: its rate, Gb/s, and its MTU if the scenario gives one.
#[derive(Clone, Copy, Debug)]
struct Wire {
    gbps: f64,
    mtu: Option<u32>,
}

impl Wire {
    /// The longest packet of flows: without an MTU what a buffer holds.
    fn longest_of_flows(self) -> u32 {
        self.mtu.map_or(BUFFER_BYTES, |mtu| mtu + ETHERNET_BYTES)
    }

    /// The longest packet of a capture; longer ones are split.
    fn longest_of_captures(self) -> u32 {
        self.mtu.unwrap_or(USUAL_MTU) + ETHERNET_BYTES
    }
}

/// A change of a NIC's traffic.
#[derive(Clone, Debug)]
pub struct NicPhase {
    /// When, s on the server's clock.
    pub at_s: f64,
    /// The traffic from then on.
    pub traffic: TrafficSpec,
}

/// One NIC port.
#[derive(Clone, Debug)]
pub struct NicSpec {
    /// Its name.
    pub name: String,
    /// PCI address of its root port.
    pub port: String,
    /// Line rate, Gb/s.
    pub gbps: f64,
    /// PCIe bandwidth towards the host, GB/s.
    pub link_gb_per_s: f64,
    /// RX descriptors per queue (a power of two).
    pub ring: u32,
    /// True if it is attached to another socket.
    pub remote: bool,
    /// The part of a measured latency that is spent outside the host, ns.
    pub outside_ns: f64,
    /// Placement of its packets; `None` uses DCA.
    pub steering: Option<Steering>,
    /// Consumed buffers are invalidated and not written back.
    pub self_invalidate: bool,
    /// Load of the busiest queue relative to the mean; `None` uses RSS.
    pub imbalance: Option<f64>,
    /// Seed of the assignment of flows to queues; `None` uses the seed of the run.
    pub rss_seed: Option<u64>,
    /// Maximum bytes of reads in flight; `None` is unlimited.
    pub read_window: Option<f64>,
    /// The mempool of its buffers; `None`: unlimited buffers, and the last freed one is allocated first.
    pub mempool: Option<MempoolSpec>,
    /// Workers write every buffer once at the start.
    pub warm_buffers: bool,
    /// Physical memory of its rings and buffers; `None`: as its driver asks.
    pub pages: Option<Pages>,
    /// Its offered traffic.
    pub traffic: TrafficSpec,
    /// Changes of the traffic.
    pub phases: Vec<NicPhase>,
}

impl NicSpec {
    /// The longest packet that it offers, bytes.
    pub(crate) fn longest_packet(&self) -> u32 {
        let all = std::iter::once(&self.traffic).chain(self.phases.iter().map(|phase| &phase.traffic));
        all.map(TrafficSpec::longest_packet).max().unwrap_or(0)
    }
}

/// A storage array.
#[derive(Clone, Debug)]
pub struct StorageSpec {
    /// Its name.
    pub name: String,
    /// PCI address of its root port.
    pub port: String,
    /// True if it is attached to another socket.
    pub remote: bool,
    /// Drives and timing.
    pub array: ArraySpec,
}

pub(super) fn read_nics(keys: &mut Keys<'_>, chip: &ChipSpec) -> Result<Vec<NicSpec>, ScenarioError> {
    let mut nics = Vec::new();
    for (index, (table, line)) in keys.tables("nic")?.into_iter().enumerate() {
        let name = table.get("name").and_then(toml::Value::as_str).unwrap_or("?");
        let mut inner = Keys::new(keys.origin(), table, &format!("nic[{name}]"), line);
        let gbps = inner.number("gbps", 0.1..=800.0, 100.0)?;
        let ring = inner.count("ring", 32..=32_768, 2048)?;
        if !ring.is_power_of_two() {
            return Err(inner.refuse("ring", &ring, "a power of two from 32 to 32768"));
        }
        let mtu = match inner.has("mtu") {
            true => Some(inner.count("mtu", 576..=MTU_MOST, USUAL_MTU)?),
            false => None,
        };
        let wire = Wire { gbps, mtu };
        let traffic = read_traffic(&mut inner, None, wire)?;
        let own = Own { traffic: &traffic, offered: inner.optional_number("offered_gbps", 0.0..=gbps)? };
        let mut phases = Vec::new();
        for (table, line) in inner.tables("phase")? {
            let mut phase = Keys::new(keys.origin(), table, &format!("nic[{name}].phase"), line);
            let at_s = phase.number("at_s", 0.0..=LATEST_S, 0.0)?;
            phases.push(NicPhase { at_s, traffic: read_traffic(&mut phase, Some(own), wire)? });
            phase.finish()?;
        }
        nics.push(NicSpec {
            name: inner.required_text("name", "a short name")?,
            port: inner.optional_text("port")?.unwrap_or_else(|| format!("0000:{:02x}:00.0", 0x16 + index)),
            remote: inner.flag("remote", false)?,
            outside_ns: inner.number("outside_us", 0.0..=1e6, OUTSIDE_NS / 1e3)? * 1e3,
            steering: read_steering(&mut inner, chip)?,
            self_invalidate: inner.flag("self_invalidate", false)?,
            imbalance: inner.optional_number("imbalance", 1.0..=1024.0)?,
            rss_seed: match inner.has("rss_seed") {
                true => Some(u64::from(inner.count("rss_seed", 0..=u32::MAX, 0)?)),
                false => None,
            },
            read_window: match inner.has("read_window") {
                true => Some(inner.required_size("read_window", 1024..=1 << 30)? as f64),
                false => None,
            },
            mempool: read_mempool(&mut inner)?,
            warm_buffers: inner.flag("warm_buffers", false)?,
            pages: inner.pages()?,
            link_gb_per_s: inner.number("link_gb_per_s", 0.01..=128.0, usual_link(gbps))?,
            gbps,
            ring,
            traffic,
            phases,
        });
        inner.finish()?;
    }
    Ok(nics)
}

/// `mempool_cache` and `mempool_buffers`.
fn read_mempool(keys: &mut Keys<'_>) -> Result<Option<MempoolSpec>, ScenarioError> {
    let buffers = keys.count("mempool_buffers", 1..=1 << 20, MEMPOOL_BUFFERS)?;
    if !keys.has("mempool_cache") {
        if keys.has("mempool_buffers") {
            return Err(keys.refuse("mempool_buffers", &buffers, "given together with `mempool_cache`"));
        }
        return Ok(None);
    }
    Ok(Some(MempoolSpec { cache: keys.count("mempool_cache", 0..=MEMPOOL_CACHE_MOST, 0)?, buffers }))
}

/// The traffic of a NIC outside its phases, and its `offered_gbps` if the scenario has that key.
#[derive(Clone, Copy)]
struct Own<'a> {
    traffic: &'a TrafficSpec,
    offered: Option<f64>,
}

/// Traffic keys; in a phase they override the NIC's own.
fn read_traffic(keys: &mut Keys<'_>, own: Option<Own<'_>>, wire: Wire) -> Result<TrafficSpec, ScenarioError> {
    let line_gbps = wire.gbps;
    let offered = keys.optional_number("offered_gbps", 0.0..=line_gbps)?;
    let before = own.map(|own| own.traffic);
    let part = match before {
        Some(before) => read_part(keys, before, offered)?,
        None => 1.0,
    };
    let rate = offered.or(own.and_then(|own| own.offered));
    if keys.has("capture") {
        let path = keys.required_path("capture")?;
        let capture =
            keys.origin().inputs.capture(&path, wire.longest_of_captures()).map_err(|why| keys.named(why))?;
        if rate.is_none() && capture.span_ns() <= 0.0 {
            let wanted = "a capture whose packets have different times, or have `offered_gbps` beside it: all its packets have one time";
            return Err(keys.refuse("capture", &path.display(), wanted));
        }
        return Ok(TrafficSpec::Capture { capture, gbps: rate, line_gbps });
    }
    let (bytes, usual, number, turns) = match before {
        Some(TrafficSpec::Flows { packet_bytes, gbps, flows, order, .. }) => {
            (*packet_bytes, *gbps, *flows, *order)
        }
        // 3 x 64 fixed flows in turn, as A4's client (microarchitecture.md 7).
        _ => (1024, rate.unwrap_or(line_gbps), 192, FlowOrder::InTurn),
    };
    let (pace, dscp) = match before {
        Some(TrafficSpec::Flows { pace, dscp, .. }) => (*pace, *dscp),
        _ => (Pace::Even, 0),
    };
    if let (Some(TrafficSpec::Capture { capture, .. }), true) = (before, !keys.has("packet_bytes")) {
        return Ok(TrafficSpec::Capture { capture: capture.clone(), gbps: rate, line_gbps });
    }
    let order = match turns {
        FlowOrder::InTurn => "in-turn",
        FlowOrder::Random => "random",
    };
    let packet_bytes = read_packet_bytes(keys, wire, bytes)?;
    Ok(TrafficSpec::Flows {
        packet_bytes,
        mix: read_mix(keys, before, wire.longest_of_flows())?,
        gbps: offered.unwrap_or(usual * part),
        flows: keys.count("flows", 1..=1_000_000, number)?,
        order: match keys.choice("flow_order", &["in-turn", "random"], order)?.as_str() {
            "random" => FlowOrder::Random,
            _ => FlowOrder::InTurn,
        },
        pace: read_pace(keys, pace, line_gbps)?,
        dscp: keys.count("dscp", 0..=63, u32::from(dscp))? as u8,
    })
}

/// `packet_bytes`. A packet that is too long for the wire is refused with the key that makes it fit.
fn read_packet_bytes(keys: &mut Keys<'_>, wire: Wire, usual: u32) -> Result<u32, ScenarioError> {
    let most = wire.longest_of_flows();
    let bytes = keys.count("packet_bytes", SHORTEST_FRAME..=most.max(MTU_MOST + ETHERNET_BYTES), usual)?;
    if bytes > most && keys.has("packet_bytes") {
        let mtu = bytes - ETHERNET_BYTES;
        let wanted =
            format!("from {SHORTEST_FRAME} to {most}, or `mtu` of the NIC at least {mtu}, for jumbo frames");
        return Err(keys.refuse("packet_bytes", &bytes, &wanted));
    }
    Ok(bytes.min(most))
}

/// `packet_mix`: pairs of a size and a weight.
fn read_mix(
    keys: &mut Keys<'_>,
    before: Option<&TrafficSpec>,
    most: u32,
) -> Result<Vec<(u32, f64)>, ScenarioError> {
    let sized = keys.has("packet_bytes");
    let Some(list) = keys.list("packet_mix")? else {
        return Ok(match before {
            Some(TrafficSpec::Flows { mix, .. }) if !sized => mix.clone(),
            _ => Vec::new(),
        });
    };
    let number = |value: &toml::Value| value.as_float().or(value.as_integer().map(|n| n as f64));
    let pair = |value: &toml::Value| match value.as_array()?.as_slice() {
        [bytes, weight] => {
            let bytes =
                u32::try_from(bytes.as_integer()?).ok().filter(|b| (SHORTEST_FRAME..=most).contains(b))?;
            Some((bytes, number(weight).filter(|weight| *weight > 0.0 && *weight <= 1e6)?))
        }
        _ => None,
    };
    let wanted = format!(
        "pairs of a size from {SHORTEST_FRAME} to {most} and a weight, as in [[{SHORTEST_FRAME}, 1], [1514, 3.5]]"
    );
    let read = |value| pair(value).ok_or_else(|| keys.refuse("packet_mix", value, &wanted));
    if list.is_empty() {
        return Err(keys.refuse("packet_mix", &"[]", &wanted));
    }
    if sized {
        return Err(keys.refuse(
            "packet_bytes",
            &"given together with `packet_mix`",
            "absent: `packet_mix` gives the packet sizes",
        ));
    }
    list.iter().map(read).collect()
}

/// `offered_part` of a phase: the load as a fraction of the NIC's own, so that it follows a sweep of that.
fn read_part(keys: &mut Keys<'_>, before: &TrafficSpec, offered: Option<f64>) -> Result<f64, ScenarioError> {
    let Some(part) = keys.optional_number("offered_part", 0.0..=1.0)? else { return Ok(1.0) };
    let captured = matches!(before, TrafficSpec::Capture { .. }) || keys.has("capture");
    if captured || offered.is_some() {
        let wanted = "absent: it needs flows instead of a capture, and no `offered_gbps` beside it";
        return Err(keys.refuse("offered_part", &part, wanted));
    }
    Ok(part)
}

/// `arrivals` and `train`.
fn read_pace(keys: &mut Keys<'_>, before: Pace, line_gbps: f64) -> Result<Pace, ScenarioError> {
    let (usual, train) = match before {
        Pace::Even => ("even", 1),
        Pace::Exponential { burst, .. } => ("exponential", burst),
    };
    let exponential = keys.choice("arrivals", &["even", "exponential"], usual)? == "exponential";
    let burst = keys.count("train", 1..=100_000, train)?;
    match (exponential, burst) {
        (true, burst) => Ok(Pace::Exponential { burst, line_gbps }),
        (false, 1) => Ok(Pace::Even),
        (false, burst) => Err(keys.refuse("train", &burst, "1, unless `arrivals` is `exponential`")),
    }
}

/// `placement` and its keys. The names are those of algorithms.md 4.5.
fn read_steering(keys: &mut Keys<'_>, chip: &ChipSpec) -> Result<Option<Steering>, ScenarioError> {
    let placement = match keys.choice("placement", &PLACEMENTS, PLACEMENTS[0])?.as_str() {
        "dram" => Some(Placement::Fixed(PayloadTarget::Dram)),
        "llc" => Some(Placement::Fixed(PayloadTarget::Llc)),
        "mlc" => Some(Placement::Fixed(PayloadTarget::Mlc)),
        "headers" => Some(Placement::Headers),
        "idio" => Some(Placement::Dynamic),
        _ => None,
    };
    let dscp_wanted = "a list of DSCPs from 0 to 63";
    let listed = keys.list("critical_dscp")?.map(<[_]>::to_vec);
    let critical_dscp = match listed {
        None => vec![EXPEDITED_FORWARDING],
        Some(list) => list
            .iter()
            .map(|value| match value.as_integer() {
                Some(dscp @ 0..64) => Ok(dscp as u8),
                _ => Err(keys.refuse("critical_dscp", value, dscp_wanted)),
            })
            .collect::<Result<_, _>>()?,
    };
    if placement.is_some() && chip.llc.kind != LlcKind::NonInclusive {
        let value = keys.choice("placement", &PLACEMENTS, PLACEMENTS[0])?;
        let wanted = "`ddio`: IDIO is simulated on chips with a non-inclusive LLC only";
        return Err(keys.refuse("placement", &format!("`{value}`"), wanted));
    }
    Ok(placement.map(|placement| Steering { placement, critical_dscp }))
}

pub(super) fn read_storage(keys: &mut Keys<'_>) -> Result<Vec<StorageSpec>, ScenarioError> {
    let mut arrays = Vec::new();
    for (index, (table, line)) in keys.tables("storage")?.into_iter().enumerate() {
        let name = table.get("name").and_then(toml::Value::as_str).unwrap_or("?");
        let mut inner = Keys::new(keys.origin(), table, &format!("storage[{name}]"), line);
        let usual = ArraySpec::default();
        let array = ArraySpec {
            drives: inner.count("drives", 1..=64, usual.drives)?,
            chunk_bytes: inner.size("chunk", 4096..=1 << 30, u64::from(usual.chunk_bytes))? as u32,
            drive_gb_per_s: inner.number("drive_gb_per_s", 0.01..=64.0, usual.drive_gb_per_s)?,
            write_gb_per_s: inner.optional_number("write_gb_per_s", 0.01..=64.0)?,
            link_gb_per_s: inner.optional_number("link_gb_per_s", 0.01..=64.0)?,
            command_ns: inner.number("command_us", 0.0..=1e6, usual.command_ns / 1e3)? * 1e3,
            commands_per_s: inner.optional_number("commands_per_s", 1.0..=1e9)?,
            service_ns: inner.number("service_us", 0.0..=1e6, usual.service_ns / 1e3)? * 1e3,
            flush_ns: inner.optional_number("flush_us", 0.0..=1e6)?.map(|us| us * 1e3),
            flash_ns: inner.number("flash_us", 0.0..=1e6, usual.flash_ns / 1e3)? * 1e3,
            flash_spread: inner.number("flash_spread", 0.0..=1.0, usual.flash_spread)?,
            completion_ns: inner.number("completion_us", 0.0..=1e6, usual.completion_ns / 1e3)? * 1e3,
            interleave: inner.count("interleave", 1..=64, usual.interleave)?,
        };
        arrays.push(StorageSpec {
            name: inner.required_text("name", "a short name")?,
            port: inner.optional_text("port")?.unwrap_or_else(|| format!("0000:{:02x}:00.0", 0x5d + index)),
            remote: inner.flag("remote", false)?,
            array,
        });
        inner.finish()?;
    }
    Ok(arrays)
}
