//! Cases whose shares are known by hand.

use crate::server::{Nic, Server, tenant};
use waykeeper_attribution::{Attribution, Attributor, PollutionPair, PollutionSource};
use waykeeper_host::{Interval, KnobValues, PortRates, Reading, SocketRates, WorkloadCounter};
use waykeeper_units::{PortId, WorkloadId};

fn share(said: &Attribution, polluter: PollutionSource, victim: u32) -> f64 {
    let is = |pair: &&PollutionPair| pair.polluter == polluter && pair.victim == WorkloadId(victim);
    said.pairs.iter().find(is).map_or(0.0, |pair| pair.share)
}

fn tenant_share(said: &Attribution, polluter: u32, victim: u32) -> f64 {
    share(said, PollutionSource::Tenant(WorkloadId(polluter)), victim)
}

#[test]
fn two_streams_in_the_same_ways_share_a_victims_loss_by_their_misses() {
    // Three streams in the same ways, without reuse. What the first loses goes to the others as they bring lines: 30 and 10
    // million per second, 3/4 and 1/4. They hold the 13.5 MiB of six ways by the same measure: 2.7, 8.1 and 2.7.
    let streams = [("victim", 10.0, 2.7), ("big", 30.0, 8.1), ("small", 10.0, 2.7)];
    let tenants = streams.map(|(name, misses, held_mib)| tenant(name, 0x0fc, 0.0, misses, held_mib));
    let tenants = tenants.to_vec();
    let said = Server { tenants, nics: Vec::new(), write_misses: 0.0 }.said(12);
    let big = tenant_share(&said, 1, 0);
    assert!((big - 0.75).abs() < 0.06, "{big}: {said:#?}");
    assert!((tenant_share(&said, 2, 0) - (1.0 - big)).abs() < 1e-12, "{said:#?}");
    assert_eq!(
        said.pairs[0].polluter,
        PollutionSource::Tenant(WorkloadId(1)),
        "the largest share comes first"
    );
}

#[test]
fn a_nic_pollutes_the_dca_ways_and_no_others() {
    let case = |mask, dca| {
        let tenants = vec![tenant("victim", mask, 20.0, 20.0, 3.0)];
        Server { tenants, nics: vec![Nic { writes: 100.0, dca }], write_misses: 1.0 }.said(4)
    };
    let said = case(0x600, true);
    assert_eq!(share(&said, PollutionSource::Port(PortId(0)), 0), 1.0);
    let claims: Vec<_> = said.claims().collect();
    assert_eq!(claims.len(), 1);
    let evidence = "devices write 100.0 M lines/s, 0 % hit a cache (estimate), and read 0.0 M lines/s; ways 0x600, of which \
                    2 have lines of victim";
    assert_eq!(claims[0].evidence, evidence);
    assert!(claims[0].confidence > 0.9 && claims[0].low <= 1.0, "{claims:?}");
    // In other ways, or with DCA off, the NIC evicts nothing.
    assert_eq!(case(0x0f0, true).pairs, []);
    assert_eq!(case(0x600, false).pairs, []);
}

#[test]
fn a_nic_of_the_victim_itself_is_no_polluter() {
    let mut victim = tenant("victim", 0x600, 80.0, 20.0, 3.0);
    victim.device = Some(0);
    let server =
        Server { tenants: vec![victim], nics: vec![Nic { writes: 100.0, dca: true }], write_misses: 0.3 };
    assert_eq!(server.said(4).pairs, []);
    // The NIC of another tenant, which reads none of its data, is the only one that takes unread packets, from ways that no
    // mask of the victim has.
    let mut both = server;
    both.tenants[0].mask = 0x0f0;
    let mut other = tenant("other", 0x00c, 0.0, 0.0, 0.0);
    other.device = Some(1);
    both.tenants.push(other);
    both.nics.push(Nic { writes: 100.0, dca: true });
    let said = both.said(6);
    assert_eq!(share(&said, PollutionSource::Port(PortId(1)), 0), 1.0, "{said:#?}");
}

