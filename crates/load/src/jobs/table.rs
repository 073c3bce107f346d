//! The keys of a job file: their names, their accepted values and what each does to a job.
//!
//! Knows one key at a time; must not parse lines of text, nor know which lines belong to a job.

use super::draft::{Draft, Rw};
use super::engines;
use super::sizes::JobSizes;
use super::value::{self, Base};
use crate::{MOST_COMMAND_BYTES, MOST_DEPTH, MOST_WORKERS};
use waykeeper_units::CoreList;

/// Bytes of a logical block size that every drive supports, and of a kernel sector.
const SECTOR_BYTES: u64 = 512;
/// Most rounds of a job: what its number of commands is multiplied by. More than any job file has.
const MOST_LOOPS: u64 = 1 << 32;

/// What a line does to a job; the error says what its value must be.
pub(super) type Setter = fn(&mut Draft, Base, &str) -> Result<(), String>;

/// A key that describes the load, or whose value may.
#[derive(Debug)]
pub(super) struct Key {
    /// Its names; lists show the first.
    pub(super) names: &'static [&'static str],
    /// Value of a key that is written without one.
    pub(super) bare: Option<&'static str>,
    pub(super) set: Setter,
}

/// Keys that cannot change the load.
#[derive(Debug)]
pub(super) struct Idle {
    pub(super) why: &'static str,
    /// They can change it on a real drive, and are refused there.
    pub(super) is_for_model: bool,
    /// Separated by spaces.
    names: &'static str,
}

const fn key(names: &'static [&'static str], set: Setter) -> Key {
    Key { names, bare: None, set }
}

const fn flag(names: &'static [&'static str], set: Setter) -> Key {
    Key { names, bare: Some("1"), set }
}

/// A key of which only the value without an effect can be expressed.
macro_rules! only_without_effect {
    ($names:expr, $none:literal, $why:literal) => {
        flag($names, |_, _, text| only(text == $none, concat!($none, ": ", $why)))
    };
}

