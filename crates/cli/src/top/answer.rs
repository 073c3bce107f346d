//! What each input does: changes of what was chosen, and turns for the source.
//!
//! A turn of a knob or of the policy is asked once. Must not know the terminal, nor how anything is drawn.

use super::keys::Input;
use super::state::{Chosen, PAUSES, Page, Question, ViewRow};
use waykeeper_host::DeviceKind;
use waykeeper_units::WayMask;
use waykeeper_view::{Picture, SourceKind, Turn};

/// What an input leads to beside a change of what was chosen.
#[derive(Clone, PartialEq, Debug)]
pub enum Effect {
    /// Nothing more.
    None,
    /// The program ends.
    Quit,
    /// The source has to carry out a turn.
    Turn(Turn),
}

/// Seconds by which a key moves in a recording.
const SEEK_S: f64 = 10.0;

/// Change of a load by one key.
const LOAD_STEP: f64 = 0.1;

/// Answers an input. `rows_at` has the rows on the screen, by line.
pub fn answer(chosen: &mut Chosen, picture: &Picture, input: Input, rows_at: &[(u16, ViewRow)]) -> Effect {
    if input == Input::Control('c') {
        return Effect::Quit;
    }
    chosen.notice = None;
    match chosen.question.take() {
        Some(question) => asked(chosen, picture, question, input),
        None => free(chosen, picture, input, rows_at),
    }
}

/// An input while no question is open.
fn free(chosen: &mut Chosen, picture: &Picture, input: Input, rows_at: &[(u16, ViewRow)]) -> Effect {
    match input {
        Input::Char('q') => return Effect::Quit,
        Input::Char('?' | 'h') if chosen.page != Page::Help => {
            chosen.back = chosen.page;
            chosen.page = Page::Help;
        }
        Input::Escape | Input::Backspace | Input::Char('?' | 'h') if chosen.page == Page::Help => {
            chosen.page = chosen.back;
        }
        Input::Escape | Input::Backspace => match chosen.page {
            Page::Overview => chosen.filter.clear(),
            _ => chosen.page = Page::Overview,
        },
        Input::Char('1') => chosen.page = Page::Overview,
        Input::Char('2') => open(chosen, picture, false),
        Input::Char('3') => open(chosen, picture, true),
        Input::Char('4') => chosen.page = Page::Timeline,
        Input::Char('5') => {
            chosen.back = chosen.page;
            chosen.page = Page::Help;
        }
        Input::Up | Input::Char('k') | Input::WheelUp => chosen.step(picture, -1),
        Input::Down | Input::Char('j') | Input::WheelDown => chosen.step(picture, 1),
        Input::PageUp => chosen.step(picture, -10),
        Input::PageDown => chosen.step(picture, 10),
        Input::Home => chosen.step(picture, isize::MIN),
        Input::End => chosen.step(picture, isize::MAX),
        Input::Enter if chosen.page == Page::Overview || chosen.page == Page::Timeline => {
            let is_device = chosen.device(picture).is_some();
            open(chosen, picture, is_device);
        }
        Input::Click(_, line) => {
            if let Some((_, row)) = rows_at.iter().find(|(own, _)| *own == line) {
                let again = chosen.row.as_ref() == Some(row);
                chosen.row = Some(row.clone());
                if again {
                    open(chosen, picture, matches!(row, ViewRow::Device(_)));
                }
            }
        }
        Input::Char('/') => chosen.question = Some(Question::Filter { text: chosen.filter.clone() }),
        Input::Char('s') => chosen.reorder(),
        Input::Char(' ') => return stop_or_play(chosen, picture),
        Input::Char('[') => return speed(chosen, picture, 0.5),
        Input::Char(']') => return speed(chosen, picture, 2.0),
        Input::Left | Input::Char(',') => return seek(chosen, picture, -SEEK_S),
        Input::Right | Input::Char('.') => return seek(chosen, picture, SEEK_S),
        Input::Char(key @ ('p' | 'P' | 'm' | 'w' | 'd' | 'l')) => ask(chosen, picture, key),
        _ => {}
    }
    Effect::None
}

