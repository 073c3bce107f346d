//! One tenant, or the devices behind one root port: all values, their course, and the decisions about it. Must not know
//! other pages.

use super::overview::{decisions, hurts};
use super::parts::{bytes, fitted, most, percent, plain, progress, strip, thousands};
use super::{Canvas, Scene, is_ratio, value_text};
use crate::top::answer::kind;
use crate::top::state::ViewRow;
use ratatui::layout::Rect;
use ratatui::style::Style;
use waykeeper_host::{Priority, WorkloadKind};
use waykeeper_service::printable;
use waykeeper_view::{Picture, Series};

/// Lines at the bottom for decisions.
const DECISIONS: u16 = 4;

/// Draws the selected tenant.
pub fn tenant(
    canvas: &mut Canvas<'_>,
    area: Rect,
    picture: &Picture,
    scene: Scene<'_>,
) -> Vec<(u16, ViewRow)> {
    let Some(tenant) = scene.chosen.tenant(picture) else {
        canvas.text(area.x + 1, area.y, "the tenant has ended; escape leads back", canvas.palette.faint());
        return Vec::new();
    };
    let priority = if tenant.priority == Priority::High { "high" } else { "low" };
    let does = match tenant.kind {
        WorkloadKind::NonIo => "no I/O",
        WorkloadKind::NetworkIo => "network I/O",
        WorkloadKind::StorageIo => "storage I/O",
    };
    let list =
        |names: &[String]| if names.is_empty() { "-".to_owned() } else { printable(&names.join(", ")) };
    let cores = if tenant.cores.is_empty() { "-".to_owned() } else { tenant.cores.to_string() };
    let mask = tenant.mask.map_or_else(|| "-".to_owned(), |mask| mask.to_string());
    let facts = [
        ("priority", priority.to_owned()),
        ("kind", does.to_owned()),
        ("cores", cores),
        ("devices", list(&tenant.devices)),
        ("mask", format!("{mask} {}", strip(tenant.mask, picture.way_columns(), '█'))),
        ("shares its class with", list(&tenant.grouped_with)),
        ("LLC hit ratio", percent(tenant.llc_hit_ratio)),
        ("LLC references/s", thousands(tenant.llc_references_per_s)),
        ("LLC misses/s", thousands(tenant.llc_misses_per_s)),
        ("memory B/s", thousands(tenant.memory_bytes_per_s)),
        ("LLC occupancy", bytes(tenant.occupancy_bytes)),
        ("MLC miss ratio", percent(tenant.mlc_miss_ratio)),
        ("IPC", plain(tenant.ipc)),
        ("progress since found", progress(tenant.progress)),
    ];
    let series = [
        (Series::LlcHitRatio, "LLC hit ratio"),
        (Series::Ipc, "IPC"),
        (Series::OccupancyBytes, "LLC bytes"),
        (Series::MemoryBytesPerS, "memory B/s"),
        (Series::Ways, "ways"),
    ];
    let shown = Shown { what: "tenant", name: &tenant.name, colour: tenant.colour };
    page(canvas, area, picture, scene, shown, &facts, &series);
    Vec::new()
}

/// Draws the selected devices.
pub fn device(
    canvas: &mut Canvas<'_>,
    area: Rect,
    picture: &Picture,
    scene: Scene<'_>,
) -> Vec<(u16, ViewRow)> {
    let Some(device) = scene.chosen.device(picture) else {
        canvas.text(area.x + 1, area.y, "the device is gone; escape leads back", canvas.palette.faint());
        return Vec::new();
    };
    let socket = &picture.socket;
    let dca = match (device.dca, device.dca_switch) {
        (Some(true), _) => "on",
        (Some(false), _) => "off",
        (None, _) => "-",
    };
    let switch = if device.dca_switch { "can be switched" } else { "cannot be switched" };
    let tenants =
        if device.tenants.is_empty() { "-".to_owned() } else { printable(&device.tenants.join(", ")) };
    let ways = picture.dca_ways().map_or_else(|| "-".to_owned(), |mask| mask.to_string());
    let facts = [
        ("root port", printable(&device.address)),
        ("kind", kind(device.kind).to_owned()),
        ("used by", tenants),
        ("DCA", format!("{dca}, {switch}")),
        ("DCA ways", format!("{ways} {}", strip(picture.dca_ways(), picture.way_columns(), '█'))),
        ("RX ring", device.rx_ring.map_or_else(|| "-".to_owned(), |ring| ring.to_string())),
        ("write B/s", thousands(device.inbound_bytes_per_s)),
        ("read B/s", thousands(device.outbound_bytes_per_s)),
        ("write hits, socket", percent(socket.dca_write_hit_ratio)),
        ("write misses/s", thousands(socket.dca_write_misses_per_s)),
        ("read hits, socket", percent(socket.dca_read_hit_ratio)),
        (
            "load",
            picture
                .source
                .loads
                .iter()
                .find(|(name, _)| device.devices.contains(name))
                .map_or_else(|| "as it is".to_owned(), |(_, factor)| format!("{factor} times its own")),
        ),
    ];
    let series = [
        (Series::InboundBytesPerS, "write B/s"),
        (Series::OutboundBytesPerS, "read B/s"),
        (Series::Dca, "DCA"),
    ];
    let shown = Shown { what: "devices", name: &device.name, colour: device.colour };
    page(canvas, area, picture, scene, shown, &facts, &series);
    Vec::new()
}

