//! The policies of `--policy FILE`: each file is read and run once before any work starts, and is then a policy of its own
//! name. Must not know scenarios.

use crate::exit::{self, Failure};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use toml::Table;
use waykeeper_lab::runner::OwnPolicy;
use waykeeper_policy::{Policy, PolicyError, check_own_name};
use waykeeper_policy_process::{
    Described, FirstFailure, Interpreter, PolicyFile, PolicyFileError, PolicyProcess, WaitingPolicy,
};

/// Names the interpreter; without it, `python3` is searched in `PATH`.
const INTERPRETER: &str = "WAYKEEPER_PYTHON";

/// The policies from files among some names.
#[derive(Debug, Default)]
pub struct OwnPolicies {
    /// For the runner.
    pub policies: Vec<OwnPolicy>,
    /// The first failure of any of them in a simulation.
    pub failure: FirstFailure,
}

impl OwnPolicies {
    /// Puts the policy's name in the place of each file among `names`, until `stop` is set.
    ///
    /// # Errors
    /// A file that cannot be read or has no policy, a name that two policies or a built-in one have, no Python.
    pub fn take(names: &mut [String], stop: &Arc<AtomicBool>) -> Result<OwnPolicies, Failure> {
        let mut own = OwnPolicies::default();
        // What the user wrote for each name so far.
        let mut asked: Vec<(String, String)> = names
            .iter()
            .filter(|name| !PolicyFile::is_meant(name))
            .map(|name| (name.clone(), name.clone()))
            .collect();
        for name in names.iter_mut().filter(|name| PolicyFile::is_meant(name)) {
            let file = PolicyFile::read(name)?;
            let with = interpreter(stop.clone());
            let (_, described) = PolicyProcess::open(&file, &with, None)?;
            check_own_name(&described.name).map_err(|why| Failure::bad_input(format!("{name}: {why}")))?;
            match asked.iter().find(|(known, _)| *known == described.name) {
                // The runner notes a policy that is given twice.
                Some((_, written)) if written == name => {}
                Some((_, written)) if *written == described.name => {
                    return Err(Failure::bad_input(format!(
                        "{name}: its policy has the name {written}, and --policy {written} is given too; leave one out"
                    )));
                }
                Some((_, written)) => {
                    return Err(Failure::bad_input(format!(
                        "{name}: its policy has the name {}, as that of {written} has; give one of them another name",
                        described.name
                    )));
                }
                None => {
                    own.policies.push(policy(&described, file, &own.failure, with));
                    asked.push((described.name.clone(), name.clone()));
                }
            }
            *name = described.name;
        }
        Ok(own)
    }

    /// Fails if one of them failed in a simulation.
    ///
    /// # Errors
    /// The first failure.
    pub fn check(&self) -> Result<(), Failure> {
        self.failure.first().map_or(Ok(()), |why| Err(Failure::new(exit::FAILED, why)))
    }
}

/// A policy that starts a process for each simulation.
fn policy(described: &Described, file: PolicyFile, failure: &FirstFailure, with: Interpreter) -> OwnPolicy {
    let (failure, name) = (failure.clone(), described.name.clone());
    let identity = file.identity(described);
    let build = move |settings: &Table| -> Result<Box<dyn Policy>, Box<PolicyError>> {
        match WaitingPolicy::open(&file, &with, settings, &failure) {
            Ok(policy) => Ok(Box::new(policy)),
            Err(why) => Err(Box::new(PolicyError::OwnPolicy { policy: name.clone(), why: why.to_string() })),
        }
    };
    OwnPolicy { name: described.name.clone(), identity, build: Arc::new(build) }
}

/// The program that runs Python.
pub fn python() -> PathBuf {
    let program = std::env::var_os(INTERPRETER).filter(|program| !program.is_empty());
    program.map_or_else(|| PathBuf::from("python3"), PathBuf::from)
}

/// The interpreter of this command line, whose start is waited for until `stop` is set.
fn interpreter(stop: Arc<AtomicBool>) -> Interpreter {
    Interpreter {
        program: python(),
        confined: false,
        user: None,
        printed: Arc::new(exit::eprint_line),
        setting: INTERPRETER,
        stop,
    }
}

impl From<PolicyFileError> for Failure {
    fn from(error: PolicyFileError) -> Failure {
        let code = match &error {
            error if error.is_unsupported() => exit::UNSUPPORTED,
            PolicyFileError::Interrupted => exit::INTERRUPTED,
            PolicyFileError::Read { why, .. } if why.kind() == std::io::ErrorKind::PermissionDenied => {
                exit::NOT_PERMITTED
            }
            _ => exit::BAD_INPUT,
        };
        Failure::new(code, error)
    }
}
