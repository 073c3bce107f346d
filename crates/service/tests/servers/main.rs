//! Tests of the control socket and the metrics from outside, with valid and invalid clients.
//!
//! There is no host: the tests write the published state and answer the orders.

mod dashboard;
mod docs;
mod hostile;
mod scrape;
mod stage;
mod talk;
