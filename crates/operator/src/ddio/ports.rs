//! Every root port with the state of its DCA switch and the devices behind it.
//!
//! Only reads, and only at offsets where the generation's table has a register and the port has no capability header
//! (hardware.md 2.1). Must not know why a port is read.

use super::survey::{PortDca, PortDevice};
use waykeeper_generations::{Generation, PortSwitch};
use waykeeper_kernel::pci::{PciConfigSpace, PciDevice, PciError, PciTree};
use waykeeper_kernel::root::Root;
use waykeeper_kernel::topology::Topology;

/// All root ports by address, and messages about devices that could not be read.
pub(super) fn all(
    root: &Root,
    generation: Option<&Generation>,
    topology: Option<&Topology>,
) -> (Vec<PortDca>, Vec<String>) {
    let tree = match PciTree::read(root) {
        Ok(tree) => tree,
        Err(error) => return (Vec::new(), vec![error.to_string()]),
    };
    let mut blind: Vec<String> = tree.unreadable().map(|(_, why)| why).chain(tree.strange()).collect();
    let mut ports: Vec<PortDca> = Vec::new();
    for bridge in tree.devices().filter(|device| device.is_bridge()) {
        // A bridge below another is not a root port; a bridge that cannot be read is listed with a note.
        if tree.above(root, bridge.address).is_ok_and(|above| !above.is_empty()) {
            continue;
        }
        let (state, note, denied) = match read(root, bridge, generation) {
            Ok(state) => (state, None, false),
            Err((note, denied)) => (State::default(), Some(note), denied),
        };
        let behind = tree.behind(root, bridge.address).unwrap_or_else(|error| {
            blind.push(error.to_string());
            Vec::new()
        });
        ports.push(PortDca {
            address: bridge.address,
            socket: topology.and_then(|topology| socket_of(topology, bridge)),
            dca: state.dca,
            no_snoop: state.no_snoop,
            hints_off: state.hints_off,
            note,
            denied,
            devices: behind.into_iter().map(described).collect(),
        });
    }
    blind.dedup();
    (ports, blind)
}

#[derive(Default)]
struct State {
    dca: Option<bool>,
    no_snoop: Option<bool>,
    hints_off: Option<bool>,
}

/// State of the switch; else why it cannot be read, and whether permission is missing.
fn read(root: &Root, port: &PciDevice, generation: Option<&Generation>) -> Result<State, (String, bool)> {
    let Some(switch) = generation.map(|generation| &generation.dca.port) else {
        return Err(("no built-in table describes this CPU".to_owned(), false));
    };
    let allocating = match switch.allocating {
        Some(bit) if switch.evidence.may_read() => bit,
        _ => return Err(("no such switch is known on this CPU".to_owned(), false)),
    };
    let words = |error: PciError| {
        (error.to_string(), matches!(error, PciError::Cut { .. } | PciError::Forbidden { .. }))
    };
    let config = PciConfigSpace::open(root, port.address).map_err(words)?;
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

fn described(device: &PciDevice) -> PortDevice {
    PortDevice {
        address: device.address,
        class: device.class,
        id: format!("{:04x}:{:04x}", device.vendor, device.device),
        names: device.names.clone(),
    }
}
