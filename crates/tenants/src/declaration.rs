//! The operator's declaration of tenants: TOML, one `[[tenant]]` each, in a file of its own or in the daemon's.
//!
//! Every error names line and key. Must not know what is present: it does not read the machine.

mod size;
mod texts;

use super::device::DeviceName;
use super::glob::{CgroupSelector, Glob, program};
use serde::Deserialize;
pub use size::DeclaredSize;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use texts::Texts;
use toml::Spanned;
use waykeeper_host::{Priority, WorkloadKind};
use waykeeper_kernel::text_file::TextFileError;
use waykeeper_units::{CoreId, CoreList, Likeness, WayMask, nearest};

/// One tenant as declared, or with `each` a family of tenants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TenantSpec {
    /// Its name; with `each`, a template in which [`OWN_NAME`] is replaced by a match's own name.
    pub name: String,
    /// Each match of its one glob is a tenant.
    pub each: bool,
    /// Whether it is to be protected.
    pub priority: Priority,
    /// What it does. `None`: the kind of its first device, or without devices `NonIo`.
    pub kind: Option<WorkloadKind>,
    /// Logical CPUs it is pinned to, if declared.
    pub cores: CoreList,
    /// Processes, by pid; their descendants belong to it too.
    pub pids: Vec<u32>,
    /// Cgroups, slices and units whose processes belong to it.
    pub selectors: Vec<CgroupSelector>,
    /// Programs whose processes belong to it.
    pub programs: Vec<Glob>,
    /// Its devices.
    pub devices: Vec<DeviceName>,
    /// It is the virtual switch of the aggregation model (IAT s2.C).
    pub stack: bool,
    /// Its initial ways, as written: `0x600`, `9-10` or `20%`.
    pub mask: Option<String>,
}

/// Placeholder for a match's own name in the name of a declaration with `each`.
pub const OWN_NAME: &str = "{name}";

/// An error in a tenant's declaration, and its position in the text.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{why}")]
pub struct DeclarationError {
    /// Byte range in the text that the entries were read from.
    pub at: Range<usize>,
    /// What is wrong, and what would be accepted.
    pub why: String,
}

/// Keys of a `[[tenant]]`.
pub const KEYS: [&str; 13] = [
    "name", "each", "priority", "kind", "cores", "pids", "cgroup", "slice", "unit", "process", "devices",
    "stack", "mask",
];

/// Keys of which each tenant needs at least one.
const SELECTORS: &str = "cores, pids, cgroup, slice, unit, process, devices";

/// The error of a list without a tenant.
pub const NO_TENANT: &str = "no tenant; write one as [[tenant]] with a name and at least one of cores, pids, cgroup, slice, \
                             unit, process, devices";

/// Longest name: it is part of the name of a resctrl group, a directory, whose name has at most 255 bytes.
pub(super) const NAME_LIMIT: usize = 64;

/// Longest part of a name that all matches share: at least as many bytes are left for a match's own name.
const COMMON_LIMIT: usize = 32;

/// Highest number of a process: the largest `pid_t`. Linux gives none from 4194304 on, the virtual host gives higher ones.
const PID_MOST: u32 = i32::MAX as u32;

/// Ways of the widest LLC. How many the LLC of a host has is not known here.
const WAYS_MOST: u32 = 32;

/// Most values of a list. Assumption: a glob says what a longer list would.
const VALUES_MOST: usize = 256;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    tenant: Vec<Spanned<TenantEntry>>,
}

/// One `[[tenant]]` as written, to be embedded in another file's structure as `tenant: Vec<Spanned<TenantEntry>>`;
/// [`declared`] interprets it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(rename = "Entry")]
pub struct TenantEntry {
    name: Spanned<String>,
    each: Option<Spanned<bool>>,
    #[serde(default = "low")]
    priority: Priority,
    kind: Option<WorkloadKind>,
    cores: Option<Spanned<CoreList>>,
    #[serde(default)]
    pids: Vec<Spanned<i64>>,
    cgroup: Option<Spanned<Texts>>,
    slice: Option<Spanned<Texts>>,
    unit: Option<Spanned<Texts>>,
    process: Option<Spanned<Texts>>,
    devices: Option<Spanned<Texts>>,
    #[serde(default)]
    stack: bool,
    mask: Option<Spanned<String>>,
}

/// The default priority: only tenants that ask for protection get it.
fn low() -> Priority {
    Priority::Low
}

