//! What holds for every server.

use crate::server::{Nic, Server, Tenant};
use proptest::prelude::*;
use std::collections::BTreeMap;
use waykeeper_attribution::PollutionSource;
use waykeeper_units::WayMask;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

fn tenants() -> impl Strategy<Value = Vec<Tenant>> {
    let one = (0_u32..11, 1_u32..12, 0.0..200.0, 0.0..200.0, 0.0..20.0, prop::option::of(0_u8..2));
    let one = one.prop_map(|(low, count, hits, misses, held_mib, device)| {
        let mask = WayMask::span(low, count.min(11 - low)).bits();
        Tenant { name: "", mask, hits, misses, held_mib, device }
    });
    prop::collection::vec(one, 1..=NAMES.len()).prop_map(|mut tenants| {
        tenants.iter_mut().zip(NAMES).for_each(|(tenant, name)| tenant.name = name);
        tenants
    })
}

fn servers() -> impl Strategy<Value = Server> {
    let nic = (0.0..200.0, any::<bool>()).prop_map(|(writes, dca)| Nic { writes, dca });
    (tenants(), [nic.clone(), nic], 0.0..1.0).prop_map(|(tenants, nics, write_misses)| Server {
        tenants,
        nics: nics.to_vec(),
        write_misses,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn shares_are_parts_of_a_whole_and_only_of_agents_that_reach_the_victim(server in servers()) {
        let said = server.said(2);
        let mut sums: BTreeMap<u32, f64> = BTreeMap::new();
        for pair in &said.pairs {
            prop_assert!(0.0 <= pair.low && pair.low <= pair.share && pair.share <= pair.high && pair.high <= 1.0);
            prop_assert!((0.0..=1.0).contains(&pair.confidence) && pair.lines_per_s >= 0.0);
            prop_assert!(pair.polluter != PollutionSource::Tenant(pair.victim));
            *sums.entry(pair.victim.0).or_default() += pair.share;
            // The ways of a victim are its mask and, for unread data, the DCA ways and those in which a device finds lines
            // that a user of it has read; those of a polluter are its mask, of devices the DCA ways, and for copies the
            // inclusive ways.
            let victim = &server.tenants[pair.victim.index()];
            let users = server.tenants.iter().filter(|other| other.device == victim.device);
            let of_users = users.fold(0x603, |ways, user| ways | user.mask);
            let reach = victim.mask | if victim.device.is_some() { of_users } else { 0 };
            let ways = match pair.polluter {
                PollutionSource::Tenant(id) => {
                    let polluter = &server.tenants[id.index()];
                    polluter.mask | if polluter.device.is_some() { 0x003 } else { 0 }
                }
                PollutionSource::Port(_) => 0x603,
            };
            prop_assert!(reach & ways != 0, "{:?}", pair);
        }
        for sum in sums.values() {
            prop_assert!((sum - 1.0).abs() < 1e-9, "{}", sum);
        }
        for loss in &said.losses {
            prop_assert!(loss.lines_per_s >= 0.0 && loss.lines_per_s <= loss.fills_per_s + 1.0, "{:?}", loss);
        }
        prop_assert_eq!(said.losses.len() + said.cannot_tell.len(), server.tenants.len());
    }

    #[test]
    fn names_change_nothing_and_the_same_intervals_give_the_same(server in servers()) {
        let mut renamed = server.clone();
        renamed.tenants.iter_mut().for_each(|tenant| tenant.name = "other");
        let numbers = |server: &Server| {
            let said = server.said(2);
            let pairs = said.pairs.iter().map(|pair| (pair.polluter, pair.victim, pair.share, pair.lines_per_s));
            (pairs.collect::<Vec<_>>(), said.losses)
        };
        prop_assert_eq!(numbers(&server), numbers(&renamed));
        prop_assert_eq!(server.said(2), server.said(2));
    }
}
