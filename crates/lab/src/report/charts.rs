//! Charts as SVG text: grouped bars and lines. The library kuva draws; this file passes it our data, colours that
//! follow the page, and ids that make equal data produce equal bytes.
//!
//! kuva was chosen because it draws without scripts in the page, is one small dependency, accepts CSS variables as
//! colours, and is maintained. Must not know what the numbers mean.

use crate::show;
use kuva::backend::svg::SvgBackend;
use kuva::plot::legend::{LegendEntry, LegendPosition, LegendShape};
use kuva::plot::{BarPlot, LinePlot, LineStyle, ScatterPlot};
use kuva::render::annotations::ReferenceLine;
use kuva::render::layout::{Layout, TickFormat};
use kuva::render::plots::Plot;
use kuva::render::render::{Primitive, render_multiple};
use kuva::render::theme::Theme;
use std::sync::Arc;

/// Colours of a series, by index: Okabe and Ito's set, which colour-blind readers can tell apart, ordered so that
/// neighbours differ in lightness and are distinct in a grey print. The page has its own colours for dark mode.
const PAPER_COLOURS: [&str; 8] =
    ["#9a9a9a", "#0072b2", "#e69f00", "#009e73", "#56b4e9", "#d55e00", "#cc79a7", "#403f3d"];

/// Pairs of light and dark colours for a stand-alone picture. Rules of a style sheet override the attributes that kuva
/// writes, so one file serves light and dark screens; a program that ignores style sheets draws the light version.
const DARK: [(&str, &str); 12] = [
    ("#ffffff", "#15191d"),
    ("#222222", "#e4e8ec"),
    (FAINT, "#9aa5af"),
    ("#dddddd", "#2c343b"),
    ("#9a9a9a", "#8b9299"),
    ("#0072b2", "#3f9bdc"),
    ("#e69f00", "#e8ab2e"),
    ("#009e73", "#1fb88b"),
    ("#56b4e9", "#8fd0f5"),
    ("#d55e00", "#e8743a"),
    ("#cc79a7", "#d993ba"),
    ("#403f3d", "#d5d2cd"),
];

/// Colour in which kuva draws a subtitle on white: the text colour, blended with the background.
const FAINT: &str = "#7a7a7a";

/// Dash patterns of lines, so that lines can be distinguished without colour. One fewer than colours, so that pairs of
/// colour and dash repeat late.
const DASHES: [&str; 7] = ["", "7 3", "2 3", "10 3 2 3", "14 4", "5 2 1 2 1 2", "1 5"];

/// Colour of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Colour {
    /// By the index of a series: a policy, a group of workloads, a direction.
    Series(usize),
    /// Of one workload among all of a page: each has a hue of its own.
    Workload {
        /// Its place.
        index: usize,
        /// How many there are.
        of: usize,
    },
}

/// Step from one workload's hue to the next, as a part of the circle: neighbours in a list are far apart, and no hue comes
/// twice in `of` steps as long as step and `of` have no common divisor.
const HUE_STEP: f64 = 0.38;

impl Colour {
    /// The hue of a workload, degrees.
    fn hue(index: usize, of: usize) -> f64 {
        let coprime = |step: &usize| gcd(*step, of) == 1;
        let wanted = (of as f64 * HUE_STEP).round() as usize;
        let step = (wanted.max(1)..=of.max(1)).find(coprime).unwrap_or(1);
        // Blue is first, as it is the first colour of a series.
        (205.0 + 360.0 * ((index * step) % of.max(1)) as f64 / of.max(1) as f64) % 360.0
    }

