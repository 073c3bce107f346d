//! A policy written in Python, run by the control loop like any other.
//!
//! The object has `start(inventory, groups)` and `step(groups, seen)`; arguments and results are dictionaries, which
//! `waykeeper.Policy` wraps in objects. Must not know what the policy does with them.

use pyo3::prelude::*;
use pythonize::{depythonize, pythonize};
use serde::Serialize;
use std::sync::{Arc, Mutex, PoisonError};
use toml::Table;
use waykeeper_host::{Interval, Inventory, Workload};
use waykeeper_lab::runner::OwnPolicy;
use waykeeper_policy::{Decision, Policy, PolicyError};

/// The first exception that a policy raised.
pub type Raised = Arc<Mutex<Option<PyErr>>>;

struct PythonPolicy {
    name: String,
    object: Py<PyAny>,
    raised: Raised,
}

impl PythonPolicy {
    fn has_raised(&self) -> bool {
        self.raised.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Calls a method. After an exception the policy is not called again and every decision is empty.
    fn call<A: Serialize, B: Serialize>(&self, method: &str, first: &A, second: &B) -> Decision {
        if self.has_raised() {
            return Decision::default();
        }
        let answer = Python::attach(|py| -> PyResult<Decision> {
            let arguments = (pythonize(py, first)?, pythonize(py, second)?);
            Ok(depythonize(&self.object.bind(py).call_method1(method, arguments)?)?)
        });
        answer.unwrap_or_else(|why| {
            note(&self.raised, why);
            Decision::default()
        })
    }
}

/// Stores an exception, unless one is stored already.
fn note(raised: &Raised, why: PyErr) {
    raised.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
}

impl Policy for PythonPolicy {
    fn name(&self) -> &str {
        &self.name
    }

    fn start(&mut self, inventory: &Inventory, groups: &[Workload]) -> Decision {
        self.call("_start", inventory, &groups)
    }

    fn classes(&mut self, clos_count: u32) {
        if self.has_raised() {
            return;
        }
        let told = Python::attach(|py| {
            self.object.bind(py).call_method1("classes_changed", (clos_count,)).map(drop)
        });
        told.unwrap_or_else(|why| note(&self.raised, why));
    }

    fn step(&mut self, groups: &[Workload], seen: &Interval) -> Decision {
        self.call("_step", &groups, seen)
    }
}

/// A policy that `make(settings)` builds once per simulation.
pub fn own(name: String, make: Py<PyAny>, raised: &Raised) -> OwnPolicy {
    let raised = raised.clone();
    let own_name = name.clone();
    let build = move |settings: &Table| -> Result<Box<dyn Policy>, Box<PolicyError>> {
        let object = Python::attach(|py| {
            let settings = pythonize(py, settings)?;
            make.bind(py).call1((settings,)).map(Bound::unbind)
        });
        // The caller of the run raises the exception; until then a policy without an object takes its place and is
        // never called.
        let object = object.unwrap_or_else(|why| {
            note(&raised, why);
            Python::attach(|py| py.None())
        });
        Ok(Box::new(PythonPolicy { name: name.clone(), object, raised: raised.clone() }))
    };
    OwnPolicy { name: own_name, build: Arc::new(build), identity: None }
}
