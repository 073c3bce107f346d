//! What is open to others, from outside: the control socket and the metrics, spoken to as anybody can, and badly.
//!
//! There is no host here: the board and the orders are in the test's own hands.

mod docs;
mod hostile;
mod scrape;
mod stage;
mod talk;
