//! The overview: the way map with the tenants, the devices, polluters and victims, the last decisions.
//!
//! Must not know other pages.

use super::parts::{bytes, fitted, most, percent, plain, progress, right, spark, strip, thousands};
use super::{Canvas, Scene, first_visible, is_ratio, tendency};
use crate::top::answer::kind;
use crate::top::state::ViewRow;
use ratatui::layout::Rect;
use ratatui::style::Style;
use waykeeper_host::Priority;
use waykeeper_service::printable;
use waykeeper_service::protocol::LoggedEvent;
use waykeeper_view::{DevicePicture, LlcPicture, Picture, Series, TenantPicture};

/// Widths of the columns.
struct Columns {
    name: usize,
    ways: usize,
    /// Of each sparkline; 0: there is none.
    spark: usize,
    has_progress: bool,
}

/// Columns of numbers: hit ratio, IPC, LLC bytes, memory traffic, each with a space before it.
const NUMBERS: [(&str, usize); 4] = [("hit", 6), ("IPC", 6), ("LLC", 8), ("mem B/s", 8)];
const SERIES: [Series; 4] =
    [Series::LlcHitRatio, Series::Ipc, Series::OccupancyBytes, Series::MemoryBytesPerS];
const PROGRESS: usize = 12;

impl Columns {
    fn new(width: usize, picture: &Picture) -> Columns {
        let longest = picture.tenants.iter().map(|tenant| tenant.name.chars().count()).max().unwrap_or(0);
        let name = longest.clamp(8, if width < 100 { 14 } else { 24 });
        let ways = picture.way_columns() as usize;
        let fixed = 4 + name + 1 + ways + NUMBERS.iter().map(|(_, width)| width).sum::<usize>();
        let has_progress = fixed + PROGRESS <= width;
        let rest = width.saturating_sub(fixed + PROGRESS);
        let each = (rest / SERIES.len()).saturating_sub(1).min(32);
        Columns { name, ways, spark: if each >= 5 { each } else { 0 }, has_progress }
    }
}

/// Draws it; returns the rows by line.
pub fn draw(canvas: &mut Canvas<'_>, area: Rect, picture: &Picture, scene: Scene<'_>) -> Vec<(u16, ViewRow)> {
    let chosen = scene.chosen;
    let (tenants, devices) = (chosen.tenants(picture), chosen.devices(picture));
    let place = chosen.place(picture);
    let height = usize::from(area.height);
    // Headings: of tenants (two lines), devices, polluters and victims, decisions.
    let rest = height.saturating_sub(5);
    let device_room = devices.len().min((rest / 5).max(1));
    let hurt_room = hurts(picture).len().min((rest / 6).max(1));
    let least_decisions = (rest / 6).max(1);
    let tenant_room =
        tenants.len().min(rest.saturating_sub(device_room + hurt_room + least_decisions).max(1));
    let columns = Columns::new(usize::from(area.width), picture);
    let mut rows = Vec::new();
    let mut y = area.y;
    tenant_heading(canvas, y, picture, &columns, tenants.len());
    y += 2;
    let first = first_visible(Some(place).filter(|place| *place < tenants.len()), tenants.len(), tenant_room);
    for (index, tenant) in tenants.iter().enumerate().skip(first).take(tenant_room) {
        tenant_row(canvas, y, tenant, &columns, scene);
        select(canvas, y, index == place);
        rows.push((y, ViewRow::Tenant(tenant.name.clone())));
        y += 1;
    }
    device_heading(canvas, y, &columns);
    y += 1;
    let selected = place.checked_sub(tenants.len());
    let first = first_visible(selected, devices.len(), device_room);
    for (index, device) in devices.iter().enumerate().skip(first).take(device_room) {
        device_row(canvas, y, device, picture, &columns, scene);
        select(canvas, y, selected == Some(index));
        rows.push((y, ViewRow::Device(device.name.clone())));
        y += 1;
    }
    canvas.heading(y, "polluters and victims");
    y += 1;
    for line in hurts(picture).into_iter().take(hurt_room) {
        canvas.text(area.x + 1, y, &line, canvas.palette.plain());
        y += 1;
    }
    canvas.heading(y, "decisions");
    y += 1;
    let room = usize::from(area.bottom().saturating_sub(y));
    decisions(canvas, y, picture.decisions.iter().rev().take(room));
    rows
}

