//! `schemata`, `size` and `mode`: masks and bandwidths of classes, and which overlaps are refused.
//!
//! Like linux ctrlmondata.c (`rdtgroup_schemata_write`, `parse_cbm`, `parse_bw`) and rdtgroup.c
//! (`rdtgroup_cbm_overlaps`, `__init_one_rdt_domain`). It must not know tasks, CPUs and counters.

use super::VirtualResctrl;
use super::description::{Bandwidth, Cdp, Kernel, L3Resource, ResctrlDescription};
use super::groups::{GroupId, Mode};
use super::hardware::{LimitedTraffic, MaskedLines};
use super::numbers::{c_string, kstrtou32, kstrtoull, strim};
use super::places::Folder;
use rustix::io::Errno;
use std::collections::BTreeMap;

/// A line of schemata: one resource, one value per domain and class.
pub(super) struct Schema {
    pub folder: Folder,
    /// `num_closids`.
    pub closids: u32,
    /// By index of the domain in the description, then by class.
    pub values: Vec<Vec<u64>>,
}

/// Checked values, which are set when all lines are checked: by index of the schema and of the domain.
pub(super) type Staged = BTreeMap<(usize, usize), u64>;

/// A written line without its newline; EINVAL without one. Text after a NUL is ignored.
pub(super) fn line(data: &[u8]) -> Result<String, Errno> {
    match data.split_last() {
        Some((b'\n', line)) => Ok(c_string(line)),
        _ => Err(Errno::INVAL),
    }
}

/// The resources of a host in the order of schemata.
pub(super) fn schemas(host: &ResctrlDescription) -> Vec<Schema> {
    let smba = host.smba.filter(|_| host.kernel >= Kernel::SLOW_MEMORY);
    let bandwidth = |traffic, bandwidth: Bandwidth| Schema {
        folder: Folder::Bandwidth(traffic),
        closids: bandwidth.closids,
        values: vec![vec![u64::from(bandwidth.max); bandwidth.closids as usize]; host.domains.len()],
    };
    let mut schemas = Vec::new();
    schemas.extend(smba.map(|smba| bandwidth(LimitedTraffic::SlowMemory, smba)));
    schemas.extend(host.mb.map(|mb| bandwidth(LimitedTraffic::Memory, mb)));
    if let Some(cache) = host.l3 {
        let (all_lines, closids): (&[MaskedLines], u32) = match cache.cdp {
            Cdp::On => (&[MaskedLines::Data, MaskedLines::Code], cache.closids / 2),
            Cdp::Off | Cdp::Absent => (&[MaskedLines::All], cache.closids),
        };
        let values = vec![vec![cache.full(); closids as usize]; host.domains.len()];
        schemas.extend(all_lines.iter().map(|lines| {
            let folder = Folder::Cache(*lines);
            Schema { folder, closids, values: values.clone() }
        }));
    }
    schemas
}

/// Most classes of any host (linux rdtgroup.c: `closid_free_map` is 32 bits wide).
const MOST_CLASSES: u32 = 32;

/// Which classes are taken where there is only the default group: as many as the smallest resource has.
pub(super) fn classes(schemas: &[Schema]) -> Vec<bool> {
    let count = schemas.iter().map(|schema| schema.closids).fold(MOST_CLASSES, u32::min).max(1);
    (0..count).map(|class| class == 0).collect()
}

/// The lowest run of ones in a mask.
fn lowest_run(mask: u64) -> u64 {
    let first = mask.trailing_zeros().min(63);
    let length = (mask >> first).trailing_ones().min(63);
    mask & (((1 << length) - 1) << first)
}

impl VirtualResctrl {
    pub(super) fn cache(&self) -> L3Resource {
        self.host.l3.expect("only asked for what the host has a schema for")
    }

    pub(super) fn bandwidth(&self, traffic: LimitedTraffic) -> Option<Bandwidth> {
        match traffic {
            LimitedTraffic::Memory => self.host.mb,
            LimitedTraffic::SlowMemory => self.host.smba,
        }
    }

    /// The schema of data for that of code, and the reverse.
    fn peer(&self, schema: usize) -> Option<usize> {
        let other = match self.schemas[schema].folder {
            Folder::Cache(MaskedLines::Code) => Folder::Cache(MaskedLines::Data),
            Folder::Cache(MaskedLines::Data) => Folder::Cache(MaskedLines::Code),
            _ => return None,
        };
        self.schemas.iter().position(|schema| schema.folder == other)
    }

