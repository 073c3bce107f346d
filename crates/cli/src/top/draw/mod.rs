//! Draws the live view into a buffer of cells. A function of the picture, its history and what was chosen; must not know the
//! terminal or the source.

mod detail;
mod overview;
mod parts;
mod question;
#[cfg(test)]
pub(super) mod tests;
mod timeline;

use super::palette::Palette;
use super::state::{Chosen, Page, ViewRow};
use parts::{duration, fitted, percent, plain, progress, thousands};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Span;
use waykeeper_service::printable;
use waykeeper_view::{Picture, SourceKind, ViewModel};

/// Smallest terminal that has all parts.
const LEAST: (u16, u16) = (60, 16);

/// What is drawn.
#[derive(Clone, Copy)]
pub struct Scene<'a> {
    /// The picture; `None` before the first step.
    pub picture: Option<&'a Picture>,
    /// Its history.
    pub model: &'a ViewModel,
    /// What was chosen.
    pub chosen: &'a Chosen,
    /// The colours.
    pub palette: Palette,
}

/// A buffer, the part of it that is drawn on, and the colours.
pub struct Canvas<'a> {
    buffer: &'a mut Buffer,
    area: Rect,
    palette: Palette,
}

/// Draws a page; returns the rows on it that can be selected, by line.
pub fn draw(buffer: &mut Buffer, scene: Scene<'_>) -> Vec<(u16, ViewRow)> {
    let area = buffer.area;
    let mut canvas = Canvas { buffer, area, palette: scene.palette };
    if area.width < LEAST.0 || area.height < LEAST.1 {
        let text = format!("waykeeper top needs {} columns and {} rows", LEAST.0, LEAST.1);
        canvas.text(area.x, area.y, &text, scene.palette.bad());
        return Vec::new();
    }
    let Some(picture) = scene.picture else {
        canvas.text(area.x, area.y, "waiting for the first step ...", scene.palette.faint());
        return Vec::new();
    };
    header(&mut canvas, picture, scene.chosen);
    footer(&mut canvas, picture, scene.chosen);
    let body = Rect { y: area.y + 2, height: area.height - 3, ..area };
    let mut rows = match scene.chosen.page {
        Page::Overview => overview::draw(&mut canvas, body, picture, scene),
        Page::Tenant => detail::tenant(&mut canvas, body, picture, scene),
        Page::Device => detail::device(&mut canvas, body, picture, scene),
        Page::Timeline => timeline::draw(&mut canvas, body, picture, scene),
        Page::Help => question::help(&mut canvas, body),
    };
    if let Some(open) = &scene.chosen.question
        && question::draw(&mut canvas, body, picture, open)
    {
        rows.clear();
    }
    rows
}

/// Where the steps come from, the policy, the time; then what the policy is worth and the socket.
fn header(canvas: &mut Canvas<'_>, picture: &Picture, chosen: &Chosen) {
    let Rect { x, y, width, .. } = canvas.area;
    let source = &picture.source;
    let kind = match source.kind {
        SourceKind::Daemon => "daemon",
        SourceKind::Host => "observing",
        SourceKind::Scenario => "scenario",
        SourceKind::Recording => "recording",
    };
    let state = if picture.state.is_empty() { String::new() } else { format!(" ({})", picture.state) };
    let paused = match picture.paused {
        Some(waykeeper_service::Pause::Hold) => ", paused",
        Some(waykeeper_service::Pause::Release) => ", paused, knobs restored",
        None => "",
    };
    let mut right = format!("step {}, {}", picture.step, duration(picture.time_s));
    if let (Some(place), Some(length)) = (source.place_s, source.length_s) {
        right = format!("{} of {}", duration(place), duration(length));
    }
    if let Some(speed) = source.speed {
        right += &format!(", {speed}x");
    }
    if source.stopped || chosen.frozen {
        right += if source.stopped { ", stopped" } else { ", screen held" };
    }
    // The name may be a long path: it is what is cut.
    let name = printable(&source.name);
    let left = format!("waykeeper  policy {}{state}{paused}  {kind} {name}", picture.policy);
    let room = usize::from(width).saturating_sub(right.chars().count() + 3);
    let style = canvas.palette.bar();
    let line = format!(" {} {right} ", fitted(&left, room));
    canvas.text(x, y, &fitted(&line, usize::from(width)), style);
    let faint = canvas.palette.faint();
    let socket = &picture.socket;
    let spans = [
        Span::styled(" HPWs ", faint),
        Span::styled(progress(picture.worth.hpw), tendency(canvas.palette, picture.worth.hpw)),
        Span::styled("  LPWs ", faint),
        Span::styled(progress(picture.worth.lpw), tendency(canvas.palette, picture.worth.lpw)),
        Span::styled("  write hits ", faint),
        Span::raw(percent(socket.dca_write_hit_ratio)),
        Span::styled("  memory r/w ", faint),
        Span::raw(format!(
            "{}/{} B/s",
            thousands(socket.memory_read_bytes_per_s),
            thousands(socket.memory_write_bytes_per_s)
        )),
        Span::styled("  knobs turned ", faint),
        Span::raw(picture.knobs_turned.to_string()),
        Span::styled("  on ", faint),
        Span::raw(printable(&picture.chip)),
    ];
    canvas.spans(x, y + 1, &spans);
}

