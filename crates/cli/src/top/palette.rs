//! Colours of the live view: three schemes, and none where `NO_COLOR` is set. Must not know what is drawn.

use clap::ValueEnum;
use ratatui::style::{Color, Modifier, Style};
use waykeeper_view::Picture;

/// Colour schemes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ColourScheme {
    /// For a dark background
    Dark,
    /// For a light background
    Light,
    /// Colours that people with any kind of colour blindness can tell apart, for a dark background
    ColourBlind,
    /// No colours, as with NO_COLOR
    None,
}

/// Colours of names on a dark background, as numbers of xterm's 256 colours.
const DARK: [u8; Picture::COLOURS as usize] = [39, 214, 43, 70, 225, 30, 98, 227, 204, 177, 123, 137];
/// The same on a light one: each has a contrast of at least 4.5 to white.
const LIGHT: [u8; Picture::COLOURS as usize] = [24, 94, 22, 17, 52, 162, 54, 63, 19, 29, 124, 96];
/// Six colours of Okabe and Ito (Color Universal Design, 2008), then six that readers with any kind of colour blindness
/// distinguish from these and from one another; chosen by a search for the largest least distance.
const UNIVERSAL: [u32; Picture::COLOURS as usize] = [
    0x56_b4_e9, 0xe6_9f_00, 0x00_9e_73, 0xcc_79_a7, 0xf0_e4_42, 0xd5_5e_00, 0x99_44_ff, 0x00_ff_ff,
    0xaa_cc_aa, 0xbb_44_bb, 0xff_ff_bb, 0x88_88_ee,
];

/// The styles of a scheme.
#[derive(Clone, Copy, Debug)]
pub struct Palette(ColourScheme);

impl Palette {
    /// The styles of a scheme.
    pub fn new(scheme: ColourScheme) -> Palette {
        Palette(scheme)
    }

    fn pick(self, dark: Color, light: Color) -> Style {
        match self.0 {
            ColourScheme::None => Style::new(),
            ColourScheme::Light => Style::new().fg(light),
            ColourScheme::Dark | ColourScheme::ColourBlind => Style::new().fg(dark),
        }
    }

    /// A name's own colour.
    pub fn name(self, colour: u8) -> Style {
        let index = usize::from(colour % Picture::COLOURS);
        match self.0 {
            ColourScheme::None => Style::new(),
            ColourScheme::Dark => Style::new().fg(Color::Indexed(DARK[index])),
            ColourScheme::Light => Style::new().fg(Color::Indexed(LIGHT[index])),
            ColourScheme::ColourBlind => Style::new().fg(Color::from_u32(UNIVERSAL[index])),
        }
    }

    /// Plain text.
    pub fn plain(self) -> Style {
        Style::new()
    }

    /// Text that matters less.
    pub fn faint(self) -> Style {
        match self.0 {
            ColourScheme::None => Style::new().add_modifier(Modifier::DIM),
            _ => self.pick(Color::Indexed(245), Color::Indexed(240)),
        }
    }

    /// Headings.
    pub fn heading(self) -> Style {
        self.pick(Color::Indexed(117), Color::Indexed(24)).add_modifier(Modifier::BOLD)
    }

    /// A heading line over the whole width.
    pub fn bar(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// Better than before.
    pub fn good(self) -> Style {
        match self.0 {
            ColourScheme::ColourBlind => Style::new().fg(Color::from_u32(UNIVERSAL[0])),
            _ => self.pick(Color::Indexed(114), Color::Indexed(22)),
        }
    }

    /// Worse than before, and errors.
    pub fn bad(self) -> Style {
        match self.0 {
            ColourScheme::ColourBlind => Style::new().fg(Color::from_u32(UNIVERSAL[5])),
            _ => self.pick(Color::Indexed(203), Color::Indexed(124)),
        }
        .add_modifier(Modifier::BOLD)
    }

    /// The selected row.
    pub fn selected(self) -> Style {
        match self.0 {
            ColourScheme::None => Style::new().add_modifier(Modifier::REVERSED),
            ColourScheme::Light => Style::new().bg(Color::Indexed(254)).add_modifier(Modifier::BOLD),
            _ => Style::new().bg(Color::Indexed(237)).add_modifier(Modifier::BOLD),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use waykeeper_drawing::sight::{self, ColourBlindness};

    /// Red, green and blue of one of xterm's colours 16 to 255: a cube of 6 x 6 x 6, then a ramp of 24 greys.
    fn rgb(index: u8) -> [f64; 3] {
        if index >= 232 {
            return [f64::from(8 + 10 * (u32::from(index) - 232)); 3];
        }
        let level = |part: u8| [0.0, 95.0, 135.0, 175.0, 215.0, 255.0][usize::from(part % 6)];
        let cube = index - 16;
        [level(cube / 36), level(cube / 6), level(cube)]
    }

    /// Red, green and blue of an exact colour.
    fn exact(colour: u32) -> [f64; 3] {
        let [_, red, green, blue] = colour.to_be_bytes().map(f64::from);
        [red, green, blue]
    }

    /// The least distance of two of these colours.
    fn least(colours: &[[f64; 3]], distance: impl Fn([f64; 3], [f64; 3]) -> f64) -> f64 {
        let others = |(index, one): (usize, &[f64; 3])| {
            colours[..index].iter().map(|other| distance(*one, *other)).fold(f64::INFINITY, f64::min)
        };
        colours.iter().enumerate().map(others).fold(f64::INFINITY, f64::min)
    }

    #[test]
    fn names_are_readable_on_their_background_and_no_two_look_alike() {
        let (black, white) = ([0.0; 3], [255.0; 3]);
        for (colours, background) in
            [(DARK.map(rgb), black), (LIGHT.map(rgb), white), (UNIVERSAL.map(exact), black)]
        {
            for colour in colours {
                let contrast = sight::contrast(colour, background);
                assert!(contrast >= 4.5, "{colour:?} on {background:?}: {contrast:.2}");
            }
            let least = least(&colours, sight::distance);
            assert!(least >= sight::DISTINCT, "two colours differ by {least:.3}");
        }
    }

    #[test]
    fn readers_with_any_kind_of_colour_blindness_distinguish_their_colours() {
        for kind in ColourBlindness::ALL {
            let least = least(&UNIVERSAL.map(exact), |one, other| kind.distance(one, other));
            // The six of Okabe and Ito reach 0.076.
            assert!(least >= 0.075, "{kind:?}: two colours differ by {least:.3}");
        }
    }

    #[test]
    fn without_colours_there_is_none() {
        let palette = Palette::new(ColourScheme::None);
        for style in [
            palette.name(3),
            palette.faint(),
            palette.heading(),
            palette.bar(),
            palette.bad(),
            palette.selected(),
        ] {
            assert_eq!((style.fg, style.bg), (None, None));
        }
    }
}
