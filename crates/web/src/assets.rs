//! The files of the page, which are part of the program: no network and no build step is needed to show it.
//!
//! Adding a file is adding it in `assets/` and a line here. Must not know what a file contains.

/// A file of the page.
#[derive(Clone, Copy, Debug)]
pub struct PageFile {
    /// Its path in the server.
    pub path: &'static str,
    /// Its media type.
    pub media_type: &'static str,
    /// Its bytes.
    pub bytes: &'static [u8],
}

macro_rules! files {
    ($($path:literal: $media_type:expr,)*) => {
        /// Every file of the page. `/` is the first.
        pub const FILES: &[PageFile] = &[
            $(PageFile {
                path: concat!("/", $path),
                media_type: $media_type,
                bytes: include_bytes!(concat!("../assets/", $path)),
            },)*
        ];
    };
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";
const TEXT: &str = "text/plain; charset=utf-8";

files! {
    "index.html": HTML,
    "style.css": CSS,
    "icon.svg": SVG,
    "js/api.js": SCRIPT,
    "js/chart.js": SCRIPT,
    "js/clock.js": SCRIPT,
    "js/decisions.js": SCRIPT,
    "js/detail.js": SCRIPT,
    "js/dom.js": SCRIPT,
    "js/export.js": SCRIPT,
    "js/feed.js": SCRIPT,
    "js/format.js": SCRIPT,
    "js/link.js": SCRIPT,
    "js/main.js": SCRIPT,
    "js/mask.js": SCRIPT,
    "js/orders.js": SCRIPT,
    "js/overview.js": SCRIPT,
    "js/palette.js": SCRIPT,
    "js/playground.js": SCRIPT,
    "js/series.js": SCRIPT,
    "js/sparkline.js": SCRIPT,
    "js/tables.js": SCRIPT,
    "js/timeline.js": SCRIPT,
    "js/way_map.js": SCRIPT,
    "vendor/uplot/uPlot.iife.min.js": SCRIPT,
    "vendor/uplot/uPlot.min.css": CSS,
    "vendor/uplot/LICENSE": TEXT,
}

/// The file at a path.
pub fn file(path: &str) -> Option<&'static PageFile> {
    if path == "/" { FILES.first() } else { FILES.iter().find(|file| file.path == path) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::{Path, PathBuf};

    fn all(folder: &Path, into: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { all(&path, into) } else { into.push(path) }
        }
    }

    #[test]
    fn every_file_of_the_folder_is_served_and_names_only_files_that_are() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets");
        let mut found = Vec::new();
        all(&folder, &mut found);
        for path in &found {
            let name = format!("/{}", path.strip_prefix(&folder).unwrap().display());
            assert!(file(&name).is_some(), "{name} is not served");
        }
        assert_eq!(found.len(), FILES.len());
        for of in FILES.iter().filter(|of| of.path.starts_with("/js/")) {
            let text = std::str::from_utf8(of.bytes).unwrap();
            assert!(text.starts_with("// "), "{} does not open with its purpose", of.path);
            for import in text.lines().filter_map(|line| line.split_once(" from \"./")) {
                let name = format!("/js/{}", import.1.trim_end_matches("\";"));
                assert!(file(&name).is_some(), "{} imports {name}", of.path);
            }
        }
        assert_eq!(file("/").unwrap().path, "/index.html");
        assert!(file("/../Cargo.toml").is_none());
    }

    #[test]
    fn the_page_asks_no_other_server_and_has_no_script_or_style_inside() {
        for of in FILES.iter().filter(|of| !of.path.starts_with("/vendor/")) {
            let text = std::str::from_utf8(of.bytes).unwrap();
            let outside: Vec<&str> = text
                .lines()
                .filter(|line| line.contains("://") && !line.contains("http://www.w3.org/"))
                .collect();
            assert!(outside.is_empty(), "{}: {outside:?}", of.path);
        }
        let page = std::str::from_utf8(FILES[0].bytes).unwrap();
        // The content security policy would refuse them.
        for inside in ["<style", " style=", "<script>", "onclick="] {
            assert!(!page.contains(inside), "{inside}");
        }
    }
}
