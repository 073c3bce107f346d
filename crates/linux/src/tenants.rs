//! Who runs on this machine: the operator's list of tenants, a TOML file.
//!
//! A4 s5.1 asks for a record per workload (cores, priority, what it does, which devices); this is that record. Every
//! error names file, line and key. Must not know how tenants are watched or steered.

use crate::pci::PciAddress;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::Spanned;
use waykeeper_host::{Priority, WorkloadKind};
use waykeeper_units::{CoreId, CoreList};

/// One tenant as its owner describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tenant {
    /// Its name; part of the name of its resctrl group.
    pub name: String,
    /// Whether it is to be protected.
    pub priority: Priority,
    /// What it does.
    pub kind: WorkloadKind,
    /// Logical CPUs it is pinned to.
    pub cores: CoreList,
    /// Processes that belong to it, also when they run on other CPUs. Threads they have now and will start follow.
    pub pids: Vec<u32>,
    /// Its devices.
    pub devices: Vec<PciAddress>,
    /// It is the virtual switch of the aggregation model (IAT s2.C).
    pub stack: bool,
    /// Ways its owner was granted at first, as written: `0x600`, `9-10` or `20%`.
    pub mask: Option<String>,
}

/// Why a list of tenants was refused.
#[derive(Debug, thiserror::Error)]
pub enum TenantsError {
    /// The file cannot be read.
    #[error("{}: {why}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The system's own words.
        why: std::io::Error,
    },
    /// Something in it is wrong.
    #[error("{}:{line}: {why}", file.display())]
    Wrong {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What, and what would be accepted.
        why: String,
    },
}

/// Keys of a `[[tenant]]`.
const KEYS: [&str; 8] = ["name", "priority", "kind", "cores", "pids", "devices", "stack", "mask"];

/// Longest name: a resctrl group is a directory, its name has a prefix, and 255 bytes are the limit of a file name.
const NAME_LIMIT: usize = 64;

/// More than this is no list of tenants (each line of text is read at once).
const FILE_LIMIT: u64 = 1 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    tenant: Vec<Spanned<Entry>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: Spanned<String>,
    priority: Priority,
    kind: WorkloadKind,
    cores: Spanned<CoreList>,
    #[serde(default)]
    pids: Vec<u32>,
    #[serde(default)]
    devices: Vec<PciAddress>,
    #[serde(default)]
    stack: bool,
    mask: Option<String>,
}