    /// On the page; light and dark screens have a lightness of their own, and neighbouring hues another.
    fn on_page(self) -> String {
        match self {
            Colour::Series(index) => Surface::Page.colour(index),
            Colour::Workload { index, of } => {
                let hue = Colour::hue(index, of);
                let shade = (hue / 360.0 * of as f64).round() as usize % 2;
                format!("hsl({hue:.1} 70% var(--shade-{shade}))")
            }
        }
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Where a chart is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Surface {
    /// Inside the report: colours are the page's CSS variables, light or dark.
    Page,
    /// A stand-alone picture: on white, or on a dark ground if the reader's screen is dark.
    Paper,
}

impl Surface {
    fn colour(self, index: usize) -> String {
        let index = index % PAPER_COLOURS.len();
        match self {
            Surface::Page => format!("var(--s{index})"),
            Surface::Paper => PAPER_COLOURS[index].to_owned(),
        }
    }

    fn ink(self) -> &'static str {
        match self {
            Surface::Page => "var(--ink)",
            Surface::Paper => "#222222",
        }
    }

    fn theme(self) -> Theme {
        let (background, grid) = match self {
            Surface::Page => ("none", "var(--grid)"),
            Surface::Paper => ("#ffffff", "#dddddd"),
        };
        let mut theme = Theme::light();
        theme.background = background.into();
        theme.grid_color = grid.into();
        theme.axis_color = self.ink().into();
        theme.tick_color = self.ink().into();
        theme.text_color = self.ink().into();
        theme.legend_bg = "none".into();
        theme.legend_border = "none".into();
        theme.font_family = Some("system-ui, Helvetica, Arial, sans-serif".into());
        theme
    }
}

/// Fields of every chart.
pub(crate) struct Frame<'a> {
    /// Unique within the page; becomes part of ids.
    pub id: &'a str,
    /// A description for readers who cannot see it.
    pub alt: &'a str,
    pub surface: Surface,
    pub width: f64,
    pub height: f64,
    pub x_label: &'a str,
    pub y_label: &'a str,
}

/// Grouped bars.
pub(crate) struct Bars<'a> {
    pub frame: Frame<'a>,
    /// One bar of each group per series.
    pub series: Vec<&'a str>,
    pub groups: Vec<BarGroup<'a>>,
    /// Index of the first series' colour.
    pub first_colour: usize,
    /// Title and subtitle; none on the page, which has headings.
    pub title: Option<(String, String)>,
    /// A dashed horizontal line at "no difference".
    pub reference: Option<f64>,
}

/// One group of bars: a label and per series a value and its deviation.
pub(crate) struct BarGroup<'a> {
    pub label: &'a str,
    pub bars: Vec<Option<(f64, f64)>>,
}

/// Lines over one x axis.
pub(crate) struct Lines<'a> {
    pub frame: Frame<'a>,
    pub lines: Vec<Line>,
    /// Fixed top of the y axis, for ratios; otherwise the data's.
    pub y_max: Option<f64>,
    /// Names of the positions 0, 1, 2, ... when x is not a number.
    pub x_names: Option<Vec<String>>,
    /// Whether the legend is below the drawing, for long labels.
    pub legend_below: bool,
    /// Whether each value is marked by a point: of a sweep only they were measured.
    pub points: bool,
    /// Whether the y axis is logarithmic if the values differ by more than [`LOG_FROM`].
    pub may_be_log: bool,
}

/// Values that differ by more than this factor are drawn on a logarithmic axis (ours).
const LOG_FROM: f64 = 10.0;

/// One line.
pub(crate) struct Line {
    pub label: String,
    /// Its colour.
    pub colour: Colour,
    /// Index of its dash pattern.
    pub dash: usize,
    pub points: Vec<(f64, f64)>,
}

impl Bars<'_> {
    /// The chart; empty when there is nothing to draw.
    pub(crate) fn svg(&self) -> String {
        if self.groups.is_empty() || self.series.is_empty() {
            return String::new();
        }
        let surface = self.frame.surface;
        let mut plot = BarPlot::new().with_width(0.82).with_error_color(surface.ink());
        let (mut errors, mut tips) = (Vec::new(), Vec::new());
        for group in &self.groups {
            let bars = group.bars.iter().enumerate();
            // A missing bar has height 0, so that each series keeps its colour in all groups.
            plot = plot.with_group(
                literal(&show::name(group.label)),
                bars.map(|(i, bar)| {
                    (bar.map_or(0.0, |(value, _)| value), surface.colour(self.first_colour + i))
                }),
            );
            for (series, bar) in self.series.iter().zip(&group.bars) {
                let text = match bar {
                    Some((value, 0.0)) => show::digits(*value),
                    Some((value, deviation)) => {
                        format!("{} ±{}", show::digits(*value), show::digits(*deviation))
                    }
                    None => "not available".to_owned(),
                };
                tips.push(format!("{}, {}: {text}", show::plain(group.label), show::plain(series)));
                errors.push(bar.map_or(0.0, |(_, deviation)| deviation));
            }
        }
        if errors.iter().any(|error| *error > 0.0) {
            plot = plot.with_error(errors);
        }
        let names: Vec<String> = self.series.iter().map(|name| literal(&show::name(name))).collect();
        plot = plot.with_tooltip_labels(tips).with_legend(names.iter().map(String::as_str).collect());
        plot.show_tooltips = true;
        let plots = vec![Plot::Bar(plot)];
        let mut layout = self.frame.layout(&plots).with_height(self.frame.height);
        if let Some((title, subtitle)) = &self.title {
            let (title, subtitle) = (literal(&show::plain(title)), literal(&show::plain(subtitle)));
            layout = layout.with_title(title).with_subtitle(subtitle).with_title_size(17);
        }
        if let Some(reference) = self.reference {
            let line = ReferenceLine::horizontal(reference).with_color(surface.ink()).with_stroke_width(1.0);
            layout = layout.with_reference_line(line);
        }
        if self.groups.iter().map(|group| group.label.len()).max().unwrap_or(0) * self.groups.len() > 110 {
            layout = layout.with_x_tick_rotate(-30.0);
        }
        self.frame.render(plots, layout)
    }
}

