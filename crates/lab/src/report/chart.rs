//! Charts of lines as data: the script of the page draws them with the code that the web page uses (`waykeeper-drawing`).
//!
//! A line has the mark of a workload, or a colour of the theme; lines that share one have patterns. Must not know what the
//! numbers mean.

use crate::show;
use serde::Serialize;
use waykeeper_drawing::Mark;

/// Values that differ by more than this factor are drawn on a logarithmic axis (ours).
const LOG_FROM: f64 = 10.0;

/// A chart. The script `chart.js` explains the fields.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Chart {
    pub title: String,
    pub unit: Unit,
    pub x: Axis,
    /// Whether each value is marked by a point: of a sweep only they were measured.
    pub has_points: bool,
    pub is_log: bool,
    /// Whether the axis of a ratio ends at 1 whatever the values are.
    pub is_whole: bool,
    /// Places on the x axis where the policy decided.
    pub marks: Vec<f64>,
    /// Places on the x axis, in order.
    pub places: Vec<f64>,
    pub lines: Vec<Line>,
}

/// The unit of a chart's values: a key of `UNITS` in `chart.js`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Unit {
    Ratio,
    Relative,
    Microseconds,
    PacketsPerSecond,
    InstructionsPerSecond,
    OperationsPerSecond,
    BytesPerSecond,
}

/// The x axis.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum Axis {
    /// Seconds of the server's clock.
    Time,
    Numbers {
        label: String,
    },
    /// Names of the places 0, 1, 2 and so on.
    Names {
        label: String,
        names: Vec<String>,
    },
}

/// A line of a chart.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Line {
    pub name: String,
    #[serde(flatten)]
    pub look: Look,
    /// Number of its pattern.
    pub dash: usize,
    /// A value per place.
    pub values: Vec<Option<f64>>,
}

/// What a line looks like besides its pattern.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub(super) struct Look {
    colour: Colour,
    #[serde(skip_serializing_if = "Option::is_none")]
    letter: Option<char>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(untagged)]
enum Colour {
    /// Index into the palette of names.
    Name(u8),
    /// A colour of the theme.
    Theme(&'static str),
}

impl Look {
    /// The first of two lines that belong to no workload.
    pub(super) const FIRST: Look = Look { colour: Colour::Theme("accent"), letter: None };
    /// The second.
    pub(super) const SECOND: Look = Look { colour: Colour::Theme("second"), letter: None };

    /// The line of a workload.
    pub(super) fn of(mark: Option<Mark>) -> Look {
        mark.map_or(Look::FIRST, |mark| Look { colour: Colour::Name(mark.colour), letter: Some(mark.letter) })
    }

    /// Whether both have one colour: then their patterns must differ.
    pub(super) fn has_colour_of(&self, other: &Look) -> bool {
        self.colour == other.colour
    }

    /// One of several lines that have no names of their own.
    #[cfg(feature = "probe")]
    pub(super) fn numbered(index: usize) -> Look {
        Look { colour: Colour::Name((index % usize::from(waykeeper_drawing::COLOURS)) as u8), letter: None }
    }
}

/// A line as points, before all lines of a chart share their places.
pub(super) struct Points {
    pub name: String,
    pub look: Look,
    pub dash: usize,
    pub points: Vec<(f64, f64)>,
}

impl Chart {
    /// A chart of lines of points. None if no line has any. Values that are not finite are left out.
    pub(super) fn new(title: String, unit: Unit, x: Axis, lines: Vec<Points>) -> Option<Chart> {
        let is_finite = |(x, y): &(f64, f64)| x.is_finite() && y.is_finite();
        let mut places: Vec<f64> = lines
            .iter()
            .flat_map(|line| &line.points)
            .filter(|point| is_finite(point))
            .map(|(x, _)| *x)
            .collect();
        places.sort_by(f64::total_cmp);
        places.dedup();
        let lines = lines.into_iter().filter_map(|line| {
            let mut values = vec![None; places.len()];
            for (x, y) in line.points.iter().filter(|point| is_finite(point)) {
                if let Ok(place) = places.binary_search_by(|place| place.total_cmp(x)) {
                    values[place] = Some(*y);
                }
            }
            let has_values = values.iter().any(Option::is_some);
            has_values.then(|| Line {
                name: show::plain(&line.name),
                look: line.look,
                dash: line.dash,
                values,
            })
        });
        let lines: Vec<Line> = lines.collect();
        let is_whole = unit == Unit::Ratio;
        let chart = Chart {
            title,
            unit,
            x,
            has_points: false,
            is_log: false,
            is_whole,
            marks: Vec::new(),
            places,
            lines,
        };
        (!chart.lines.is_empty()).then_some(chart)
    }

    /// The chart with a logarithmic axis if its values differ much and are all above 0.
    pub(super) fn log_where_it_helps(mut self) -> Chart {
        let values = || self.lines.iter().flat_map(|line| &line.values).flatten();
        let (low, high) = values()
            .fold((f64::INFINITY, 0.0), |(low, high): (f64, f64), value| (low.min(*value), high.max(*value)));
        self.is_log = low > 0.0 && high > low * LOG_FROM;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(name: &str, points: &[(f64, f64)]) -> Points {
        Points { name: name.to_owned(), look: Look::FIRST, dash: 0, points: points.to_vec() }
    }

    fn chart(lines: Vec<Points>) -> Option<Chart> {
        Chart::new("title".to_owned(), Unit::Microseconds, Axis::Time, lines)
    }

    #[test]
    fn lines_share_their_places_and_an_absent_value_is_none() {
        let lines = vec![
            points("a", &[(2.0, 20.0), (1.0, 10.0), (3.0, f64::NAN)]),
            points("b", &[(2.5, 1.0)]),
            points("none", &[]),
        ];
        let chart = chart(lines).unwrap();
        assert_eq!(chart.places, [1.0, 2.0, 2.5]);
        let values: Vec<_> =
            chart.lines.iter().map(|line| (line.name.as_str(), line.values.clone())).collect();
        assert_eq!(values, [("a", vec![Some(10.0), Some(20.0), None]), ("b", vec![None, None, Some(1.0)])]);
        assert_eq!(
            super::Chart::new(String::new(), Unit::Ratio, Axis::Time, vec![points("none", &[])]),
            None
        );
    }

    #[test]
    fn an_axis_is_logarithmic_only_for_values_far_apart_and_above_zero() {
        let is_log = |values: [f64; 2]| {
            chart(vec![points("a", &[(0.0, values[0]), (1.0, values[1])])])
                .unwrap()
                .log_where_it_helps()
                .is_log
        };
        assert_eq!([is_log([1.0, 11.0]), is_log([1.0, 10.0]), is_log([0.0, 11.0])], [true, false, false]);
    }

    #[test]
    fn the_script_knows_every_unit() {
        let script = waykeeper_drawing::FILES.iter().find(|file| file.path == "js/chart.js").unwrap().text;
        use Unit::*;
        for unit in [
            Ratio,
            Relative,
            Microseconds,
            PacketsPerSecond,
            InstructionsPerSecond,
            OperationsPerSecond,
            BytesPerSecond,
        ] {
            let key = serde_json::to_string(&unit).unwrap();
            assert!(script.contains(&format!("\n  {}: {{ name: ", key.trim_matches('"'))), "{key}");
        }
    }
}