/// What a page is about.
#[derive(Clone, Copy)]
struct Shown<'a> {
    what: &'static str,
    name: &'a str,
    colour: u8,
}

/// The facts, below them the course of each series, and the decisions at the bottom.
fn page(
    canvas: &mut Canvas<'_>,
    area: Rect,
    picture: &Picture,
    scene: Scene<'_>,
    shown: Shown<'_>,
    facts: &[(&str, String)],
    series: &[(Series, &str)],
) {
    let title = format!("{} {}", shown.what, printable(shown.name));
    let colour = canvas.palette.name(shown.colour);
    let top = facts_table(canvas, area, &title, facts);
    let rest = Rect { y: top, height: area.bottom().saturating_sub(top + DECISIONS), ..area };
    courses(canvas, rest, shown.name, series, colour, scene);
    about(canvas, area, picture, shown.name);
}

/// Facts in two columns; returns the next line.
fn facts_table(canvas: &mut Canvas<'_>, area: Rect, title: &str, facts: &[(&str, String)]) -> u16 {
    canvas.heading(area.y, title);
    let lines = facts.len().div_ceil(2);
    for (index, (name, value)) in facts.iter().enumerate() {
        let x = area.x + 1 + if index < lines { 0 } else { area.width / 2 };
        let y = area.y + 1 + (index % lines) as u16;
        canvas.text(x, y, name, canvas.palette.faint());
        let room = usize::from(area.width / 2).saturating_sub(23);
        canvas.text(x + 22, y, fitted(value, room).trim_end(), canvas.palette.plain());
    }
    area.y + 1 + lines as u16
}

/// Each series as a chart with its name and its last value.
fn courses(
    canvas: &mut Canvas<'_>,
    area: Rect,
    name: &str,
    series: &[(Series, &str)],
    colour: Style,
    scene: Scene<'_>,
) {
    if area.height < 2 {
        return;
    }
    canvas.heading(area.y, "course");
    let room = area.height - 1;
    let shown = series.len().min(usize::from(room));
    let each = (room / shown.max(1) as u16).clamp(1, 8);
    for (index, (series, label)) in series.iter().take(shown).enumerate() {
        let y = area.y + 1 + index as u16 * each;
        let chart = Rect { x: area.x + 26, y, width: area.width.saturating_sub(27), height: each };
        let values = scene.model.tail(*series, name, usize::from(chart.width));
        let full = most(&values, is_ratio(*series));
        let last = values.last().copied().flatten();
        canvas.text(area.x + 1, y, label, canvas.palette.faint());
        canvas.text(area.x + 16, y, &value_text(*series, last), canvas.palette.plain());
        canvas.chart(chart, &values, full, colour);
    }
}

/// Who hurts it, and the last decisions that name it.
fn about(canvas: &mut Canvas<'_>, area: Rect, picture: &Picture, name: &str) {
    let y = area.bottom().saturating_sub(DECISIONS);
    canvas.heading(y, "about it");
    let hurt = hurts(picture).into_iter().find(|line| line.contains(name));
    let mut next = y + 1;
    if let Some(line) = hurt {
        canvas.text(area.x + 1, next, &line, canvas.palette.plain());
        next += 1;
    }
    let names = |event: &&waykeeper_service::protocol::LoggedEvent| {
        event.tenant.as_deref() == Some(name) || event.text.contains(name)
    };
    let room = usize::from(area.bottom().saturating_sub(next));
    decisions(canvas, next, picture.decisions.iter().rev().filter(names).take(room));
}
