//! Register addresses of a kind of counter box. Must not know events.

use serde::{Deserialize, Serialize};

/// The address space of an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AddressSpace {
    /// Model-specific registers of one CPU of the package.
    Msr,
    /// PCI configuration space of one device per box.
    PciConfig,
}

/// Boxes at equal distances. Some generations need several blocks (hardware.md 3.3, Ice Lake).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Block {
    /// Number of the first box in it.
    pub first: u16,
    /// Number of boxes.
    pub count: u16,
    /// Address of the first box.
    pub base: u32,
    /// Distance from one box to the next.
    pub step: u32,
}

impl Block {
    /// Address of box `number`, if it is in this block.
    pub fn address(&self, number: u16) -> Option<u32> {
        let place = number.checked_sub(self.first)?;
        (place < self.count).then(|| self.base + u32::from(place) * self.step)
    }
}

/// The control register of a whole box and what is written to it, in the order in which a box is set up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BoxControl {
    /// Its offset from the address of the box.
    pub offset: u32,
    /// Value that stops the counters.
    pub freeze: u64,
    /// Value that clears the counter controls of a stopped box.
    pub reset_controls: u64,
    /// Value that clears the counters of a stopped box.
    pub reset_counters: u64,
    /// Value that starts the counters.
    pub run: u64,
}

/// The register map of a kind of counter box; offsets count from the address of the box.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegisterMap {
    /// The address space.
    pub space: AddressSpace,
    /// Addresses of the boxes.
    pub blocks: Vec<Block>,
    /// Control of the whole box, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub box_control: Option<BoxControl>,
    /// Control of counter 0.
    pub control: u32,
    /// Counter 0.
    pub counter: u32,
    /// Step from the control of one counter to the next.
    #[serde(default = "one")]
    pub control_step: u32,
    /// Step from one counter to the next.
    #[serde(default = "one")]
    pub counter_step: u32,
    /// First filter register.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter0: Option<u32>,
    /// Second filter register.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter1: Option<u32>,
    /// Bit of a counter's control that must be set for it to count; `None` where that bit is reserved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable_bit: Option<u8>,
    /// Source of the addresses.
    pub source: String,
}

fn one() -> u32 {
    1
}

impl RegisterMap {
    /// Address of box `number`; `None` beyond the map.
    pub fn address(&self, number: u16) -> Option<u32> {
        self.blocks.iter().find_map(|block| block.address(number))
    }

    /// Number of boxes in the map.
    pub fn boxes(&self) -> u16 {
        self.blocks.iter().map(|block| block.count).sum()
    }

    /// Address of the control of counter `index` of box `number`.
    pub fn control_of(&self, number: u16, index: u8) -> Option<u32> {
        Some(self.address(number)? + self.control + u32::from(index) * self.control_step)
    }

    /// Address of counter `index` of box `number`.
    pub fn counter_of(&self, number: u16, index: u8) -> Option<u32> {
        Some(self.address(number)? + self.counter + u32::from(index) * self.counter_step)
    }

    /// Address of the control of box `number` as a whole.
    pub fn box_control_of(&self, number: u16) -> Option<u32> {
        Some(self.address(number)? + self.box_control?.offset)
    }

    /// Every address of box `number` that must be written to count with `counters` counters.
    pub fn written(&self, number: u16, counters: u8) -> Vec<u32> {
        let Some(base) = self.address(number) else { return Vec::new() };
        let mut addresses = Vec::new();
        addresses.extend(self.box_control.map(|control| base + control.offset));
        addresses.extend([self.filter0, self.filter1].into_iter().flatten().map(|offset| base + offset));
        for index in 0..counters {
            addresses.extend(self.control_of(number, index));
            addresses.extend(self.counter_of(number, index));
        }
        addresses
    }
}
