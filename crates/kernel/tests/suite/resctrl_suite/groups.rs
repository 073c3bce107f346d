//! Cases about `info/` and about groups: content, making, listing, removing, names.

use super::{Bench, Case, PREFIX, Result, check, lacking, list, refused, same};
use std::fs;
use waykeeper_kernel::resctrl::{Group, GroupMode, Resctrl, ResctrlErrorKind};
use waykeeper_kernel::root::Root;

pub const CASES: &[Case] = list![
    "info makes sense" => info_makes_sense,
    "the default group has all there is" => the_default_group_has_all,
    "a group comes and goes" => a_group_is_made_and_removed,
    "a second group of a name is refused" => a_second_group_of_a_name_is_refused,
    "foreign groups are seen and left alone" => foreign_groups_are_left_alone,
    "names with blanks and long names are names" => odd_names,
    "what is done to a removed group is gone" => a_removed_group_is_gone,
    "no resctrl is told with the remedy" => no_resctrl_is_reported,
    "classes run out with a reason" => classes_run_out,
    "a freed class can be taken again" => a_freed_class_can_be_taken_again,
];

fn info_makes_sense(bench: &Bench) -> Result {
    let info = &bench.info;
    check!(!info.caches.is_empty() || info.monitoring.is_some(), "info/ has neither caches nor monitoring");
    for (resource, cache) in &info.caches {
        let ways = cache.cbm_mask;
        check!(ways.is_contiguous() && ways.contains(0), "{resource}: cbm_mask {ways}");
        check!(cache.min_cbm_bits <= ways.count(), "{resource}: min_cbm_bits {}", cache.min_cbm_bits);
        let shared = cache.shareable_bits.unwrap_or_default();
        check!(shared.minus(ways).is_empty(), "{resource}: shareable_bits {shared} beyond {ways}");
        check!(info.limits().closids <= cache.num_closids, "{resource}: limit above its own");
        let usage = bench.resctrl.bit_usage(resource)?.ok_or_else(|| lacking("bit_usage"))?;
        for domain in bench.domains(resource)? {
            let letters =
                usage.get(&domain).ok_or_else(|| format!("{resource}: no bit_usage of {domain}"))?;
            same!(letters.len() as u32, ways.count());
        }
    }
    for (resource, bandwidth) in &info.bandwidths {
        check!(bandwidth.bandwidth_gran >= 1, "{resource}: {bandwidth:?}");
        check!(info.limits().closids <= bandwidth.num_closids, "{resource}: limit above its own");
    }
    if let Some(monitoring) = &info.monitoring {
        check!(!monitoring.events.is_empty(), "no events in mon_features");
        same!(info.limits().rmids, Some(monitoring.num_rmids));
    }
    Ok(())
}

fn the_default_group_has_all(bench: &Bench) -> Result {
    let schemata = bench.resctrl.schemata(&Group::DEFAULT)?;
    let named: Vec<_> = schemata.lines.iter().map(|line| line.resource.clone()).collect();
    for resource in bench.info.caches.keys().chain(bench.info.bandwidths.keys()) {
        check!(named.contains(resource), "schemata has no {resource}: {named:?}");
    }
    let sizes = bench.resctrl.size(&Group::DEFAULT)?;
    for line in &schemata.lines {
        let ids: Vec<u32> = line.domains.iter().map(|(id, _)| *id).collect();
        check!(ids.is_sorted() && !ids.is_empty(), "{}: domains {ids:?}", line.resource);
        let sized: Vec<u32> = sizes.get(&line.resource).into_iter().flatten().map(|(id, _)| *id).collect();
        same!(sized, ids);
    }
    let by_list = bench.resctrl.cpus(&Group::DEFAULT)?;
    same!(by_list, bench.resctrl.cpus_by_mask(&Group::DEFAULT)?);
    check!(!by_list.is_empty(), "the default group has no CPUs");
    same!(bench.resctrl.mode(&Group::DEFAULT)?, GroupMode::Shareable);
    check!(!bench.resctrl.tasks(&Group::DEFAULT)?.is_empty(), "the default group has no tasks");
    Ok(())
}

fn a_group_is_made_and_removed(bench: &Bench) -> Result {
    let resctrl = &bench.resctrl;
    let group = bench.group("one")?;
    same!(group.name(), format!("{PREFIX}one"));
    check!(resctrl.is_ours(&group), "{group} is ours");
    check!(resctrl.control_groups()?.contains(&group), "{group} is not listed");
    same!(resctrl.mode(&group)?, GroupMode::Shareable);
    check!(resctrl.tasks(&group)?.is_empty(), "a new group has tasks");
    check!(resctrl.cpus(&group)?.is_empty(), "a new group has CPUs");
    check!(resctrl.cpus_by_mask(&group)?.is_empty(), "a new group has CPUs");
    for (resource, cache) in &bench.info.caches {
        for (domain, setting) in
            &resctrl.schemata(&group)?.line(resource).ok_or("no such line".to_owned())?.domains
        {
            let mask = setting.mask().unwrap_or_default();
            check!(mask.minus(cache.cbm_mask).is_empty(), "{resource} {domain}: {mask}");
            check!(mask.count() >= cache.min_cbm_bits, "{resource} {domain}: {mask}");
        }
    }
    resctrl.remove(&group)?;
    check!(!resctrl.control_groups()?.contains(&group), "{group} is still listed");
    Ok(())
}

