//! Sources: every citation of `docs/reference` names a file and a section that exist, every link of a page has a
//! target, files with marks of provenance link their legend, and no file names a folder of one machine.
//!
//! A citation is `hardware.md 2.1`, also `hardware.md 2.1, 2.2 and 4 to 6`. It may continue on the next line of a
//! comment.
#![allow(clippy::print_stdout, reason = "counts, shown with --nocapture")]

use crate::common::repository;
use regex_lite::{Captures, Regex};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// Folders of build or run output, which are skipped in a copy of the repository without git. So are those that begin
/// with a dot.
const NOT_OURS: [&str; 5] = ["target", "out", "repro-out", "results", "__pycache__"];

/// The link that a file with marks must contain.
const LEGEND: &str = "README.md#marks";

/// A text file of the repository: its path from the root, and its text.
struct Text {
    path: String,
    text: String,
}

/// Headings with a number, by file of `docs/reference`.
type Sections = BTreeMap<String, BTreeSet<String>>;

/// Paths of the files in git, from the root.
fn kept() -> Option<Vec<String>> {
    let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(repository()).output().ok()?;
    let paths = String::from_utf8(listed.stdout).ok()?;
    listed.status.success().then(|| paths.split_terminator('\0').map(str::to_owned).collect())
}

/// Paths of the files in a folder and below it, from the root.
fn walked(folder: &Path, into: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        let ours = !NOT_OURS.contains(&name.as_str()) && (!name.starts_with('.') || name == ".ci");
        if path.is_dir() && !path.is_symlink() && ours {
            walked(&path, into);
        } else if path.is_file() {
            into.push(path.strip_prefix(repository()).unwrap().to_string_lossy().into_owned());
        }
    }
}

/// Every file of the repository that is text. Symbolic links are left out, since their targets are in the list.
fn texts() -> Vec<Text> {
    let paths = kept().unwrap_or_else(|| {
        let mut paths = Vec::new();
        walked(repository(), &mut paths);
        paths
    });
    let read = |path: String| {
        let file = repository().join(&path);
        let text = std::fs::read_to_string(&file).ok().filter(|text| !text.contains('\0'))?;
        (!file.is_symlink()).then_some(Text { path, text })
    };
    let all: Vec<Text> = paths.into_iter().filter_map(read).collect();
    assert!(all.len() > 900, "the files were not found");
    all
}

fn sections() -> Sections {
    let mut all = Sections::new();
    for entry in std::fs::read_dir(repository().join("docs/reference")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        let headings = text.lines().filter(|line| line.starts_with("##"));
        let numbers = headings.filter_map(|line| number(line.trim_start_matches('#').trim_start()));
        let numbers = numbers.map(str::to_owned).collect();
        if name != "README.md" && name.ends_with(".md") {
            all.insert(name, numbers);
        }
    }
    assert!(all.len() >= 4, "the reference texts were not found");
    all
}

/// A line without the signs that begin a comment.
fn bare(line: &str) -> &str {
    let line = line.trim();
    let signs = ["///", "//!", "//", "*"];
    signs.iter().find_map(|sign| line.strip_prefix(sign)).unwrap_or(line.trim_start_matches('#')).trim()
}

/// A text as one line, without the signs that begin a comment, and the offset of each of its lines.
fn joined(text: &str) -> (String, Vec<usize>) {
    let (mut line, mut starts) = (String::new(), Vec::new());
    for part in text.lines() {
        starts.push(line.len());
        line.push_str(bare(part));
        line.push(' ');
    }
    (line, starts)
}

/// Whether a name without a section is no citation: a link, a path, or a name that a test looks for.
fn only_named(path: &str, before: &str, after: &str) -> bool {
    let link = path.ends_with(".md") && before.ends_with(['[', '(', '`']);
    let literal = before.ends_with('"') && (after.starts_with('"') || after.starts_with(" \""));
    let folder = before.ends_with("docs/reference/") || before.ends_with("(reference/");
    link || literal || folder || path == "docs/reference/README.md"
}

/// The number at the start of a text, as `2` or `2.1`.
fn number(text: &str) -> Option<&str> {
    let digits = |from: usize| text[from..].bytes().take_while(u8::is_ascii_digit).count();
    let mut end = digits(0);
    while end > 0 && text[end..].starts_with('.') && digits(end + 1) > 0 {
        end += 1 + digits(end + 1);
    }
    (end > 0).then_some(&text[..end])
}

