//! Single files of the kernel: numbers, lists and masks of CPUs, keys with values, /proc/cpuinfo, formats of events.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::path::Path;
use waykeeper_fuzz::one_line;
use waykeeper_kernel::content::{ContentError, cpu_list, cpu_mask, decimal, hex, key_values};
use waykeeper_kernel::cpuinfo::Cpuinfo;
use waykeeper_kernel::event_source::TermFormat;
use waykeeper_kernel::resctrl::Count;

fn told<T>(result: Result<T, ContentError>) -> Option<T> {
    result.inspect_err(|why| one_line(why)).ok()
}

fuzz_target!(|text: &str| {
    let path = Path::new("/sys/x");
    if let Some(number) = told(decimal(path, text)) {
        assert_eq!(decimal(path, &number.to_string()), Ok(number));
    }
    if let Some(number) = told(hex(path, text)) {
        assert_eq!(hex(path, &format!("{number:#x}\n")), Ok(number));
    }
    if let Some(list) = told(cpu_list(path, text)) {
        assert_eq!(cpu_list(path, &list.to_string()), Ok(list));
    }
    told(cpu_mask(path, text));
    told(key_values(path, text));
    told(Cpuinfo::parse(path, text));
    if let Some(format) = told(TermFormat::parse(path, text)) {
        assert!(format.place(0).is_some_and(|word| word == 0), "zero fits every term");
        format.place(u64::MAX);
    }
    if let Err(why) = Count::parse(text) {
        one_line(&why);
    }
});
