//! Cases about monitoring groups and counters.

use super::{Bench, Case, Result, check, lacking, list, refused, same};
use waykeeper_kernel::resctrl::{Count, Group, MonDomain, MonitorEvent, ResctrlErrorKind};
use waykeeper_units::CoreList;

pub const CASES: &[Case] = list![
    "every event reads in every domain" => every_event_reads,
    "a counter of a removed group is gone" => a_counter_of_a_removed_group,
    "an event that is not counted is no error" => an_event_that_is_not_counted,
    "monitoring groups come and go" => monitoring_groups,
    "a monitoring group takes tasks of its parent only" => tasks_of_the_parent_only,
    "a monitoring group takes CPUs of its parent only" => cpus_of_the_parent_only,
    "the occupancy threshold is rounded down" => the_threshold,
];

fn monitored(bench: &Bench) -> Result<Vec<MonitorEvent>> {
    Ok(bench.info.monitoring.as_ref().ok_or_else(|| lacking("monitoring"))?.events.clone())
}

fn every_event_reads(bench: &Bench) -> Result {
    let events = monitored(bench)?;
    let group = bench.group("mon")?;
    for group in [&Group::DEFAULT, &group] {
        let domains = bench.resctrl.monitor_domains(group)?;
        check!(domains.iter().any(|domain| domain.node.is_none()), "{group}: domains {domains:?}");
        for domain in domains {
            for event in &events {
                let held = bench.resctrl.hold_count(group, domain, event)?;
                let held = held.ok_or_else(|| format!("{group}: {domain} has no {}", event.name()))?;
                let first = held.read()?;
                check!(!matches!(first, Count::Gone), "{group} {domain} {}: {first:?}", event.name());
                // Running totals do not fall.
                let second = held.read()?;
                if let (Count::Value(first), Count::Value(second), true) =
                    (first, second, *event != MonitorEvent::LlcOccupancy)
                {
                    check!(second >= first, "{group} {domain} {}: {first} then {second}", event.name());
                }
            }
        }
    }
    Ok(())
}

fn a_counter_of_a_removed_group(bench: &Bench) -> Result {
    let events = monitored(bench)?;
    let group = bench.group("ghost")?;
    let domain = bench.resctrl.monitor_domains(&group)?[0];
    let held = bench.resctrl.hold_count(&group, domain, &events[0])?.ok_or_else(|| lacking("counter"))?;
    bench.resctrl.remove(&group)?;
    same!(held.read()?, Count::Gone);
    refused(bench.resctrl.hold_count(&group, domain, &events[0]).map(drop), ResctrlErrorKind::Gone, "")?;
    refused(bench.resctrl.monitor_domains(&group), ResctrlErrorKind::Gone, "")?;
    Ok(())
}

fn an_event_that_is_not_counted(bench: &Bench) -> Result {
    monitored(bench)?;
    let domain = bench.resctrl.monitor_domains(&Group::DEFAULT)?[0];
    let none = bench.resctrl.count(&Group::DEFAULT, domain, &MonitorEvent::from("no_such_event"))?;
    same!(none, None);
    let beyond = MonDomain { l3: 99, node: None };
    refused(
        bench.resctrl.count(&Group::DEFAULT, beyond, &MonitorEvent::LlcOccupancy),
        ResctrlErrorKind::Gone,
        "",
    )?;
    Ok(())
}

fn monitoring_groups(bench: &Bench) -> Result {
    monitored(bench)?;
    let resctrl = &bench.resctrl;
    let parent = bench.group("parent")?;
    for parent in [&parent, &Group::DEFAULT] {
        let group = parent.monitor("wk-suite-m")?;
        resctrl.create(&group)?;
        check!(resctrl.is_ours(&group), "{group} is ours");
        check!(resctrl.monitor_groups(parent)?.contains(&group), "{group} is not listed");
        same!(resctrl.monitor_domains(&group)?, resctrl.monitor_domains(parent)?);
        check!(resctrl.cpus(&group)?.is_empty() && resctrl.tasks(&group)?.is_empty(), "{group} is not empty");
        refused(resctrl.schemata(&group), ResctrlErrorKind::Gone, "")?;
        refused(resctrl.create(&group), ResctrlErrorKind::Exists, "")?;
        resctrl.remove(&group)?;
        check!(!resctrl.monitor_groups(parent)?.contains(&group), "{group} is still listed");
    }
    Ok(())
}

fn tasks_of_the_parent_only(bench: &Bench) -> Result {
    monitored(bench)?;
    let resctrl = &bench.resctrl;
    let parent = bench.group("parent")?;
    let group = parent.monitor("m")?;
    resctrl.create(&group)?;
    let own = std::process::id();
    let words = "Can't move task to different control group";
    refused(resctrl.assign(&group, &[own]), ResctrlErrorKind::Refused, words)?;
    resctrl.assign(&parent, &[own])?;
    let moved = resctrl.assign(&group, &[own]);
    let (inside, above) = (resctrl.tasks(&group)?, resctrl.tasks(&parent)?);
    resctrl.assign(&Group::DEFAULT, &[own])?;
    same!(moved?.moved, vec![own]);
    check!(inside.contains(&own) && above.contains(&own), "{inside:?} in {above:?}");
    Ok(())
}

fn cpus_of_the_parent_only(bench: &Bench) -> Result {
    monitored(bench)?;
    let resctrl = &bench.resctrl;
    let parent = bench.group("parent")?;
    let group = parent.monitor("m")?;
    resctrl.create(&group)?;
    let all = resctrl.cpus(&Group::DEFAULT)?;
    let one = CoreList::from(all.cores()[..1].to_vec());
    let words = "Can only add CPUs to mongroup that belong to parent";
    let error = refused(resctrl.set_cpus(&group, &one), ResctrlErrorKind::Refused, words)?;
    check!(error.to_string().contains("CPUs of its control group"), "{error}");
    resctrl.set_cpus(&parent, &one)?;
    resctrl.set_cpus(&group, &one)?;
    same!(resctrl.cpus(&group)?, one);
    resctrl.set_cpus(&parent, &CoreList::default())?;
    check!(resctrl.cpus(&group)?.is_empty(), "the parent lost its CPUs and the group did not");
    Ok(())
}

fn the_threshold(bench: &Bench) -> Result {
    monitored(bench)?;
    let resctrl = &bench.resctrl;
    let before = resctrl.max_threshold_occupancy()?.ok_or_else(|| lacking("occupancy threshold"))?;
    let wanted = before / 2 + 1;
    let now = resctrl.set_max_threshold_occupancy(wanted)?.unwrap_or_default();
    check!(now <= wanted, "{now} after {wanted}");
    let again = resctrl.set_max_threshold_occupancy(before)?;
    same!(again, Some(before));
    let Err(error) = resctrl.set_max_threshold_occupancy(99_999_999_999) else {
        return Err("a threshold beyond any cache was taken".to_owned().into());
    };
    same!(error.kind, ResctrlErrorKind::Refused);
    Ok(())
}
