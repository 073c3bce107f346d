//! Carries out orders and puts new configurations in force: each completely, or not at all.
//!
//! Must not know the sender.

use super::{Built, Engine, LifecycleEvent, ManagedHost};
use crate::FilePolicy;
use crate::config::{Config, ConfigError, differences};
use crate::engine::event_sources::{SignalRequest, SourceEvent};
use crate::naming::HostNames;
use crate::order::{Order, OrderError, PendingOrder, Reply};
use crate::published_state::{ActiveProblem, DaemonMode, Pause};
use std::sync::Arc;
use std::time::Duration;
use toml::Table;
use waykeeper_control::ControlError;
use waykeeper_host::{Host, Plan};
use waykeeper_policy::{Policy, PolicyError};

/// Builds a policy and checks it against the host and all declared tenants, running or not. Where no knob may be set, it is
/// the policy's advisor, if it has one: knobs that are only pretended have no effect that it could measure.
pub(super) fn build<H: Host + ?Sized>(
    host: &H,
    config: &Config,
    name: &str,
    settings: &Table,
) -> Result<Box<dyn Policy>, PolicyError> {
    if let Some(loaded) = config.file_policy.named(name) {
        let failed = |why: std::io::Error| PolicyError::OwnPolicy {
            policy: name.to_owned(),
            why: format!("no thread can be started for it: {why}"),
        };
        return Ok(Box::new(FilePolicy::start(loaded, settings).map_err(failed)?));
    }
    let policy = waykeeper_policy::build(name, settings).map_err(|error| with_own(error, config))?;
    let groups = host.workloads();
    let declared = config.tenants.iter().filter(|tenant| !tenant.each).map(|tenant| tenant.name.as_str());
    let mut names: Vec<&str> = declared.chain(groups.iter().map(|group| group.name.as_str())).collect();
    names.sort_unstable();
    names.dedup();
    // Where the LLC is not known, the loop starts no policy.
    if host.inventory().llc.is_some() {
        policy.check(host.inventory(), &names)?;
    }
    let advisor = if config.mode == DaemonMode::Manage { None } else { policy.advisor() };
    Ok(advisor.unwrap_or(policy))
}

/// An unknown policy, with the file's among the known ones.
fn with_own(error: PolicyError, config: &Config) -> PolicyError {
    match error {
        PolicyError::UnknownPolicy { name, nearest, mut known } => {
            known.extend(super::file_policy_of(config));
            PolicyError::UnknownPolicy { name, nearest, known }
        }
        error => error,
    }
}

/// `its default settings`, or `stable_interval_s=5`.
fn settings_in_words(settings: &Table) -> String {
    let words: Vec<String> = settings.iter().map(|(key, value)| format!("{key}={value}")).collect();
    if words.is_empty() { "its default settings".to_owned() } else { words.join(", ") }
}

fn refused(why: impl std::fmt::Display) -> OrderError {
    OrderError::Refused(why.to_string())
}