/// The sections that a citation names, from what follows the file's name.
fn cited(after: &str) -> Vec<&str> {
    let mut rest = after.strip_prefix('`').unwrap_or(after);
    let mut all = Vec::new();
    let mut between: &[&str] = &[" "];
    while let Some(section) = between.iter().find_map(|sign| number(rest.strip_prefix(sign)?)) {
        all.push(section);
        let read = section.as_ptr() as usize - rest.as_ptr() as usize + section.len();
        rest = &rest[read..];
        between = &[", ", " and ", " to ", " or ", "-"];
    }
    all
}

/// Whether the text before a word ends within another word.
fn within_word(before: &str) -> bool {
    before.ends_with(|sign: char| sign.is_alphanumeric() || sign == '-' || sign == '_')
}

/// The number of citations of a text, and the wrong ones as `path:line: what`.
fn citations(file: &Text, sections: &Sections) -> (usize, Vec<String>) {
    let (line, starts) = joined(&file.text);
    let (mut count, mut wrong) = (0, BTreeMap::new());
    for (name, numbers) in sections {
        for (at, _) in line.match_indices(name.as_str()) {
            let (before, after) = (&line[..at], &line[at + name.len()..]);
            if within_word(before) {
                continue; // another file, whose name ends alike
            }
            let found = cited(after);
            if found.is_empty() && !only_named(&file.path, before, after) {
                wrong.insert(at, format!("{name} is cited without a section"));
            }
            count += usize::from(!found.is_empty());
            for section in found {
                if !numbers.contains(section) {
                    wrong.insert(at, format!("{name} has no section {section}"));
                }
            }
        }
    }
    for old in ["hw ", "the sheet", "The sheet"] {
        for (at, _) in line.match_indices(old) {
            let after = &line[at + old.len()..];
            if !within_word(&line[..at]) && (old != "hw " || number(after).is_some()) {
                wrong.insert(at, format!("{old:?} is no citation; write hardware.md 2.1"));
            }
        }
    }
    // A reference text names its own sections with § and no file name.
    if let Some(own) = file.path.strip_prefix("docs/reference/").and_then(|name| sections.get(name)) {
        for (at, sign) in line.match_indices('§') {
            if number(&line[at + sign.len()..]).is_none_or(|section| !own.contains(section)) {
                wrong.insert(at, "no such section in this text".to_owned());
            }
        }
    }
    let tell = |(at, what): (usize, String)| {
        format!("{}:{}: {what}", file.path, starts.partition_point(|start| *start <= at))
    };
    (count, wrong.into_iter().map(tell).collect())
}

/// The names by which a heading can be linked, as GitHub makes them.
fn anchors(page: &str) -> BTreeSet<String> {
    let link = Regex::new(r"\[([^\]]*)\]\([^)]*\)").unwrap();
    let (mut all, mut fenced) = (BTreeSet::new(), false);
    for line in page.lines() {
        fenced ^= line.trim_start().starts_with("```");
        let heading = line.trim_start_matches('#');
        if fenced || heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let heading = link.replace_all(heading.trim(), |found: &Captures<'_>| found[1].to_owned());
        let kept = heading.to_lowercase();
        let kept = kept.chars().filter(|sign| sign.is_alphanumeric() || " -_".contains(*sign));
        let name: String = kept.map(|sign| if sign == ' ' { '-' } else { sign }).collect();
        let again = (1..).map(|count| format!("{name}-{count}")).find(|again| !all.contains(again));
        all.insert(if all.contains(&name) { again.unwrap() } else { name });
    }
    all
}

/// Relative links of a page, and those without a target.
fn links(page: &Text) -> (usize, Vec<String>) {
    let code = Regex::new(r"`[^`]*`").unwrap();
    let link = Regex::new(r"\]\(([^)\s]+)\)").unwrap();
    let scheme = Regex::new(r"^[a-z]+:").unwrap();
    let (mut count, mut wrong, mut fenced) = (0, Vec::new(), false);
    for (number, line) in page.text.lines().enumerate() {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        if fenced || fence {
            continue;
        }
        for found in link.captures_iter(&code.replace_all(line, "")) {
            let target = &found[1];
            if scheme.is_match(target) {
                continue;
            }
            count += 1;
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let here = repository().join(&page.path);
            let there = if file.is_empty() { here } else { here.parent().unwrap().join(file) };
            let why = if !there.exists() {
                "no such file"
            } else if !anchor.is_empty()
                && !anchors(&std::fs::read_to_string(there).unwrap()).contains(anchor)
            {
                "no such heading"
            } else {
                continue;
            };
            wrong.push(format!("{}:{}: {target}: {why}", page.path, number + 1));
        }
    }
    (count, wrong)
}

/// The comment of a line of code or data; a page counts as comment as a whole.
fn comment<'t>(path: &str, line: &'t str) -> &'t str {
    let sign = match path.rsplit_once('.').map(|(_, kind)| kind) {
        Some("rs") => "//",
        Some("toml" | "py") => "#",
        _ => return "",
    };
    line.find(sign).map_or("", |at| &line[at..])
}

