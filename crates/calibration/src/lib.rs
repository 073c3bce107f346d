//! What counters alone say about a server's programs, and the questions and answers about other layouts.
//!
//! A policy describes the server by what it has seen ([`ServerDescription`]), and asks what other layouts would bring
//! ([`Question`], [`Answer`]). It must not know who answers. Nothing here depends on a model: a description has only what the
//! counters of `waykeeper_host` show, so it is the same on a real and on a virtual server.

mod description;
mod estimate;
mod question;

pub use description::{DeviceDescription, PortDescription, ReuseComponent, ServerDescription, TenantDescription};
pub use estimate::Estimate;
pub use question::{Answer, Candidate, Goal, LayoutLimits, Question};
