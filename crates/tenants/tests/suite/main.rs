//! The tests of `waykeeper-tenants` as one program, since most of the build time of a test program is linking.

mod census;
mod discovery;
