//! The way map over time as a picture: time to the right, ways upwards, a colour and a hatch per class; a band around the
//! ways in which devices may allocate, and below the map a lane per root port whose DCA was off at some time.
//!
//! No chart library draws it: cells of different width, hatched so that they differ in grey too, with the workloads of
//! each in its tooltip. This file computes the geometry, the template `waymap.svg` writes it, the page's style has the
//! colours. Must not know the purpose of a policy's masks.

use super::round_steps;
use crate::results::{PolicyResult, WayMapSlice};
use crate::show;
use crate::ways::{WayClass, class_of, members};
use askama::Template;
use indexmap::IndexSet;

const WIDTH: f64 = 1080.0;
const LEFT: f64 = 74.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 18.0;
const LANE: f64 = 17.0;
const BOTTOM: f64 = 42.0;

/// Space between the map and the lanes of root ports.
const GAP: f64 = 6.0;

/// The narrowest cell that shows its letter.
const LETTER_FROM: f64 = 14.0;

/// One rectangle: a way, for as long as the same workloads may allocate in it.
struct Cell {
    x: f64,
    y: f64,
    width: f64,
    class: &'static str,
    letter: Option<char>,
    title: String,
}

/// A rectangle around ways in which devices may allocate, for as long as these are the same.
struct Band {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
    title: String,
}

/// DCA of a root port over time.
struct PortLane {
    y: f64,
    label: String,
    spans: Vec<Cell>,
}

struct Tick {
    at: f64,
    label: String,
}

struct Mark {
    x: f64,
    title: String,
}

#[derive(Template)]
#[template(path = "waymap.svg")]
struct Picture {
    alt: String,
    width: f64,
    height: f64,
    left: f64,
    right: f64,
    top: f64,
    middle: f64,
    bottom: f64,
    lane: f64,
    cells: Vec<Cell>,
    bands: Vec<Band>,
    ports: Vec<PortLane>,
    ways: Vec<Tick>,
    times: Vec<Tick>,
    marks: Vec<Mark>,
}

#[derive(Template)]
#[template(path = "waymap_alone.svg")]
struct Alone {
    width: f64,
    height: f64,
    palette: String,
    picture: String,
}

/// The colours of the classes; the first rule has those on a light ground.
pub(super) const COLOURS: &str = include_str!("waymap_colours.css");

/// The picture with its own style, for a notebook or a file. Always on white; its CSS rules apply only to the picture.
pub(super) fn alone(result: &PolicyResult, ways: u32, alt: String) -> Result<String, askama::Error> {
    let light = |style: &str| {
        let rule = style.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
        rule.map_or_else(String::new, |(rule, _)| rule.to_owned())
    };
    let palette = light(&waykeeper_drawing::style()) + &light(COLOURS);
    let height = bottom(ways.min(32), ports(result).len()) + BOTTOM;
    match svg(result, ways, alt)? {
        picture if picture.is_empty() => Ok(picture),
        picture => Alone { width: WIDTH, height, palette, picture }.render(),
    }
}

/// The CSS class of a way class.
pub(super) fn style(class: WayClass) -> &'static str {
    match class {
        WayClass::Dca => "w-dca",
        WayClass::DcaHigh => "w-dca-high",
        WayClass::DcaShared => "w-dca-shared",
        WayClass::High => "w-high",
        WayClass::Low => "w-low",
        WayClass::SomeLow => "w-some-low",
        WayClass::Unused => "w-unused",
    }
}

