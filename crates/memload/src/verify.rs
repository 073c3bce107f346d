//! Verification after a run: the device must hold what memory held, or memory what the device holds.
//!
//! Knows the buffer's initial content and reads the device again; must not know how it was loaded.

use crate::buffer::{Buffer, word};
use crate::engine::{CommandError, Direct, Engine, EngineParams, IoCommand, IoOperation, Ioctl, Passthrough};
use crate::plan::{EngineKind, LoadPlan, PageSize};
use crate::ready::Ready;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{BuildHasher, RandomState};
use waykeeper_load::MemoryDirection;

/// Bytes that are transferred together: of a block that two commands move at once, each aligned word is from one of
/// them. A cache line is not: two cores that copied 124 KiB into one buffer at the same time (`pread` of a file in
/// memory, AMD EPYC with fast short `rep movsb`) left 1250 mixed buffers in 200,000, with 224 lines of both and no
/// aligned word of both.
const WORD: usize = size_of::<u64>();

/// Result of a verification.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Verified {
    /// Blocks that were compared.
    pub blocks: u64,
    /// Blocks with wrong content.
    pub wrong: u64,
    /// True if a stop request ended it early.
    pub broken_off: bool,
}

/// Reason why there was no verification.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unverified {
    /// There were more different transfers than workers remember.
    Forgotten,
    /// The device cannot be read.
    Fault(CommandError),
}

impl From<CommandError> for Unverified {
    fn from(fault: CommandError) -> Unverified {
        Unverified::Fault(fault)
    }
}

/// Seed of the buffer's content. A run with verification has random content, so that data of an earlier run with the
/// same seed is not taken for its own. The standard library's hash keys come from the kernel's random numbers.
pub(crate) fn content_seed(plan: &LoadPlan) -> u64 {
    if plan.verify { plan.seed ^ RandomState::new().hash_one(plan.seed) } else { plan.seed }
}

/// Verifies the transfers of a run, until `is_over`.
///
/// # Errors
/// If the device cannot be read.
pub(crate) fn verify(
    ready: &Ready,
    trail: &HashSet<IoCommand>,
    is_over: &dyn Fn() -> bool,
) -> Result<Verified, Unverified> {
    let most = ready.max_blocks() as usize * ready.block_bytes() as usize;
    let page = Buffer::new(most.max(PageSize::Base.bytes()), PageSize::Base, None, 0)
        .map_err(|_| CommandError::Errno(libc::ENOMEM))?;
    let params = EngineParams {
        buffer: &page,
        depth: 1,
        longest_bytes: most,
        step_bytes: most,
        ..ready.engine_params()
    };
    let errno = |why: std::io::Error| CommandError::Errno(why.raw_os_error().unwrap_or(libc::EIO));
    let mut engine: Box<dyn Engine> = match ready.engine() {
        EngineKind::NvmeUring => Box::new(Passthrough::new(&params).map_err(errno)?),
        EngineKind::Uring => Box::new(Direct::new(&params).map_err(errno)?),
        EngineKind::NvmeIoctl => Box::new(Ioctl::new(&params)),
    };
    let mut read = |place: u64, into: &mut [u8]| {
        let bytes = u32::try_from(into.len()).unwrap_or(u32::MAX);
        engine.push(IoCommand { operation: IoOperation::ToMemory, offset: 0, bytes, place }, 0);
        let mut done = Vec::new();
        while done.is_empty() {
            engine.carry(None, &mut done).map_err(errno)?;
        }
        done[0].1?;
        page.copy(0, into);
        Ok(())
    };
    match ready.plan().op {
        MemoryDirection::Read => Ok(stored(ready, trail, is_over, &mut read)?),
        MemoryDirection::Write => Ok(arrived(ready, trail, is_over, &mut read)?),
    }
}

/// Reads a range of the device.
type Read<'a> = dyn FnMut(u64, &mut [u8]) -> Result<(), CommandError> + 'a;

/// Calls `see` for blocks of the device, given by ascending positions; contiguous blocks are read with one command, up
/// to its maximum. False if `is_over` became true before the last.
fn show(
    ready: &Ready,
    places: &[u64],
    is_over: &dyn Fn() -> bool,
    read: &mut Read<'_>,
    mut see: impl FnMut(u64, &[u8]),
) -> Result<bool, CommandError> {
    let block = ready.block_bytes() as usize;
    let mut there = vec![0; ready.max_blocks() as usize * block];
    let mut rest = places;
    while let [first, ..] = rest {
        if is_over() {
            return Ok(false);
        }
        let next = (*first..).step_by(block);
        let most = ready.max_blocks().max(1) as usize;
        let beside = rest.iter().take(most).zip(next).take_while(|(place, next)| *place == next).count();
        let there = &mut there[..beside * block];
        read(*first, there)?;
        let (now, later) = rest.split_at(beside);
        now.iter().zip(there.chunks_exact(block)).for_each(|(place, bytes)| see(*place, bytes));
        rest = later;
    }
    Ok(true)
}