/// Good above 1, bad below, plain within the error.
fn tendency(palette: Palette, of: Option<waykeeper_view::ProgressPicture>) -> ratatui::style::Style {
    match of {
        Some(own) if own.value - own.error > 1.0 => palette.good(),
        Some(own) if own.value + own.error < 1.0 => palette.bad(),
        _ => palette.plain(),
    }
}

/// What is wrong, else the last notice, else the keys. What comes last is cut off at the edge of a narrow terminal.
fn footer(canvas: &mut Canvas<'_>, picture: &Picture, chosen: &Chosen) {
    let (x, y) = (canvas.area.x, canvas.area.bottom() - 1);
    let (text, style) = match (&picture.lost, &chosen.notice) {
        (Some(why), _) => (format!(" trying again: {}", printable(why)), canvas.palette.bad()),
        (None, Some((text, true))) => (format!(" {}", printable(text)), canvas.palette.bad()),
        (None, Some((text, false))) => (format!(" {}", printable(text)), canvas.palette.good()),
        (None, None) if picture.ended => {
            (" the end: , and . seek, q quits".to_owned(), canvas.palette.heading())
        }
        (None, None) => {
            let space = if picture.source.abilities.speed { "stop" } else { "hold screen" };
            let filter = if chosen.filter.is_empty() {
                String::new()
            } else {
                format!(" [{}]", printable(&chosen.filter))
            };
            let keys = format!(
                "{filter} ? keys  q quit  ↑↓ select  ⏎ open  / filter  s sort  p policy  m mask  d DCA  4 timeline  space {space}"
            );
            (keys, canvas.palette.faint())
        }
    };
    canvas.text(x, y, &text, style);
}

/// The first visible of `count` rows, so that the row `selected` is among the `room` visible ones.
fn first_visible(selected: Option<usize>, count: usize, room: usize) -> usize {
    let selected = selected.unwrap_or_default();
    let last = count.saturating_sub(room);
    if selected < room { 0 } else { (selected + 1 - room).min(last) }
}

/// A value of a series as text.
fn value_text(series: waykeeper_view::Series, value: Option<f32>) -> String {
    use waykeeper_view::Series;
    let value = value.map(f64::from);
    match series {
        Series::LlcHitRatio | Series::MlcMissRatio | Series::DcaWriteHitRatio => percent(value),
        Series::Ipc | Series::HpwProgress | Series::LpwProgress => plain(value),
        Series::OccupancyBytes => parts::bytes(value),
        Series::Ways | Series::Dca | Series::DcaWays => {
            value.map_or_else(|| "-".to_owned(), |v| format!("{v:.0}"))
        }
        _ => thousands(value),
    }
}

/// Whether all values of a series are from 0 to 1.
fn is_ratio(series: waykeeper_view::Series) -> bool {
    use waykeeper_view::Series;
    matches!(series, Series::LlcHitRatio | Series::MlcMissRatio | Series::DcaWriteHitRatio | Series::Dca)
}
