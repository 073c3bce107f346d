//! The tests of `waykeeper-cli`, one program: linking is most of what a test program costs to build.

mod bad_input;
mod citations;
mod common;
mod daemon;
mod daemon_client;
mod ddio_effect;
mod devices;
mod help;
mod hotplug;
mod installed;
mod killed;
mod listings;
mod memload;
mod names;
mod probe;
mod real_host;
mod recording;
mod run;
mod sandbox;
mod scenario_fuzz;
mod scenario_keys;
mod third_party;
mod tidy;
mod unsafe_code;
mod vhost;
mod words;