    fn is_cache(&self, schema: usize) -> bool {
        matches!(self.schemas[schema].folder, Folder::Cache(_))
    }

    /// Width of names: `L3` is as wide as `L3CODE` if the chip supports CDP.
    fn name_width(&self) -> usize {
        let width = |schema: &Schema| match schema.folder {
            Folder::Cache(_) if self.cache().cdp != Cdp::Absent => {
                Folder::Cache(MaskedLines::Code).name().len()
            }
            folder => folder.name().len(),
        };
        self.schemas.iter().map(width).max().unwrap_or(0)
    }

    /// Width of values: that of the widest resource (linux core.c: `max_data_width`).
    pub(super) fn value_width(&self) -> usize {
        let width = |schema: &Schema| match schema.folder {
            Folder::Bandwidth(traffic) => self.bandwidth(traffic).map_or(0, |bandwidth| bandwidth.width),
            _ => self.cache().cbm_bits.div_ceil(4) as usize,
        };
        self.schemas.iter().map(width).max().unwrap_or(0)
    }

    /// One resource's domains with the values of a class.
    pub(super) fn values_text(&self, schema: usize, closid: u32) -> String {
        let width = self.value_width();
        let cache = self.is_cache(schema);
        let text = |(domain, values): (&super::description::Domain, &Vec<u64>)| match values[closid as usize]
        {
            mask if cache => format!("{}={mask:0width$x}", domain.id),
            value => format!("{}={value:>width$}", domain.id),
        };
        let schema = &self.schemas[schema];
        self.host.domains.iter().zip(&schema.values).map(text).collect::<Vec<_>>().join(";")
    }

    pub(super) fn schemata_show(&self, group: GroupId) -> String {
        let closid = self.groups[&group].closid;
        let width = self.name_width();
        let shown = (0..self.schemas.len()).filter(|schema| closid < self.schemas[*schema].closids);
        shown
            .map(|schema| {
                format!(
                    "{:>width$}:{}\n",
                    self.schemas[schema].folder.name(),
                    self.values_text(schema, closid)
                )
            })
            .collect()
    }

    pub(super) fn size_show(&self, group: GroupId) -> String {
        let closid = self.groups[&group].closid;
        let width = self.name_width();
        let mut text = String::new();
        for (place, schema) in self.schemas.iter().enumerate() {
            let size = |value: u64| {
                if !self.is_cache(place) {
                    return value;
                }
                let cache = self.cache();
                cache.size_bytes / u64::from(cache.cbm_bits) * u64::from(value.count_ones())
            };
            let domains = self.host.domains.iter().zip(&schema.values);
            let sizes: Vec<String> = domains
                .map(|(domain, values)| format!("{}={}", domain.id, size(values[closid as usize])))
                .collect();
            text.push_str(&format!("{:>width$}:{}\n", schema.folder.name(), sizes.join(";")));
        }
        text
    }

    pub(super) fn schemata_write(&mut self, group: GroupId, data: &[u8]) -> Result<(), Errno> {
        let lines = line(data)?;
        self.status.clear();
        let closid = self.groups[&group].closid;
        let exclusive = self.groups[&group].mode == Mode::Exclusive;
        let mut staged = Staged::new();
        for line in lines.split('\n') {
            let (name, values) =
                line.split_once(':').map_or((line, None), |(name, values)| (name, Some(values)));
            let name = strim(name);
            let Some(values) = values else {
                self.status.puts("Missing ':'\n");
                return Err(Errno::INVAL);
            };
            if values.is_empty() {
                self.status.printf(&format!("Missing '{name}' value\n"));
                return Err(Errno::INVAL);
            }
            let known = |schema: &Schema| schema.folder.name() == name && closid < schema.closids;
            let Some(schema) = self.schemas.iter().position(known) else {
                self.status.printf(&format!("Unknown or unsupported resource name '{name}'\n"));
                return Err(Errno::INVAL);
            };
            self.stage_line(schema, values, closid, exclusive, &mut staged)?;
        }
        self.apply(closid, &staged);
        Ok(())
    }