impl<H: ManagedHost> Engine<'_, H> {
    /// Carries out a message and answers it.
    pub(super) fn carry_out(&mut self, event: SourceEvent) {
        match event {
            SourceEvent::Order(pending_order) if pending_order.order == Order::Reload => {
                self.load(Some(pending_order))
            }
            SourceEvent::SignalRequest(SignalRequest::Reload) => self.load(None),
            // `execute_until_due` handles a stop.
            SourceEvent::SignalRequest(SignalRequest::Stop) => {}
            SourceEvent::Order(pending_order) => {
                let reply = self.execute(&pending_order.order);
                match &reply {
                    Ok(text) => tracing::info!(order = pending_order.order.word(), "{text}"),
                    Err(OrderError::Incomplete(why)) => {
                        tracing::warn!(order = pending_order.order.word(), "{why}")
                    }
                    Err(why) => tracing::warn!(order = pending_order.order.word(), "refused: {why}"),
                }
                self.publish_change();
                pending_order.answer(reply);
            }
            SourceEvent::Pods => self.take_pods(),
            SourceEvent::Loaded(config, pending_order) => {
                let reply = config.and_then(|config| self.apply_config(config)).map_err(refused);
                match &reply {
                    Ok(text) => {
                        self.totals.reloads[0] += 1;
                        self.active_problems.config = None;
                        tracing::info!("configuration: {text}");
                    }
                    Err(why) => {
                        self.totals.reloads[1] += 1;
                        let text =
                            format!("the last configuration was refused, an older one is in force: {why}");
                        tracing::warn!("configuration refused, the one in force stays in force: {why}");
                        self.active_problems.config = Some(ActiveProblem::new("config", text));
                    }
                }
                self.publish_change();
                self.report(LifecycleEvent::Loaded);
                if let Some(pending_order) = pending_order {
                    pending_order.answer(reply);
                }
            }
        }
    }

    fn load(&mut self, pending_order: Option<PendingOrder>) {
        match self.event_sources.load(pending_order) {
            Ok(()) => self.report(LifecycleEvent::Loading),
            Err((pending_order, why)) => {
                tracing::warn!("refused: {why}");
                if let Some(pending_order) = pending_order {
                    pending_order.answer(Err(refused(why)));
                }
            }
        }
    }

    fn execute(&mut self, order: &Order) -> Reply {
        match order {
            Order::SetPolicy { name, settings } => {
                let advises = |policy: Box<dyn Policy>| policy.advisor().is_some();
                let cannot_advise = |config: &Config| match config.file_policy.named(name) {
                    Some(_) => Ok(true),
                    None => waykeeper_policy::build(name, settings).map_err(refused).map(|own| !advises(own)),
                };
                if self.config.mode == DaemonMode::Observe && cannot_advise(&self.config)? {
                    return Err(refused(format!(
                        "this daemon only observes, and policy {name} cannot tell what it would do without knobs; start \
                         it with mode manage or dry-run"
                    )));
                }
                let host = self.looping.host();
                let policy = build(host, &self.config, name, settings).map_err(refused)?;
                Ok(self.replace_policy(Built { policy, settings: Arc::new(settings.clone()) }))
            }
            Order::Pause(pause) => self.pause(*pause),
            Order::Resume => self.resume(),
            Order::Reload => Err(refused("a reload is not handled here")),
            Order::HandOver(within) => self.order_hand_over(*within),
        }
    }

    fn replace_policy(&mut self, next: Built) -> String {
        let name = next.policy.name().to_owned();
        if self.paused.is_some() {
            self.pending = Some(next);
            return format!("the policy is paused: {name} takes over at `waykeeper resume`");
        }
        let before = self.looping.policy().name().to_owned();
        let settings = settings_in_words(&next.settings);
        self.settings = next.settings;
        self.looping.replace(next.policy);
        self.active_problems.policy_changed(&self.looping.record().wanted);
        self.unpublished = true;
        match name == before {
            true => format!("policy {name} starts anew with {settings}"),
            false => format!("policy {name} replaces {before}, with {settings}"),
        }
    }

    fn pause(&mut self, pause: Pause) -> Reply {
        match (self.paused, pause) {
            (Some(Pause::Release), Pause::Hold) => {
                return Err(refused("the knobs are restored already; resume first"));
            }
            (Some(Pause::Hold), Pause::Hold) => return Ok("the policy is paused already".to_owned()),
            // A second release retries the knobs that could not be restored.
            _ => {}
        }
        let again = self.paused == Some(pause);
        self.paused = Some(pause);
        if pause == Pause::Hold {
            return Ok("the policy is paused; the knobs keep their values".to_owned());
        }
        let left = self.looping.restore();
        let has_turned = !self.looping.record().wanted.is_empty();
        self.unpublished = has_turned || !again;
        self.active_problems.policy_changed(&Plan::default());
        if left.is_empty() {
            let text =
                if again && !has_turned { "the policy is paused already" } else { "the policy is paused" };
            return Ok(format!("{text}; the knobs are restored to their original values"));
        }
        let left = left.settings().map(|knob| knob.to_string());
        let all = left.chain(self.looping.record().problems.iter().map(ToString::to_string));
        let all: Vec<String> = all.collect();
        let groups = self.looping.host().workloads();
        let names = HostNames::new(&groups, self.looping.host().inventory());
        let all: Vec<String> = all.iter().map(|text| names.text(text)).collect();
        Err(OrderError::Incomplete(format!(
            "the policy is paused, but some knobs could not be restored: {}; `waykeeper pause --release` \
             tries again",
            all.join("; "),
        )))
    }

    /// From now on a stop within this time leaves the knobs to the next daemon.
    fn order_hand_over(&mut self, within: Duration) -> Reply {
        if self.config.mode != DaemonMode::Manage {
            return Err(refused("this daemon sets no knob, so it has none to hand over"));
        }
        self.hands_over_until = Some(self.system.now().saturating_add(within));
        Ok(format!(
            "if this daemon is stopped within {} s, its knobs stay in force for the next one, which must start in the \
             same time",
            within.as_secs_f64()
        ))
    }

    fn resume(&mut self) -> Reply {
        let Some(pause) = self.paused else {
            return Ok("the policy is not paused; nothing changed".to_owned());
        };
        let next = match (self.pending.take(), pause) {
            (Some(next), _) => Some(next),
            (None, Pause::Hold) => None,
            // Builds the policy anew: its state refers to knob values that are no longer in force.
            (None, Pause::Release) => {
                let (name, settings) = (self.looping.policy().name().to_owned(), self.settings.clone());
                let host = self.looping.host();
                let policy = build(host, &self.config, &name, &settings).map_err(refused)?;
                Some(Built { policy, settings })
            }
        };
        self.paused = None;
        Ok(match next {
            Some(next) => format!("resumed: {}", self.replace_policy(next)),
            None => format!(
                "resumed: policy {} decides again from the next step on",
                self.looping.policy().name()
            ),
        })
    }

    /// Puts another configuration in force.
    fn apply_config(&mut self, mut new: Config) -> Result<String, ConfigError> {
        let changes = differences(&self.config, &new);
        if let Some(fixed) = changes.iter().find(|change| !change.live) {
            let why =
                format!("{}: this key cannot change while the daemon runs; restart the daemon", fixed.text);
            return Err(ConfigError::wrong(&fixed.source, why));
        }
        let choice = super::policy_of(&new);
        let changed = |key: &str| changes.iter().any(|change| change.key == key);
        let (old_file, new_file) = (&self.config.file_policy.loaded, &mut new.file_policy.loaded);
        // A process that would run the same continues.
        let file_changed = old_file != new_file;
        if let (Some(before), Some(after)) = (old_file, new_file)
            && !file_changed
        {
            after.continues(before);
        }
        let running = self.looping.policy().name();
        let of_a_file =
            self.config.file_policy.named(running).is_some() || new.file_policy.named(&choice.name).is_some();
        let replaces = changed("policy.name") || changed("policy.settings") || file_changed && of_a_file;
        let next = match replaces {
            false => None,
            true => {
                let built = build(self.looping.host(), &new, &choice.name, &choice.settings);
                let policy = built.map_err(|error| new.policy_refused(&error))?;
                Some(Built { policy, settings: Arc::new(choice.settings) })
            }
        };
        if changed("daemon.period_s") {
            self.looping.set_period(new.period_ns).map_err(|error: ControlError| {
                ConfigError::wrong(new.sources.of("daemon.period_s"), error.to_string())
            })?;
        }
        self.looping.set_look_back(new.worth.allowed());
        let tenants_changed = changed("tenant");
        self.config = new;
        if tenants_changed {
            self.declare_all();
        }
        let mut reported: Vec<String> = changes.into_iter().map(|change| change.text).collect();
        reported.extend(next.map(|next| self.replace_policy(next)));
        Ok(if reported.is_empty() { "nothing changed".to_owned() } else { reported.join("; ") })
    }
}
