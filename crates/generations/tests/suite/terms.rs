//! Events and fields as values: written values are read back, and no input makes the parser panic.

use proptest::prelude::*;
use waykeeper_generations::{Field, FieldRegister, Terms};

#[test]
fn an_event_reads_as_perf_writes_it() {
    let terms: Terms = "event=0x35,umask=20,edge".parse().unwrap();
    assert_eq!(terms.to_string(), "event=0x35,umask=0x14,edge=0x1");
    assert_eq!((terms.get("umask"), terms.get("inv")), (Some(20), None));
    assert_eq!(terms.with("umask", 1).with("inv", 1).to_string(), "event=0x35,umask=0x1,edge=0x1,inv=0x1");
    for bad in
        ["", ",", "event=", "event=0xzz", "event=-1", "event=+1", "event=0x+1", "a b=1", "event=1,event=2"]
    {
        assert!(bad.parse::<Terms>().is_err(), "{bad}");
    }
    let error = "event=1,umask=0xg".parse::<Terms>().unwrap_err().to_string();
    assert_eq!(
        error,
        "`umask=0xg` in the event `event=1,umask=0xg` is not of the form name=number, like umask=0x14"
    );
}

#[test]
fn a_split_field_takes_its_low_bits_first() {
    let bits = vec![[8, 15], [32, 57]];
    let umask = Field { register: FieldRegister::Control, bits, format: String::new() };
    // umask 0xCC43FE04: 04 at bits 15:8, CC43FE from bit 32 (hardware.md 3.2).
    assert_eq!(umask.place(0xcc43_fe04), Some(0x00cc_43fe_0000_0400));
    assert_eq!(umask.place(1 << 34), None, "26 + 8 bits is all there is");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC*|[a-z0-9=,x]*") {
        if let Ok(terms) = text.parse::<Terms>() {
            prop_assert_eq!(terms.to_string().parse::<Terms>().unwrap(), terms);
        }
    }

    #[test]
    fn a_field_gives_back_what_it_was_given(low in 0u8..20, first in 1u8..12, gap in 0u8..10, second in 1u8..12, value: u64) {
        let start = low + first + gap;
        let bits = vec![[low, low + first - 1], [start, start + second - 1]];
        let field = Field { register: FieldRegister::Control, bits, format: String::new() };
        let value = value & ((1 << field.width()) - 1);
        let word = field.place(value).unwrap();
        prop_assert_eq!(field.take(word), value);
        prop_assert_eq!(word.count_ones(), value.count_ones());
    }
}