/// Reads a text that has tenants and nothing else; `file` is for messages.
///
/// # Errors
/// The first error in it.
pub fn parse(file: &Path, text: &str) -> Result<Vec<TenantSpec>, TextFileError> {
    let wrong = |at: Option<Range<usize>>, why: String| {
        TextFileError::wrong(file, text, at.map_or(0, |at| at.start), why)
    };
    let parsed: File = toml::from_str(text)
        .map_err(|error| wrong(error.span(), explain_key(error.message(), &["tenant"])))?;
    if parsed.tenant.is_empty() {
        return Err(wrong(None, NO_TENANT.to_owned()));
    }
    declared(parsed.tenant).map_err(|refusal| wrong(Some(refusal.at), refusal.why))
}

/// Interprets entries, in their order.
///
/// # Errors
/// The first error, with its position.
pub fn declared(entries: Vec<Spanned<TenantEntry>>) -> Result<Vec<TenantSpec>, DeclarationError> {
    let mut names: Vec<Range<usize>> = Vec::new();
    let mut cores: Vec<Range<usize>> = Vec::new();
    let mut specs = Vec::new();
    let mut size = DeclaredSize::default();
    for entry in entries {
        let whole = entry.span();
        let entry = entry.into_inner();
        names.push(entry.name.span());
        cores.push(entry.cores.as_ref().map_or(whole.clone(), Spanned::span));
        let spec = spec(whole.clone(), entry)?;
        size.add(&spec).map_err(|why| DeclarationError { at: whole, why })?;
        specs.push(spec);
    }
    match clash(&specs) {
        None => Ok(specs),
        Some((index, Clash::Name, why)) => Err(DeclarationError { at: names[index].clone(), why }),
        Some((index, Clash::Core, why)) => Err(DeclarationError { at: cores[index].clone(), why }),
    }
}

/// What two declarations may not have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clash {
    /// Their names.
    Name,
    /// A core.
    Core,
}

/// The first declaration that claims a name or core of an earlier one, what it claims, and the message. Also for lists
/// from several files.
pub fn clash(specs: &[TenantSpec]) -> Option<(usize, Clash, String)> {
    let mut names: BTreeSet<&str> = BTreeSet::new();
    let mut owners: BTreeMap<CoreId, &str> = BTreeMap::new();
    for (index, spec) in specs.iter().enumerate() {
        let name = spec.name.as_str();
        if !names.insert(name) {
            return Some((index, Clash::Name, format!("`{name}` is the name of two tenants")));
        }
        for core in spec.cores.cores() {
            if let Some(owner) = owners.insert(*core, name) {
                let why =
                    format!("cores of `{name}`: {core} already belongs to `{owner}`; a core has one tenant");
                return Some((index, Clash::Core, why));
            }
        }
    }
    None
}

fn spec(whole: Range<usize>, entry: TenantEntry) -> Result<TenantSpec, DeclarationError> {
    let (at, name) = (entry.name.span(), entry.name.into_inner());
    let refuse = |at: &Range<usize>, why: String| Err(DeclarationError { at: at.clone(), why });
    let each = match &entry.each {
        Some(each) if !*each.get_ref() && name.contains(OWN_NAME) => {
            return refuse(
                &each.span(),
                format!("`{name}` makes a tenant of each match; remove each = false"),
            );
        }
        Some(each) => *each.get_ref(),
        None => name.contains(OWN_NAME),
    };
    let name = if each && !name.contains(OWN_NAME) { format!("{name}-{OWN_NAME}") } else { name };
    check_name(&name, each).map_err(|why| DeclarationError { at: at.clone(), why })?;
    let mut pids = Vec::with_capacity(entry.pids.len());
    for pid in &entry.pids {
        let number = u32::try_from(*pid.get_ref()).ok().filter(|number| (1..=PID_MOST).contains(number));
        let why = || {
            format!(
                "pids: {} is not a process; write the numbers that ps shows, from 1 to {PID_MOST}",
                pid.get_ref()
            )
        };
        pids.push(number.ok_or_else(|| DeclarationError { at: pid.span(), why: why() })?);
    }
    if let Some(mask) = &entry.mask {
        let ways =
            WayMask::parse(mask.get_ref(), WAYS_MOST).and_then(|ways| ways.check_on(WAYS_MOST, 1, true));
        ways.map_err(|why| DeclarationError { at: mask.span(), why: format!("mask: {why}") })?;
    }
    let mut selectors = read_all("cgroup", entry.cgroup, CgroupSelector::path)?;
    selectors.extend(read_all("slice", entry.slice, CgroupSelector::slice)?);
    selectors.extend(read_all("unit", entry.unit, CgroupSelector::unit)?);
    let spec = TenantSpec {
        each,
        priority: entry.priority,
        kind: entry.kind,
        cores: entry.cores.map(Spanned::into_inner).unwrap_or_default(),
        pids,
        selectors,
        programs: read_all("process", entry.process, program)?,
        devices: read_all("devices", entry.devices, |text| {
            text.parse::<DeviceName>().map_err(|why| why.to_string())
        })?,
        stack: entry.stack,
        mask: entry.mask.map(Spanned::into_inner),
        name,
    };
    let selectors = spec.selectors.len() + spec.programs.len() + spec.devices.len();
    if selectors == 0 && spec.cores.is_empty() && spec.pids.is_empty() {
        return refuse(
            &whole,
            format!("`{}` selects nothing; give it at least one of {SELECTORS}", spec.name),
        );
    }
    if each && (selectors != 1 || !spec.cores.is_empty() || !spec.pids.is_empty() || !has_glob(&spec)) {
        let why = "each match becomes a tenant, so the declaration must have exactly one glob: in cgroup, \
            slice, unit or process, or virtual functions in devices";
        return refuse(&at, format!("`{}`: {why}", spec.name));
    }
    Ok(spec)
}

