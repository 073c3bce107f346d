//! Grouped bars as a picture: a bar per series in each group, whiskers, a line at "no difference".
//!
//! The server draws it, since it is also the picture of a README, and the page shows it without scripts. This file computes
//! the geometry, the template `bars.svg` writes it. Must not know what the numbers mean.

use super::round_steps;
use crate::show;
use askama::Template;

/// Colours of a series, by index: Okabe and Ito's set, which colour-blind readers can tell apart, ordered so that
/// neighbours differ in lightness and are distinct in a grey print.
const COLOURS: [&str; 8] =
    ["#9a9a9a", "#0072b2", "#e69f00", "#009e73", "#56b4e9", "#d55e00", "#cc79a7", "#403f3d"];

/// Pairs of light and dark colours. Rules of a style sheet override the attributes, so one picture serves light and dark
/// screens; a program that ignores style sheets draws the light version.
const DARK: [(&str, &str); 12] = [
    (PAPER, "#15191d"),
    (INK, "#e4e8ec"),
    (FAINT, "#9aa5af"),
    (GRID, "#2c343b"),
    ("#9a9a9a", "#8b9299"),
    ("#0072b2", "#3f9bdc"),
    ("#e69f00", "#e8ab2e"),
    ("#009e73", "#1fb88b"),
    ("#56b4e9", "#8fd0f5"),
    ("#d55e00", "#e8743a"),
    ("#cc79a7", "#d993ba"),
    ("#403f3d", "#d5d2cd"),
];

const PAPER: &str = "#ffffff";
const INK: &str = "#222222";
const FAINT: &str = "#5f666d";
const GRID: &str = "#dddddd";

const LEFT: f64 = 62.0;
const RIGHT: f64 = 14.0;
/// Height of a row of the legend.
const ROW: f64 = 20.0;
/// Width of a letter at the size of labels, rounded up.
const LETTER: f64 = 7.0;
/// Part of a group's width that its bars take.
const FILLED: f64 = 0.82;
/// Labels that need more than their group's width are turned by this angle, degrees.
const TURN: f64 = 30.0;

/// What is drawn.
pub(super) struct Bars<'a> {
    /// A description for readers who cannot see it.
    pub alt: &'a str,
    pub width: f64,
    /// Height of the drawing, without title, legend and labels.
    pub height: f64,
    pub y_label: &'a str,
    /// One bar of each group per series.
    pub series: Vec<String>,
    pub groups: Vec<BarGroup>,
    /// Index of the first series' colour.
    pub first_colour: usize,
    /// Title and subtitle of a picture of its own; none on the page, which has headings.
    pub title: Option<(String, String)>,
}

/// One group of bars: a label and per series a value and its deviation.
pub(super) struct BarGroup {
    pub label: String,
    pub bars: Vec<Option<(f64, f64)>>,
}

struct Bar {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
    colour: &'static str,
    title: String,
    /// Ends of the whisker.
    whisker: Option<(f64, f64)>,
}

struct Label {
    x: f64,
    y: f64,
    text: String,
    colour: &'static str,
}

#[derive(Template)]
#[template(path = "bars.svg")]
struct Picture<'a> {
    alt: &'a str,
    width: f64,
    height: f64,
    /// Rules for dark screens, of a picture of its own.
    style: String,
    title: Option<(String, String)>,
    legend: Vec<Label>,
    left: f64,
    right: f64,
    middle: f64,
    y_label: &'a str,
    bottom: f64,
    ticks: Vec<(f64, String)>,
    reference: f64,
    bars: Vec<Bar>,
    groups: Vec<Label>,
    turn: Option<f64>,
}

