//! The tests of `waykeeper-service`, one program: linking is most of what a test program costs to build.

mod advice;
mod charge;
mod dry_run;
mod engine;
mod first_config;
mod pods;
mod replay;
