//! The lines of a job file, put together to jobs: `[global]` before a section, the last line with a key.
//!
//! Knows sections and lines; must not parse text, nor know what a key means.

use super::draft::Draft;
use super::table::{self, Idle, KEYS, Setter};
use super::value::Base;
use super::{Job, JobError, JobNote, shown};
use std::collections::{BTreeMap, BTreeSet};
use waykeeper_units::{Likeness, nearest};

/// The section whose keys apply to all jobs below it.
const GLOBAL: &str = "global";

/// A key and its value as written.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) number: u32,
    pub(super) key: &'static str,
    pub(super) value: String,
    does: Does,
    /// The base of units in its section.
    base: Base,
}

/// What a line does to a job.
#[derive(Clone, Copy, Debug)]
enum Does {
    Set(Setter),
    Nothing(&'static Idle),
}

/// Reads the sections in order.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    file: &'a str,
    is_on_model: bool,
    /// The only job that is wanted; the lines of the others are not read.
    only: Option<&'a str>,
    /// The `[global]` lines so far, the last one with each key.
    global: BTreeMap<&'static str, Line>,
    open: Option<Section>,
    jobs: Vec<Job>,
    /// The names of all jobs.
    names: Vec<String>,
    notes: Vec<JobNote>,
    /// All that is wrong, so that a file is corrected in one pass.
    wrong: Vec<JobError>,
    /// The lines that are in `wrong` or in `notes`: a line of `[global]` is read for each job.
    refused: BTreeSet<u32>,
    noted: BTreeSet<(u32, &'static str)>,
}

/// A section whose lines are read.
#[derive(Debug)]
struct Section {
    at: u32,
    /// Empty after a bad head.
    name: String,
    lines: Vec<Line>,
    wrong: Vec<JobError>,
}

/// What a file has.
#[derive(Debug)]
pub(super) struct Contents {
    pub(super) jobs: Vec<Job>,
    /// The names of all jobs, read or not.
    pub(super) names: Vec<String>,
    pub(super) notes: Vec<JobNote>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(file: &'a str, is_on_model: bool, only: Option<&'a str>) -> Reader<'a> {
        Reader {
            file,
            is_on_model,
            only,
            global: BTreeMap::new(),
            open: None,
            jobs: Vec::new(),
            names: Vec::new(),
            notes: Vec::new(),
            wrong: Vec::new(),
            refused: BTreeSet::new(),
            noted: BTreeSet::new(),
        }
    }

    pub(super) fn section(&mut self, line: u32, name: &str) {
        self.close();
        if name.is_empty() {
            return self.bad_head(line, "[]");
        }
        self.open_section(line, name);
    }

    /// A line that should be the head of a section. The lines below it are those of a job without a name.
    pub(super) fn bad_head(&mut self, line: u32, text: &str) {
        self.close();
        self.wrong.push(JobError::Head { file: self.file.to_owned(), line, text: shown(text) });
        self.open_section(line, "");
    }

    fn open_section(&mut self, at: u32, name: &str) {
        self.open = Some(Section { at, name: name.to_owned(), lines: Vec::new(), wrong: Vec::new() });
    }

    pub(super) fn key(&mut self, number: u32, name: &str, value: Option<&str>) {
        let line = self.line(number, name, value);
        match (&mut self.open, line) {
            (Some(section), Ok(line)) => section.lines.push(line),
            (Some(section), Err(error)) => section.wrong.push(error),
            (None, _) => self.wrong.push(JobError::Outside {
                file: self.file.to_owned(),
                line: number,
                key: shown(name),
            }),
        }
    }

    fn line(&self, number: u32, name: &str, value: Option<&str>) -> Result<Line, JobError> {
        let file = || self.file.to_owned();
        let is_usable = |idle: &Idle| self.is_on_model || !idle.is_for_model;
        let effective = table::with_effect(name).map(|key| (key.names[0], key.bare, Does::Set(key.set)));
        let idle = || table::without_effect(name).filter(|(_, idle)| is_usable(idle));
        let found = effective.or_else(|| idle().map(|(name, idle)| (name, Some("1"), Does::Nothing(idle))));
        let Some((key, bare, does)) = found else {
            let near = match table::without_effect(name) {
                Some((_, idle)) => format!(" (the virtual server accepts it: {})", idle.why),
                None => hint(name),
            };
            return Err(JobError::Key { file: file(), line: number, key: shown(name), near, known: known() });
        };
        let refused = |value: &str, wanted: String| {
            let (key, value) = (name.to_owned(), value.to_owned());
            JobError::Value { file: file(), line: number, key, value, wanted }
        };
        let raw = value.unwrap_or_default();
        let Some(value) = Some(raw.trim()).filter(|value| !value.is_empty()).or(bare) else {
            return Err(refused("without a value", format!("{name}=...")));
        };
        // Fio accepts a number after a space, and a description has no effect.
        let has_word =
            value.contains(char::is_alphabetic) && key != "description" && matches!(does, Does::Set(_));
        if has_word && raw.starts_with(char::is_whitespace) {
            let wanted = format!(
                "directly after the `=`, as in `{name}={}`: after a space fio takes neither words nor units",
                shown(value)
            );
            return Err(refused(&format!("`{}`", shown(raw)), wanted));
        }
        Ok(Line { number, key, does, value: value.to_owned(), base: Base::Binary })
    }