    /// Checks `0=ff;1=f0` for one resource and class.
    pub(super) fn stage_line(
        &mut self,
        schema: usize,
        values: &str,
        closid: u32,
        exclusive: bool,
        staged: &mut Staged,
    ) -> Result<(), Errno> {
        let mut rest = Some(values);
        while let Some(line) = rest.filter(|line| !line.is_empty()) {
            let (part, others) =
                line.split_once(';').map_or((line, None), |(part, others)| (part, Some(others)));
            rest = others;
            let Some((Ok(id), value)) =
                part.split_once('=').map(|(id, value)| (kstrtoull(id, 10), strim(value)))
            else {
                self.status.puts("Missing '=' or non-numeric domain\n");
                return Err(Errno::INVAL);
            };
            let domain =
                self.host.domains.iter().position(|domain| u64::from(domain.id) == id).ok_or(Errno::INVAL)?;
            if staged.contains_key(&(schema, domain)) {
                self.status.printf(&format!("Duplicate domain {id}\n"));
                return Err(Errno::INVAL);
            }
            let value = match self.schemas[schema].folder {
                Folder::Bandwidth(traffic) => self.checked_bandwidth(traffic, value)?,
                _ => self.checked_mask(schema, domain, value, closid, exclusive)?,
            };
            staged.insert((schema, domain), value);
        }
        Ok(())
    }

    fn checked_bandwidth(&mut self, traffic: LimitedTraffic, text: &str) -> Result<u64, Errno> {
        let bandwidth = self.bandwidth(traffic).ok_or(Errno::INVAL)?;
        let value = kstrtou32(text, 10).map_err(|_| {
            self.status.printf(&format!("Invalid MB value {text}\n"));
            Errno::INVAL
        })?;
        if value < bandwidth.min || value > bandwidth.max {
            let (min, max) = (bandwidth.min, bandwidth.max);
            self.status.printf(&format!("MB value {value} out of range [{min},{max}]\n"));
            return Err(Errno::INVAL);
        }
        Ok(u64::from(value.next_multiple_of(bandwidth.gran.max(1))))
    }

    fn checked_mask(
        &mut self,
        schema: usize,
        domain: usize,
        text: &str,
        closid: u32,
        exclusive: bool,
    ) -> Result<u64, Errno> {
        let cache = self.cache();
        let Ok(mask) = kstrtoull(text, 16) else {
            self.status.printf(&format!("Non-hex character in the mask {text}\n"));
            return Err(Errno::INVAL);
        };
        if (cache.min_bits > 0 && mask == 0) || mask > cache.full() {
            self.status.puts("Mask out of range\n");
            return Err(Errno::INVAL);
        }
        if !cache.sparse && mask != lowest_run(mask) {
            self.status.printf(&format!("The mask {mask:x} has non-consecutive 1-bits\n"));
            return Err(Errno::INVAL);
        }
        if lowest_run(mask).count_ones() < cache.min_bits {
            self.status.printf(&format!("Need at least {} bits in the mask\n", cache.min_bits));
            return Err(Errno::INVAL);
        }
        if self.overlaps(schema, domain, mask, closid, true) {
            self.status.puts("Overlaps with exclusive group\n");
            return Err(Errno::INVAL);
        }
        if exclusive && self.overlaps(schema, domain, mask, closid, false) {
            self.status.puts("Overlaps with other group\n");
            return Err(Errno::INVAL);
        }
        Ok(mask)
    }

    /// Whether a mask shares a way with another class: with an exclusive one, or with any class or the devices' ways.
    fn overlaps(&self, schema: usize, domain: usize, mask: u64, closid: u32, with_exclusive: bool) -> bool {
        let one = |schema: usize| {
            if !with_exclusive && mask & self.cache().shareable != 0 {
                return true;
            }
            let taken = self.classes.iter().enumerate().filter(|(_, taken)| **taken);
            taken.map(|(other, _)| other as u32).filter(|other| *other != closid).any(|other| {
                let meets = mask & self.schemas[schema].values[domain][other as usize] != 0;
                let exclusive =
                    || self.control_group_of(other).is_some_and(|group| group.mode == Mode::Exclusive);
                meets && (!with_exclusive || exclusive())
            })
        };
        one(schema) || self.peer(schema).is_some_and(one)
    }

    /// Sets checked values; a value that is set already writes no register.
    pub(super) fn apply(&mut self, closid: u32, staged: &Staged) {
        for (&(schema, domain), &value) in staged {
            let held = &mut self.schemas[schema].values[domain][closid as usize];
            if *held == value {
                continue;
            }
            *held = value;
            let id = self.host.domains[domain].id;
            match self.schemas[schema].folder {
                Folder::Cache(lines) => self.hardware.set_mask(id, closid, lines, value),
                Folder::Bandwidth(traffic) => self.hardware.set_bandwidth(id, closid, traffic, value as u32),
                Folder::Monitoring => {}
            }
        }
    }