/// Shows one tenant or device: the selected one, else the first.
fn open(chosen: &mut Chosen, picture: &Picture, device: bool) {
    let wanted = |row: &ViewRow| matches!(row, ViewRow::Device(_)) == device;
    let rows = chosen.rows(picture);
    let row =
        rows.get(chosen.place(picture)).filter(|row| wanted(row)).or(rows.iter().find(|row| wanted(row)));
    match row {
        Some(row) => {
            chosen.row = Some(row.clone());
            chosen.page = if device { Page::Device } else { Page::Tenant };
        }
        None => {
            let what = if device { "device" } else { "tenant" };
            chosen.notice = Some((format!("there is no {what} to show"), true));
        }
    }
}

/// Opens the question of a key, or says why it cannot be asked.
fn ask(chosen: &mut Chosen, picture: &Picture, key: char) {
    let can = &picture.source.abilities;
    let refuse = |chosen: &mut Chosen, why: &str| chosen.notice = Some((why.to_owned(), true));
    let knobs = "knobs can be turned on a virtual server and on a daemon with mode manage";
    match key {
        'p' if can.policies.is_empty() => refuse(chosen, "the policy cannot be changed here"),
        'p' => {
            let at = can.policies.iter().position(|name| *name == picture.policy).unwrap_or_default();
            chosen.question = Some(Question::Policy { at });
        }
        'P' if !can.pause => refuse(chosen, "there is no policy to pause here"),
        'P' => chosen.question = Some(Question::Pause { at: if picture.paused.is_some() { 2 } else { 0 } }),
        'l' => match chosen
            .device(picture)
            .and_then(|own| own.devices.iter().find_map(|name| Some((name, *can.loads.get(name)?))))
        {
            Some((device, most)) => {
                let loads = &picture.source.loads;
                let factor = loads.iter().find(|(name, _)| name == device).map_or(1.0, |(_, factor)| *factor);
                chosen.question = Some(Question::Load { device: device.clone(), factor, most });
            }
            None => refuse(chosen, "select a device of a virtual server to change its load"),
        },
        _ if !can.knobs => refuse(chosen, knobs),
        'm' => match chosen.tenant(picture).and_then(|tenant| Some((tenant.name.clone(), tenant.mask?))) {
            Some((tenant, mask)) => {
                chosen.question = Some(Question::Mask { tenant, mask, before: mask });
            }
            None => refuse(chosen, "select a tenant with a mask"),
        },
        'w' => match picture.llc.as_ref().and_then(|llc| llc.dca_ways.filter(|_| llc.dca_ways_switch)) {
            Some(mask) => chosen.question = Some(Question::DcaWays { mask, before: mask }),
            None => refuse(chosen, "the DCA ways of this host cannot be changed"),
        },
        _ => match chosen.device(picture).and_then(|own| {
            let device = own.devices.first()?.clone();
            Some((device, own.dca.filter(|_| own.dca_switch)?))
        }) {
            Some((device, on)) => chosen.question = Some(Question::Dca { device, on: !on }),
            None => refuse(chosen, "select a device whose DCA can be switched"),
        },
    }
}