/// Whether a comment has a mark of provenance.
fn marks(comment: &str) -> bool {
    let sign = |at: Option<usize>| at.and_then(|at| comment.as_bytes().get(at)).copied().unwrap_or(b' ');
    let letter = |(at, letter): (usize, u8)| {
        let (before, after) = (sign(at.checked_sub(1)), sign(Some(at + 1)));
        let earlier = sign(at.checked_sub(2));
        b"PADFCSX".contains(&letter)
            && match before {
                b'(' => b"):;,".contains(&after),
                b'[' => after == b']',
                b' ' if b",;".contains(&earlier) => after == b')',
                b' ' if b"/!#".contains(&earlier) => after == b':' && sign(Some(at + 2)) == b' ',
                _ => false,
            }
    };
    let words = ["[A4]", "[A4 ", "[ATC]", "[IAT]", "[IDIO]", "[TH]", "[paper]", "[artifact]", "[ours]"];
    comment.bytes().enumerate().any(letter) || words.iter().any(|word| comment.contains(word))
}

/// The first line that has a mark of provenance in a comment.
fn mark(file: &Text) -> Option<usize> {
    file.text.lines().position(|line| marks(comment(&file.path, line))).map(|line| line + 1)
}

/// Lines of a text that name a folder of one machine, such as a home folder.
fn machine_folders(file: &Text) -> Vec<String> {
    // Put together, so that this file does not name what it looks for.
    let folders = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];
    let mut wrong = Vec::new();
    for (number, line) in file.text.lines().enumerate() {
        if line.contains(concat!("../sha", "red")) {
            wrong.push(format!("{}:{}: a folder outside of the repository", file.path, number + 1));
        }
        for folder in folders {
            for (at, _) in line.match_indices(folder) {
                let inner =
                    line[..at].ends_with(|sign: char| sign.is_alphanumeric() || "_.~})$/-".contains(sign));
                let after = line[at + folder.len()..].chars().next();
                let named = after.is_some_and(|sign| !sign.is_whitespace() && !"`\"')".contains(sign));
                if !inner && named {
                    wrong.push(format!("{}:{}: {folder} is a folder of one machine", file.path, number + 1));
                }
            }
        }
    }
    wrong
}