#[test]
fn a_loss_that_changes_little_does_not_matter() {
    // 0.01 of 50 million fills can be lost: 1 %, below 2 %.
    let tenants = vec![tenant("victim", 0x0fc, 49.5, 0.5, 8.0), tenant("stream", 0x0fc, 0.0, 10.0, 4.0)];
    let said = Server { tenants, nics: Vec::new(), write_misses: 0.0 }.said(6);
    let loss = said.losses[0];
    assert!(loss.lines_per_s <= 0.5e6 && !loss.matters, "{loss:?}");
    assert!(said.claims().all(|pair| pair.victim != WorkloadId(0)));
}

#[test]
fn the_effect_of_a_moved_mask_is_seen_in_the_next_interval() {
    let mut server = Server {
        tenants: vec![tenant("victim", 0x0f0, 10.0, 10.0, 4.0), tenant("stream", 0x0f0, 0.0, 50.0, 4.0)],
        nics: Vec::new(),
        write_misses: 0.0,
    };
    let mut attributor = Attributor::new(&server.inventory());
    let workloads = server.workloads();
    let before = attributor.observe(&workloads, &server.interval());
    assert_eq!(tenant_share(&before, 1, 0), 1.0);
    server.tenants[1].mask = 0x00c;
    let after = attributor.observe(&workloads, &server.interval());
    assert_eq!(tenant_share(&after, 1, 0), 0.0);
    assert_eq!(after.claims().count(), 0, "what the stream left in its former ways is little: {after:?}");
}

/// Why it cannot tell of each tenant after a change of the interval: of redis in 0x600, of lbm in 0x0c0.
fn reasons(change: impl Fn(&mut Interval)) -> Vec<Option<String>> {
    let tenants = vec![tenant("redis", 0x600, 10.0, 10.0, 4.0), tenant("lbm", 0x0c0, 0.0, 50.0, 4.0)];
    let server = Server { tenants, nics: vec![Nic { writes: 100.0, dca: true }], write_misses: 0.5 };
    let mut seen = server.interval();
    change(&mut seen);
    let said = Attributor::new(&server.inventory()).observe(&server.workloads(), &seen);
    let reason =
        |id| said.cannot_tell.iter().find(|of| of.victim == WorkloadId(id)).map(|of| of.reason.clone());
    vec![reason(0), reason(1)]
}

#[test]
fn where_a_counter_or_a_knob_is_missing_it_says_so() {
    assert_eq!(reasons(|_| ()), [None, None]);
    let misses = "its LLC hits and misses cannot be read".to_owned();
    let found = reasons(|seen| {
        seen.groups.get_mut(&WorkloadId(1)).expect("lbm")[WorkloadCounter::LlcMisses] = Reading::Unavailable;
    });
    assert_eq!(found, [None, Some(misses)], "redis has no way in common with lbm");
    let found = reasons(|seen| seen.knobs = KnobValues::default());
    assert_eq!(found, vec![Some("its mask cannot be read".to_owned()); 2]);
    let found = reasons(|seen| seen.knobs.retain(|knob, _| knob.workload() != Some(WorkloadId(1))));
    assert_eq!(found[0], Some("of lbm, its mask cannot be read".to_owned()));
    let found = reasons(|seen| seen.socket = SocketRates::of([]));
    assert_eq!(found, [Some("DCA write misses cannot be read".to_owned()), None]);
    let found = reasons(|seen| {
        seen.ports.insert(PortId(0), PortRates::all(Reading::Unavailable));
    });
    assert_eq!(found, [Some("writes behind root port 0000:00:00.0 cannot be read".to_owned()), None]);
}

#[test]
fn it_cannot_tell_of_a_victim_whose_lines_are_too_few_to_be_sampled() {
    // 20,000 lines per second among a thousand million.
    let tenants = vec![tenant("idle", 0x7ff, 0.0, 0.02, 0.0), tenant("stream", 0x7ff, 0.0, 1000.0, 20.0)];
    let said = Server { tenants, nics: Vec::new(), write_misses: 0.0 }.said(3);
    let reason = &said.cannot_tell[0].reason;
    assert_eq!(reason, "it brings too few lines into the LLC among those of the others");
}
