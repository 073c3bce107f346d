//! `[[nic]]` and `[[storage]]`: devices of a scenario.

use super::error::ScenarioError;
use super::keys::Keys;
use crate::nic::{BUFFER_BYTES, CapturedPacket, FlowOrder, TrafficSpec};
use crate::ssd::ArraySpec;
use waykeeper_inputs::Capture;

/// Largest packet as a wire without jumbo frames carries it; larger ones of a capture are split.
const WIRE_PACKET_BYTES: u32 = 1514;

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
    /// RX descriptors per queue (a power of two).
    pub ring: u32,
    /// True if it hangs on another socket.
    pub remote: bool,
    /// What it is offered.
    pub traffic: TrafficSpec,
    /// Changes of that.
    pub phases: Vec<NicPhase>,
}

/// A storage array.
#[derive(Clone, Debug)]
pub struct StorageSpec {
    /// Its name.
    pub name: String,
    /// PCI address of its root port.
    pub port: String,
    /// True if it hangs on another socket.
    pub remote: bool,
    /// Drives and timing.
    pub array: ArraySpec,
}

pub(super) fn read_nics(keys: &mut Keys<'_>) -> Result<Vec<NicSpec>, ScenarioError> {
    let mut nics = Vec::new();
    for (index, (table, line)) in keys.tables("nic")?.into_iter().enumerate() {
        let name = table.get("name").and_then(toml::Value::as_str).unwrap_or("?");
        let mut inner = Keys::new(keys.origin(), table, &format!("nic[{name}]"), line);
        let gbps = inner.number("gbps", 0.1..=800.0, 100.0)?;
        let ring = inner.count("ring", 32..=32_768, 2048)?;
        if !ring.is_power_of_two() {
            return Err(inner.refuse("ring", &ring, "a power of two from 32 to 32768"));
        }
        let traffic = read_traffic(&mut inner, None, gbps)?;
        let mut phases = Vec::new();
        for (table, line) in inner.tables("phase")? {
            let mut phase = Keys::new(keys.origin(), table, &format!("nic[{name}].phase"), line);
            let at_s = phase.number("at_s", 0.0..=86_400.0, 0.0)?;
            phases.push(NicPhase { at_s, traffic: read_traffic(&mut phase, Some(&traffic), gbps)? });
            phase.finish()?;
        }
        nics.push(NicSpec {
            name: inner.required_text("name", "a short name")?,
            port: inner.optional_text("port")?.unwrap_or_else(|| format!("0000:{:02x}:00.0", 0x16 + index)),
            remote: inner.flag("remote", false)?,
            gbps,
            ring,
            traffic,
            phases,
        });
        inner.finish()?;
    }
    Ok(nics)
}

/// Traffic keys; in a phase they change those of `before`.
fn read_traffic(
    keys: &mut Keys<'_>,
    before: Option<&TrafficSpec>,
    line_gbps: f64,
) -> Result<TrafficSpec, ScenarioError> {
    let offered = keys.optional_number("offered_gbps", 0.0..=line_gbps)?;
    if keys.has("capture") {
        let path = keys.required_path("capture")?;
        let capture = Capture::read(&path).map_err(|why| keys.named(ScenarioError::input(why)))?;
        let packets: Vec<CapturedPacket> = capture.packets.iter().flat_map(split).collect();
        if packets.is_empty() {
            return Err(keys.refuse("capture", &path.display(), "a capture with packets"));
        }
        return Ok(TrafficSpec::Capture { packets, gbps: offered.filter(|gbps| *gbps > 0.0) });
    }
    let (bytes, rate, number, turns) = match before {
        Some(TrafficSpec::Flows { packet_bytes, gbps, flows, order }) => {
            (*packet_bytes, *gbps, *flows, *order)
        }
        // 3 x 64 fixed flows in turn: A4's client (microarchitecture.md 7).
        _ => (1024, line_gbps, 192, FlowOrder::InTurn),
    };
    if let (Some(TrafficSpec::Capture { packets, .. }), true) = (before, !keys.has("packet_bytes")) {
        return Ok(TrafficSpec::Capture { packets: packets.clone(), gbps: offered });
    }
    let order = match turns {
        FlowOrder::InTurn => "in-turn",
        FlowOrder::Random => "random",
    };
    Ok(TrafficSpec::Flows {
        packet_bytes: keys.count("packet_bytes", 60..=BUFFER_BYTES, bytes)?,
        gbps: offered.unwrap_or(rate),
        flows: keys.count("flows", 1..=1_000_000, number)?,
        order: match keys.choice("flow_order", &["in-turn", "random"], order)?.as_str() {
            "random" => FlowOrder::Random,
            _ => FlowOrder::InTurn,
        },
    })
}

/// A captured packet as the wire carries it: what segmentation offload made larger is split again.
fn split(packet: &waykeeper_inputs::Packet) -> impl Iterator<Item = CapturedPacket> + use<> {
    let packet = *packet;
    let parts = packet.bytes.div_ceil(WIRE_PACKET_BYTES).max(1);
    (0..parts).map(move |part| CapturedPacket {
        at_ns: packet.at_ns as f64,
        bytes: (packet.bytes - part * WIRE_PACKET_BYTES).clamp(60, WIRE_PACKET_BYTES),
        hash: packet.hash,
    })
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
