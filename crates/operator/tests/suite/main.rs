//! The tests of `waykeeper-operator` as one program, since most of the build time of a test program is linking.

mod doctor;
mod doctor_hosts;
mod odd_hosts;
mod remedies;
mod reported;

/// The recorded machines of the kernel crate's tests.
#[allow(dead_code, reason = "these tests use a part of it")]
#[path = "."]
mod hardware {
    #[path = "../../../kernel/tests/suite/hardware/cpuid.rs"]
    pub mod cpuid;
    #[path = "../../../kernel/tests/suite/hardware/machine.rs"]
    pub mod machine;
}
