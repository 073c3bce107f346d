//! `info`: the host's resources, the use of its ways, and ways for devices (`io_alloc`).
//!
//! Like linux rdtgroup.c and, from 6.19, ctrlmondata.c (`resctrl_io_alloc_*`; hardware.md 8.1). It must not know how
//! masks are checked.

use super::VirtualResctrl;
use super::description::ThrottleMode;
use super::groups::Mode;
use super::hardware::{LimitedTraffic, MaskedLines, RmidEvent};
use super::numbers::{c_string, kstrtobool};
use super::places::{Folder, InfoFile};
use super::schemata::{Staged, line};
use rustix::io::Errno;

impl VirtualResctrl {
    pub(super) fn info_show(&mut self, folder: Folder, file: InfoFile) -> Result<String, Errno> {
        match folder {
            Folder::Monitoring => Ok(self.monitoring_show(file)),
            Folder::Bandwidth(traffic) => Ok(self.bandwidth_show(traffic, file)),
            Folder::Cache(lines) => self.cache_show(lines, file),
        }
    }

    pub(super) fn info_write(&mut self, folder: Folder, file: InfoFile, data: &[u8]) -> Result<(), Errno> {
        match (folder, file) {
            (Folder::Cache(lines), InfoFile::IoAlloc) => self.io_alloc_write(lines, data),
            (Folder::Cache(lines), InfoFile::IoAllocCbm) => self.io_alloc_cbm_write(lines, data),
            (_, InfoFile::MaxThresholdOccupancy) => self.threshold_write(data),
            (_, InfoFile::MbmTotalBytesConfig) => self.event_kinds_write(RmidEvent::MbmTotalBytes, data),
            (_, InfoFile::MbmLocalBytesConfig) => self.event_kinds_write(RmidEvent::MbmLocalBytes, data),
            _ => Err(Errno::ACCESS),
        }
    }

    fn schema_of(&self, folder: Folder) -> usize {
        let found = self.schemas.iter().position(|schema| schema.folder == folder);
        found.expect("info has a directory for each schema and no other")
    }

    fn bandwidth_show(&self, traffic: LimitedTraffic, file: InfoFile) -> String {
        let Some(bandwidth) = self.bandwidth(traffic) else { return String::new() };
        let value = match file {
            InfoFile::BandwidthGran => bandwidth.gran,
            InfoFile::DelayLinear => u32::from(bandwidth.linear),
            InfoFile::MinBandwidth => bandwidth.min,
            InfoFile::NumClosids => bandwidth.closids,
            _ => {
                let per_thread = bandwidth.throttle == Some(ThrottleMode::PerThread);
                return if per_thread { "per-thread\n" } else { "max\n" }.to_owned();
            }
        };
        format!("{value}\n")
    }

    fn cache_show(&mut self, lines: MaskedLines, file: InfoFile) -> Result<String, Errno> {
        let cache = self.cache();
        let schema = self.schema_of(Folder::Cache(lines));
        Ok(match file {
            InfoFile::BitUsage => self.bit_usage(schema),
            InfoFile::CbmMask => format!("{:x}\n", cache.full()),
            InfoFile::MinCbmBits => format!("{}\n", cache.min_bits),
            InfoFile::NumClosids => format!("{}\n", self.schemas[schema].closids),
            InfoFile::ShareableBits => format!("{:x}\n", cache.shareable),
            InfoFile::SparseMasks => format!("{}\n", u32::from(cache.sparse)),
            InfoFile::IoAlloc if !self.has_io_alloc() => "not supported\n".to_owned(),
            InfoFile::IoAlloc if self.io_alloc => "enabled\n".to_owned(),
            InfoFile::IoAlloc => "disabled\n".to_owned(),
            _ => {
                self.status.clear();
                self.io_alloc_must_be_on(lines)?;
                self.values_text(schema, self.io_alloc_closid()) + "\n"
            }
        })
    }

