//! Finds configuration files, reads them with a size limit, and splits them into keys with line numbers.
//!
//! A FIFO, a device or an endless file is refused without waiting: a reload happens beside a running loop. So is a file
//! that another user could have written. Must not know what keys mean.

use super::error::ConfigError;
use super::keys::is_section;
use super::layers::{Layer, ValueSource};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io;
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use toml::de::{DeTable, DeValue};
use toml::{Spanned, Table, Value};
use waykeeper_bounded_read::{self as bounded_read, TEXT_MOST};
use waykeeper_kernel::system::{DirEntry, FileReader, System};
use waykeeper_kernel::text_file::line_of;
use waykeeper_kernel::trust::{self, TrustError};
use waykeeper_tenants::{TenantEntry, declared, explain_key};

/// Most bytes of all files together. Assumption: the example with every key has a few KiB.
pub(super) const ALL_LIMIT: u64 = 4 << 20;
/// Most files in a folder. Assumption: one per tenant stays below.
const FILES_LIMIT: usize = 1000;

/// The file itself, if it exists or was named, and the files of `conf.d` beside it, in the order of their names.
pub(super) fn find(
    system: &dyn System,
    asked: Option<&Path>,
    usual: &Path,
) -> Result<Vec<PathBuf>, ConfigError> {
    let file = asked.unwrap_or(usual);
    let mut files = Vec::new();
    if asked.is_some() || system.exists(file) {
        files.push(file.to_owned());
    }
    let folder = file.parent().unwrap_or(Path::new("/")).join("conf.d");
    let failed = |why| ConfigError::Read { path: folder.clone(), why };
    let mut more = Vec::new();
    let mut visit = |entry: DirEntry| {
        // Names that begin with a dot are editors' files.
        let is_ours =
            entry.name.to_str().is_some_and(|name| name.ends_with(".toml") && !name.starts_with('.'));
        more.extend(is_ours.then(|| folder.join(entry.name)));
        if more.len() > FILES_LIMIT { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    match trust::folder(system, &folder) {
        Err(why) if why.is_absent() => return Ok(files),
        trusted => trusted.map_err(|why| untrusted(&folder, why))?,
    }
    system.list(&folder, &mut visit).map_err(failed)?;
    if more.len() > FILES_LIMIT {
        return Err(failed(io::Error::other(format!("the directory has more than {FILES_LIMIT} files"))));
    }
    more.sort_unstable();
    files.append(&mut more);
    Ok(files)
}

/// Reads and parses a file of at most `left` bytes, and counts its bytes down from `left`.
pub(super) fn read(system: &dyn System, path: &Path, left: &mut u64) -> Result<Layer, ConfigError> {
    let failed = |why| ConfigError::Read { path: path.to_owned(), why };
    let file = trust::read(system, path).map_err(|why| untrusted(path, why))?;
    let bytes =
        bounded_read::bytes(FileReader(file.as_ref()), "a configuration file", TEXT_MOST).map_err(failed)?;
    *left = left.checked_sub(bytes.len() as u64).ok_or_else(|| {
        let why = format!("with this file the configuration has more than {ALL_LIMIT} bytes");
        failed(io::Error::other(why))
    })?;
    let text = bounded_read::utf8(bytes).map_err(failed)?;
    take_apart(path, &text)
}

fn untrusted(path: &Path, why: TrustError) -> ConfigError {
    match why {
        TrustError::Io { why, .. } => ConfigError::Read { path: path.to_owned(), why },
        why => ConfigError::Untrusted(why),
    }
}

/// Only the tenants; `take_apart` reads the other keys separately.
#[derive(Deserialize)]
struct Tenants {
    #[serde(default)]
    tenant: Vec<Spanned<TenantEntry>>,
}

/// The keys and tenants of a text; `path` is for messages.
pub(super) fn take_apart(path: &Path, text: &str) -> Result<Layer, ConfigError> {
    let file: Arc<Path> = path.into();
    let at = |span: Range<usize>| ValueSource::File { path: file.clone(), line: line_of(text, span.start) };
    let syntax = |error: toml::de::Error| {
        let message = explain_key(error.message().trim_end(), &[]).replace('\n', " ");
        ConfigError::wrong(&at(error.span().unwrap_or(0..0)), message)
    };
    let spans = DeTable::parse(text).map_err(syntax)?;
    let values: Table = toml::from_str(text).map_err(syntax)?;
    let mut layer = Layer::default();
    for (name, value) in spans.get_ref() {
        let Some(plain) = values.get(name.get_ref().as_ref()) else { continue };
        match (value.get_ref(), plain) {
            (DeValue::Array(_), _) if name.get_ref() == "tenant" => {}
            (DeValue::Table(section), Value::Table(values)) if is_section(name.get_ref()) => {
                for (key, value) in section {
                    let Some(plain) = values.get(key.get_ref().as_ref()) else { continue };
                    let full = format!("{}.{}", name.get_ref(), key.get_ref());
                    match (value.get_ref(), plain) {
                        (DeValue::Table(settings), Value::Table(values)) if full == "policy.settings" => {
                            let lines: BTreeMap<_, _> =
                                settings.keys().map(|key| (key.get_ref().as_ref(), at(key.span()))).collect();
                            for (key, value) in values {
                                let source = lines.get(key.as_str()).cloned();
                                let source = source.unwrap_or_else(|| at(name.span()));
                                layer.push(format!("{full}.{key}"), value.clone(), source);
                            }
                        }
                        _ => layer.push(full, plain.clone(), at(key.span())),
                    }
                }
            }
            _ => layer.push(name.get_ref().to_string(), plain.clone(), at(name.span())),
        }
    }
    if !values.get("tenant").is_some_and(Value::is_array) {
        return Ok(layer);
    }
    let tenants: Tenants = toml::from_str(text).map_err(syntax)?;
    let places: Vec<ValueSource> = tenants.tenant.iter().map(|entry| at(entry.span())).collect();
    let specs =
        declared(tenants.tenant).map_err(|refusal| ConfigError::wrong(&at(refusal.at), refusal.why))?;
    layer.tenants = specs.into_iter().zip(places).collect();
    Ok(layer)
}