/// Buffer offset and device position of each block that was moved.
fn blocks(trail: &HashSet<IoCommand>, block: usize) -> impl Iterator<Item = (usize, u64)> {
    let of = move |io: &IoCommand| {
        let (offset, place) = (io.offset, io.place);
        (0..io.bytes as usize).step_by(block).map(move |at| (offset + at, place + at as u64))
    };
    trail.iter().flat_map(of)
}

/// Groups values by key.
fn gathered<K: Ord, V: Ord>(pairs: impl Iterator<Item = (K, V)>) -> BTreeMap<K, BTreeSet<V>> {
    let mut all: BTreeMap<K, BTreeSet<V>> = BTreeMap::new();
    for (one, other) in pairs {
        all.entry(one).or_default().insert(other);
    }
    all
}

/// Checks that every written block of the device holds one of the blocks that were sent to it. Of blocks that were
/// outstanding together, any may be the last.
fn stored(
    ready: &Ready,
    trail: &HashSet<IoCommand>,
    is_over: &dyn Fn() -> bool,
    read: &mut Read<'_>,
) -> Result<Verified, CommandError> {
    let sent = gathered(blocks(trail, ready.block_bytes() as usize).map(|(offset, place)| (place, offset)));
    let mut verified = Verified::default();
    let places: Vec<u64> = sent.keys().copied().collect();
    let whole = show(ready, &places, is_over, read, |place, there| {
        let is = |offset: &usize, at, bytes: &[u8]| is_original(ready.buffer().seed(), offset + at, bytes);
        let right = sent.get(&place).is_some_and(|offsets| is_one_of(offsets, there, ready.at_once(), is));
        verified.blocks += 1;
        verified.wrong += u64::from(!right);
    })?;
    Ok(Verified { broken_off: !whole, ..verified })
}

/// Checks the buffer: a block that the device wrote holds the content of a device block that was read into it, and
/// every other block is unchanged.
fn arrived(
    ready: &Ready,
    trail: &HashSet<IoCommand>,
    is_over: &dyn Fn() -> bool,
    read: &mut Read<'_>,
) -> Result<Verified, CommandError> {
    let block = ready.block_bytes() as usize;
    let from = gathered(blocks(trail, block));
    let places: BTreeSet<u64> = from.values().flatten().copied().collect();
    let places: Vec<u64> = places.into_iter().collect();
    let mut device: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    let whole = show(ready, &places, is_over, read, |place, there| {
        device.insert(place, there.to_vec());
    })?;
    let mut verified = Verified { broken_off: !whole, ..Verified::default() };
    let mut here = vec![0; block];
    for offset in (0..ready.buffer().bytes()).step_by(block) {
        if verified.broken_off || is_over() {
            return Ok(Verified { broken_off: true, ..verified });
        }
        ready.buffer().copy(offset, &mut here);
        let right = match from.get(&offset) {
            Some(places) => is_one_of(places, &here, ready.at_once(), |place, at, bytes| {
                device.get(place).is_some_and(|there| there[at..].starts_with(bytes))
            }),
            None => is_original(ready.buffer().seed(), offset, &here),
        };
        verified.blocks += 1;
        verified.wrong += u64::from(!right);
    }
    Ok(verified)
}

/// True if the bytes equal a candidate or, with several commands `at_once`, if each word equals that word of some
/// candidate: two commands that move the same block alternate. `is` compares a candidate from an offset on.
fn is_one_of<C>(
    candidates: &BTreeSet<C>,
    bytes: &[u8],
    at_once: bool,
    is: impl Fn(&C, usize, &[u8]) -> bool,
) -> bool {
    let any = |at: usize, bytes: &[u8]| candidates.iter().any(|candidate| is(candidate, at, bytes));
    any(0, bytes) || at_once && bytes.chunks(WORD).enumerate().all(|(word, bytes)| any(word * WORD, bytes))
}

/// True if these bytes are the buffer's initial content from `offset` on.
fn is_original(seed: u64, offset: usize, bytes: &[u8]) -> bool {
    let first = (offset / 8) as u64;
    bytes.chunks_exact(8).zip(first..).all(|(bytes, at)| bytes == word(seed, at).to_ne_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_moved_at_once_is_of_both_word_by_word() {
        let candidates: BTreeSet<u8> = [1, 2].into();
        let is = |candidate: &u8, at: usize, bytes: &[u8]| {
            let whole: Vec<u8> = (0..4 * WORD).map(|byte| candidate + 16 * (byte / WORD) as u8).collect();
            whole[at..].starts_with(bytes)
        };
        let of = |words: [u8; 4]| -> Vec<u8> { words.iter().flat_map(|word| [*word; WORD]).collect() };
        let right = |words, at_once| is_one_of(&candidates, &of(words), at_once, is);
        assert!(right([1, 17, 33, 49], false) && right([2, 18, 34, 50], false));
        assert_eq!((right([1, 18, 33, 50], false), right([1, 18, 33, 50], true)), (false, true));
        // A word of a third candidate, and a word at the wrong offset.
        assert!(!right([1, 18, 35, 50], true) && !right([1, 17, 17, 49], true));
        // Half a word of each candidate.
        let mut torn = of([1, 17, 33, 49]);
        torn[WORD / 2] = 2;
        assert!(!is_one_of(&candidates, &torn, true, is));
    }
}