fn a_second_group_of_a_name_is_refused(bench: &Bench) -> Result {
    let group = bench.group("twin")?;
    refused(bench.resctrl.create(&group), ResctrlErrorKind::Exists, "")?;
    bench.resctrl.remove(&group)?;
    refused(bench.resctrl.remove(&group), ResctrlErrorKind::Gone, "")?;
    Ok(())
}

fn foreign_groups_are_left_alone(bench: &Bench) -> Result {
    let resctrl = &bench.resctrl;
    let foreign = Group::control("COS-of-another-tool")?;
    let directory = foreign.directory(resctrl.mount_point());
    fs::create_dir(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let looked = || -> Result {
        check!(resctrl.control_groups()?.contains(&foreign), "it is not listed");
        check!(!resctrl.is_ours(&foreign), "it is not ours");
        refused(resctrl.remove(&foreign), ResctrlErrorKind::Foreign, "")?;
        refused(resctrl.create(&Group::control("COS2")?), ResctrlErrorKind::Foreign, "")?;
        refused(resctrl.remove(&Group::DEFAULT), ResctrlErrorKind::Foreign, "")?;
        check!(directory.is_dir(), "it is gone");
        Ok(())
    };
    let result = looked();
    fs::remove_dir(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    result
}

fn odd_names(bench: &Bench) -> Result {
    let blank = bench.group("a b")?;
    let long = bench.group(&"x".repeat(255 - PREFIX.len()))?;
    let listed = bench.resctrl.control_groups()?;
    check!(listed.contains(&blank) && listed.contains(&long), "{listed:?}");
    bench.resctrl.schemata(&long)?;
    refused(bench.resctrl.own("a\nb"), ResctrlErrorKind::Refused, "")?;
    refused(bench.resctrl.own("../x"), ResctrlErrorKind::Refused, "")?;
    Ok(())
}

fn a_removed_group_is_gone(bench: &Bench) -> Result {
    let resctrl = &bench.resctrl;
    let group = bench.group("ghost")?;
    let held = resctrl.hold_schemata(&group)?;
    check!(held.read()?.is_some(), "it is there");
    resctrl.remove(&group)?;
    check!(held.read()?.is_none(), "a held file of a removed group still reads");
    refused(resctrl.schemata(&group), ResctrlErrorKind::Gone, "")?;
    refused(resctrl.cpus(&group), ResctrlErrorKind::Gone, "")?;
    refused(resctrl.tasks(&group), ResctrlErrorKind::Gone, "")?;
    refused(resctrl.mode(&group), ResctrlErrorKind::Gone, "")?;
    refused(resctrl.set_mode(&group, GroupMode::Shareable), ResctrlErrorKind::Gone, "")?;
    refused(resctrl.assign(&group, &[std::process::id()]), ResctrlErrorKind::Gone, "")?;
    refused(resctrl.monitor_groups(&group), ResctrlErrorKind::Gone, "")?;
    Ok(())
}

fn no_resctrl_is_reported(bench: &Bench) -> Result {
    let empty = super::place("empty");
    let made = fs::create_dir_all(empty.join("sys/fs/resctrl"));
    made.map_err(|error| format!("{}: {error}", empty.display()))?;
    let open = Resctrl::open(&Root::at(&empty), PREFIX).map(drop);
    let absent = Resctrl::open(&Root::at(empty.join("none")), PREFIX).map(drop);
    let _ = fs::remove_dir_all(&empty);
    let error = refused(open, ResctrlErrorKind::NotMounted, "")?;
    check!(error.to_string().contains("mount -t resctrl"), "{error}");
    let error = refused(absent, ResctrlErrorKind::NotMounted, "")?;
    check!(error.to_string().contains("this kernel offers no resctrl"), "{error}");
    Resctrl::open(&bench.root, PREFIX)?;
    Ok(())
}

fn classes_run_out(bench: &Bench) -> Result {
    let room = bench.room()?;
    for index in 0..room {
        bench.group(&format!("n{index}"))?;
    }
    let error = refused(bench.group_error("more"), ResctrlErrorKind::Exhausted, "Out of ")?;
    let status = error.status.unwrap_or_default();
    check!(status == "Out of CLOSIDs" || status == "Out of RMIDs", "{status}");
    // mkdir appends to the status; an error has only its own part.
    let error = refused(bench.group_error("more"), ResctrlErrorKind::Exhausted, "Out of ")?;
    same!(error.status.unwrap_or_default(), status);
    Ok(())
}

fn a_freed_class_can_be_taken_again(bench: &Bench) -> Result {
    for index in 0..bench.room()? {
        bench.group(&format!("n{index}"))?;
    }
    let first = bench.resctrl.own("n0")?;
    bench.resctrl.remove(&first)?;
    bench.group("again")?;
    Ok(())
}

impl Bench {
    /// As `group`, with the original error.
    fn group_error(&self, name: &str) -> Result<(), waykeeper_kernel::resctrl::ResctrlError> {
        self.resctrl.create(&self.resctrl.own(name)?)
    }
}