impl Bars<'_> {
    /// The picture; empty when there is nothing to draw.
    pub(super) fn svg(&self) -> Result<String, askama::Error> {
        if self.groups.is_empty() || self.series.is_empty() {
            return Ok(String::new());
        }
        let head = if self.title.is_some() { 56.0 } else { 6.0 };
        let (legend, legend_rows) = self.legend(head);
        let top = head + legend_rows * ROW + 8.0;
        let bottom = top + self.height;
        let right = self.width - RIGHT;
        let known = || self.groups.iter().flat_map(|group| &group.bars).flatten();
        let highest = known().map(|(value, deviation)| value + deviation).filter(|value| value.is_finite());
        let highest = highest.fold(1.0, f64::max) * 1.06;
        let y_of = |value: f64| bottom - value.clamp(0.0, highest) / highest * self.height;
        let longest =
            self.groups.iter().map(|group| show::name(&group.label).chars().count()).max().unwrap_or(0);
        let longest = longest as f64 * LETTER;
        let is_turned = longest > (right - LEFT) / self.groups.len() as f64;
        // A turned label ends below its group, and the first one begins left of it.
        let left = if is_turned { LEFT.max(longest * TURN.to_radians().cos()) } else { LEFT };
        let each = (right - left) / self.groups.len() as f64;
        let bar_width = each * FILLED / self.series.len() as f64;
        let mut bars = Vec::new();
        for (at, group) in self.groups.iter().enumerate() {
            let first = left + each * (at as f64 + (1.0 - FILLED) / 2.0);
            for (index, (series, bar)) in self.series.iter().zip(&group.bars).enumerate() {
                let Some((value, deviation)) = bar.filter(|(value, _)| value.is_finite()) else { continue };
                let spread =
                    if deviation > 0.0 { format!(" ±{}", show::digits(deviation)) } else { String::new() };
                let text = format!("{}, {}: {}{spread}", group.label, series, show::digits(value));
                bars.push(Bar {
                    x: first + bar_width * index as f64,
                    y: y_of(value),
                    width: bar_width,
                    height: bottom - y_of(value),
                    colour: self.colour(index),
                    title: show::plain(&text),
                    whisker: (deviation > 0.0).then(|| (y_of(value + deviation), y_of(value - deviation))),
                });
            }
        }
        let below = if is_turned { longest * TURN.to_radians().sin() + 26.0 } else { 24.0 };
        let groups = self.groups.iter().enumerate().map(|(at, group)| Label {
            x: left + each * (at as f64 + 0.5),
            y: bottom + 16.0,
            text: show::name(&group.label),
            colour: INK,
        });
        let ticks = round_steps(0.0, highest, 6).map(|value| (y_of(value), show::digits(value)));
        let picture = Picture {
            alt: self.alt,
            width: self.width,
            height: (bottom + below).ceil(),
            style: if self.title.is_some() { dark("") } else { String::new() },
            title: self.title.as_ref().map(|(title, about)| (show::plain(title), show::plain(about))),
            legend,
            left,
            right,
            middle: (top + bottom) / 2.0,
            y_label: self.y_label,
            bottom,
            ticks: ticks.collect(),
            reference: y_of(1.0),
            bars,
            groups: groups.collect(),
            turn: is_turned.then_some(-TURN),
        };
        picture.render()
    }

    fn colour(&self, index: usize) -> &'static str {
        COLOURS[(self.first_colour + index) % COLOURS.len()]
    }

    /// The entries of the legend from `top` on, and their rows.
    fn legend(&self, top: f64) -> (Vec<Label>, f64) {
        let (mut x, mut row) = (LEFT, 0.0);
        let entries = self.series.iter().enumerate().map(|(index, name)| {
            let text = show::name(name);
            let width = 22.0 + text.chars().count() as f64 * LETTER + 12.0;
            if x > LEFT && x + width > self.width - RIGHT {
                (x, row) = (LEFT, row + 1.0);
            }
            let label = Label { x, y: top + row * ROW + 12.0, text, colour: self.colour(index) };
            x += width;
            label
        });
        (entries.collect(), row + 1.0)
    }
}

/// The rules for dark screens, for what is inside `scope`.
pub(super) fn dark(scope: &str) -> String {
    let rules = DARK.iter().map(|(light, dark)| {
        format!("{scope}[fill=\"{light}\"]{{fill:{dark}}}{scope}[stroke=\"{light}\"]{{stroke:{dark}}}")
    });
    format!("@media (prefers-color-scheme:dark){{{}}}", rules.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A label, and the values and deviations of two series.
    type Group<'a> = (&'a str, Vec<Option<(f64, f64)>>);

    fn bars(groups: &[Group<'_>]) -> String {
        let groups =
            groups.iter().map(|(label, bars)| BarGroup { label: (*label).to_owned(), bars: bars.clone() });
        let series = vec!["one".to_owned(), "two".to_owned()];
        let bars = Bars {
            alt: "alt",
            width: 760.0,
            height: 270.0,
            y_label: "ratio",
            series,
            groups: groups.collect(),
            first_colour: 1,
            title: None,
        };
        bars.svg().unwrap()
    }

    #[test]
    fn a_bar_has_its_place_and_an_absent_one_has_none() {
        let picture = bars(&[("default", vec![Some((1.0, 0.0)), None])]);
        // The legend's row of 20 is between 6 and 8, so the axis is at 304. The highest value, 1, is 1/1.06 of 270 above it:
        // y = 304 - 254.72. Of the 684 between the borders bars take 82 %: the first begins at 62 + 0.09 * 684 and is
        // 0.82 * 684 / 2 wide.
        assert!(picture.contains("<title>default, one: 1.00</title><rect x=\"123.56\" y=\"49.28\" width=\"280.44\" height=\"254.72\" fill=\"#0072b2\"/>"), "{picture}");
        assert_eq!(picture.matches("<title>").count(), 1);
        assert!(!picture.contains("rotate(-30"));
    }

    #[test]
    fn a_whisker_ends_at_the_deviation_and_long_labels_are_turned() {
        let labels = ["a-long-label-of-a-workload-1", "a-long-label-of-a-workload-2", "<b>", "four", "five"];
        let picture = bars(&labels.map(|label| (label, vec![Some((1.0, 1.0)), Some((f64::NAN, 0.0))])));
        // The top is 1.06 times 2: the whisker of 1 +- 1 ends at 304 and at 304 - 2 / 2.12 * 270.
        assert!(picture.contains(" 304.00V49.28m-3 0h6"), "{picture}");
        assert_eq!(picture.matches("rotate(-30 ").count(), 5);
        assert_eq!(picture.matches("<title>").count(), 5, "a value that is no number has no bar");
        assert!(picture.contains("&#60;b&#62;") && !picture.contains("<b>"));
        assert!(bars(&[]).is_empty());
    }
}
