//! `waykeeper memload` as a program: what it says, what it leaves, how it ends.

#[path = "../common/mod.rs"]
mod common;
mod real;