/// The keys with an effect, in the order of messages.
pub(super) const KEYS: &[Key] = &[
    key(&["rw", "readwrite"], |draft, _, text| {
        let (rw, goes_on) = Rw::parse(text, draft.is_on_model)?;
        draft.rw = rw;
        if goes_on {
            draft.note("each position is random, where fio sends a few commands in sequence or leaves gaps");
        }
        Ok(())
    }),
    key(&["bs", "blocksize"], blocks),
    key(&["iodepth"], |draft, base, text| {
        draft.job.depth = value::count(text, base, 1, MOST_DEPTH.into())? as u32;
        Ok(())
    }),
    key(&["numjobs"], |draft, base, text| {
        draft.job.copies = value::count(text, base, 1, MOST_WORKERS.into())? as u32;
        Ok(())
    }),
    key(&["size"], |draft, base, text| {
        if draft.is_on_model && is_percentage(text) {
            draft.note("drives have no size here: a part of one ends no job");
            draft.job.size_bytes = None;
            return Ok(());
        }
        put(&mut draft.job.size_bytes, value::bytes(text, base, 1, u64::MAX))
    }),
    key(&["io_size", "io_limit"], |draft, base, text| {
        put(&mut draft.job.io_bytes, value::bytes(text, base, 1, u64::MAX))
    }),
    key(&["number_ios"], |draft, base, text| {
        put(&mut draft.job.commands, value::count(text, base, 1, u64::MAX))
    }),
    key(&["loops"], |draft, base, text| {
        draft.job.loops = value::count(text, base, 1, MOST_LOOPS)?;
        Ok(())
    }),
    key(&["runtime", "timeout"], |draft, _, text| put(&mut draft.job.runtime_us, value::time_us(text))),
    flag(&["time_based"], |draft, _, text| {
        draft.job.time_based = value::flag(text)?;
        Ok(())
    }),
    key(&["startdelay", "start_delay"], |draft, _, text| {
        draft.job.start_delay_us = if text == "0" { 0 } else { value::time_us(text)? };
        only(
            draft.is_on_model || draft.job.start_delay_us == 0,
            "0 on a real drive: jobs run one after the other",
        )
    }),
    key(&["rate"], |draft, base, text| {
        put(&mut draft.job.bytes_per_s, value::bytes(text, base, 1, u64::MAX))
    }),
    key(&["rate_iops"], |draft, base, text| {
        put(&mut draft.job.commands_per_s, value::count(text, base, 1, u64::MAX))
    }),
    key(&["rwmixread"], |draft, base, text| {
        draft.writes = 1.0 - value::count(text, base, 0, 100)? as f64 / 100.0;
        Ok(())
    }),
    key(&["rwmixwrite"], |draft, base, text| {
        draft.writes = value::count(text, base, 0, 100)? as f64 / 100.0;
        Ok(())
    }),
    key(&["ioengine"], |draft, _, text| {
        let (engine, depth, note) = engines::find(text, draft.is_on_model)?;
        draft.job.engine = Some(engine);
        draft.waits_for_each = depth == engines::InFlight::One;
        draft.needs_posix = engines::may_use_gpu(text);
        draft.notes.extend(note);
        Ok(())
    }),
    key(&["cuda_io", "rocm_io"], |draft, _, text| {
        draft.is_posix = text == "posix";
        only(draft.is_posix, "posix: what a drive moves to the memory of a GPU is not modelled")
    }),
    key(&["sg_write_mode"], |_, _, text| {
        only(text == "write", "write: the other commands verify or repeat a block and move no data")
    }),
    key(&["directory"], |draft, _, text| {
        draft.directory = path(draft, text, "one folder; fio's lists with a colon are not taken")?;
        Ok(())
    }),
    key(&["filesize"], |draft, base, text| put(&mut draft.file_bytes, value::bytes(text, base, 1, u64::MAX))),
    key(&["ramp_time"], |draft, _, text| {
        only(text == "0" || value::time_us(text).is_ok(), "a time like 10 (seconds) or 500ms")?;
        draft.note("nothing is left out of the measurement: what warms up counts");
        Ok(())
    }),
    key(&["cmd_type"], |draft, _, text| {
        only(text == "nvme" || draft.is_on_model, "nvme, the only kind of command that is passed through")
    }),
    key(&["filename"], |draft, _, text| {
        draft.job.file = path(draft, text, "one file or device; fio's lists with a colon are not taken")?;
        Ok(())
    }),
    key(&["direct"], |draft, _, text| unbuffered(draft, text == "1", "1")),
    key(&["buffered"], |draft, _, text| unbuffered(draft, text == "0", "0")),
    key(&["cpus_allowed"], |draft, _, text| {
        if draft.is_on_model {
            draft.note(SCENARIO_CORES);
            return Ok(());
        }
        let cores: CoreList = text.parse().map_err(|why| format!("a list of CPUs like 0-3,8 ({why})"))?;
        draft.job.cores = Some(cores);
        Ok(())
    }),
    flag(&["stonewall", "wait_for_previous"], |draft, _, text| {
        draft.job.waits = value::flag(text)?;
        Ok(())
    }),
    key(&["kb_base"], |_, _, text| Base::parse(text).map(drop)),
    key(&["bsrange", "blocksize_range"], |draft, base, text| match text.split_once('-') {
        Some((least, most)) if least == most => block(draft, base, least),
        _ => Err("a range of one size, like 4k-4k: commands have one size here".to_owned()),
    }),
    key(&["bssplit"], |draft, base, text| {
        only(draft.is_on_model, "absent on a real drive: commands have one size there")?;
        draft.split = Some(JobSizes::parse_split(text, |size| block_bytes(base, size))?);
        Ok(())
    }),
    key(&["rate_process"], |draft, _, text| {
        draft.job.has_random_gaps = text == "poisson";
        only(text == "linear" || draft.job.has_random_gaps, "linear or poisson")?;
        only(draft.is_on_model || text == "linear", "linear on a real drive")
    }),
    key(&["verify"], |draft, _, text| {
        draft.verifies = text != "0";
        only(draft.is_on_model || !draft.verifies, "0 on a real drive: `memload --verify` checks data")?;
        if draft.verifies {
            draft.note("blocks have no checksums here; what was written is read back at the end");
        }
        Ok(())
    }),
    flag(&["verify_backlog"], |draft, base, text| {
        let blocks = value::count(text, base, 0, u64::MAX)?;
        draft.job.backlog = Some(blocks).filter(|blocks| *blocks > 0);
        only(draft.is_on_model || blocks == 0, "0 on a real drive: `memload --verify` checks data")
    }),
    flag(&["do_verify"], |draft, _, text| {
        draft.reads_back = value::flag(text)?;
        Ok(())
    }),
    key(&["name"], |draft, _, text| {
        draft.job.name = text.to_owned();
        Ok(())
    }),
    // Workers are always threads here, and there is one summary for all.
    key(&["description"], |_, _, _| Ok(())),
    flag(&["thread", "threads"], |_, _, text| value::flag(text).map(drop)),
    flag(&["group_reporting"], |_, _, text| value::flag(text).map(drop)),
    key(&["mem", "iomem"], |draft, _, text| {
        let kind = text.split(':').next().unwrap_or_default();
        only(!kind.starts_with("cuda"), "the host's memory: what a drive moves to a GPU is not modelled")?;
        draft.note(MEMORY);
        Ok(())
    }),
    flag(&["sync"], |draft, _, text| {
        if text == "0" || text == "none" {
            return Ok(());
        }
        draft.note(DRIVE);
        only(draft.is_on_model, "0: a real drive would also write its cache each time")
    }),
    // What ends a job early, or lets it pause, in a way that cannot be expressed. Without it, the key has no effect.
    only_without_effect!(
        &["thinktime"],
        "0",
        "pauses between commands cannot be expressed; `rate_iops` limits their rate"
    ),
    only_without_effect!(&["fsync"], "0", "a drive's flushes between commands cannot be expressed"),
    only_without_effect!(&["fdatasync"], "0", "a drive's flushes between commands cannot be expressed"),
    only_without_effect!(&["sync_file_range"], "0", "the page cache is not modelled"),
    only_without_effect!(&["write_barrier"], "0", "a drive's flushes between commands cannot be expressed"),
    only_without_effect!(
        &["latency_target"],
        "0",
        "`iodepth` stays as it is; a search for one cannot be expressed"
    ),
    only_without_effect!(&["max_latency"], "0", "no job ends because a command was slow"),
    only_without_effect!(&["iodepth_mode"], "none", "`iodepth` stays as it is; steps cannot be expressed"),
    only_without_effect!(&["verify_only"], "0", "it reads in the place of writing"),
    only_without_effect!(&["trim_percentage"], "0", "trims move no data and are not played"),
    only_without_effect!(&["bs_is_seq_rand"], "0", "commands have one size here"),
    only_without_effect!(&["create_only"], "0", "it sends no commands"),
];

