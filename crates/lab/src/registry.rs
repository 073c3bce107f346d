//! The built-in scenarios, and the search of a scenario by name or path.
//!
//! The files of `scenarios/` are part of the binary, so that `waykeeper run a4-fig5` works from anywhere. Adding one is
//! adding a file and a line in [`BUILT_IN`]. Must not know the contents of a scenario, except the files that it names.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use waykeeper_machine::{ScenarioError, ScenarioSource};
use waykeeper_units::{Likeness, nearest, one_line};

macro_rules! built_in {
    ($($name:literal,)*) => {
        /// Name and text of every built-in scenario, the flagship first.
        pub const BUILT_IN: &[BuiltIn] = &[
            $(BuiltIn {
                name: $name,
                text: include_str!(concat!("../../../scenarios/", $name, ".toml")),
            },)*
        ];
    };
}

built_in! {
    "a4-hpw-heavy",
    "a4-lpw-heavy",
    "a4-fig3a",
    "a4-fig3b",
    "a4-fig4",
    "a4-fig5",
    "a4-fig6",
    "a4-fig7",
    "a4-fig8a",
    "a4-fig8b",
    "a4-fig11",
    "a4-fig12",
    "ddio-fig2",
    "ddio-fig3",
    "ddio-fig5",
    "ddio-fig6",
    "ddio-fig8",
    "ddio-fig9",
    "ddio-fig10",
    "ddio-fig11",
    "ddio-fig12",
    "ddio-fig14",
    "iat-fig11",
    "iat-flow-count",
    "iat-leaky-dma",
    "idio-fig3",
    "idio-msl",
    "modern",
    "modern-rings",
    "probe",
    "real-grep",
    "real-hpw-heavy",
    "real-inputs",
    "real-lpw-heavy",
    "real-perl",
    "real-zstd",
    "thesis-load-haswell",
    "thesis-load-sandy-bridge",
    "thesis-redis-haswell",
    "thesis-redis-sandy-bridge",
    "thesis-victim-haswell",
    "thesis-victim-sandy-bridge",
}

/// The end of a scenario file's name.
const SUFFIX: &str = ".toml";
/// Most entries of a folder that are compared with a mistyped name: a hint is not worth more time (ours).
const FILES_MOST: usize = 4096;

/// The scenario that runs by default.
pub const FLAGSHIP: &str = "a4-hpw-heavy";

/// A built-in scenario.
#[derive(Clone, Copy, Debug)]
pub struct BuiltIn {
    /// The name by which users select it, also its file's.
    pub name: &'static str,
    /// Its file.
    pub text: &'static str,
}

/// Why a name does not lead to a scenario.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// Neither a built-in scenario nor a file.
    #[error(
        "unknown scenario `{name}`{nearest}; give the path of a scenario file, or one of those that are built in: {known}"
    )]
    Unknown {
        /// The name that the user gave.
        name: String,
        /// `, did you mean ...` or empty.
        nearest: String,
        /// The known names.
        known: String,
    },
    /// There is no such file.
    #[error("{}: cannot be read: there is no such file{nearest}", one_line(&path.display().to_string()))]
    NoFile {
        /// The path that the user gave.
        path: PathBuf,
        /// `, did you mean ...` or empty.
        nearest: String,
    },
    /// A built-in scenario whose captures and traces are not on this machine.
    #[error(
        "the built-in scenario `{name}` needs {file}, which does not exist here; get Waykeeper's repository \
         and run scenarios/{name}.toml by its path"
    )]
    NoInputs {
        /// The scenario.
        name: String,
        /// The first file it names.
        file: String,
    },
    /// The file cannot be read, or is not TOML.
    #[error(transparent)]
    Scenario(Box<ScenarioError>),
}

impl From<ScenarioError> for RegistryError {
    fn from(error: ScenarioError) -> RegistryError {
        RegistryError::Scenario(Box::new(error))
    }
}

