//! Sizes of a plan on a target: blocks, commands, the buffer.
//!
//! Knows the numbers of both; must not know consent, nor engines.

use crate::check::PlanError;
use crate::error::PrepareError;
use crate::plan::{LoadPlan, PageSize};
use crate::target::{Target, TargetKind};
use waykeeper_load::{MOST_COMMAND_BYTES, Pattern, Shape, ShapeError};

/// Default bytes of a block: the format of the thesis (s3.1).
pub const BLOCK_BYTES: u32 = 4096;
/// Default blocks of the buffer (algorithms.md 7.2).
const BUFFER_BLOCKS: u64 = 1000;

/// A plan's sizes on a target.
#[derive(Debug)]
pub struct Fit {
    pub shape: Shape,
    pub block_bytes: u32,
    pub max_blocks: u32,
    pub buffer_bytes: usize,
}

impl Fit {
    /// The plan's sizes, or the defaults.
    ///
    /// # Errors
    /// If the sizes do not fit each other, or the target.
    pub fn of(plan: &LoadPlan, target: &Target) -> Result<Fit, PrepareError> {
        let refuse = |option, value: u64, wanted: String| {
            PrepareError::Plan(PlanError::Value { option, value: value.to_string(), wanted })
        };
        let lba = target.lba_bytes.max(1);
        let path = target.path.display();
        let usual = if BLOCK_BYTES.is_multiple_of(lba) { BLOCK_BYTES } else { lba };
        let block_bytes = plan.block_bytes.unwrap_or(usual);
        if block_bytes == 0 || !block_bytes.is_multiple_of(lba) {
            let wanted = format!("it must be a multiple of {lba} B for {path}");
            return Err(refuse("--block-size", block_bytes.into(), wanted));
        }
        let block = u64::from(block_bytes);
        let (page, mut usual_bytes) = (PageSize::Base.bytes() as u64, target.max_bytes);
        if target.is_device() && !block.is_multiple_of(page) {
            // A command that begins within a page covers one page more.
            usual_bytes = usual_bytes.min(u64::from(target.max_segments.saturating_sub(1)) * page);
        }
        let (mut most, moves) = (usual_bytes / block, plan.pattern.moves());
        // The maximum of a file is a default, not a limit: a larger block is moved by a command of its own.
        let most_bytes = if target.is_device() { usual_bytes } else { usual_bytes.max(MOST_COMMAND_BYTES) };
        if most == 0 && most_bytes >= block {
            most = 1;
        }
        if most == 0 && moves {
            let wanted = format!("{path} moves at most {most_bytes} B per command");
            return Err(refuse("--block-size", block, wanted));
        }
        let max = match plan.max_blocks {
            None => most,
            Some(max) if u64::from(max) > most_bytes / block || max == 0 => {
                let most = most_bytes / block;
                let wanted = format!("{path} moves 1 to {most} blocks of {block} B per command");
                return Err(refuse("--max-blocks", max.into(), wanted));
            }
            Some(max) => max.into(),
        };
        let max_blocks = u32::try_from(max).unwrap_or(u32::MAX);
        // With small blocks, a command of `random` may have more blocks than the default buffer.
        let usual_blocks =
            if plan.pattern == Pattern::Random { BUFFER_BLOCKS.max(max) } else { BUFFER_BLOCKS };
        let buffer_bytes = plan.buffer_bytes.unwrap_or(usual_blocks * block);
        if !buffer_bytes.is_multiple_of(block) || buffer_bytes == 0 {
            return Err(refuse("--buffer", buffer_bytes, format!("it must be whole blocks of {block} B")));
        }
        let wanted = || "a buffer has at most 4294967295 blocks".to_owned();
        let blocks =
            u32::try_from(buffer_bytes / block).map_err(|_| refuse("--buffer", buffer_bytes, wanted()))?;
        let bytes = usize::try_from(buffer_bytes).map_err(|_| refuse("--buffer", buffer_bytes, wanted()))?;
        let shape = match Shape::new(plan.pattern, blocks, max_blocks, plan.stride, plan.thesis) {
            Err(ShapeError::Small { pattern, least, .. }) => {
                let (name, least) = (pattern.name(), u64::from(least) * block);
                return Err(refuse(
                    "--buffer",
                    buffer_bytes,
                    format!("the pattern `{name}` needs at least {least} B here"),
                ));
            }
            shape => shape?,
        };
        let longest = u64::from(reach(&shape, max_blocks, plan).0) * block;
        // The size of a file that does not exist is unknown here; a later check reports the missing file.
        let is_known = target.kind != TargetKind::Absent || target.bytes > 0;
        if moves && is_known && target.bytes < longest {
            let wanted = format!(
                "{path} must have at least {longest} B, the most that a command moves; give a larger one"
            );
            let option =
                if target.kind == TargetKind::Absent { "--create" } else { "the size of the target" };
            return Err(refuse(option, target.bytes, wanted));
        }
        if target.kind == TargetKind::Absent && target.bytes > 0 && !target.bytes.is_multiple_of(block) {
            return Err(refuse("--create", target.bytes, format!("it must be whole blocks of {block} B")));
        }
        Ok(Fit { shape, block_bytes, max_blocks, buffer_bytes: bytes })
    }
}

/// Blocks of a pattern's longest command, and the number of blocks of which every command's position is a multiple.
pub fn reach(shape: &Shape, max: u32, plan: &LoadPlan) -> (u32, u32) {
    let over = u32::from(plan.thesis);
    match shape.pattern() {
        Pattern::Single => (1 + over, 1),
        Pattern::Packets => (1 + over, plan.stride),
        Pattern::Random => (max - 1 + over, 1),
        Pattern::Full => ((max - 1 + over).min(shape.blocks()), max - 1),
        Pattern::Flush | Pattern::Noop => (0, 1),
    }
}
