//! `waykeeper ddio show`: the tables.

use crate::exit::Failure;
use crate::{listing, out};
use std::fmt::Write;
use waykeeper_kernel::dca_ways::words;
use waykeeper_operator::ddio::{PortDca, PortDevice, SocketWays, Survey};
use waykeeper_units::WayMask;

/// Prints all tables, or JSON.
pub fn show(survey: &Survey, json: bool) -> Result<(), Failure> {
    if json { out::json(survey) } else { out::text(&tables(survey)) }
}

fn tables(survey: &Survey) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}\n", survey.cpu);
    let heading = ["socket", "DDIO ways", "count", "default", "shareable", "register"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    rows.extend(survey.sockets.iter().map(socket_row));
    out.push_str(&listing::columns(&rows));
    if let Some(note) = &survey.ways_note {
        let _ = writeln!(out, "{note}");
    }
    let heading = ["root port", "socket", "DCA", "devices behind it"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    rows.extend(survey.ports.iter().map(port_row));
    out.push('\n');
    if survey.ports.is_empty() {
        out.push_str("no root ports\n");
    } else {
        out.push_str(&listing::columns(&rows));
    }
    if let Some(note) = &survey.ports_note {
        let _ = writeln!(out, "{note}");
    }
    out
}

fn mask(mask: Option<WayMask>) -> String {
    mask.map_or_else(|| "-".to_owned(), |mask| mask.to_string())
}

fn socket_row(socket: &SocketWays) -> Vec<String> {
    let register = match &socket.note {
        Some(note) => note.clone(),
        None => words(socket.standing).to_owned(),
    };
    vec![
        socket.socket.to_string(),
        mask(socket.mask),
        socket.mask.map_or_else(|| "-".to_owned(), |mask| mask.count().to_string()),
        mask(socket.default),
        mask(socket.shareable),
        register,
    ]
}

fn port_row(port: &PortDca) -> Vec<String> {
    let dca = match port.dca {
        Some(true) => "on",
        Some(false) => "off",
        None => "-",
    };
    vec![
        port.address.to_string(),
        port.socket.map_or_else(|| "-".to_owned(), |socket| socket.to_string()),
        dca.to_owned(),
        listing::or_dash(&port.devices.iter().map(PortDevice::to_string).collect::<Vec<_>>().join(", ")),
    ]
}
