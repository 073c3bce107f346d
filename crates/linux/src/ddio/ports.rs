//! Every root port with the state of its DCA switch and the devices behind it.
//!
//! Reads only, and only offsets where the generation's table has a register and the port no capability header
//! (hardware.md 2.1). Must not know what is wanted of a port.

use super::names;
use super::survey::{Behind, PortDca};
use crate::pci::{Config, PciDevice, PciError, PciTree};
use crate::root::Root;
use crate::topology::Topology;
use waykeeper_generations::{Generation, PortSwitch};

/// All root ports, by address; or why they cannot be listed.
pub(super) fn all(
    root: &Root,
    generation: Option<&Generation>,
    topology: Option<&Topology>,
) -> Result<Vec<PortDca>, String> {
    let tree = PciTree::read(root).map_err(|error| error.to_string())?;
    let mut ports: Vec<PortDca> = Vec::new();
    for bridge in tree.devices().filter(|device| device.is_bridge()) {
        // A bridge below another is no root port; a bridge that cannot be read is one with a note.
        if tree.above(root, bridge.address).is_ok_and(|above| !above.is_empty()) {
            continue;
        }
        let (state, note, denied) = match read(root, bridge, generation) {
            Ok(state) => (state, None, false),
            Err((note, denied)) => (State::default(), Some(note), denied),
        };
        let behind = tree.behind(root, bridge.address).map_err(|error| error.to_string())?;
        ports.push(PortDca {
            address: bridge.address,
            socket: topology.and_then(|topology| socket_of(topology, bridge)),
            dca: state.dca,
            no_snoop: state.no_snoop,
            hints_off: state.hints_off,
            note,
            denied,
            devices: behind.into_iter().map(|device| described(root, device)).collect(),
        });
    }
    Ok(ports)
}

#[derive(Default)]
struct State {
    dca: Option<bool>,
    no_snoop: Option<bool>,
    hints_off: Option<bool>,
}

/// The switch; else why it cannot be told, and whether that is for want of permission.
fn read(root: &Root, port: &PciDevice, generation: Option<&Generation>) -> Result<State, (String, bool)> {
    let Some(switch) = generation.map(|generation| &generation.dca.port) else {
        return Err(("no table describes this CPU".to_owned(), false));
    };
    let allocating = match switch.allocating {
        Some(bit) if switch.standing.may_read() => bit,
        _ => return Err(("there is no such switch".to_owned(), false)),
    };
    let words = |error: PciError| {
        (error.to_string(), matches!(error, PciError::Cut { .. } | PciError::Forbidden { .. }))
    };
    let config = Config::open(root, port.address).map_err(words)?;
    config.check_register(allocating.offset).map_err(words)?;
    let dca = config.bit(allocating).map_err(words)?;
    let extra = |bit: fn(&PortSwitch) -> Option<_>| bit(switch).and_then(|bit| config.bit(bit).ok());
    Ok(State {
        dca: Some(dca),
        no_snoop: extra(|switch| switch.no_snoop),
        hints_off: extra(|switch| switch.hints_off),
    })
}

fn socket_of(topology: &Topology, port: &PciDevice) -> Option<u16> {
    let node = port.node?;
    topology.online().find(|(_, place)| place.node == Some(node)).map(|(_, place)| place.socket)
}

fn described(root: &Root, device: &PciDevice) -> Behind {
    Behind {
        address: device.address,
        class: device.class,
        id: format!("{:04x}:{:04x}", device.vendor, device.device),
        names: names::names_of(root, device.address),
    }
}