#[test]
fn every_citation_names_a_section_that_exists() {
    let (sections, mut count, mut files, mut wrong) = (sections(), 0, 0, Vec::new());
    for file in texts().iter().filter(|file| !file.path.ends_with("tests/suite/citations.rs")) {
        let (found, bad) = citations(file, &sections);
        count += found;
        files += usize::from(found > 0);
        wrong.extend(bad);
    }
    println!("{count} citations in {files} files");
    assert!(count > 500 && files > 200, "only {count} citations in {files} files were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_link_of_a_page_leads_somewhere() {
    let (mut count, mut wrong) = (0, Vec::new());
    for page in texts().iter().filter(|file| file.path.ends_with(".md")) {
        let (found, bad) = links(page);
        count += found;
        wrong.extend(bad);
    }
    println!("{count} links");
    assert!(count > 50, "only {count} links were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn files_with_marks_link_the_legend() {
    let (mut count, mut wrong) = (0, Vec::new());
    for file in texts().iter().filter(|file| !file.path.ends_with("tests/suite/citations.rs")) {
        let reference = file.path.starts_with("docs/reference/") && !file.path.ends_with("/README.md");
        let generation = file.path.starts_with("generations/");
        let Some(line) = mark(file).or((reference || generation).then_some(1)) else { continue };
        count += 1;
        if !file.text.contains(LEGEND) {
            wrong.push(format!("{}:{line}: a mark, and no docs/reference/{LEGEND}", file.path));
        }
    }
    println!("{count} files with marks");
    assert!(count > 40, "only {count} files with marks were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_file_names_a_folder_of_one_machine() {
    let wrong: Vec<String> = texts().iter().flat_map(machine_folders).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn planted(path: &str, text: &str) -> Text {
    Text { path: path.to_owned(), text: text.to_owned() }
}

#[test]
fn a_planted_wrong_citation_is_found() {
    let sections = sections();
    let wrong = |text: &str| citations(&planted("crates/x/src/lib.rs", text), &sections);
    let none: Vec<String> = Vec::new();

    assert_eq!(
        wrong("// as hardware.md 2.1 says\n// (hardware.md 3.3, 4, 6 and 7.5: so)."),
        (2, none.clone())
    );
    assert_eq!(wrong("// a port (hardware.md\n/// 2.1), and `algorithms.md` 0."), (2, none.clone()));
    assert_eq!(wrong("assert!(text.contains(\"hardware.md \"));"), (0, none.clone()));
    assert_eq!(wrong("# docs/reference/hardware.md and my-hardware.md, style.md 7"), (0, none));

    assert_eq!(wrong("\n// hardware.md 2.99").1, ["crates/x/src/lib.rs:2: hardware.md has no section 2.99"]);
    assert_eq!(
        wrong("//! hardware.md 2.1 to 88").1,
        ["crates/x/src/lib.rs:1: hardware.md has no section 88"]
    );
    assert_eq!(
        wrong("/// (hardware.md)").1,
        ["crates/x/src/lib.rs:1: hardware.md is cited without a section"]
    );
    assert_eq!(wrong("// hw 2.1").1.len(), 1);
    assert_eq!(wrong("// The sheet says so").1.len(), 1);
    assert_eq!(wrong("// The data sheet says so").1.len(), 0);
    let own = |text: &str| citations(&planted("docs/reference/hardware.md", text), &sections).1.len();
    assert_eq!((own("as §2.1 says"), own("as §2.77 says")), (0, 1));
}

#[test]
fn a_planted_dead_link_is_found() {
    let page = |text: &str| links(&planted("docs/planted.md", text));
    assert_eq!(
        page("[a](vhost.md) [b](../README.md) [c](https://rustup.rs) `[d](gone.md)`"),
        (2, Vec::new())
    );
    assert_eq!(page("[a](reference/README.md#marks)\n```\n[b](gone.md)\n```"), (1, Vec::new()));
    assert_eq!(page("\n[a](gone.md)").1, ["docs/planted.md:2: gone.md: no such file"]);
    let gone = "docs/planted.md:1: vhost.md#no-such: no such heading";
    assert_eq!(page("[a](vhost.md#no-such)").1, [gone]);
    let names = ["a-b-c-d", "same", "same-1"].map(String::from);
    assert_eq!(anchors("# A `b`, c: d\n## Same\n## Same"), BTreeSet::from(names));
}

#[test]
fn a_planted_mark_and_a_planted_folder_are_found() {
    let marked = |path: &str, text: &str| mark(&planted(path, text));
    assert_eq!(marked("a.rs", "//! It.\nconst A: u8 = 1; // X: a guess"), Some(2));
    assert_eq!(marked("a.rs", "/// Per packet, ns (C)."), Some(1));
    assert_eq!(marked("a.toml", "ways = 11 # [A4] s2.1"), Some(1));
    assert_eq!(marked("a.rs", "let group = group(\"x\", &[S], C); // of A and B"), None);

    let folders = |text: &str| machine_folders(&planted("a.md", text)).len();
    for machine in [["/wo", "rk/x"], ["/ro", "ot/.cache"], ["(/ho", "me/jane/x)"]] {
        assert_eq!(folders(&machine.concat()), 1, "{machine:?}");
    }
    assert_eq!(folders(concat!("see ../sha", "red/reference/x.md")), 1);
    assert_eq!(folders("target/work/x, ext4 /dev/root rw, $HOME/home/x/"), 0);
}