    /// `0=XXSS0E;…`: the use of each way, the highest first.
    fn bit_usage(&self, schema: usize) -> String {
        let cache = self.cache();
        let domain_text = |place: usize| {
            let (mut hardware, mut shared, mut exclusive) = (cache.shareable, 0, 0);
            for closid in (0..self.classes.len()).filter(|closid| self.classes[*closid]) {
                let mask = self.schemas[schema].values[place][closid];
                match self.control_group_of(closid as u32).map(|group| group.mode) {
                    Some(Mode::Shareable) => shared |= mask,
                    Some(Mode::Exclusive) => exclusive |= mask,
                    // The class of devices' writes has no group.
                    None => hardware |= mask,
                }
            }
            let letter = |bit: u32| {
                let has = |mask: u64| mask & (1 << bit) != 0;
                match (has(hardware), has(shared)) {
                    (true, true) => 'X',
                    (true, false) => 'H',
                    (false, true) => 'S',
                    (false, false) if has(exclusive) => 'E',
                    (false, false) => '0',
                }
            };
            let letters: String = (0..cache.cbm_bits).rev().map(letter).collect();
            format!("{}={letters}", self.host.domains[place].id)
        };
        (0..self.host.domains.len()).map(domain_text).collect::<Vec<_>>().join(";") + "\n"
    }

    /// The class of devices' writes: the highest that the hardware has.
    fn io_alloc_closid(&self) -> u32 {
        let lines = if self.cdp() { MaskedLines::Data } else { MaskedLines::All };
        self.schemas[self.schema_of(Folder::Cache(lines))].closids - 1
    }

    /// All resources that apply to devices' writes: with CDP both, which have the same masks.
    fn io_alloc_schemas(&self) -> Vec<usize> {
        (0..self.schemas.len()).filter(|it| matches!(self.schemas[*it].folder, Folder::Cache(_))).collect()
    }

    fn io_alloc_must_be_supported(&mut self, lines: MaskedLines) -> Result<(), Errno> {
        if self.has_io_alloc() {
            return Ok(());
        }
        self.status.printf(&format!("io_alloc is not supported on {}\n", Folder::Cache(lines).name()));
        Err(Errno::NODEV)
    }

    fn io_alloc_must_be_on(&mut self, lines: MaskedLines) -> Result<(), Errno> {
        self.io_alloc_must_be_supported(lines)?;
        if self.io_alloc {
            return Ok(());
        }
        self.status.printf(&format!("io_alloc is not enabled on {}\n", Folder::Cache(lines).name()));
        Err(Errno::INVAL)
    }

    fn io_alloc_write(&mut self, lines: MaskedLines, data: &[u8]) -> Result<(), Errno> {
        let on = kstrtobool(&c_string(data))?;
        self.status.clear();
        self.io_alloc_must_be_supported(lines)?;
        if on == self.io_alloc {
            return Ok(());
        }
        let closid = self.io_alloc_closid();
        if closid as usize >= self.classes.len() {
            self.status.printf(&format!("io_alloc CLOSID (ctrl_hw_id) {closid} is not available\n"));
            return Err(Errno::INVAL);
        }
        if on {
            if self.classes[closid as usize] {
                let holder = self.control_group_of(closid).map_or("another", |group| group.name.as_str());
                let text = format!("CLOSID (ctrl_hw_id) {closid} for io_alloc is used by {holder} group\n");
                self.status.printf(&text);
                return Err(Errno::NOSPC);
            }
            self.classes[closid as usize] = true;
            let mut staged = Staged::new();
            for schema in self.io_alloc_schemas() {
                if let Err(error) = self.stage_new_masks(schema, closid, &mut staged) {
                    self.status.puts("Failed to initialize io_alloc allocations\n");
                    self.classes[closid as usize] = false;
                    return Err(error);
                }
            }
            self.apply(closid, &staged);
        } else {
            self.classes[closid as usize] = false;
        }
        self.io_alloc = on;
        self.hardware.set_io_alloc(on.then_some(closid));
        Ok(())
    }

    fn io_alloc_cbm_write(&mut self, lines: MaskedLines, data: &[u8]) -> Result<(), Errno> {
        let values = line(data)?;
        self.status.clear();
        self.io_alloc_must_be_on(lines)?;
        let closid = self.io_alloc_closid();
        let schema = self.schema_of(Folder::Cache(lines));
        let mut staged = Staged::new();
        self.stage_line(schema, &values, closid, false, &mut staged)?;
        let both = self.io_alloc_schemas();
        let staged = staged
            .into_iter()
            .flat_map(|((_, domain), mask)| both.iter().map(move |schema| ((*schema, domain), mask)))
            .collect();
        self.apply(closid, &staged);
        Ok(())
    }
}