fn select(canvas: &mut Canvas<'_>, y: u16, is_selected: bool) {
    if is_selected {
        let line = Rect { y, height: 1, ..canvas.area };
        canvas.buffer.set_style(line, canvas.palette.selected());
    }
}

/// The names of the columns, and below them which ways are those of devices or inclusive.
fn tenant_heading(canvas: &mut Canvas<'_>, y: u16, picture: &Picture, columns: &Columns, count: usize) {
    let filtered = if count == picture.tenants.len() { String::new() } else { format!("{count}/") };
    let title = format!("tenants {filtered}{}", picture.tenants.len());
    let mut line = fitted(&title, 4 + columns.name + 1) + &fitted("ways", columns.ways);
    for (name, width) in NUMBERS {
        line += &right(name, width);
        line += &" ".repeat(if columns.spark > 0 { columns.spark + 1 } else { 0 });
    }
    if columns.has_progress {
        line += &right("progress", PROGRESS);
    }
    canvas.text(canvas.area.x, y, &line, canvas.palette.heading());
    let x = canvas.area.x + 4 + columns.name as u16 + 1;
    let Some(llc) = &picture.llc else {
        canvas.text(canvas.area.x + 1, y + 1, "the ways of the LLC are not known", canvas.palette.faint());
        return;
    };
    let (dca, inclusive) = (llc.dca_ways, llc.inclusive_ways);
    let has = |mask: Option<waykeeper_units::WayMask>, way| mask.is_some_and(|mask| mask.contains(way));
    let marks = (0..llc.ways).rev().map(|way| match (has(dca, way), has(inclusive, way)) {
        (true, true) => 'B',
        (true, false) => 'D',
        (false, true) => 'I',
        (false, false) => ' ',
    });
    let marks: String = marks.collect();
    let end = canvas.text(x, y + 1, &marks, canvas.palette.faint());
    canvas.text(
        end + 2,
        y + 1,
        "D ways of devices, I inclusive, B both; highest way left",
        canvas.palette.faint(),
    );
    canvas.text(canvas.area.x + 1, y + 1, &way_size(llc), canvas.palette.faint());
}

/// How many bytes a way has.
fn way_size(llc: &LlcPicture) -> String {
    format!("{} x {}", llc.ways, bytes(Some(llc.bytes as f64 / f64::from(llc.ways))))
}

fn tenant_row(canvas: &mut Canvas<'_>, y: u16, tenant: &TenantPicture, columns: &Columns, scene: Scene<'_>) {
    let palette = canvas.palette;
    let colour = palette.name(tenant.colour);
    let priority = if tenant.priority == Priority::High { "H" } else { "L" };
    let mut x = canvas.text(canvas.area.x, y, &format!(" {priority} "), palette.faint());
    x = canvas.text(x, y, &fitted(&printable(&tenant.name), columns.name + 1), colour);
    x = canvas.text(x + 1, y, &strip(tenant.mask, columns.ways as u32, tenant.letter), colour);
    let texts = [
        percent(tenant.llc_hit_ratio),
        plain(tenant.ipc),
        bytes(tenant.occupancy_bytes),
        thousands(tenant.memory_bytes_per_s),
    ];
    for ((series, (_, width)), text) in SERIES.into_iter().zip(NUMBERS).zip(texts) {
        x = canvas.text(x, y, &right(&text, width), palette.plain());
        if columns.spark > 0 {
            x = sparkline(canvas, x + 1, y, columns.spark, series, &tenant.name, colour, scene);
        }
    }
    if columns.has_progress {
        canvas.text(x, y, &right(&progress(tenant.progress), PROGRESS), tendency(palette, tenant.progress));
    }
}

#[expect(clippy::too_many_arguments, reason = "a place, a size, a series, a look")]
fn sparkline(
    canvas: &mut Canvas<'_>,
    x: u16,
    y: u16,
    width: usize,
    series: Series,
    name: &str,
    style: Style,
    scene: Scene<'_>,
) -> u16 {
    let values = scene.model.tail(series, name, width);
    let full = most(&values, is_ratio(series));
    canvas.text(x, y, &spark(&values, width, full), style)
}

