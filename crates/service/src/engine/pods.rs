//! Takes pods' tenants: they are declared beside those of the configuration, which come first.
//!
//! Must not know the runtime.

use super::{Engine, ManagedHost};
use crate::ActiveProblem;
use crate::config::Config;
use crate::pods::PodReceiver;
use std::collections::BTreeSet;
use std::time::Duration;
use waykeeper_nri::PodTenants;
use waykeeper_tenants::TenantSpec;

/// Longest wait for the list of pods before the groups that the daemon before left are compared with the tenants. NRI
/// gives a plugin as long to register (containerd, plugin_registration_timeout); a runtime that listens sends the list
/// at once.
const FIRST_LIST: Duration = Duration::from_secs(5);

/// The tenants of pods, and how far they are in force.
#[derive(Debug, Default)]
pub(super) struct PodState {
    tenants: PodTenants,
    /// The last message whose groups are not there yet.
    waiting: Option<u64>,
}

impl PodState {
    /// The state before the first census. If a daemon has left groups to this one, those of pods keep their tenants: the
    /// list of pods is awaited and declared.
    pub fn at_start<H: ManagedHost>(
        host: &mut H,
        receiver: Option<&PodReceiver>,
        config: &Config,
    ) -> PodState {
        let awaited = receiver.filter(|_| host.awaits_tenants());
        let Some((number, tenants)) = awaited.and_then(|receiver| receiver.wait(FIRST_LIST)) else {
            return PodState::default();
        };
        let state = PodState { tenants, waiting: Some(number) };
        host.declare(state.declared(config));
        state
    }

    /// The configuration's tenants and the pods'.
    fn declared(&self, config: &Config) -> Vec<TenantSpec> {
        let (pods, _) = beside(&config.tenants, &self.tenants.specs);
        config.tenants.iter().chain(pods).cloned().collect()
    }
}

impl<H: ManagedHost> Engine<'_, H> {
    /// Takes the tenants that the plugin sent last.
    pub(super) fn take_pods(&mut self) {
        let Some((number, tenants)) = self.event_sources.pods().and_then(|pods| pods.take()) else { return };
        self.pods.tenants = tenants;
        self.pods.waiting = Some(number);
        self.declare_all();
        self.looping.host().place();
        self.answer_pods();
        self.looping.host().count();
        self.publish_change();
    }

    /// Answers the plugin, if the host did not postpone its changes. Call it after each placement.
    pub(super) fn answer_pods(&mut self) {
        if self.pods.waiting.is_none() || self.looping.host().has_postponed() {
            return;
        }
        if let (Some(number), Some(pods)) = (self.pods.waiting.take(), self.event_sources.pods()) {
            pods.done(number);
        }
    }

    /// Declares the configuration's tenants and the pods'.
    pub(super) fn declare_all(&mut self) {
        let declared = self.pods.declared(&self.config);
        self.looping.host().declare(declared);
    }

    /// What is wrong with pods.
    pub(super) fn pod_problems(&self) -> impl Iterator<Item = ActiveProblem> {
        let (_, hidden) = beside(&self.config.tenants, &self.pods.tenants.specs);
        let hidden = hidden.into_iter().map(|name| {
            format!(
                "pod tenant {name}: the configuration declares a tenant of this name; the pod runs unmanaged"
            )
        });
        let hidden: Vec<String> = hidden.collect();
        let problems = self.pods.tenants.problems.iter().cloned().chain(hidden);
        problems.map(|text| ActiveProblem::new("pod", text))
    }
}

/// The tenants of pods beside those of the configuration, and the names of those that the configuration has too.
fn beside<'t>(own: &[TenantSpec], pods: &'t [TenantSpec]) -> (Vec<&'t TenantSpec>, Vec<&'t str>) {
    let names: BTreeSet<&str> = own.iter().map(|spec| spec.name.as_str()).collect();
    let (hidden, free): (Vec<_>, Vec<_>) = pods.iter().partition(|spec| names.contains(spec.name.as_str()));
    (free, hidden.into_iter().map(|spec| spec.name.as_str()).collect())
}