impl Lines<'_> {
    /// The chart; empty when there is nothing to draw.
    pub(crate) fn svg(&self) -> String {
        let mut plots: Vec<Plot> = self
            .lines
            .iter()
            .filter(|line| !line.points.is_empty())
            .map(|line| {
                let plot = LinePlot::new()
                    .with_data(line.points.iter().copied())
                    .with_color(line.colour.on_page())
                    .with_line_style(line.style())
                    .with_stroke_width(1.8)
                    .with_legend(literal(&show::plain(&line.label)));
                Plot::Line(plot)
            })
            .collect();
        if plots.is_empty() {
            return String::new();
        }
        if self.points {
            let marked = self.lines.iter().filter(|line| !line.points.is_empty()).map(|line| {
                let data = line.points.iter().copied();
                Plot::Scatter(
                    ScatterPlot::new().with_data(data).with_color(line.colour.on_page()).with_size(2.6),
                )
            });
            plots.extend(marked.collect::<Vec<_>>());
        }
        let values = || self.lines.iter().flat_map(|line| &line.points).map(|(_, y)| *y);
        let (lowest, highest) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
        let log = self.may_be_log && lowest > 0.0 && highest > lowest * LOG_FROM;
        let layout = self.frame.layout(&plots);
        let mut layout = if log { layout.with_log_y() } else { layout.with_y_axis_min(0.0) };
        // Some room above the highest point, so that its line is not drawn on the frame.
        let top = self.y_max.or_else(|| (highest > 0.0 && !log).then_some(highest * 1.06));
        if let Some(top) = top {
            layout = layout.with_y_axis_max(top);
        }
        layout = match self.legend_below {
            true => layout
                .with_legend_entries(self.legend())
                .with_legend_position(LegendPosition::OutsideBottomColumns)
                .with_height(self.frame.height + self.legend_height()),
            false => layout.with_height(self.frame.height),
        };
        if let Some(names) = &self.x_names {
            let names: Vec<String> = names.iter().map(|name| literal(&show::name(name))).collect();
            let last = names.len().saturating_sub(1) as f64;
            let at = move |x: f64| {
                // Positions are sums of steps: the third may be 3.0000000000000004.
                let whole = x >= -1e-6 && (x - x.round()).abs() < 1e-6;
                let name = whole.then(|| names.get(x.round() as usize)).flatten();
                name.cloned().unwrap_or_default()
            };
            layout = layout
                .with_x_axis_min(0.0)
                .with_x_axis_max(last.max(1.0))
                .with_x_tick_step(1.0)
                .with_x_tick_format(TickFormat::Custom(Arc::new(at)));
        } else {
            let xs = || self.lines.iter().flat_map(|line| line.points.iter().map(|(x, _)| *x));
            let (low, high) = (xs().fold(f64::INFINITY, f64::min), xs().fold(f64::NEG_INFINITY, f64::max));
            if low < high {
                layout = layout.with_x_axis_min(low.min(0.0)).with_x_axis_max(high);
            }
        }
        self.frame.render(plots, layout)
    }
}

impl Line {
    fn style(&self) -> LineStyle {
        match DASHES[self.dash % DASHES.len()] {
            "" => LineStyle::Solid,
            dash => LineStyle::Custom(dash.to_owned()),
        }
    }
}

