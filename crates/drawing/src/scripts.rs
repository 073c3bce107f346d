//! The files that draw in a browser, which are part of the program. Must not know who asks for them.
//!
//! Adding a file is adding it in `assets/` and a line here.

/// A file of the drawing code.
#[derive(Clone, Copy, Debug)]
pub struct DrawingFile {
    /// Its path under `assets/`; scripts import one another by it.
    pub path: &'static str,
    /// Its text.
    pub text: &'static str,
}

macro_rules! files {
    ($($path:literal,)*) => {
        /// Every file.
        pub const FILES: &[DrawingFile] = &[
            $(DrawingFile { path: $path, text: include_str!(concat!("../assets/", $path)) },)*
        ];
    };
}

files! {
    "css/drawing.css",
    "css/theme.css",
    "js/chart.js",
    "js/dom.js",
    "js/export.js",
    "js/format.js",
    "js/mask.js",
    "js/palette.js",
    "js/way_map.js",
    "vendor/uplot/LICENSE",
    "vendor/uplot/uPlot.iife.min.js",
    "vendor/uplot/uPlot.min.css",
}

/// The text of a file.
pub(crate) fn text(path: &str) -> Option<&'static str> {
    FILES.iter().find(|file| file.path == path).map(|file| file.text)
}

/// All styles as one sheet: the colours of both themes first.
pub fn style() -> String {
    ["css/theme.css", "vendor/uplot/uPlot.min.css", "css/drawing.css"]
        .into_iter()
        .filter_map(text)
        .collect::<Vec<_>>()
        .join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::COLOURS;
    use crate::sight::{DISTINCT, contrast, distance};
    use std::path::{Path, PathBuf};

    fn all(folder: &Path, into: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { all(&path, into) } else { into.push(path) }
        }
    }

    #[test]
    fn every_file_of_the_folder_is_in_the_list_and_asks_no_server() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets");
        let mut found = Vec::new();
        all(&folder, &mut found);
        for path in &found {
            let name = path.strip_prefix(&folder).unwrap().to_str().unwrap();
            assert!(text(name).is_some(), "{name} is not in the list");
        }
        assert_eq!(found.len(), FILES.len());
        for file in FILES.iter().filter(|file| !file.path.starts_with("vendor/")) {
            let opening = if file.path.ends_with(".js") { "// " } else { "/* " };
            assert!(file.text.starts_with(opening), "{} does not open with its purpose", file.path);
            let outside = |line: &&str| line.contains("://") && !line.contains("http://www.w3.org/");
            assert_eq!(file.text.lines().find(outside), None, "{}", file.path);
        }
    }

    /// The colours of a list in `palette.js`.
    fn palette(name: &str) -> Vec<[f64; 3]> {
        let source = text("js/palette.js").unwrap();
        let list = source.split(&format!("const {name} = [")).nth(1).unwrap().split(']').next().unwrap();
        let part = |hex: &str, at: usize| f64::from(u8::from_str_radix(&hex[at..at + 2], 16).unwrap());
        let hexes = list.split('"').filter(|text| text.starts_with('#'));
        hexes.map(|hex| [part(hex, 1), part(hex, 3), part(hex, 5)]).collect()
    }

    #[test]
    fn no_two_colours_look_alike_and_all_are_seen_on_their_background() {
        // The cards of both themes, as in theme.css.
        for (name, card) in [("LIGHT", [255.0; 3]), ("DARK", [24.0, 33.0, 44.0])] {
            let colours = palette(name);
            assert_eq!(colours.len(), usize::from(COLOURS));
            for (index, one) in colours.iter().enumerate() {
                assert!(contrast(*one, card) >= 3.0, "{name} {index}: {:.2}", contrast(*one, card));
                for (before, other) in colours[..index].iter().enumerate() {
                    let distance = distance(*one, *other);
                    assert!(distance >= DISTINCT, "{name} {before} and {index} differ by {distance:.3}");
                }
            }
        }
    }
}