fn has_glob(spec: &TenantSpec) -> bool {
    // Several processes may have one name.
    !spec.programs.is_empty()
        || spec.selectors.iter().any(|selector| selector.glob().is_wild())
        || spec.devices.iter().any(DeviceName::is_wild)
}

fn read_all<T>(
    key: &str,
    texts: Option<Spanned<Texts>>,
    read: impl Fn(&str) -> Result<T, String>,
) -> Result<Vec<T>, DeclarationError> {
    let Some(texts) = texts else { return Ok(Vec::new()) };
    let at = texts.span();
    let count = texts.get_ref().0.len();
    if count > VALUES_MOST {
        let why = format!("{key}: a list of {count} values; at most {VALUES_MOST} are accepted");
        return Err(DeclarationError { at, why });
    }
    let read = |text: &String| {
        read(text).map_err(|why| DeclarationError { at: at.clone(), why: format!("{key}: {why}") })
    };
    texts.get_ref().0.iter().map(read).collect()
}

/// A message of the parser; for an unknown key, with the nearest known one. `others` are keys that are allowed besides
/// a tenant's.
pub fn explain_key(message: &str, others: &[&str]) -> String {
    let unknown = message.strip_prefix("unknown field `").and_then(|rest| rest.split_once('`'));
    let Some((key, _)) = unknown else {
        return message.trim_end().to_owned();
    };
    match nearest(key, KEYS.iter().chain(others).copied(), Likeness::Jaro) {
        Some(near) => format!("unknown key `{key}`; did you mean `{near}`?"),
        None => format!("unknown key `{key}`; a tenant has {}", KEYS.join(", ")),
    }
}

/// The characters of a name.
pub(super) fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

