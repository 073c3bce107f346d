//! Keys and mouse from the bytes that a terminal sends (xterm's control sequences; the mouse as in its mode 1006). Must not
//! know what they do.

/// Something that a person does at the terminal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Input {
    /// A letter, digit or sign.
    Char(char),
    /// Enter.
    Enter,
    /// Escape.
    Escape,
    /// Backspace.
    Backspace,
    /// Tab.
    Tab,
    /// Arrow up.
    Up,
    /// Arrow down.
    Down,
    /// Arrow left.
    Left,
    /// Arrow right.
    Right,
    /// Page up.
    PageUp,
    /// Page down.
    PageDown,
    /// Home.
    Home,
    /// End.
    End,
    /// Ctrl with a letter.
    Control(char),
    /// A click with the left button, on this column and row from 0.
    Click(u16, u16),
    /// The wheel away from the person.
    WheelUp,
    /// The wheel towards the person.
    WheelDown,
}

/// The longest sequence that is waited for; longer ones are no keys.
const LONGEST: usize = 32;

/// Turns bytes into inputs. Sequences may come in parts.
#[derive(Debug, Default)]
pub struct Decoder(Vec<u8>);

impl Decoder {
    /// Adds bytes and returns what they complete.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<Input> {
        self.0.extend_from_slice(bytes);
        let mut inputs = Vec::new();
        while let Some((input, used)) = first(&self.0) {
            self.0.drain(..used);
            inputs.extend(input);
        }
        inputs
    }

    /// Whether it has the beginning of a sequence.
    pub fn is_waiting(&self) -> bool {
        !self.0.is_empty()
    }

    /// No more bytes came for a while: a lone escape is the key.
    pub fn settle(&mut self) -> Option<Input> {
        let was_escape = self.0.first() == Some(&0x1b);
        self.0.clear();
        was_escape.then_some(Input::Escape)
    }
}

/// The first input and its length; `None` if it is not complete.
fn first(bytes: &[u8]) -> Option<(Option<Input>, usize)> {
    let plain = |input| Some((Some(input), 1));
    match *bytes.first()? {
        b'\r' | b'\n' => plain(Input::Enter),
        b'\t' => plain(Input::Tab),
        0x7f | 0x08 => plain(Input::Backspace),
        0x1b => escape(bytes),
        code @ 1..=26 => plain(Input::Control(char::from(b'a' + code - 1))),
        code if code < 0x20 => Some((None, 1)),
        lead => {
            let length = match lead {
                0x00..=0x7f => 1,
                0xc0..=0xdf => 2,
                0xe0..=0xef => 3,
                0xf0..=0xf7 => 4,
                // The rest of a letter whose beginning was lost.
                _ => return Some((None, 1)),
            };
            let letter = std::str::from_utf8(bytes.get(..length)?).ok().and_then(|text| text.chars().next());
            Some((letter.map(Input::Char), length))
        }
    }
}

/// A sequence after an escape.
fn escape(bytes: &[u8]) -> Option<(Option<Input>, usize)> {
    match bytes.get(1)? {
        b'O' => {
            let input = bytes.get(2).map(|code| named(*code, ""))?;
            Some((input, 3))
        }
        b'[' => {
            let end = bytes[2..].iter().position(|byte| (0x40..=0x7e).contains(byte));
            let Some(end) = end.map(|end| end + 2) else {
                return (bytes.len() > LONGEST).then_some((None, bytes.len()));
            };
            let parameters = std::str::from_utf8(&bytes[2..end]).unwrap_or_default();
            let input = match (bytes[end], parameters.strip_prefix('<')) {
                (last @ (b'M' | b'm'), Some(mouse)) => mouse_input(mouse, last == b'M'),
                (last, _) => named(last, parameters),
            };
            Some((input, end + 1))
        }
        // Escape, then another key.
        _ => Some((Some(Input::Escape), 1)),
    }
}

/// The key of a sequence's last byte and parameters.
fn named(last: u8, parameters: &str) -> Option<Input> {
    Some(match (last, parameters.split(';').next().unwrap_or_default()) {
        (b'A', _) => Input::Up,
        (b'B', _) => Input::Down,
        (b'C', _) => Input::Right,
        (b'D', _) => Input::Left,
        (b'H', _) | (b'~', "1" | "7") => Input::Home,
        (b'F', _) | (b'~', "4" | "8") => Input::End,
        (b'~', "5") => Input::PageUp,
        (b'~', "6") => Input::PageDown,
        _ => return None,
    })
}

/// `button;column;row`, both from 1. Only presses count.
fn mouse_input(parameters: &str, pressed: bool) -> Option<Input> {
    let mut numbers = parameters.split(';').map(|number| number.parse::<u16>().ok());
    let (button, column, row) = (numbers.next()??, numbers.next()??, numbers.next()??);
    match button {
        0 if pressed => Some(Input::Click(column.checked_sub(1)?, row.checked_sub(1)?)),
        64 => Some(Input::WheelUp),
        65 => Some(Input::WheelDown),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(bytes: &[u8]) -> Vec<Input> {
        Decoder::default().push(bytes)
    }

    #[test]
    fn keys_and_the_mouse_are_read() {
        assert_eq!(
            all(b"q?\r\t\x7f\x03"),
            [
                Input::Char('q'),
                Input::Char('?'),
                Input::Enter,
                Input::Tab,
                Input::Backspace,
                Input::Control('c')
            ]
        );
        assert_eq!(all(b"\x1b[A\x1bOB\x1b[C\x1b[D"), [Input::Up, Input::Down, Input::Right, Input::Left]);
        assert_eq!(
            all(b"\x1b[5~\x1b[6~\x1b[H\x1b[4~"),
            [Input::PageUp, Input::PageDown, Input::Home, Input::End]
        );
        // Presses and the wheel; a release and other buttons are nothing.
        assert_eq!(
            all(b"\x1b[<0;3;7M\x1b[<0;3;7m\x1b[<64;1;1M\x1b[<65;1;1M\x1b[<2;1;1M"),
            [Input::Click(2, 6), Input::WheelUp, Input::WheelDown]
        );
        assert_eq!(all("ü€".as_bytes()), [Input::Char('ü'), Input::Char('€')]);
    }

    #[test]
    fn a_sequence_may_come_in_parts_and_a_lone_escape_is_a_key() {
        let mut decoder = Decoder::default();
        assert_eq!(decoder.push(b"\x1b"), []);
        assert_eq!(decoder.push(b"["), []);
        assert_eq!(decoder.push(b"A"), [Input::Up]);
        assert_eq!(decoder.push(b"\x1b"), []);
        assert_eq!(decoder.settle(), Some(Input::Escape));
        assert_eq!(decoder.settle(), None);
        assert_eq!(decoder.push(b"\x1bq"), [Input::Escape, Input::Char('q')]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_and_little_is_kept(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut decoder = Decoder::default();
            for part in bytes.chunks(7) {
                decoder.push(part);
            }
            prop_assert!(decoder.0.len() <= LONGEST + 7, "{:?}", decoder.0);
        }
    }
}