impl Lines<'_> {
    /// The legend's entries. kuva can build them from the lines, but then reserves room for only one below the drawing.
    fn legend(&self) -> Vec<LegendEntry> {
        let drawn = self.lines.iter().filter(|line| !line.points.is_empty());
        drawn
            .map(|line| LegendEntry {
                label: literal(&show::plain(&line.label)),
                color: line.colour.on_page(),
                shape: LegendShape::Line,
                dasharray: line.style().dasharray(),
            })
            .collect()
    }

    /// Approximate height of a legend below the drawing, so that the drawing keeps its size. kuva sets the entries in
    /// columns as wide as the longest label; the widths here are those of its fonts, rounded up (measured on its
    /// output).
    fn legend_height(&self) -> f64 {
        let drawn = || self.lines.iter().filter(|line| !line.points.is_empty());
        let longest = drawn().map(|line| line.label.chars().count()).max().unwrap_or(0);
        let columns = ((self.frame.width - 70.0) / (longest as f64 * 7.0 + 38.0)).floor().max(1.0);
        (drawn().count() as f64 / columns).ceil() * 16.0
    }
}

impl Frame<'_> {
    fn layout(&self, plots: &[Plot]) -> Layout {
        let layout = Layout::auto_from_plots(plots);
        // An empty label would still take room.
        let layout =
            if self.x_label.is_empty() { layout } else { layout.with_x_label(literal(self.x_label)) };
        layout
            .with_width(self.width)
            .with_y_label(literal(self.y_label))
            .with_theme(self.surface.theme())
            .with_legend_box(false)
            .with_legend_position(LegendPosition::OutsideRightTop)
            .with_label_size(13)
            .with_tick_size(12)
            .with_body_size(12)
    }

    /// Draws, and renames clip paths: kuva numbers them over the whole process, and two charts of one page must not
    /// share names.
    fn render(&self, plots: Vec<Plot>, layout: Layout) -> String {
        let mut scene = render_multiple(plots, layout);
        let mut count = 0;
        for element in &mut scene.elements {
            if let Primitive::ClipStart { id, .. } = element {
                let ours = format!("{}-clip-{count}", self.id);
                count += 1;
                for definition in &mut scene.defs {
                    *definition = definition.replace(&format!("\"{id}\""), &format!("\"{ours}\""));
                }
                *id = ours;
            }
        }
        let svg = SvgBackend::new().render_scene(&scene);
        // kuva writes a fixed size; a view box lets the page shrink it.
        // The page's style keeps these readable on a narrow screen.
        let big = if self.surface == Surface::Page && self.width > 600.0 { " class=\"big\"" } else { "" };
        let open = format!(
            "<svg{big} viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\" ",
            scene.width,
            scene.height,
            super::escape(self.alt),
        );
        let svg = svg.replacen("<svg ", &open, 1);
        match self.surface {
            Surface::Page => svg,
            Surface::Paper => svg.replacen("</svg>", &format!("<style>{}</style></svg>", dark()), 1),
        }
    }
}

/// The style sheet of a stand-alone picture: its dark colours.
fn dark() -> String {
    let rules = DARK.iter().map(|(light, dark)| {
        format!("[fill=\"{light}\"]{{fill:{dark}}}[stroke=\"{light}\"]{{stroke:{dark}}}")
    });
    format!("@media (prefers-color-scheme:dark){{{}}}", rules.collect::<String>())
}

/// A dollar sign opens a formula in kuva's labels; a backslash before it makes it a dollar sign again.
fn literal(text: &str) -> String {
    text.replace('$', "\\$")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_workloads_have_a_hue() {
        for of in 1..=64 {
            let mut hues: Vec<f64> = (0..of).map(|index| Colour::hue(index, of)).collect();
            hues.sort_by(f64::total_cmp);
            // Hues are spread evenly over the circle.
            let gap = 360.0 / of as f64;
            assert!(hues.windows(2).all(|pair| (pair[1] - pair[0] - gap).abs() < 1e-9), "{of}: {hues:?}");
        }
        // Eleven workloads: 0.38 of them is 4 steps of 32.7 degrees from one to the next.
        let apart = Colour::hue(1, 11) - Colour::hue(0, 11) + 360.0;
        assert!((apart % 360.0 - 4.0 * 360.0 / 11.0).abs() < 1e-9, "{apart}");
    }
}
