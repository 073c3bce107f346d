//! The room from outside: what paths are, who may load them, and that runs move what they say.

mod runs;
mod safety;
mod served;
mod served_runs;