/// The keys without an effect, by reason. The names of one key are names of their own here.
const IDLE: &[Idle] = &[
    idle(
        "random positions are drawn by Waykeeper, and differ from fio's",
        "norandommap softrandommap randrepeat allrandrepeat randseed random_generator",
    ),
    of_model(
        "where data lie on a drive does not matter on the virtual server",
        "offset offset_align offset_increment ba blockalign random_distribution random_sequence_stride \
         percentage_random rw_sequencer serialize_overlap zonemode zonesize zonerange zonecapacity \
         zoneskip read_beyond_wp max_open_zones job_max_open_zones ignore_zone_limits",
    ),
    idle(
        "how fio makes and closes its files does not change the commands",
        "invalidate unlink unlink_each_loop fallocate create_serialize create_on_open create_fsync \
         allow_file_create allow_mounted_write overwrite file_append file_service_type filename_format \
         unique_filename lockfile nrfiles nr_files openfiles opendir pre_read end_fsync fsync_on_close \
         fadvise_hint uid gid",
    ),
    of_model("no drive of the virtual server is ever full", "fill_device fill_fs"),
    idle(
        "what the buffers contain does not change the commands",
        "refill_buffers scramble_buffers zero_buffers buffer_pattern buffer_compress_percentage \
         buffer_compress_chunk dedupe_percentage dedupe_mode dedupe_global dedupe_working_set_percentage",
    ),
    of_model(
        "it is about the checksums of `verify`",
        "verify_interval verify_offset verify_pattern verify_fatal verify_dump verify_async \
         verify_async_cpus verify_backlog_batch verify_state_load verify_state_save \
         verify_write_sequence verify_header_seed verifysort verifysort_nr experimental_verify",
    ),
    idle(
        "how the operating system shares cores between jobs does not change the commands",
        "cpus_allowed_policy nice prio prioclass priohint cgroup cgroup_weight cgroup_nodelete",
    ),
    of_model(SCENARIO_CORES, "cpumask numa_cpu_nodes numa_mem_policy"),
    idle(MEMORY, "mem_align iomem_align hugepage-size lockmem"),
    of_model(
        DRIVE,
        "atomic writefua readfua write_hint fdp fdp_pli fdp_pli_select plids plid_select dataplacement \
         ioscheduler cmdprio cmdprio_bssplit cmdprio_class cmdprio_hint cmdprio_percentage",
    ),
    idle(
        "commands are sent and taken one by one",
        "iodepth_batch iodepth_batch_submit iodepth_batch_complete iodepth_batch_complete_min \
         iodepth_batch_complete_max iodepth_low io_submit_mode hipri hipri_percentage fixedbufs \
         registerfiles sqthread_poll sqthread_poll_cpu force_async userspace_reap nonvectored",
    ),
    idle(
        "it is about what fio reports",
        "gtod_reduce gtod_cpu clocksource disable_lat disable_clat disable_slat disable_bw \
         disable_bw_measurement percentile_list lat_percentiles clat_percentiles slat_percentiles \
         significant_figures write_bw_log write_lat_log write_iops_log write_hist_log write_iolog \
         log_avg_msec log_entries log_hist_msec log_hist_coarseness log_max_value log_offset log_prio \
         log_compression log_compression_cpus log_store_compressed log_unix_epoch log_alternate_epoch \
         log_alternate_epoch_clock_id per_job_logs block_error_percentiles bwavgtime iopsavgtime \
         unified_rw_reporting unit_base disk_util new_group stats",
    ),
    idle(
        "a job runs here until its end, whatever fails and however fast it is",
        "continue_on_error ignore_error error_dump rate_min ratemin rate_iops_min rate_cycle steadystate \
         ss steadystate_duration ss_dur steadystate_ramp_time ss_ramp",
    ),
    idle(ALONE, "wait_for flow flow_id flow_sleep flow_watermark exitall exit_what exitall_on_error"),
    idle(
        "without the key that it belongs to it has no effect",
        "thinktime_spin thinktime_blocks thinktime_blocks_type thinktime_iotime rate_ignore_thinktime \
         latency_window latency_percentile latency_run",
    ),
    of_model(
        "it belongs to an engine, and the drive is loaded alike",
        "donorname inplace skip_bad gpu_dev_id gpu_dev_ids libblkio_driver libblkio_path \
         libblkio_pre_connect_props libblkio_pre_start_props libblkio_num_entries libblkio_queue_size \
         libblkio_vectored libblkio_wait_mode libblkio_force_enable_completion_eventfd \
         libblkio_write_zeroes_on_trim xnvme_async xnvme_sync xnvme_admin xnvme_be xnvme_mem \
         xnvme_dev_nsid xnvme_dev_subnqn xnvme_iovec",
    ),
];

