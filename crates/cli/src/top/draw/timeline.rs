//! One series of all tenants or devices over time: a chart for each name on one time axis. Must not know other pages.

use super::parts::{duration, fitted, most, right};
use super::{Canvas, Scene, first_visible, is_ratio, value_text};
use crate::top::state::{SERIES, ViewRow};
use ratatui::layout::Rect;
use waykeeper_service::printable;
use waykeeper_view::{Picture, SeriesOf};

/// Columns before the charts: name and last value.
const NAME: usize = 16;
const VALUE: usize = 8;

/// Draws it; returns the rows by line.
pub fn draw(canvas: &mut Canvas<'_>, area: Rect, picture: &Picture, scene: Scene<'_>) -> Vec<(u16, ViewRow)> {
    let chosen = scene.chosen;
    let (series, label) = SERIES[chosen.series % SERIES.len()];
    let names: Vec<(Option<ViewRow>, String, u8)> = match series.of() {
        SeriesOf::Tenants => chosen
            .tenants(picture)
            .into_iter()
            .map(|own| (Some(ViewRow::Tenant(own.name.clone())), own.name.clone(), own.colour))
            .collect(),
        SeriesOf::Devices => chosen
            .devices(picture)
            .into_iter()
            .map(|own| (Some(ViewRow::Device(own.name.clone())), own.name.clone(), own.colour))
            .collect(),
        SeriesOf::Socket => vec![(None, "socket".to_owned(), 0)],
    };
    canvas.heading(area.y, &format!("{label} over time (s: next series)"));
    let room = usize::from(area.height.saturating_sub(2));
    let each = (room / names.len().max(1)).clamp(1, 8);
    let shown = names.len().min(room / each);
    let selected = names.iter().position(|(row, ..)| row.is_some() && *row == chosen.row);
    let first = first_visible(selected, names.len(), shown);
    let width = area.width.saturating_sub((NAME + VALUE + 3) as u16);
    let all: Vec<_> =
        names.iter().map(|(_, name, _)| scene.model.tail(series, name, usize::from(width))).collect();
    // One scale for all, so that they can be compared.
    let full = all.iter().map(|values| most(values, is_ratio(series))).fold(0.0, f64::max);
    let mut rows = Vec::new();
    for (index, (row, name, colour)) in names.iter().enumerate().skip(first).take(shown) {
        let y = area.y + 1 + ((index - first) * each) as u16;
        let style = canvas.palette.name(*colour);
        let last = all[index].last().copied().flatten();
        canvas.text(area.x + 1, y, &fitted(&printable(name), NAME), style);
        canvas.text(
            area.x + 1 + NAME as u16,
            y,
            &right(&value_text(series, last), VALUE),
            canvas.palette.plain(),
        );
        let chart = Rect { x: area.right() - width, y, width, height: each as u16 };
        canvas.chart(chart, &all[index], full, style);
        if selected == Some(index) {
            let line = Rect { y, height: each as u16, ..canvas.area };
            canvas.buffer.set_style(line, canvas.palette.selected());
        }
        rows.extend(row.clone().map(|row| (y, row)));
    }
    let y = area.bottom() - 1;
    let from = format!("{} before", duration(f64::from(width) * picture.period_s));
    canvas.text(area.right() - width, y, &from, canvas.palette.faint());
    canvas.text(area.right() - 3, y, "now", canvas.palette.faint());
    canvas.text(
        area.x + 1,
        y,
        &format!("full bar {}", value_text(series, Some(full as f32))),
        canvas.palette.faint(),
    );
    rows
}
