//! The census of tenants: over plain trees, over this machine's own processes and cgroups, and over nonsense.

mod devices;
mod docs;
mod live;
mod machine;
mod places;
mod processes;
mod properties;
mod sharing;
