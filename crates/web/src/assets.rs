//! The files of the page, which are part of the program: no network and no build step is needed to show it.
//!
//! Adding a file is adding it in `assets/` and a line here. What charts and way maps need is in `waykeeper-drawing`, which
//! the reports use too. Must not know what a file contains.

/// A file of the page.
#[derive(Clone, Copy, Debug)]
pub struct PageFile {
    /// Its path in the server, without the first slash.
    pub path: &'static str,
    /// Its media type.
    pub media_type: &'static str,
    /// Its bytes.
    pub bytes: &'static [u8],
}

macro_rules! files {
    ($($path:literal: $media_type:expr,)*) => {
        /// The files of this crate. `/` is the first.
        const FILES: &[PageFile] = &[
            $(PageFile {
                path: $path,
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
    "js/clock.js": SCRIPT,
    "js/connection.js": SCRIPT,
    "js/decisions.js": SCRIPT,
    "js/detail.js": SCRIPT,
    "js/feed.js": SCRIPT,
    "js/hub.js": SCRIPT,
    "js/hub_worker.js": SCRIPT,
    "js/link.js": SCRIPT,
    "js/main.js": SCRIPT,
    "js/orders.js": SCRIPT,
    "js/overview.js": SCRIPT,
    "js/playground.js": SCRIPT,
    "js/series.js": SCRIPT,
    "js/sparkline.js": SCRIPT,
    "js/stream.js": SCRIPT,
    "js/tables.js": SCRIPT,
    "js/timeline.js": SCRIPT,
}

/// Every file of the page: those of this crate, then the drawing code.
pub fn files() -> impl Iterator<Item = PageFile> {
    let drawing = waykeeper_drawing::FILES.iter().map(|file| PageFile {
        path: file.path,
        media_type: match file.path.rsplit_once('.') {
            Some((_, "js")) => SCRIPT,
            Some((_, "css")) => CSS,
            _ => TEXT,
        },
        bytes: file.text.as_bytes(),
    });
    FILES.iter().copied().chain(drawing)
}

/// The file at a path.
pub fn file(path: &str) -> Option<PageFile> {
    let path = path.strip_prefix('/')?;
    if path.is_empty() { files().next() } else { files().find(|file| file.path == path) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
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
        let paths: BTreeSet<&str> = files().map(|of| of.path).collect();
        assert_eq!(paths.len(), files().count(), "two files have one path");
        for of in files().filter(|of| of.path.starts_with("js/")) {
            let text = std::str::from_utf8(of.bytes).unwrap();
            assert!(text.starts_with("// "), "{} does not open with its purpose", of.path);
            for import in text.lines().filter_map(|line| line.split_once(" from \"./")) {
                let name = format!("/js/{}", import.1.trim_end_matches("\";"));
                assert!(file(&name).is_some(), "{} imports {name}", of.path);
            }
        }
        assert_eq!(file("/").unwrap().path, "index.html");
        assert_eq!(file("/js/chart.js").unwrap().media_type, SCRIPT);
        assert_eq!(file("/vendor/uplot/LICENSE").unwrap().media_type, TEXT);
        assert!(file("/../Cargo.toml").is_none() && file("index.html").is_none());
    }

    #[test]
    fn the_page_asks_no_other_server_and_has_no_script_or_style_inside() {
        for of in FILES {
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
        // Every file that it names is there.
        for name in page.split("=\"/").skip(1).filter_map(|rest| rest.split('"').next()) {
            assert!(file(&format!("/{name}")).is_some(), "the page names {name}");
        }
    }
}
