//! LinuxHost as a whole on a virtual host whose files fail: one clear report, no wrong state, no lost original.
//!
//! Each phase of a manager first runs without faults, and its operations on files are counted. Then the phase is
//! repeated, and each of these operations fails, at one call and at all calls ([`strike`] says which are left out).
//! After each case everything that could have changed is compared to the byte. Needs root and /dev/fuse.

mod beside;
mod conflicts;
mod ending;
mod killed;
mod looping;
mod lost;
mod machine;
mod opening;
mod sampling;
mod strike;
mod taken;
mod turning;