/// The scenario that `name` means: a built-in one, or the file at that path.
///
/// # Errors
/// [`RegistryError`]; an unknown name is answered with the nearest one.
pub fn open(name: impl AsRef<OsStr>) -> Result<ScenarioSource, RegistryError> {
    let name = name.as_ref();
    if let Some(scenario) = named(name) {
        return scenario.source(repository().as_deref());
    }
    let (path, bytes) = (Path::new(name), name.as_encoded_bytes());
    if bytes.contains(&b'/') || bytes.ends_with(SUFFIX.as_bytes()) || path.is_file() {
        if path.symlink_metadata().is_err_and(|why| why.kind() == ErrorKind::NotFound) {
            return Err(RegistryError::NoFile { path: path.to_owned(), nearest: near_file(path) });
        }
        return Ok(ScenarioSource::open(path)?);
    }
    Err(unknown(&name.to_string_lossy()))
}

fn named(name: &OsStr) -> Option<&'static BuiltIn> {
    BUILT_IN.iter().find(|scenario| name == OsStr::new(scenario.name))
}

/// The text of the scenario that `name` means, for a file in any folder: paths to existing files are made absolute.
///
/// # Errors
/// As [`open`].
pub fn text(name: impl AsRef<OsStr>) -> Result<String, RegistryError> {
    let name = name.as_ref();
    if let Some(scenario) = named(name) {
        return Ok(rooted(scenario.text, repository().as_deref()));
    }
    Ok(rooted(open(name)?.text(), Path::new(name).parent()))
}

/// Keys whose values are paths.
const PATH_KEYS: [&str; 3] = ["capture", "trace", "chip"];

/// A scenario's text with the paths that are relative to `folder` made absolute.
fn rooted(text: &str, folder: Option<&Path>) -> String {
    text.split_inclusive('\n').map(|line| rooted_line(line, folder).unwrap_or(line.to_owned())).collect()
}

/// One line of it; none if it has no such path.
fn rooted_line(line: &str, folder: Option<&Path>) -> Option<String> {
    let (key, _) = line.split_once('=')?;
    PATH_KEYS.contains(&key.trim()).then_some(())?;
    let table: toml::Table = line.parse().ok()?;
    let value = table.get(key.trim())?.as_str()?;
    let file = folder?.join(value).canonicalize().ok().filter(|file| file.is_file())?;
    let absolute = toml::Value::String(file.to_str()?.to_owned()).to_string();
    let written = ['"', '\''].map(|quote| format!("{quote}{value}{quote}"));
    let written = written.iter().find(|written| line.contains(*written))?;
    Some(line.replacen(written, &absolute, 1))
}

impl BuiltIn {
    /// Its source; files that it names are searched in `folder`.
    fn source(&self, folder: Option<&Path>) -> Result<ScenarioSource, RegistryError> {
        let source = ScenarioSource::parse(self.name, self.text, folder.map(Path::to_owned))?;
        let here = |file: &String| folder.is_some_and(|folder| folder.join(file).is_file());
        match self.files().into_iter().find(|file| !here(file)) {
            None => Ok(source),
            Some(file) => Err(RegistryError::NoInputs { name: self.name.to_owned(), file }),
        }
    }

    /// Captures and traces that it names.
    fn files(&self) -> Vec<String> {
        let table: toml::Table = self.text.parse().unwrap_or_default();
        let named = [("nic", "capture"), ("workload", "trace")].into_iter().flat_map(|(kind, key)| {
            let tables = table.get(kind).and_then(toml::Value::as_array).into_iter().flatten();
            tables.filter_map(move |inner| inner.get(key)?.as_str().map(str::to_owned))
        });
        named.collect()
    }
}

/// The scenarios' folder of the repository in which this binary was built, if it still exists.
fn repository() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    folder.canonicalize().ok()
}

