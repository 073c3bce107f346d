//! Parts of all pages: numbers as text, sparklines, strips of ways, charts. An absent value is a dash. Must not know pages.

use super::Canvas;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Span;
use waykeeper_units::WayMask;

/// Eighths of a cell, from empty to full.
const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// `62 %`.
pub fn percent(ratio: Option<f64>) -> String {
    ratio.map_or_else(dash, |ratio| format!("{:.0} %", 100.0 * ratio))
}

/// `1.23`.
pub fn plain(value: Option<f64>) -> String {
    value.map_or_else(dash, |value| format!("{value:.2}"))
}

/// `12.3G`: a number with a prefix of thousands.
pub fn thousands(value: Option<f64>) -> String {
    scaled(value, 1000.0, &["", "k", "M", "G", "T"])
}

/// `4.5Mi`: bytes with a binary prefix.
pub fn bytes(value: Option<f64>) -> String {
    scaled(value, 1024.0, &["B", "Ki", "Mi", "Gi", "Ti"])
}

/// `1.18 ±0.02`.
pub fn progress(value: Option<waykeeper_view::ProgressPicture>) -> String {
    value.map_or_else(dash, |own| format!("{:.2} ±{:.2}", own.value, own.error))
}

/// Seconds as `12 s`, `3:05` or `2:03:05`.
pub fn duration(seconds: f64) -> String {
    let whole = seconds.max(0.0) as u64;
    match (whole / 3600, whole / 60 % 60, whole % 60) {
        (0, 0, _) if seconds < 10.0 && seconds.fract() != 0.0 => format!("{seconds:.1} s"),
        (0, 0, s) => format!("{s} s"),
        (0, m, s) => format!("{m}:{s:02}"),
        (h, m, s) => format!("{h}:{m:02}:{s:02}"),
    }
}

fn dash() -> String {
    "-".to_owned()
}

fn scaled(value: Option<f64>, base: f64, prefixes: &[&str]) -> String {
    let Some(value) = value.filter(|value| value.is_finite()) else { return dash() };
    let mut scaled = value;
    let mut at = 0;
    while scaled.abs() >= base * 0.9995 && at + 1 < prefixes.len() {
        scaled /= base;
        at += 1;
    }
    let digits = if at == 0 || scaled.abs() >= 99.95 { 0 } else { 1 };
    format!("{scaled:.digits$}{}", prefixes[at])
}

/// A text cut or padded to a width; a text that is cut ends in `~`.
pub fn fitted(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return format!("{text}{}", " ".repeat(width - length));
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    if width == 0 { String::new() } else { kept + "~" }
}

/// The same, with the text on the right.
pub fn right(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length >= width { fitted(text, width) } else { format!("{}{text}", " ".repeat(width - length)) }
}

/// Ways from the highest to the lowest, a letter each: `inside` those of the mask.
pub fn strip(mask: Option<WayMask>, ways: u32, inside: char) -> String {
    let letter = |way| if mask.is_some_and(|mask| mask.contains(way)) { inside } else { '·' };
    (0..ways).rev().map(letter).collect()
}

/// A row of bars, one per value, the last one on the right. `most` is the value of a full bar.
pub fn spark(values: &[Option<f32>], width: usize, most: f64) -> String {
    let values = &values[values.len().saturating_sub(width)..];
    let bars = values.iter().map(|value| bar(*value, most, 0, 1));
    " ".repeat(width - values.len()) + &bars.collect::<String>()
}

/// The part of a bar in line `line` from below, of so many lines.
fn bar(value: Option<f32>, most: f64, line: u16, lines: u16) -> char {
    let Some(value) = value.map(f64::from) else { return ' ' };
    let part = if most > 0.0 { (value / most).clamp(0.0, 1.0) } else { 0.0 };
    let eighths = (part * f64::from(lines) * 8.0).round() as usize;
    let eighths = eighths.saturating_sub(usize::from(line) * 8).min(8);
    // A value of 0 is something, not an absent value.
    if eighths == 0 && line == 0 { EIGHTHS[1] } else { EIGHTHS[eighths] }
}

/// The value of a full bar: 1 for ratios, else the largest value.
pub fn most(values: &[Option<f32>], is_ratio: bool) -> f64 {
    if is_ratio {
        return 1.0;
    }
    values.iter().flatten().fold(0.0, |most: f64, value| most.max(f64::from(*value)))
}

impl Canvas<'_> {
    /// A text at a place, cut at the right border; returns the next column.
    pub fn text(&mut self, x: u16, y: u16, text: &str, style: Style) -> u16 {
        if y >= self.area.bottom() || x >= self.area.right() {
            return x;
        }
        let width = usize::from(self.area.right() - x);
        self.buffer.set_stringn(x, y, text, width, style).0
    }

    /// Spans one after the other.
    pub fn spans(&mut self, x: u16, y: u16, spans: &[Span<'_>]) -> u16 {
        spans.iter().fold(x, |x, span| self.text(x, y, &span.content, span.style))
    }

    /// A heading with a line up to the right border.
    pub fn heading(&mut self, y: u16, text: &str) {
        let style = self.palette.heading();
        let x = self.text(self.area.x, y, &format!("{text} "), style);
        let rest = usize::from(self.area.right().saturating_sub(x));
        self.text(x, y, &"─".repeat(rest), self.palette.faint());
    }

    /// A chart of bars over several lines.
    pub fn chart(&mut self, area: Rect, values: &[Option<f32>], most: f64, style: Style) {
        let width = usize::from(area.width);
        let values = &values[values.len().saturating_sub(width)..];
        for line in 0..area.height {
            let bars: String = values.iter().map(|value| bar(*value, most, line, area.height)).collect();
            let x = area.right() - values.len() as u16;
            self.text(x, area.bottom() - 1 - line, &bars, style);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_an_absent_one_is_a_dash() {
        assert_eq!([percent(Some(0.625)), percent(None)], ["62 %", "-"]);
        assert_eq!(
            [thousands(Some(12_345_678.0)), thousands(Some(0.0)), thousands(Some(999.9))],
            ["12.3M", "0", "1.0k"]
        );
        assert_eq!([bytes(Some(4.5 * 1_048_576.0)), bytes(Some(f64::NAN))], ["4.5Mi", "-"]);
        assert_eq!(
            [duration(12.0), duration(185.0), duration(7385.0), duration(0.25)],
            ["12 s", "3:05", "2:03:05", "0.2 s"]
        );
        assert_eq!([fitted("fastclick", 6), fitted("x", 3), right("x", 3)], ["fastc~", "x  ", "  x"]);
    }

    #[test]
    fn bars_have_a_cell_per_value_and_a_gap_where_there_is_none() {
        let values = [Some(0.0), Some(0.5), None, Some(1.0)];
        assert_eq!(spark(&values, 6, 1.0), "  ▁▄ █");
        assert_eq!(spark(&values, 2, 1.0), " █");
        assert_eq!(most(&values, false), 1.0);
        // Half of two lines is the lower one.
        assert_eq!([bar(Some(0.5), 1.0, 0, 2), bar(Some(0.5), 1.0, 1, 2)], ['█', ' ']);
        assert_eq!(strip(Some(WayMask::from_bits(0x6)), 4, '#'), "·##·");
    }
}
