//! The whole of LinuxHost on a virtual host whose files fail: one clear report, no wrong state, no lost original.
//!
//! Each phase of a manager's life is first lived without faults and what it did to which file is counted; then each of
//! these operations fails, at one call and at all, while the phase is lived again ([`strike`] says what is thinned). After
//! each case all that could be turned is compared to the byte. Needs root and /dev/fuse.

mod beside;
mod conflicts;
mod ending;
mod killed;
mod looping;
mod machine;
mod opening;
mod sampling;
mod strike;
mod taken;
mod turning;