/// `, did you mean the file ...` where the folder of `path` has a scenario file of a similar name; else empty.
fn near_file(path: &Path) -> String {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Some(stem) = path.file_stem().and_then(|stem| stem.to_str()) else { return String::new() };
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().take(FILES_MOST);
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let stems: Vec<String> = names.filter_map(|name| Some(name.strip_suffix(SUFFIX)?.to_owned())).collect();
    nearest(stem, stems.iter().map(String::as_str), Likeness::Edits).map_or_else(String::new, |near| {
        let near = path.with_file_name(near.to_owned() + SUFFIX);
        format!(", did you mean the file `{}`?", near.display())
    })
}

fn unknown(name: &str) -> RegistryError {
    let names = || BUILT_IN.iter().map(|scenario| scenario.name);
    let near = nearest(name, names(), Likeness::Edits);
    let near = near.map_or_else(String::new, |near| format!(", did you mean `{near}`?"));
    // The name of a file without its suffix, or with another one.
    let file = near_file(&Path::new(name).with_extension("toml"));
    RegistryError::Unknown {
        name: name.to_owned(),
        nearest: if file.is_empty() { near } else { file },
        known: names().collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_folder_is_listed_and_named_after_itself() {
        let folder = repository().unwrap();
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
            .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
            .collect();
        files.sort();
        let mut listed: Vec<&str> = BUILT_IN.iter().map(|scenario| scenario.name).collect();
        listed.sort_unstable();
        assert_eq!(files, listed);
        assert_eq!(BUILT_IN[0].name, FLAGSHIP);
        for scenario in BUILT_IN {
            let table: toml::Table = scenario.text.parse().unwrap();
            assert_eq!(table["name"].as_str(), Some(scenario.name));
        }
    }

    #[test]
    fn every_built_in_scenario_reads() {
        for scenario in BUILT_IN {
            let source = open(scenario.name).unwrap();
            if let Err(error) = source.read() {
                panic!("{error}");
            }
        }
    }

    #[test]
    fn paths_that_lead_somewhere_become_absolute() {
        let folder = repository().unwrap();
        let text =
            "chip = \"gold-6140\"\n  trace = '../inputs/redis-server.wkt' # real\ncapture = \"none.pcap\"";
        let shown = rooted(text, Some(&folder));
        let inputs = folder.parent().unwrap().join("inputs/redis-server.wkt");
        let trace = format!("  trace = {:?} # real\n", inputs.display().to_string());
        assert_eq!(shown, format!("chip = \"gold-6140\"\n{trace}capture = \"none.pcap\""));
        assert_eq!(rooted(text, None), text);
    }

    #[test]
    fn inputs_that_are_not_here_are_named_with_the_way_out() {
        let real = BUILT_IN.iter().find(|scenario| scenario.name == "real-inputs").unwrap();
        let error = real.source(None).unwrap_err().to_string();
        assert!(
            error.contains("redis-benchmark.pcap") && error.contains("scenarios/real-inputs.toml"),
            "{error}"
        );
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_nearest_one() {
        let error = open("a4-hwp-heavy").unwrap_err().to_string();
        assert!(
            error.starts_with("unknown scenario `a4-hwp-heavy`, did you mean `a4-hpw-heavy`?"),
            "{error}"
        );
        assert!(matches!(open("no/such/file.toml"), Err(RegistryError::NoFile { .. })));
    }

    #[test]
    fn the_name_of_a_file_is_answered_with_a_similar_one_of_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("mine.toml"), "").unwrap();
        std::fs::write(folder.path().join("notes.txt"), "").unwrap();
        let said = |name: &str| open(folder.path().join(name).to_str().unwrap()).unwrap_err().to_string();
        assert!(
            said("min.toml").ends_with(
                "there is no such file, did you mean the file `{}`?"
                    .replace("{}", folder.path().join("mine.toml").to_str().unwrap())
                    .as_str()
            ),
            "{}",
            said("min.toml")
        );
        assert!(said("other.toml").ends_with("there is no such file"), "{}", said("other.toml"));
        assert!(said("notes.toml").ends_with("there is no such file"), "{}", said("notes.toml"));
    }
}
