//! The tests of `waykeeper-lab`, one program: linking is most of what a test program costs to build.

mod chaos;
mod common;
mod files;
mod iat_fig11;
mod msl;
mod regret;
mod report;
mod schema;
mod silent;
mod text;
mod verdict;
mod warnings;
mod worth;
