//! The census of tenants: on plain trees, on this machine's own processes and cgroups, and on random file contents.

mod devices;
mod docs;
mod live;
pub mod machine;
mod places;
mod processes;
mod properties;
mod sharing;
