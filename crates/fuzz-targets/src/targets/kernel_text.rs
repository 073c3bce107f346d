//! Single files of the kernel: numbers, lists and masks of CPUs, keys with values, /proc/cpuinfo, formats of events.

use crate::{checked, one_line};
use std::path::Path;
use waykeeper_kernel::content::{cpu_list, cpu_mask, decimal, hex, key_values};
use waykeeper_kernel::cpuinfo::Cpuinfo;
use waykeeper_kernel::event_source::TermFormat;
use waykeeper_kernel::resctrl::Count;

/// Reads an input. Panics for a finding.
pub fn read(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let path = Path::new("/sys/x");
    if let Some(number) = checked(decimal(path, text)) {
        assert_eq!(decimal(path, &number.to_string()), Ok(number));
    }
    if let Some(number) = checked(hex(path, text)) {
        assert_eq!(hex(path, &format!("{number:#x}\n")), Ok(number));
    }
    if let Some(list) = checked(cpu_list(path, text)) {
        assert_eq!(cpu_list(path, &list.to_string()), Ok(list));
    }
    checked(cpu_mask(path, text));
    checked(key_values(path, text));
    checked(Cpuinfo::parse(path, text));
    if let Some(format) = checked(TermFormat::parse(path, text)) {
        assert!(format.place(0).is_some_and(|word| word == 0), "zero fits every term");
        format.place(u64::MAX);
    }
    if let Err(why) = Count::parse(text) {
        one_line(&why);
    }
}