/// The picture, or nothing when the run has no way map.
pub(super) fn svg(result: &PolicyResult, ways: u32, alt: String) -> Result<String, askama::Error> {
    let (Some(first), Some(last)) = (result.way_map.first(), result.way_map.last()) else {
        return Ok(String::new());
    };
    let (start, end) = (first.from_s, last.to_s.max(first.from_s + f64::MIN_POSITIVE));
    let scale = (WIDTH - LEFT - RIGHT) / (end - start);
    let x_of = |at_s: f64| LEFT + (at_s - start) * scale;
    let ways = ways.min(32);
    let lane_of = |way: u32| TOP + f64::from(ways - 1 - way) * LANE;
    let mut cells = Vec::new();
    for way in 0..ways {
        for (class, from, to) in runs(&result.way_map, way, result) {
            let width = x_of(to.to_s) - x_of(from.from_s);
            cells.push(Cell {
                x: x_of(from.from_s),
                y: lane_of(way),
                width,
                class: style(class),
                letter: (width >= LETTER_FROM).then(|| class.letter()),
                title: title(way, class, from, to),
            });
        }
    }
    let span = |from: &WayMapSlice, to: &WayMapSlice| (x_of(from.from_s), x_of(to.to_s) - x_of(from.from_s));
    let mut bands = Vec::new();
    for (mask, from, to) in stretches(&result.way_map, |slice| slice.dca_ways) {
        let Some(mask) = mask else { continue };
        let (x, width) = span(from, to);
        for (low, high) in blocks((0..ways).filter(|way| mask.contains(*way))) {
            let title = format!("devices may allocate in {mask}, {}", during(from, to));
            bands.push(Band { x, y: lane_of(high), width, height: f64::from(high - low + 1) * LANE, title });
        }
    }
    let ports = ports(result);
    let lanes = ports.iter().enumerate().map(|(index, port)| {
        let y = TOP + f64::from(ways) * LANE + GAP + index as f64 * LANE;
        let is_off = |slice: &WayMapSlice| slice.dca_off_ports.iter().any(|off| off == port);
        let spans = stretches(&result.way_map, is_off).into_iter().map(|(off, from, to)| {
            let (x, width) = span(from, to);
            let (class, state) = if off { (WayClass::Unused, "off") } else { (WayClass::Dca, "on") };
            let title = show::plain(&format!("DCA {state} at {port}, {}", during(from, to)));
            Cell { x, y, width, class: style(class), letter: None, title }
        });
        PortLane { y, label: show::name(port.trim_start_matches("0000:")), spans: spans.collect() }
    });
    let lanes: Vec<PortLane> = lanes.collect();
    let marks = result.decisions.iter().filter(|decision| (start..=end).contains(&decision.at_s));
    let picture = Picture {
        alt,
        width: WIDTH,
        height: bottom(ways, ports.len()) + BOTTOM,
        left: LEFT,
        right: WIDTH - RIGHT,
        top: TOP,
        middle: TOP + f64::from(ways) * LANE / 2.0,
        bottom: bottom(ways, ports.len()),
        lane: LANE,
        cells,
        bands,
        ports: lanes,
        ways: (0..ways).map(|way| Tick { at: lane_of(way) + LANE / 2.0, label: way.to_string() }).collect(),
        times: round_steps(start, end, 12).map(|at| Tick { at: x_of(at), label: format!("{at}") }).collect(),
        marks: marks
            .map(|decision| Mark {
                x: x_of(decision.at_s),
                title: show::plain(&format!("{}: {}", show::seconds(decision.at_s), decision.text)),
            })
            .collect(),
    };
    picture.render()
}

/// Lower end of the map and the lanes.
fn bottom(ways: u32, ports: usize) -> f64 {
    let lanes = if ports > 0 { GAP + ports as f64 * LANE } else { 0.0 };
    TOP + f64::from(ways) * LANE + lanes
}

/// The root ports whose DCA was off at some time.
fn ports(result: &PolicyResult) -> IndexSet<&str> {
    result.way_map.iter().flat_map(|slice| slice.dca_off_ports.iter().map(String::as_str)).collect()
}

/// Joins neighbouring slices with equal values.
fn stretches<T: PartialEq>(
    slices: &[WayMapSlice],
    value: impl Fn(&WayMapSlice) -> T,
) -> Vec<(T, &WayMapSlice, &WayMapSlice)> {
    let mut found: Vec<(T, &WayMapSlice, &WayMapSlice)> = Vec::new();
    for slice in slices {
        let new = value(slice);
        match found.last_mut() {
            Some(last) if last.0 == new => last.2 = slice,
            _ => found.push((new, slice, slice)),
        }
    }
    found
}

/// First and last of each row of neighbouring numbers, which increase.
fn blocks(numbers: impl Iterator<Item = u32>) -> Vec<(u32, u32)> {
    let mut blocks: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match blocks.last_mut() {
            Some(last) if last.1 + 1 == number => last.1 = number,
            _ => blocks.push((number, number)),
        }
    }
    blocks
}

fn during(from: &WayMapSlice, to: &WayMapSlice) -> String {
    format!("{} to {}", show::seconds(from.from_s), show::seconds(to.to_s))
}

/// Joins neighbouring slices in which the way belongs to the same workloads.
fn runs<'a>(
    slices: &'a [WayMapSlice],
    way: u32,
    result: &PolicyResult,
) -> Vec<(WayClass, &'a WayMapSlice, &'a WayMapSlice)> {
    let mut runs: Vec<(WayClass, &WayMapSlice, &WayMapSlice)> = Vec::new();
    for slice in slices {
        let class = class_of(slice, way, result);
        match runs.last_mut() {
            Some(run) if run.0 == class && members(run.1, way) == members(slice, way) => run.2 = slice,
            _ => runs.push((class, slice, slice)),
        }
    }
    runs
}

fn title(way: u32, class: WayClass, from: &WayMapSlice, to: &WayMapSlice) -> String {
    let who = members(from, way);
    let who = if who.is_empty() { "no workload".to_owned() } else { show::plain(&who.join(", ")) };
    format!("way {way}, {}: {} - {who}", during(from, to), class.meaning())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_ways_are_one_band() {
        assert_eq!(blocks([9, 10].into_iter()), [(9, 10)]);
        assert_eq!(blocks([0, 1, 4, 6, 7].into_iter()), [(0, 1), (4, 4), (6, 7)]);
        assert!(blocks(std::iter::empty()).is_empty());
    }
}
