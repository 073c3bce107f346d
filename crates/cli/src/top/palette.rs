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
const DARK: [u8; Picture::COLOURS as usize] = [75, 214, 114, 204, 141, 80, 221, 209, 45, 183, 150, 180];
/// The same on a light one: each has a contrast of at least 4.5 to white.
const LIGHT: [u8; Picture::COLOURS as usize] = [25, 130, 22, 161, 91, 23, 94, 124, 19, 96, 58, 52];
/// Seven colours of Okabe and Ito (Color Universal Design, 2008), then five lighter ones of other hues.
const UNIVERSAL: [u32; Picture::COLOURS as usize] = [
    0x56_b4_e9, 0xe6_9f_00, 0x00_9e_73, 0xcc_79_a7, 0xf0_e4_42, 0xd5_5e_00, 0x3d_9a_d6, 0xff_d5_8a,
    0x9f_e0_cb, 0xf2_c6_e0, 0xd9_d9_d9, 0x99_99_99,
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

    /// Red, green and blue of one of xterm's colours 16 to 255: a cube of 6 x 6 x 6, then a ramp of 24 greys.
    fn rgb(index: u8) -> [f64; 3] {
        if index >= 232 {
            return [f64::from(8 + 10 * (u32::from(index) - 232)); 3];
        }
        let level = |part: u8| [0.0, 95.0, 135.0, 175.0, 215.0, 255.0][usize::from(part % 6)];
        let cube = index - 16;
        [level(cube / 36), level(cube / 6), level(cube)]
    }

    /// WCAG 2.2, relative luminance.
    fn luminance(rgb: [f64; 3]) -> f64 {
        let linear = |part: f64| {
            let part = part / 255.0;
            if part <= 0.03928 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * linear(rgb[0]) + 0.7152 * linear(rgb[1]) + 0.0722 * linear(rgb[2])
    }

    #[test]
    fn names_are_readable_on_their_background_and_differ() {
        for index in DARK {
            let contrast = (luminance(rgb(index)) + 0.05) / 0.05;
            assert!(contrast >= 4.5, "{index} on black: {contrast:.2}");
        }
        for index in LIGHT {
            let contrast = 1.05 / (luminance(rgb(index)) + 0.05);
            assert!(contrast >= 4.5, "{index} on white: {contrast:.2}");
        }
        for colour in UNIVERSAL {
            let [_, red, green, blue] = colour.to_be_bytes().map(f64::from);
            let contrast = (luminance([red, green, blue]) + 0.05) / 0.05;
            assert!(contrast >= 4.5, "{colour:06x} on black: {contrast:.2}");
        }
        for palette in [DARK, LIGHT] {
            assert_eq!(palette.iter().collect::<std::collections::BTreeSet<_>>().len(), palette.len());
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