const SCENARIO_CORES: &str = "the scenario says which cores the program runs on";
const MEMORY: &str =
    "how fio's buffers are placed in memory has no effect: each command has a buffer of its own";
/// Of a job by itself. Several that are played together cannot have such a line.
pub(super) const ALONE: &str = "the job runs alone: no other one is awaited or ended";
const DRIVE: &str = "the drives have no priorities, no placement and no cache of their own";

const fn idle(why: &'static str, names: &'static str) -> Idle {
    Idle { why, is_for_model: false, names }
}

const fn of_model(why: &'static str, names: &'static str) -> Idle {
    Idle { why, is_for_model: true, names }
}

/// The key of that name, by its first name.
pub(super) fn with_effect(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.names.contains(&name))
}

/// The key of that name among those without an effect.
pub(super) fn without_effect(name: &str) -> Option<(&'static str, &'static Idle)> {
    IDLE.iter().find_map(|idle| Some((idle.names.split(' ').find(|known| *known == name)?, idle)))
}

/// `bs`: one size, or one for reads and one for writes.
fn blocks(draft: &mut Draft, base: Base, text: &str) -> Result<(), String> {
    let mut each = text.split(',');
    let (reads, writes) = (each.next().unwrap_or_default(), each.next());
    draft.job.sizes = None;
    // The third size is that of trims, which are not played.
    match writes {
        None => block(draft, base, reads),
        Some(writes) if writes == reads => block(draft, base, reads),
        Some(writes) if draft.is_on_model => {
            draft.job.sizes = Some(JobSizes::of(block_bytes(base, reads)?, block_bytes(base, writes)?));
            Ok(())
        }
        Some(_) => block(draft, base, text),
    }
}

