//! Open questions in a box over the page, and the page with the keys. Must not know what an answer does.

use super::Canvas;
use super::parts::strip;
use crate::top::answer::returns;
use crate::top::state::{PAUSES, Question, ViewRow};
use ratatui::layout::Rect;
use ratatui::text::Span;
use waykeeper_service::printable;
use waykeeper_units::WayMask;
use waykeeper_view::Picture;

/// Draws a question; true if it covers part of the page.
pub fn draw(canvas: &mut Canvas<'_>, body: Rect, picture: &Picture, question: &Question) -> bool {
    let (title, lines, keys): (String, Vec<(String, bool)>, &str) = match question {
        Question::Filter { text } => {
            let y = canvas.area.bottom() - 1;
            let line = format!(" filter: {}_", printable(text));
            let width = usize::from(canvas.area.width);
            let style = canvas.palette.bar();
            canvas.text(canvas.area.x, y, &super::fitted(&line, width), style);
            return false;
        }
        Question::Policy { at } => {
            let names = picture.source.abilities.policies.iter().enumerate();
            let lines = names.map(|(index, name)| (printable(name), index == *at)).collect();
            ("policy".to_owned(), lines, "↑↓ choose, ⏎ switch, esc close")
        }
        Question::Pause { at } => {
            let lines = PAUSES
                .iter()
                .enumerate()
                .map(|(index, (text, _))| ((*text).to_owned(), index == *at))
                .collect();
            ("pause the policy".to_owned(), lines, "↑↓ choose, ⏎ do it, esc close")
        }
        Question::Mask { tenant, mask, before } => {
            let title = format!("mask of {}", printable(tenant));
            (title, mask_lines(*mask, *before, picture), "←→ move, + - widen and narrow, ⏎ set, esc close")
        }
        Question::DcaWays { mask, before } => (
            "ways of devices (DCA)".to_owned(),
            mask_lines(*mask, *before, picture),
            "←→ move, + - widen and narrow, ⏎ set, esc close",
        ),
        Question::Dca { device, on } => {
            let to = if *on { "on" } else { "off" };
            let title = format!("switch DCA of {} {to}?", printable(device));
            (title, Vec::new(), "⏎ or y yes, n or esc no")
        }
        Question::Load { device, factor, most } => {
            let title = format!("load of {}", printable(device));
            (
                title,
                vec![(format!("{factor:.1} times the scenario's, at most {most:.1}"), false)],
                "←→ change, ⏎ set, esc close",
            )
        }
    };
    let note = returns(question, picture);
    let longest = lines
        .iter()
        .map(|(line, _)| line.chars().count())
        .chain([title.chars().count(), keys.chars().count()]);
    let width = (longest.max().unwrap_or(0) as u16 + 4).max(44).min(body.width);
    let inside = usize::from(width.saturating_sub(4));
    let notes = wrapped(note, inside);
    let fixed = 3 + notes.len() as u16;
    let room = usize::from(body.height.saturating_sub(fixed + 1)).max(1);
    let shown = lines.len().min(room);
    let height = (shown as u16 + fixed + 1).min(body.height);
    let area =
        Rect { x: body.x + (body.width - width) / 2, y: body.y + (body.height - height) / 2, width, height };
    frame(canvas, area, &title);
    let selected = lines.iter().position(|(_, is_selected)| *is_selected);
    let first = super::first_visible(selected, lines.len(), shown);
    let mut y = area.y + 1;
    for (line, is_selected) in lines.iter().skip(first).take(shown) {
        let style = if *is_selected { canvas.palette.selected() } else { canvas.palette.plain() };
        canvas.text(area.x + 2, y, &super::fitted(line, inside), style);
        y += 1;
    }
    for line in notes {
        canvas.text(area.x + 2, y, &line, canvas.palette.faint());
        y += 1;
    }
    canvas.text(area.x + 2, area.bottom().saturating_sub(2), keys, canvas.palette.heading());
    true
}

fn mask_lines(mask: WayMask, before: WayMask, picture: &Picture) -> Vec<(String, bool)> {
    let ways = picture.way_columns();
    let line = |name: &str, mask: WayMask| format!("{name} {mask}  {}", strip(Some(mask), ways, '█'));
    vec![(line("now", before), false), (line("new", mask), true)]
}

/// An empty box with a title.
fn frame(canvas: &mut Canvas<'_>, area: Rect, title: &str) {
    let style = canvas.palette.heading();
    let inside = usize::from(area.width.saturating_sub(2));
    for y in area.y..area.bottom() {
        let line = match y {
            y if y == area.y => format!("┌{}┐", "─".repeat(inside)),
            y if y == area.bottom() - 1 => format!("└{}┘", "─".repeat(inside)),
            _ => format!("│{}│", " ".repeat(inside)),
        };
        for x in area.x..area.right() {
            canvas.buffer[(x, y)].reset();
        }
        canvas.text(area.x, y, &line, style);
    }
    canvas.text(area.x + 2, area.y, &format!(" {title} "), style);
}

/// A text in lines of at most `width` letters.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Keys and what they do.
const KEYS: [(&str, &str); 21] = [
    ("↑ ↓ j k, wheel", "select a tenant or a device"),
    ("page up/down, home, end", "ten rows, the first, the last"),
    ("enter, click twice", "open the selected row"),
    ("esc", "back; on the overview: all rows again"),
    ("1 2 3 4 5", "overview, tenant, device, timeline, keys"),
    ("/", "only names that contain a text"),
    ("s", "next order of tenants; on the timeline the next series"),
    ("space", "stop time (scenario, recording), hold the screen (host)"),
    ("[ ]", "half and twice the speed"),
    (", . ← →", "10 s back and forward in a recording"),
    ("p", "switch the policy"),
    ("P", "pause and resume the policy"),
    ("m", "change the mask of the selected tenant"),
    ("w", "change the ways of devices"),
    ("d", "switch DCA of the selected device"),
    ("l", "change the load of the selected device of a scenario"),
    ("? h", "these keys"),
    ("q, Ctrl-C", "end"),
    ("", ""),
    ("a letter or █, ·", "own ways, other ways; D I B: DCA, inclusive, both"),
    ("- and ±", "a value that is not available; one standard error"),
];

/// Draws the keys.
pub fn help(canvas: &mut Canvas<'_>, body: Rect) -> Vec<(u16, ViewRow)> {
    canvas.heading(body.y, "keys");
    for (y, (key, what)) in (body.y + 1..body.bottom()).zip(KEYS) {
        let key = super::fitted(key, 26);
        let spans = [Span::styled(key, canvas.palette.heading()), Span::raw(what)];
        canvas.spans(body.x + 1, y, &spans);
    }
    Vec::new()
}