/// An input while a question is open. Enter answers it, escape closes it.
fn asked(chosen: &mut Chosen, picture: &Picture, mut question: Question, input: Input) -> Effect {
    // A mask is only asked for where the LLC is known.
    let (ways, least) = picture.llc.as_ref().map_or((0, 0), |llc| (llc.ways, llc.min_ways));
    match (&mut question, input) {
        (Question::Filter { .. }, Input::Escape) => {
            chosen.filter.clear();
            return Effect::None;
        }
        (_, Input::Escape) => return Effect::None,
        (Question::Filter { .. }, Input::Enter) => return Effect::None,
        (Question::Filter { text }, Input::Backspace) => {
            text.pop();
        }
        (Question::Filter { text }, Input::Char(letter)) if text.chars().count() < 64 => text.push(letter),
        (Question::Policy { at }, Input::Enter) => {
            let name = picture.source.abilities.policies.get(*at).cloned().unwrap_or_default();
            return Effect::Turn(Turn::Policy { name, settings: toml::Table::new() });
        }
        (Question::Policy { at }, input) => *at = moved(*at, input, picture.source.abilities.policies.len()),
        (Question::Pause { at }, Input::Enter) => return Effect::Turn(PAUSES[*at].1.clone()),
        (Question::Pause { at }, input) => *at = moved(*at, input, PAUSES.len()),
        (Question::Mask { tenant, mask, .. }, Input::Enter) => {
            return Effect::Turn(Turn::Mask { tenant: tenant.clone(), mask: *mask });
        }
        (Question::Mask { mask, .. }, input) => *mask = shaped(*mask, input, ways, least),
        (Question::DcaWays { mask, .. }, Input::Enter) => return Effect::Turn(Turn::DcaWays { mask: *mask }),
        (Question::DcaWays { mask, .. }, input) => *mask = shaped(*mask, input, ways, 1),
        (Question::Dca { device, on }, Input::Enter | Input::Char('y')) => {
            return Effect::Turn(Turn::Dca { device: device.clone(), on: *on });
        }
        (Question::Dca { .. }, Input::Char('n')) => return Effect::None,
        (Question::Load { device, factor, .. }, Input::Enter) => {
            return Effect::Turn(Turn::Load { device: device.clone(), factor: *factor });
        }
        (Question::Load { factor, most, .. }, input) => {
            let by = match input {
                Input::Right | Input::Up | Input::Char('+') => LOAD_STEP,
                Input::Left | Input::Down | Input::Char('-') => -LOAD_STEP,
                _ => 0.0,
            };
            // To a tenth, so that 0.3 is 0.3 after any way to it.
            *factor = ((*factor + by) * 10.0).round().clamp(0.0, *most * 10.0) / 10.0;
        }
        _ => {}
    }
    if let Question::Filter { text } = &question {
        chosen.filter.clone_from(text);
    }
    chosen.question = Some(question);
    Effect::None
}

fn moved(at: usize, input: Input, count: usize) -> usize {
    match input {
        Input::Up | Input::WheelUp | Input::Char('k') => at.saturating_sub(1),
        Input::Down | Input::WheelDown | Input::Char('j') => (at + 1).min(count.saturating_sub(1)),
        Input::Home => 0,
        Input::End => count.saturating_sub(1),
        _ => at,
    }
}

/// A mask after a key: arrows move it, plus and minus change its upper end.
fn shaped(mask: WayMask, input: Input, ways: u32, min_ways: u32) -> WayMask {
    let (Some(low), count) = (mask.lowest(), mask.count()) else { return mask };
    // A mask with holes (DCA ways of some chips) becomes one without.
    let (low, count) = match input {
        // The highest way is on the left.
        Input::Left if low + count < ways => (low + 1, count),
        Input::Right => (low.saturating_sub(1), count),
        Input::Up | Input::Char('+' | '=') if low + count < ways => (low, count + 1),
        Input::Up | Input::Char('+' | '=') if low > 0 => (low - 1, count + 1),
        Input::Down | Input::Char('-') if count > min_ways => (low, count - 1),
        _ => return mask,
    };
    WayMask::span(low, count)
}

fn stop_or_play(chosen: &mut Chosen, picture: &Picture) -> Effect {
    if picture.source.abilities.speed {
        return Effect::Turn(if picture.source.stopped { Turn::Play } else { Turn::Stop });
    }
    chosen.frozen = !chosen.frozen;
    Effect::None
}

fn speed(chosen: &mut Chosen, picture: &Picture, by: f64) -> Effect {
    match picture.source.speed {
        Some(speed) => Effect::Turn(Turn::Speed { factor: (speed * by).clamp(1.0 / 64.0, Turn::SPEED_MOST) }),
        None => {
            chosen.notice = Some(("the speed of a real host cannot be chosen".to_owned(), true));
            Effect::None
        }
    }
}

fn seek(chosen: &mut Chosen, picture: &Picture, by_s: f64) -> Effect {
    if picture.source.kind != SourceKind::Recording {
        if chosen.page == Page::Timeline {
            chosen.reorder();
        }
        return Effect::None;
    }
    Effect::Turn(Turn::Seek { to_s: (picture.source.place_s.unwrap_or_default() + by_s).max(0.0) })
}