fn block(draft: &mut Draft, base: Base, text: &str) -> Result<(), String> {
    draft.job.block_bytes = block_bytes(base, text)?;
    Ok(())
}

fn block_bytes(base: Base, text: &str) -> Result<u64, String> {
    let bytes = value::bytes(text, base, SECTOR_BYTES, MOST_COMMAND_BYTES)?;
    if !bytes.is_multiple_of(SECTOR_BYTES) {
        return Err(format!("a multiple of {SECTOR_BYTES} bytes, and is {bytes} B (fio's kib is 1000 B)"));
    }
    Ok(bytes)
}

/// A path on a real drive, which is to be `one`; none on the virtual server, whose scenario has the drives.
fn path(draft: &mut Draft, text: &str, one: &str) -> Result<Option<String>, String> {
    if draft.is_on_model {
        draft.note("the scenario says which drives are loaded");
        return Ok(None);
    }
    // Fio accepts a list with colons.
    only(!text.contains(':'), one)?;
    // Fio also expands `${NAME}`, `$ncpus` and other variables; without expansion the name would mean another file.
    only(!text.contains('$'), "without `$`: fio's variables are not expanded here")?;
    Ok(Some(text.to_owned()))
}

/// `direct` and `buffered`. The model has no page cache: each command reaches its drives.
fn unbuffered(draft: &mut Draft, is: bool, wanted: &str) -> Result<(), String> {
    if !is && draft.is_on_model {
        draft.note("there is no page cache: each command reaches the drives");
        return Ok(());
    }
    only(is, &format!("{wanted}: I/O through the page cache is not DMA of a command"))
}

/// `30%`, also with fio's doubled sign of a configuration file.
fn is_percentage(text: &str) -> bool {
    let number = text.trim_end_matches('%');
    number.len() < text.len() && number.parse::<u8>().is_ok_and(|part| (1..=100).contains(&part))
}

fn put<T>(place: &mut Option<T>, value: Result<T, String>) -> Result<(), String> {
    *place = Some(value?);
    Ok(())
}

fn only(holds: bool, wanted: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(wanted.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::JobEngine;
    use std::collections::BTreeSet;

    /// A name has one meaning, and a key has no effect for one reason.
    #[test]
    fn each_name_is_listed_once() {
        let effective = KEYS.iter().flat_map(|key| key.names).copied();
        let mut seen = BTreeSet::new();
        for name in effective.chain(IDLE.iter().flat_map(|idle| idle.names.split(' '))) {
            assert!(seen.insert(name), "{name} is listed twice");
        }
        assert_eq!(engines::find("io_uring", false).unwrap().0, JobEngine::IoUring);
    }
}
