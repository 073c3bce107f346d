//! What counters alone say about a server's programs, and the questions and answers about other layouts.
//!
//! A policy describes the server by what it has seen ([`ServerDescription`]), and asks what other layouts would bring
//! ([`LayoutQuestion`], [`LayoutAnswer`]). It must not know how they are answered. Nothing here depends on a model: a
//! description has only what the counters of `waykeeper_host` show, so it is the same on a real and on a virtual server.

mod calibrator;
mod cost;
mod description;
mod estimate;
mod goal;
mod layout_record;
mod limits;
mod progress;
mod question;
mod reuse;
mod running;
mod traffic;

pub use calibrator::{Calibrator, IntervalUse};
pub use description::{
    DeviceDescription, Observed, PortDescription, ReuseComponent, SeenTenant, ServerDescription,
    TenantDescription,
};
pub use estimate::Estimate;
pub use goal::{Goal, GoalScore, TenantProgress};
pub use limits::limits;
pub use progress::{FetchCosts, lines_moved, progress};
pub use question::{Candidate, LayoutAnswer, LayoutLimits, LayoutQuestion};
pub use traffic::TrafficSignature;