/// What a person should know before a question is answered: what comes back, and when.
pub fn returns(question: &Question, picture: &Picture) -> &'static str {
    match (question, picture.source.kind) {
        (Question::Filter { .. } | Question::Load { .. }, _) => "",
        (Question::Pause { .. }, _) => "a paused policy decides nothing; steps are shown on",
        (Question::Policy { .. }, _) => {
            "knobs that the new policy does not set return to their original values at once"
        }
        (_, SourceKind::Daemon) => {
            "policy fixed then holds all knobs; originals return with another policy, pause with release, or the daemon's end"
        }
        _ => "policy fixed then holds all knobs; originals return when another policy takes over",
    }
}

/// The kind of a device in a word.
pub fn kind(kind: Option<DeviceKind>) -> &'static str {
    match kind {
        Some(DeviceKind::Network) => "network",
        Some(DeviceKind::Storage) => "storage",
        None => "-",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::draw::tests::minute;

    /// The turn that inputs lead to, of which the last one may lead to one.
    fn turn(picture: &Picture, chosen: &mut Chosen, inputs: &[Input]) -> Option<Turn> {
        let mut last = Effect::None;
        for input in inputs {
            assert_eq!(last, Effect::None, "{inputs:?}: a turn before the last input");
            last = answer(chosen, picture, *input, &[]);
        }
        match last {
            Effect::Turn(turn) => Some(turn),
            other => {
                assert_eq!(other, Effect::None);
                None
            }
        }
    }

    /// The same with a row selected.
    fn on(picture: &Picture, row: ViewRow, keys: &str) -> Option<Turn> {
        let inputs: Vec<Input> = keys
            .chars()
            .map(|key| match key {
                '\n' => Input::Enter,
                '\x1b' => Input::Escape,
                other => Input::Char(other),
            })
            .collect();
        turn(picture, &mut Chosen { row: Some(row), ..Chosen::default() }, &inputs)
    }

    fn tenant() -> ViewRow {
        ViewRow::Tenant("redis-server".to_owned())
    }

    fn device(name: &str) -> ViewRow {
        ViewRow::Device(name.to_owned())
    }

    #[test]
    fn keys_of_time_lead_to_turns() {
        let (_, mut picture) = minute(11);
        let speed = |factor| Some(Turn::Speed { factor });
        assert_eq!([on(&picture, tenant(), "]"), on(&picture, tenant(), "[")], [speed(2.0), speed(0.5)]);
        assert_eq!(on(&picture, tenant(), " "), Some(Turn::Stop));
        picture.source.stopped = true;
        assert_eq!(on(&picture, tenant(), " "), Some(Turn::Play));
        assert_eq!(on(&picture, tenant(), "."), None, "a virtual server has no other places");
        picture.source.kind = SourceKind::Recording;
        picture.source.place_s = Some(12.0);
        let seek = |to_s| Some(Turn::Seek { to_s });
        let keys = [",", ".", ",", "."].map(|key| on(&picture, tenant(), key));
        assert_eq!(keys, [seek(2.0), seek(22.0), seek(2.0), seek(22.0)]);
        let arrows = [Input::Left, Input::Right].map(|key| turn(&picture, &mut Chosen::default(), &[key]));
        assert_eq!(arrows, [seek(2.0), seek(22.0)]);
        picture.source.place_s = Some(3.0);
        assert_eq!(on(&picture, tenant(), ","), seek(0.0));
        // A host has no time to stop: the screen is held.
        picture.source.abilities.speed = false;
        let mut chosen = Chosen::default();
        assert_eq!((turn(&picture, &mut chosen, &[Input::Char(' ')]), chosen.frozen), (None, true));
    }

    #[test]
    fn each_knob_is_asked_once_and_turned_as_shown() {
        let (_, picture) = minute(11);
        let named = |name: &str| picture.tenants.iter().find(|own| own.name == name).unwrap();
        let (mask, ways) = (named("redis-server").mask.unwrap(), picture.dca_ways().unwrap());
        let narrower = WayMask::span(mask.lowest().unwrap(), mask.count() - 1);
        let wanted = Some(Turn::Mask { tenant: "redis-server".to_owned(), mask: narrower });
        assert_eq!(on(&picture, tenant(), "m-\n"), wanted);
        assert_eq!(on(&picture, tenant(), "m-\x1b"), None, "escape turns nothing");
        let fewer = WayMask::span(ways.lowest().unwrap(), ways.count() - 1);
        assert_eq!(on(&picture, tenant(), "w-\n"), Some(Turn::DcaWays { mask: fewer }));
        let nic = &picture.devices[0];
        let switched = Turn::Dca { device: "nic0".to_owned(), on: !nic.dca.unwrap() };
        assert_eq!(on(&picture, device(&nic.name), "dy"), Some(switched));
        assert_eq!(on(&picture, device(&nic.name), "dn"), None);
        let load = |device: &str, factor| Some(Turn::Load { device: device.to_owned(), factor });
        assert_eq!(on(&picture, device("nic0"), "l+++-\n"), load("nic0", 1.2));
        assert_eq!(
            on(&picture, device("raid0"), "l+\n"),
            load("raid0", 1.0),
            "an array has no more than its own"
        );
        assert_eq!(on(&picture, device("raid0"), "l--\n"), load("raid0", 0.8));
        let policy = |name: &str| Some(Turn::Policy { name: name.to_owned(), settings: toml::Table::new() });
        let first = [Input::Char('p'), Input::Home, Input::Enter];
        assert_eq!(turn(&picture, &mut Chosen::default(), &first), policy("waykeeper"));
        let last = [Input::Char('p'), Input::End, Input::Up, Input::Enter];
        assert_eq!(turn(&picture, &mut Chosen::default(), &last), policy("default"));
    }

    #[test]
    fn a_pause_is_asked_for_and_what_a_source_does_not_take_is_refused() {
        let (_, mut picture) = minute(11);
        let pause = |release| Some(Turn::Pause { release });
        assert_eq!(
            [on(&picture, tenant(), "P\n"), on(&picture, tenant(), "Pj\n")],
            [pause(false), pause(true)]
        );
        picture.paused = Some(waykeeper_service::Pause::Hold);
        assert_eq!(on(&picture, tenant(), "P\n"), Some(Turn::Resume));
        picture.source.abilities = waykeeper_view::Abilities::default();
        for key in ["p", "P", "m", "w", "d", "l"] {
            let mut chosen = Chosen { row: Some(device("nic0")), ..Chosen::default() };
            let input = Input::Char(key.chars().next().unwrap());
            assert_eq!(answer(&mut chosen, &picture, input, &[]), Effect::None);
            assert!(
                chosen.question.is_none() && chosen.notice.is_some_and(|(_, is_error)| is_error),
                "{key}"
            );
        }
    }

    #[test]
    fn a_mask_moves_and_keeps_within_the_llc() {
        let after = |bits: u32, inputs: &[Input]| {
            let mask =
                inputs.iter().fold(WayMask::from_bits(bits), |mask, input| shaped(mask, *input, 11, 2));
            assert!(mask.check(11, 2).is_ok(), "{mask}");
            mask.bits()
        };
        assert_eq!(after(0x6, &[Input::Left]), 0xc);
        assert_eq!(after(0x6, &[Input::Right, Input::Right]), 0x3);
        assert_eq!(after(0x600, &[Input::Left]), 0x600);
        assert_eq!(after(0x6, &[Input::Char('+')]), 0xe);
        // At the upper end it grows downwards.
        assert_eq!(after(0x600, &[Input::Up]), 0x700);
        assert_eq!(after(0x6, &[Input::Char('-'), Input::Down]), 0x6);
        assert_eq!(after(0x7ff, &[Input::Char('+'), Input::Left, Input::Right]), 0x7ff);
    }

    #[test]
    fn keys_of_a_list_stay_in_it() {
        assert_eq!([moved(0, Input::Up, 3), moved(2, Input::Down, 3), moved(0, Input::End, 3)], [0, 2, 2]);
        assert_eq!([moved(0, Input::Down, 0), moved(1, Input::Char('x'), 3)], [0, 1]);
    }
}