/// Reads a file of tenants.
///
/// # Errors
/// A file that cannot be read, or the first thing wrong in it.
pub fn read(file: &Path) -> Result<Vec<Tenant>, TenantsError> {
    let failed = |why| TenantsError::Read { file: file.to_owned(), why };
    let mut bytes = Vec::new();
    // What a file says of its size is no bound: a device or a pipe says 0.
    std::fs::File::open(file)
        .map_err(failed)?
        .take(FILE_LIMIT + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() as u64 > FILE_LIMIT {
        let why = format!("a list of tenants has at most {FILE_LIMIT} bytes, this has more");
        return Err(TenantsError::Wrong { file: file.to_owned(), line: 1, why });
    }
    let text = String::from_utf8(bytes).map_err(|why| failed(std::io::Error::other(why)))?;
    parse(file, &text)
}

/// Reads the text of such a file; `file` is for messages.
///
/// # Errors
/// The first thing wrong in it.
pub fn parse(file: &Path, text: &str) -> Result<Vec<Tenant>, TenantsError> {
    let wrong = |at: Option<Range<usize>>, why: String| {
        let start = at.map_or(0, |at| at.start).min(text.len());
        let line = text.as_bytes()[..start].iter().filter(|byte| **byte == b'\n').count() + 1;
        TenantsError::Wrong { file: file.to_owned(), line, why }
    };
    let parsed: File = toml::from_str(text).map_err(|error| wrong(error.span(), explain(error.message())))?;
    if parsed.tenant.is_empty() {
        return Err(wrong(
            None,
            "no tenant; write one as [[tenant]] with name, priority, kind and cores".to_owned(),
        ));
    }
    let mut names: BTreeMap<String, usize> = BTreeMap::new();
    let mut owners: BTreeMap<CoreId, String> = BTreeMap::new();
    let mut tenants = Vec::new();
    for entry in parsed.tenant {
        let entry = entry.into_inner();
        let (at, name) = (entry.name.span(), entry.name.into_inner());
        check_name(&name).map_err(|why| wrong(Some(at.clone()), why))?;
        if names.insert(name.clone(), at.start).is_some() {
            return Err(wrong(Some(at), format!("`{name}` is the name of two tenants")));
        }
        let (at, cores) = (entry.cores.span(), entry.cores.into_inner());
        for core in cores.cores() {
            if let Some(owner) = owners.insert(*core, name.clone()) {
                let why =
                    format!("cores of `{name}`: {core} belongs to `{owner}` already; a core has one tenant");
                return Err(wrong(Some(at), why));
            }
        }
        tenants.push(Tenant {
            name,
            priority: entry.priority,
            kind: entry.kind,
            cores,
            pids: entry.pids,
            devices: entry.devices,
            stack: entry.stack,
            mask: entry.mask,
        });
    }
    Ok(tenants)
}

/// A message of the parser, with the nearest known key for one that is unknown.
fn explain(message: &str) -> String {
    let unknown = message.strip_prefix("unknown field `").and_then(|rest| rest.split_once('`'));
    let Some((key, _)) = unknown else {
        return message.trim_end().to_owned();
    };
    let known = || KEYS.iter().chain(std::iter::once(&"tenant"));
    let near = known().max_by(|a, b| strsim::jaro(key, a).total_cmp(&strsim::jaro(key, b)));
    // 0.7 is where Jaro's measure stops calling words alike.
    match near.filter(|near| strsim::jaro(key, near) > 0.7) {
        Some(near) => format!("unknown key `{key}`; did you mean `{near}`?"),
        None => format!("unknown key `{key}`; a tenant has {}", KEYS.join(", ")),
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > NAME_LIMIT || !name.chars().all(plain) {
        return Err(format!(
            "`{}` cannot be the name of a tenant; take 1 to {NAME_LIMIT} letters, digits, `-`, `_` and `.`",
            name.escape_default()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse_text(text: &str) -> Result<Vec<Tenant>, String> {
        parse(Path::new("tenants.toml"), text).map_err(|error| error.to_string())
    }

    const GOOD: &str = r#"
[[tenant]]
name = "fastclick"
priority = "high"
kind = "network-io"
cores = "0-3"
devices = ["5E:00.0"]
pids = [4242]

[[tenant]]
name = "lbm"
priority = "low"
kind = "non-io"
cores = "4"
mask = "0x003"
"#;

    #[test]
    fn a_list_is_read() {
        let tenants = parse_text(GOOD).unwrap();
        assert_eq!(tenants.len(), 2);
        assert_eq!(tenants[0].devices, ["0000:5e:00.0".parse().unwrap()]);
        assert_eq!((tenants[0].priority, tenants[0].kind), (Priority::High, WorkloadKind::NetworkIo));
        assert_eq!(tenants[0].pids, [4242]);
        assert_eq!(tenants[1].cores.to_string(), "4");
        assert_eq!(tenants[1].mask.as_deref(), Some("0x003"));
        assert!(!tenants[1].stack);
    }

    #[test]
    fn every_mistake_names_its_line_and_what_would_do() {
        let told = |from: &str, to: &str| parse_text(&GOOD.replacen(from, to, 1)).unwrap_err();
        assert_eq!(
            told("priority =", "priorty ="),
            "tenants.toml:4: unknown key `priorty`; did you mean `priority`?"
        );
        assert_eq!(
            told("\"lbm\"", "\"fastclick\""),
            "tenants.toml:11: `fastclick` is the name of two tenants"
        );
        assert_eq!(
            told("cores = \"4\"", "cores = \"3-4\""),
            "tenants.toml:14: cores of `lbm`: core 3 belongs to `fastclick` already; a core has one tenant"
        );
        assert_eq!(
            told("cores = \"4\"", "cores = \"4-\""),
            "tenants.toml:14: `4-` is not a core list; write cores like 0-3,8"
        );
        assert_eq!(
            told("5E:00.0", "eth0"),
            "tenants.toml:7: `eth0` is not a PCI address; write domain:bus:device.function like 0000:3a:00.0, or 3a:00.0"
        );
        assert!(
            told("\"lbm\"", "\"../x\"").starts_with("tenants.toml:11: `../x` cannot be the name of a tenant")
        );
        assert!(told("\"high\"", "\"top\"").contains("unknown variant `top`, expected `high` or `low`"));
        assert_eq!(
            parse_text("").unwrap_err(),
            "tenants.toml:1: no tenant; write one as [[tenant]] with name, priority, kind and cores"
        );
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = read(Path::new("/nowhere/tenants.toml")).unwrap_err().to_string();
        assert!(error.starts_with("/nowhere/tenants.toml: No such file"), "{error}");
    }

    #[test]
    fn a_file_that_never_ends_is_refused() {
        let error = read(Path::new("/dev/zero")).unwrap_err().to_string();
        assert_eq!(error, "/dev/zero:1: a list of tenants has at most 1048576 bytes, this has more");
        // One that tells no size of its own is read like any other.
        assert!(
            read(Path::new("/proc/self/status"))
                .unwrap_err()
                .to_string()
                .starts_with("/proc/self/status:1: ")
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,200}", at in 0usize..200, with in "\\PC{0,4}") {
            let _ = parse_text(&text);
            let mut text = GOOD.to_owned();
            let at = (at.min(text.len())..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            text.insert_str(at, &with);
            let _ = parse_text(&text);
        }
    }
}