    fn close(&mut self) {
        let Some(Section { at, name, mut lines, wrong }) = self.open.take() else { return };
        let own = |key: &str| lines.iter().rfind(|line| line.key == key).map(|line| line.value.clone());
        let is_global = name == GLOBAL;
        let name = own("name").filter(|_| !name.is_empty() && !is_global).unwrap_or(name);
        let base = own("kb_base").or_else(|| Some(self.global.get("kb_base")?.value.clone()));
        // A base that is wrong is reported with its line.
        let base = base.and_then(|text| Base::parse(&text).ok()).unwrap_or(Base::Binary);
        lines.iter_mut().for_each(|line| line.base = base);
        if is_global {
            self.wrong.extend(wrong);
            // The name of a job is its section's.
            let lines = lines.into_iter().filter(|line| line.key != "name");
            self.global.extend(lines.map(|line| (line.key, line)));
            return;
        }
        if name.is_empty() {
            return self.wrong.extend(wrong);
        }
        self.names.push(name.clone());
        if self.only.is_some_and(|only| only != name) {
            return;
        }
        let is_whole = wrong.is_empty();
        self.wrong.extend(wrong);
        // The last line with a key applies.
        let mut all = self.global.clone();
        all.extend(lines.into_iter().map(|line| (line.key, line)));
        if let Some(draft) = self.draft(at, &name, &all).filter(|_| is_whole) {
            match draft.done() {
                Ok(job) => self.jobs.push(job),
                Err((key, wanted)) => self.refuse(&all[key], wanted),
            }
        }
    }

    /// A job of these lines; nothing if one of them is wrong.
    fn draft(&mut self, at: u32, name: &str, lines: &BTreeMap<&'static str, Line>) -> Option<Draft> {
        let mut draft = Draft::new(self.is_on_model);
        draft.job.line = at;
        draft.job.name = name.to_owned();
        let mut is_whole = true;
        let mut in_order: Vec<&Line> = lines.values().collect();
        in_order.sort_by_key(|line| line.number);
        for line in in_order {
            match line.does {
                Does::Set(set) => {
                    if let Err(wanted) = set(&mut draft, line.base, &line.value) {
                        self.refuse(line, wanted);
                        is_whole = false;
                    }
                }
                Does::Nothing(idle) => draft.note(idle.why),
            }
            for text in std::mem::take(&mut draft.notes) {
                self.note(line.number, line.key, text);
            }
        }
        if let Some((key, text)) = draft.settle_engine().filter(|_| is_whole) {
            self.note(lines[key].number, key, text);
        }
        draft.lines = lines.values().map(|line| (line.key, line.number)).collect();
        is_whole.then_some(draft)
    }

    fn note(&mut self, line: u32, key: &'static str, text: &'static str) {
        if self.noted.insert((line, text)) {
            self.notes.push(JobNote { line, key, text });
        }
    }

    fn refuse(&mut self, line: &Line, wanted: String) {
        if self.refused.insert(line.number) {
            self.wrong.push(JobError::Value {
                file: self.file.to_owned(),
                line: line.number,
                key: line.key.to_owned(),
                value: format!("`{}`", shown(&line.value)),
                wanted,
            });
        }
    }

    pub(super) fn finish(mut self) -> Result<Contents, JobError> {
        self.close();
        if self.names.is_empty() {
            // The lines of `[global]` are wrong without a job too.
            let lines = std::mem::take(&mut self.global);
            self.draft(0, GLOBAL, &lines);
        }
        match self.wrong.len() {
            0 => {
                self.notes.sort_by_key(|note| note.line);
                Ok(Contents { jobs: self.jobs, names: self.names, notes: self.notes })
            }
            1 => Err(self.wrong.remove(0)),
            _ => {
                self.wrong.sort_by_key(JobError::line);
                let lacks_key = self.wrong.iter().any(|error| matches!(error, JobError::Key { .. }));
                let known = if lacks_key { format!("; supported are {}", known()) } else { String::new() };
                Err(JobError::Lines { file: self.file.to_owned(), wrong: self.wrong, known })
            }
        }
    }
}

/// The keys that have an effect.
fn known() -> String {
    KEYS.iter().map(|key| key.names[0]).collect::<Vec<_>>().join(", ")
}

/// `, did you mean `x`` if a known key is similar to `word`.
fn hint(word: &str) -> String {
    let all = KEYS.iter().flat_map(|key| key.names).copied();
    nearest(word, all, Likeness::JaroWinkler)
        .map_or_else(String::new, |known| format!(", did you mean `{known}`"))
}
