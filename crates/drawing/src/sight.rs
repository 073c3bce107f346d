//! How different two colours look. The tests of every palette use it. Must not know a palette.
//!
//! A colour is its red, green and blue, 0..255.

/// The least distance of two colours of one palette. Our choice: 0.02 is just seen side by side, and a legend is far from
/// its line.
pub const DISTINCT: f64 = 0.1;

/// Kinds of colour blindness.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ColourBlindness {
    /// Without the receptors for red.
    Protanopia,
    /// Without those for green.
    Deuteranopia,
    /// Without those for blue.
    Tritanopia,
}

impl ColourBlindness {
    /// Every kind.
    pub const ALL: [ColourBlindness; 3] =
        [ColourBlindness::Protanopia, ColourBlindness::Deuteranopia, ColourBlindness::Tritanopia];

    /// The distance that such a reader sees: of the colours by the model of Machado, Oliveira and Fernandes (2009, table 1,
    /// severity 1).
    pub fn distance(self, one: [f64; 3], other: [f64; 3]) -> f64 {
        let rows = match self {
            ColourBlindness::Protanopia => [
                [0.152_286, 1.052_583, -0.204_868],
                [0.114_503, 0.786_281, 0.099_216],
                [-0.003_882, -0.048_116, 1.051_998],
            ],
            ColourBlindness::Deuteranopia => [
                [0.367_322, 0.860_646, -0.227_968],
                [0.280_085, 0.672_501, 0.047_413],
                [-0.011_820, 0.042_940, 0.968_881],
            ],
            ColourBlindness::Tritanopia => [
                [1.255_528, -0.076_749, -0.178_779],
                [-0.078_411, 0.930_809, 0.147_602],
                [0.004_733, 0.691_367, 0.303_900],
            ],
        };
        let seen = |rgb| {
            let linear = linear(rgb);
            rows.map(|row: [f64; 3]| {
                let part = row.iter().zip(linear).map(|(factor, part)| factor * part).sum::<f64>();
                part.clamp(0.0, 1.0)
            })
        };
        apart(oklab(seen(one)), oklab(seen(other)))
    }
}

/// WCAG 2.2, contrast ratio: 1 for equal colours, 21 for black and white.
pub fn contrast(one: [f64; 3], other: [f64; 3]) -> f64 {
    let luminance = |rgb| {
        let [red, green, blue] = linear(rgb);
        0.2126 * red + 0.7152 * green + 0.0722 * blue
    };
    let (one, other) = (luminance(one) + 0.05, luminance(other) + 0.05);
    one.max(other) / one.min(other)
}

/// The distance in Oklab (B. Ottosson, 2020), in which equal distances look equally different; 1 for black and white.
pub fn distance(one: [f64; 3], other: [f64; 3]) -> f64 {
    apart(oklab(linear(one)), oklab(linear(other)))
}

fn apart(one: [f64; 3], other: [f64; 3]) -> f64 {
    one.into_iter().zip(other).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt()
}

fn linear(rgb: [f64; 3]) -> [f64; 3] {
    rgb.map(|value| match value / 255.0 {
        value if value <= 0.04045 => value / 12.92,
        value => ((value + 0.055) / 1.055).powf(2.4),
    })
}

fn oklab([r, g, b]: [f64; 3]) -> [f64; 3] {
    let l = (0.412_221_470_8 * r + 0.536_332_536_3 * g + 0.051_445_992_9 * b).cbrt();
    let m = (0.211_903_498_2 * r + 0.680_699_545_1 * g + 0.107_396_956_6 * b).cbrt();
    let s = (0.088_302_461_9 * r + 0.281_718_837_6 * g + 0.629_978_700_5 * b).cbrt();
    [
        0.210_454_255_3 * l + 0.793_617_785_0 * m - 0.004_072_046_8 * s,
        1.977_998_495_1 * l - 2.428_592_205_0 * m + 0.450_593_709_9 * s,
        0.025_904_037_1 * l + 0.782_771_766_2 * m - 0.808_675_766_0 * s,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn red_and_green_are_closer_for_those_who_lack_their_receptors() {
        let (red, green) = ([213.0, 94.0, 0.0], [120.0, 130.0, 0.0]);
        let [protan, deutan, tritan] = ColourBlindness::ALL.map(|kind| kind.distance(red, green));
        let all = distance(red, green);
        assert!(
            protan < 0.6 * all && deutan < 0.6 * all && tritan > 0.8 * all,
            "{protan} {deutan} {tritan} {all}"
        );
    }

    #[test]
    fn black_and_white_are_farthest_apart() {
        let (black, white) = ([0.0; 3], [255.0; 3]);
        assert!((contrast(black, white) - 21.0).abs() < 1e-9);
        assert!((distance(black, white) - 1.0).abs() < 1e-6);
        assert_eq!((contrast(white, white), distance(white, white)), (1.0, 0.0));
        // Ottosson's own example: sRGB red is (0.628, 0.225, 0.126).
        let red = oklab(linear([255.0, 0.0, 0.0]));
        assert!(red.iter().zip([0.628, 0.225, 0.126]).all(|(a, b)| (a - b).abs() < 5e-4), "{red:?}");
    }
}