fn check_name(name: &str, each: bool) -> Result<(), String> {
    let common = if each { name.replacen(OWN_NAME, "", 1) } else { name.to_owned() };
    let limit = if each { COMMON_LIMIT } else { NAME_LIMIT };
    if name.is_empty() || common.len() > limit || !common.chars().all(is_plain) {
        let beside = if each { format!(" beside {OWN_NAME}") } else { String::new() };
        return Err(format!(
            "`{}` cannot be the name of a tenant; take 1 to {limit} letters, digits, `-`, `_` and `.`{beside}",
            name.escape_default()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse_text(text: &str) -> Result<Vec<TenantSpec>, String> {
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
        assert!(!tenants[0].each);
        assert_eq!((tenants[0].priority, tenants[0].kind), (Priority::High, Some(WorkloadKind::NetworkIo)));
        assert_eq!(tenants[0].pids, [4242]);
        assert_eq!(tenants[1].cores.to_string(), "4");
        assert_eq!(tenants[1].mask.as_deref(), Some("0x003"));
        assert!(!tenants[1].stack);
    }

    /// The message about the text in which `to` replaces `from`.
    fn reported(text: &str, from: &str, to: &str) -> String {
        parse_text(&text.replacen(from, to, 1)).unwrap_err()
    }

    #[test]
    fn every_mistake_names_its_line_and_what_would_do() {
        for (from, to, message) in [
            ("priority =", "priorty =", "4: unknown key `priorty`; did you mean `priority`?"),
            ("\"lbm\"", "\"fastclick\"", "11: `fastclick` is the name of two tenants"),
            (
                "cores = \"4\"",
                "cores = \"3-4\"",
                "14: cores of `lbm`: core 3 already belongs to `fastclick`; a core has one tenant",
            ),
            ("cores = \"4\"", "cores = \"4-\"", "14: `4-` is not a core list; write cores like 0-3,8"),
            (
                "5E:00.0",
                "5E:0",
                "7: devices: `5E:0` is not a PCI address; write domain:bus:device.function like 0000:3a:00.0, or 3a:00.0",
            ),
        ] {
            assert_eq!(reported(GOOD, from, to), format!("tenants.toml:{message}"));
        }
        let name = reported(GOOD, "\"lbm\"", "\"../x\"");
        assert!(name.starts_with("tenants.toml:11: `../x` cannot be the name of a tenant"));
        let priority = reported(GOOD, "\"high\"", "\"top\"");
        assert!(priority.contains("unknown variant `top`, expected `high` or `low`"));
        assert_eq!(
            parse_text("").unwrap_err(),
            "tenants.toml:1: no tenant; write one as [[tenant]] with a name and at least one of cores, pids, cgroup, slice, \
             unit, process, devices"
        );
    }

    /// What no cache accepts is refused without one: `daemon --check` may run anywhere.
    #[test]
    fn numbers_outside_their_range_are_refused_with_key_and_line() {
        for (mask, message) in [
            (
                "nan",
                "`nan` is not a way mask; write hex bits like 0x030, a bit range like 4-5, or a share like 60%",
            ),
            ("0x0", "mask 0x000 has no way; at least 1 are needed"),
            ("150%", "`150%` is not a way mask; write hex bits"),
            ("nan%", "`nan%` is not a way mask; write hex bits"),
            ("-5%", "`-5%` is not a way mask; write hex bits"),
            ("3", "`3` is not a way mask; write hex bits"),
            ("9-3", "`9-3` is not a way mask; write hex bits"),
            ("0x1ffffffff", "`0x1ffffffff` is not a way mask; write hex bits"),
        ] {
            let message = format!("tenants.toml:15: mask: {message}");
            let reported = reported(GOOD, "0x003", mask);
            assert!(reported.starts_with(&message), "{reported}");
        }
        for mask in ["0x5", "20%", "9-10", "100 %"] {
            assert!(parse_text(&GOOD.replacen("0x003", mask, 1)).is_ok(), "{mask}");
        }
        for pid in ["-1", "2147483648", "99999999999"] {
            let message = format!(
                "tenants.toml:8: pids: {pid} is not a process; write the numbers that ps shows, from 1 to 2147483647"
            );
            assert_eq!(reported(GOOD, "4242", pid), message);
        }
    }

    const ALL: &str = r#"
[[tenant]]
name = "pods"
each = true
cgroup = "kubepods.slice/**/cri-*.scope"

[[tenant]]
name = "redis"
priority = "high"
slice = "redis.slice"
unit = ["redis-server.service", "valkey@*.service"]
process = "redis-server"
cores = "4-5"

[[tenant]]
name = "vm-{name}"
kind = "network-io"
devices = "5e:00.0/vf*"
"#;

    #[test]
    fn selectors_and_families_are_read() {
        let specs = parse_text(ALL).unwrap();
        assert_eq!((specs[0].name.as_str(), specs[0].each), ("pods-{name}", true));
        assert_eq!(specs[0].selectors, [CgroupSelector::path("kubepods.slice/**/cri-*.scope").unwrap()]);
        assert_eq!((specs[0].priority, specs[0].kind), (Priority::Low, None), "what is not said");
        let selectors: Vec<&str> = specs[1].selectors.iter().map(|selector| selector.glob().text()).collect();
        assert_eq!(selectors, ["redis.slice", "redis-server.service", "valkey@*.service"]);
        assert_eq!(specs[1].programs, [program("redis-server").unwrap()]);
        assert!(!specs[1].each);
        assert_eq!(
            (specs[2].name.as_str(), specs[2].each),
            ("vm-{name}", true),
            "a template says so by itself"
        );
        assert_eq!(specs[2].devices, ["5e:00.0/vf*".parse().unwrap()]);
    }

    #[test]
    fn mistakes_with_selectors_name_their_line_too() {
        for (from, to, message) in [
            (
                "kubepods.slice/**/cri-*.scope",
                "kubepods/{a",
                "5: cgroup: `kubepods/{a` is not a glob: unclosed alternate group; missing '}' (maybe escape '{' with '[{]'?)",
            ),
            ("cgroup =", "cgroups =", "5: unknown key `cgroups`; did you mean `cgroup`?"),
            (
                "process = \"redis-server\"",
                "process = 7",
                "12: invalid type: integer `7`, expected a text in quotes, or a list of them",
            ),
        ] {
            assert_eq!(reported(ALL, from, to), format!("tenants.toml:{message}"));
        }
        for (from, to, start) in [
            ("\"redis.slice\"", "\"redis\"", "10: slice: `redis` is not a slice"),
            (
                "each = true\ncgroup",
                "each = true\ncores = \"0\"\ncgroup",
                "3: `pods-{name}`: each match becomes a tenant, so",
            ),
            ("devices = \"5e:00.0/vf*\"", "", "15: `vm-{name}` selects nothing; give it at least one of"),
            (
                "name = \"vm-{name}\"",
                "name = \"vm-{name}\"\neach = false",
                "17: `vm-{name}` makes a tenant of each match",
            ),
            ("cores = \"4-5\"", "pids = [0]", "13: pids: 0 is not a process"),
        ] {
            let message = reported(ALL, from, to);
            assert!(message.starts_with(&format!("tenants.toml:{start}")), "{message}");
        }
        for name in ["vm-{nam}", "{name}{name}"] {
            assert!(reported(ALL, "vm-{name}", name).contains("cannot be the name of a tenant"));
        }
        assert!(reported(ALL, "slice =", "slice = \"b.slice\"\nslice =").contains("duplicate key"));
        let nested = format!("{}b{}", "{a,".repeat(130), "}".repeat(130));
        for (from, line, key) in
            [("\"redis-server\"", 12, "process"), ("\"kubepods.slice/**/cri-*.scope\"", 5, "cgroup")]
        {
            let message = reported(ALL, from, &format!("\"{nested}\""));
            assert!(message.starts_with(&format!("tenants.toml:{line}: {key}: `{{a,{{a,")), "{message}");
            assert!(message.ends_with("…` has 130 opening braces; a glob has at most 16"), "{message}");
        }
    }

    #[test]
    fn a_declaration_has_bounded_counts() {
        let tenants = |count: usize, line: &dyn Fn(usize) -> String| {
            let text = |at| format!("[[tenant]]\nname = \"t{at}\"\n{}\n", line(at));
            parse_text(&(0..count).map(text).collect::<String>())
        };
        let pid = |at| format!("pids = [{}]", at + 1);
        // Three lines a tenant: the first beyond 1000 is on line 3001.
        assert_eq!(tenants(1000, &pid).unwrap().len(), 1000);
        assert_eq!(
            tenants(1001, &pid).unwrap_err(),
            "tenants.toml:3001: `t1000` is beyond the 1000 tenants that may be declared"
        );
        // A hundred globs a tenant: the eleventh tenant's are beyond 1000.
        let globs = |at| format!("process = [{}]", format!("\"p{at}*\", \"p\", ").repeat(100));
        assert_eq!(tenants(10, &globs).unwrap().len(), 10);
        assert_eq!(
            tenants(11, &globs).unwrap_err(),
            "tenants.toml:31: `t10` is beyond the 1000 globs with a wildcard that may be declared"
        );
        let values = |_| format!("unit = [{}]", "\"a.service\", ".repeat(257));
        assert_eq!(
            tenants(1, &values).unwrap_err(),
            "tenants.toml:3: unit: a list of 257 values; at most 256 are accepted"
        );
    }

    #[test]
    fn entries_embed_in_another_file_and_keep_their_lines() {
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Daemon {
            policy: String,
            tenant: Vec<Spanned<TenantEntry>>,
        }
        let text = format!("policy = \"a4\"\n{}", ALL.replace("redis.slice", "-.slice"));
        let daemon: Daemon = toml::from_str(&text).unwrap();
        assert_eq!(daemon.policy, "a4");
        let refusal = declared(daemon.tenant).unwrap_err();
        assert_eq!(waykeeper_kernel::text_file::line_of(&text, refusal.at.start), 11);
        assert!(refusal.why.contains("would match all processes"), "{refusal}");
        let error = toml::from_str::<Daemon>(&text.replace("policy =", "polcy =")).unwrap_err();
        let reported = explain_key(error.message(), &["policy", "tenant"]);
        assert_eq!(reported, "unknown key `polcy`; did you mean `policy`?");
    }

    #[test]
    fn lists_from_several_files_clash_like_one() {
        let (mut all, more) = (parse_text(GOOD).unwrap(), parse_text(ALL).unwrap());
        all.extend(more);
        let (index, what, why) = clash(&all).unwrap();
        assert_eq!((index, what), (3, Clash::Core));
        assert_eq!(why, "cores of `redis`: core 4 already belongs to `lbm`; a core has one tenant");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,200}", at in 0usize..400, with in "\\PC{0,4}") {
            let _ = parse_text(&text);
            for good in [GOOD, ALL] {
                let mut text = good.to_owned();
                text.insert_str(at.min(text.len()), &with);
                let _ = parse_text(&text);
            }
        }
    }
}