    /// The values of a new group: all bandwidth, and the ways that no exclusive group has.
    pub(super) fn new_class(&mut self, closid: u32) -> Result<(), Errno> {
        let mut staged = Staged::new();
        for schema in 0..self.schemas.len() {
            if let Folder::Bandwidth(traffic) = self.schemas[schema].folder {
                let max = self.bandwidth(traffic).map_or(0, |bandwidth| u64::from(bandwidth.max));
                staged.extend((0..self.host.domains.len()).map(|domain| ((schema, domain), max)));
            } else {
                self.stage_new_masks(schema, closid, &mut staged)?;
            }
        }
        self.apply(closid, &staged);
        Ok(())
    }

    /// New masks of one resource: shareable bits, unused bits, the bits of shareable groups, cut to the lowest run.
    pub(super) fn stage_new_masks(
        &mut self,
        schema: usize,
        closid: u32,
        staged: &mut Staged,
    ) -> Result<(), Errno> {
        let cache = self.cache();
        let peer = self.peer(schema);
        for domain in 0..self.host.domains.len() {
            let (mut used, mut mask) = (cache.shareable, cache.shareable);
            for other in
                (0..self.classes.len()).filter(|other| self.classes[*other] && *other != closid as usize)
            {
                let of = |schema: usize| self.schemas[schema].values[domain][other];
                let bits = of(schema) | peer.map_or(0, of);
                used |= bits;
                if self.control_group_of(other as u32).is_some_and(|group| group.mode == Mode::Shareable) {
                    mask |= bits;
                }
            }
            mask = lowest_run(mask | (cache.full() & !used));
            if mask.count_ones() < cache.min_bits {
                let (name, id) = (self.schemas[schema].folder.name(), self.host.domains[domain].id);
                self.status.printf(&format!("No space on {name}:{id}\n"));
                return Err(Errno::NOSPC);
            }
            staged.insert((schema, domain), mask);
        }
        Ok(())
    }

    pub(super) fn mode_show(&self, group: GroupId) -> String {
        match self.groups[&group].mode {
            Mode::Shareable => "shareable\n".to_owned(),
            Mode::Exclusive => "exclusive\n".to_owned(),
        }
    }

    pub(super) fn mode_write(&mut self, group: GroupId, data: &[u8]) -> Result<(), Errno> {
        let wanted = line(data)?;
        self.status.clear();
        let mode = self.groups[&group].mode;
        match wanted.as_str() {
            "shareable" => self.group_mut(group).mode = Mode::Shareable,
            "exclusive" if mode == Mode::Exclusive => {}
            "exclusive" => {
                self.may_be_exclusive(group)?;
                self.group_mut(group).mode = Mode::Exclusive;
            }
            // Pseudo-locking exists on a few chips of 2016, none of which is a host here (linux pseudo_lock.c).
            "pseudo-locksetup" => {
                self.status.puts(match group {
                    GroupId::DEFAULT => "Cannot pseudo-lock default group\n",
                    _ if self.cdp() => "CDP enabled\n",
                    _ => "Pseudo-locking not supported\n",
                });
                return Err(Errno::INVAL);
            }
            _ => {
                self.status.puts("Unknown or unsupported mode\n");
                return Err(Errno::INVAL);
            }
        }
        Ok(())
    }

    fn may_be_exclusive(&mut self, group: GroupId) -> Result<(), Errno> {
        let closid = self.groups[&group].closid;
        let caches: Vec<usize> = (0..self.schemas.len()).filter(|schema| self.is_cache(*schema)).collect();
        if caches.is_empty() {
            self.status.puts("Cannot be exclusive without CAT/CDP\n");
            return Err(Errno::INVAL);
        }
        for schema in caches {
            for domain in 0..self.host.domains.len() {
                let mask = self.schemas[schema].values[domain][closid as usize];
                if self.overlaps(schema, domain, mask, closid, false) {
                    self.status.puts("Schemata overlaps\n");
                    return Err(Errno::INVAL);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_run_is_cut_out() {
        for (mask, run) in
            [(0, 0), (1, 1), (0b1101_1000, 0b1_1000), (0x7ff, 0x7ff), (u64::MAX, u64::MAX >> 1)]
        {
            assert_eq!(lowest_run(mask), run, "{mask:#x}");
        }
    }
}