fn device_heading(canvas: &mut Canvas<'_>, y: u16, columns: &Columns) {
    let line = fitted("devices", 4 + columns.name + 1) + &fitted("ways", columns.ways);
    let line = line + &right("DCA", 6) + &right("write B/s", 10) + &right("read B/s", 10) + "  kind";
    canvas.text(canvas.area.x, y, &line, canvas.palette.heading());
}

fn device_row(
    canvas: &mut Canvas<'_>,
    y: u16,
    device: &DevicePicture,
    picture: &Picture,
    columns: &Columns,
    scene: Scene<'_>,
) {
    let palette = canvas.palette;
    let colour = palette.name(device.colour);
    let mut x = canvas.text(canvas.area.x, y, "   ", palette.faint());
    x = canvas.text(x, y, &fitted(&printable(&device.name), columns.name + 1), colour);
    // Devices without DCA fill no way.
    let mask = picture.dca_ways().filter(|_| device.dca != Some(false));
    x = canvas.text(x + 1, y, &strip(mask, columns.ways as u32, device.letter), colour);
    let dca = match device.dca {
        Some(true) => "on",
        Some(false) => "off",
        None => "-",
    };
    x = canvas.text(x, y, &right(dca, 6), palette.plain());
    x = canvas.text(x, y, &right(&thousands(device.inbound_bytes_per_s), 10), palette.plain());
    x = canvas.text(x, y, &right(&thousands(device.outbound_bytes_per_s), 10), palette.plain());
    x = canvas.text(x, y, &format!("  {}", fitted(kind(device.kind), 8)), palette.faint());
    if columns.spark > 0 {
        sparkline(canvas, x + 1, y, columns.spark, Series::InboundBytesPerS, &device.name, colour, scene);
    }
}

/// Polluters and victims, a line each.
pub fn hurts(picture: &Picture) -> Vec<String> {
    if !picture.hurts.is_empty() {
        let line = |hurt: &waykeeper_view::HurtPicture| {
            let share = hurt.share.map_or_else(|| "cannot tell".to_owned(), |share| percent(Some(share)));
            let sure =
                hurt.confidence.map_or_else(String::new, |sure| format!(", {} sure", percent(Some(sure))));
            format!("{} -> {}: {share}{sure}; {}", hurt.polluter, hurt.victim, hurt.why)
        };
        return picture.hurts.iter().map(|hurt| printable(&line(hurt))).collect();
    }
    let worst = &picture.worst;
    let victim = match (&worst.sufferer, &worst.no_sufferer) {
        (Some(own), _) => {
            format!("{} makes {:.2} ±{:.2} of its progress as found", own.tenant, own.ratio, own.error)
        }
        (None, why) => why.clone().unwrap_or_else(|| "cannot tell".to_owned()),
    };
    let polluter = match (&worst.polluter, &worst.no_polluter) {
        (Some(own), _) => {
            format!(
                "{} brings most lines into ways of {}: {}/s",
                own.name,
                own.into,
                thousands(Some(own.lines_per_s))
            )
        }
        (None, why) => why.clone().unwrap_or_else(|| "cannot tell".to_owned()),
    };
    vec![printable(&format!("victim: {victim}")), printable(&format!("polluter: {polluter}"))]
}

/// Decisions, the newest first, a line each.
pub fn decisions<'e>(canvas: &mut Canvas<'_>, mut y: u16, events: impl Iterator<Item = &'e LoggedEvent>) {
    let palette = canvas.palette;
    for event in events {
        let x = canvas.text(canvas.area.x, y, &format!("{:>6} ", event.step), palette.faint());
        let style = if event.action == "problem" { palette.bad() } else { palette.heading() };
        let x = canvas.text(x, y, &format!("{} ", printable(&event.action)), style);
        let mut text = printable(&event.text);
        for cause in &event.causes {
            let value = cause.value.map_or_else(|| "-".to_owned(), waykeeper_units::four_digits);
            let limit = match (&cause.limit, cause.limit_value) {
                (Some(name), Some(limit)) => format!(" ({} {})", name, waykeeper_units::four_digits(limit)),
                _ => String::new(),
            };
            text += &format!("; {} {value}{limit}", printable(&cause.what));
        }
        canvas.text(x, y, &text, palette.plain());
        y += 1;
    }
}
