//! Every target reads its seeds, and inputs made of them by changes.
//!
//! The changes are the same at each run. There is no search for new code as in `make fuzz`; the seeds were chosen there,
//! because each reaches code that the others do not. Must not know what a target reads.

use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any};
use proptest::prop_oneof;
use proptest::sample::Index;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once, RwLock};
use waykeeper_testbed::is_long;

/// Inputs of a target besides its seeds, and how many times as many there are in the long form (`make test-long`).
const INPUTS: u32 = 300;
const LONG: u32 = 20;

/// Inputs of a target that waits for time or takes milliseconds for an input.
const FEWER_INPUTS: u32 = 150;

/// Longest input that is made, in bytes, as in `fuzz/run.py`.
const MOST_BYTES: usize = 16 << 10;

/// Bytes that mean something in more than one format.
const TELLING: &[u8] = b"\0\n\r\t \"#',-./0:=@[\\]{}\x7f\x80\xff";

/// Numbers at whose borders readers go wrong.
const NUMBERS: [&str; 12] = [
    "0",
    "-1",
    "1e308",
    "nan",
    "127",
    "256",
    "65536",
    "2147483648",
    "4294967296",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
];

/// One change of an input. A place is a part of the length that the input has then.
#[derive(Clone, Debug)]
enum Change {
    Flip(Index, u8),
    Put(Index, Vec<u8>),
    Replace(Index, Vec<u8>),
    Word(Index, Index),
    Number(Index),
    Remove(Index, Index),
    Repeat(Index, Index, u8),
    End(Index),
    /// The other seed, from its first place on, takes the place of what is behind the second.
    Join(Index, Index, Index),
}

fn change() -> impl Strategy<Value = Change> {
    let byte = prop_oneof![any::<u8>(), any::<Index>().prop_map(|at| TELLING[at.index(TELLING.len())])];
    let bytes = vec(byte, 1..8);
    let place = any::<Index>;
    prop_oneof![
        (place(), any::<u8>()).prop_map(|(at, bit)| Change::Flip(at, bit)),
        (place(), bytes.clone()).prop_map(|(at, bytes)| Change::Put(at, bytes)),
        (place(), bytes).prop_map(|(at, bytes)| Change::Replace(at, bytes)),
        (place(), place()).prop_map(|(at, word)| Change::Word(at, word)),
        place().prop_map(Change::Number),
        (place(), place()).prop_map(|(at, to)| Change::Remove(at, to)),
        (place(), place(), any::<u8>()).prop_map(|(at, to, times)| Change::Repeat(at, to, times)),
        place().prop_map(Change::End),
        (place(), place(), place()).prop_map(|(seed, from, at)| Change::Join(seed, from, at)),
    ]
}

/// What inputs of a target are made of.
struct Material {
    seeds: Vec<Vec<u8>>,
    words: Vec<Vec<u8>>,
}

impl Material {
    fn of(target: &str) -> Material {
        let folder = fuzz().join("corpus").join(target);
        let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
            .unwrap_or_else(|why| panic!("{}: {why}", folder.display()))
            .map(|entry| entry.unwrap().path())
            .collect();
        files.sort();
        let seeds = files.iter().map(|file| std::fs::read(file).unwrap()).collect();
        let dictionary = fuzz().join("dictionaries").join(format!("{target}.dict"));
        // Not every target has one.
        let words =
            if dictionary.exists() { std::fs::read_to_string(dictionary).unwrap() } else { String::new() };
        Material { seeds, words: words.lines().filter_map(word).collect() }
    }

    /// A seed after changes.
    fn input(&self, seed: Index, changes: &[Change]) -> Vec<u8> {
        let mut input = self.seeds[seed.index(self.seeds.len())].clone();
        for change in changes {
            self.apply(change, &mut input);
            input.truncate(MOST_BYTES);
        }
        input
    }

    fn apply(&self, change: &Change, input: &mut Vec<u8>) {
        let length = input.len();
        let place = |at: &Index| at.index(length + 1);
        let range = |at: &Index, to: &Index| {
            let (at, to) = (place(at), place(to));
            at.min(to)..at.max(to)
        };
        match change {
            Change::Flip(at, bit) if length > 0 => input[at.index(length)] ^= 1 << (bit % 8),
            Change::Flip(..) => {}
            Change::Put(at, bytes) => drop(input.splice(place(at)..place(at), bytes.iter().copied())),
            Change::Replace(at, bytes) => {
                let begin = place(at);
                input.splice(begin..length.min(begin + bytes.len()), bytes.iter().copied());
            }
            Change::Word(at, word) => {
                let words = &self.words;
                let word = if words.is_empty() { &[][..] } else { &words[word.index(words.len())] };
                input.splice(place(at)..place(at), word.iter().copied());
            }
            Change::Number(at) => {
                let digits: Vec<usize> = (0..length).filter(|at| input[*at].is_ascii_digit()).collect();
                if digits.is_empty() {
                    return;
                }
                let begin = digits[at.index(digits.len())];
                let end = (begin..length).find(|at| !input[*at].is_ascii_digit()).unwrap_or(length);
                let number = NUMBERS[at.index(NUMBERS.len() * digits.len()) % NUMBERS.len()];
                input.splice(begin..end, number.bytes());
            }
            Change::Remove(at, to) => drop(input.drain(range(at, to))),
            Change::Repeat(at, to, times) => {
                let part = input[range(at, to)].to_vec();
                let many = part.repeat(usize::from(*times).min(MOST_BYTES / part.len().max(1)));
                input.splice(place(at)..place(at), many);
            }
            Change::End(at) => input.truncate(place(at)),
            Change::Join(seed, from, at) => {
                let other = &self.seeds[seed.index(self.seeds.len())];
                input.truncate(place(at));
                input.extend(&other[from.index(other.len() + 1)..]);
            }
        }
    }
}

/// The folder of the seeds and of libFuzzer's programs.
fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

/// The bytes of a line of libFuzzer's dictionaries: `name="text"`, in which `\\`, `\"` and `\xNN` are bytes.
fn word(line: &str) -> Option<Vec<u8>> {
    let text = line.trim();
    let quoted = (!text.starts_with('#')).then(|| text.split_once('"'))??.1.strip_suffix('"')?;
    let (mut bytes, mut rest) = (Vec::new(), quoted.as_bytes());
    while let [first, others @ ..] = rest {
        rest = others;
        match (first, others) {
            (b'\\', [b'x', high, low, after @ ..]) => {
                let digits = [*high, *low];
                let digits = std::str::from_utf8(&digits).ok()?;
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
                rest = after;
            }
            (b'\\', [escaped, after @ ..]) => {
                bytes.push(*escaped);
                rest = after;
            }
            _ => bytes.push(*first),
        }
    }
    Some(bytes)
}

/// What a thread is, or does at present.
#[derive(Clone, Copy, PartialEq)]
enum Role {
    /// It is one that a target started.
    OfTarget,
    /// It is a test's, between inputs.
    Test,
    /// It is a test's and reads an input.
    Reads,
}

thread_local! {
    static ROLE: Cell<Role> = const { Cell::new(Role::OfTarget) };
    /// The first panic of this thread while it reads an input.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// A panic of a thread that a target started. Which target is not known: the next input that is read counts as the finding.
static ELSEWHERE: Mutex<Option<String>> = Mutex::new(None);

/// Held while inputs are read; by the test that has such a thread panic, alone.
static READING: RwLock<()> = RwLock::new(());

/// Keeps the messages of panics, also of those that the code catches.
fn keep_panics() {
    static KEPT: Once = Once::new();
    KEPT.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| match ROLE.get() {
            Role::Reads => PANIC.with_borrow_mut(|kept| {
                kept.get_or_insert_with(|| info.to_string());
            }),
            Role::OfTarget => *ELSEWHERE.lock().unwrap() = Some(info.to_string()),
            Role::Test => print(info),
        }));
    });
    ROLE.set(Role::Test);
}

/// Why an input is a finding.
fn finding(read: fn(&[u8]), input: &[u8]) -> Option<String> {
    ROLE.set(Role::Reads);
    let result = catch_unwind(|| read(input));
    ROLE.set(Role::Test);
    let panic = PANIC.take().or_else(|| ELSEWHERE.lock().unwrap().take());
    panic.or_else(|| result.err().map(|_| "a panic without a message".to_owned()))
}

/// Has a target read its seeds and what is made of them.
fn read_all(target: &str, inputs: u32, read: fn(&[u8])) {
    keep_panics();
    let finding = |input: &[u8]| {
        let _reading = READING.read().unwrap();
        finding(read, input)
    };
    let material = Material::of(target);
    for seed in &material.seeds {
        if let Some(why) = finding(seed) {
            panic!("{target}: a seed is a finding: {}: {why}", seed.escape_ascii());
        }
    }
    let cases = inputs * if is_long() { LONG } else { 1 };
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let random = TestRng::deterministic_rng(RngAlgorithm::XorShift);
    let made = TestRunner::new_with_rng(config, random).run(
        &(any::<Index>(), prop_oneof![1 => Just(Vec::new()), 99 => vec(change(), 1..6)]),
        |(seed, changes)| match finding(&material.input(seed, &changes)) {
            Some(why) => Err(TestCaseError::fail(why)),
            None => Ok(()),
        },
    );
    match made {
        Ok(()) => {}
        Err(TestError::Fail(why, (seed, changes))) => {
            panic!("{target}: {}: {why}", material.input(seed, &changes).escape_ascii());
        }
        Err(TestError::Abort(why)) => panic!("{target}: {why}"),
    }
    let elsewhere = ELSEWHERE.lock().unwrap().take();
    assert!(elsewhere.is_none(), "a thread of {target} or of another target: {elsewhere:?}");
}

/// A test for each target.
macro_rules! targets {
    ($($target:ident $inputs:ident;)*) => {
        $(#[test]
        fn $target() {
            read_all(stringify!($target), $inputs, waykeeper_fuzz_targets::$target::read);
        })*

        const TARGETS: &[&str] = &[$(stringify!($target)),*];
    };
}

targets! {
    capture INPUTS;
    census FEWER_INPUTS;
    chip INPUTS;
    config FEWER_INPUTS;
    counter_units INPUTS;
    doctor FEWER_INPUTS;
    fio_jobs INPUTS;
    glob INPUTS;
    http INPUTS;
    journal INPUTS;
    kernel_text INPUTS;
    machine_profile INPUTS;
    memload_system INPUTS;
    nri INPUTS;
    packed INPUTS;
    pci INPUTS;
    policy_answer INPUTS;
    policy_settings INPUTS;
    recording INPUTS;
    request INPUTS;
    resctrl INPUTS;
    scenario INPUTS;
    scenario_files INPUTS;
    schemata INPUTS;
    socket FEWER_INPUTS;
    steps_stream INPUTS;
    tenants INPUTS;
    topology INPUTS;
    trace INPUTS;
    values INPUTS;
    vhost_resctrl INPUTS;
    web FEWER_INPUTS;
}

#[test]
fn every_target_is_tested() {
    keep_panics();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/targets");
    let files = std::fs::read_dir(sources).unwrap().map(|entry| entry.unwrap().path());
    let names: BTreeSet<String> =
        files.map(|file| file.file_stem().unwrap().to_string_lossy().into_owned()).collect();
    assert_eq!(TARGETS.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>(), names);
}

#[test]
fn a_word_of_a_dictionary_is_bytes() {
    keep_panics();
    assert_eq!(word(r#"magic="\xa1\x00b\\\"c""#), Some(b"\xa1\x00b\\\"c".to_vec()));
    assert_eq!(word("# a comment"), None);
}

#[test]
fn a_panic_that_the_code_catches_is_a_finding() {
    keep_panics();
    let _alone = READING.write().unwrap();
    let caught: fn(&[u8]) = |input| {
        let _ = catch_unwind(|| assert!(input.is_empty(), "not empty"));
    };
    let of_a_thread: fn(&[u8]) = |_| drop(std::thread::spawn(|| panic!("elsewhere")).join());
    assert_eq!(finding(caught, b""), None);
    assert!(finding(of_a_thread, b"").unwrap().contains("elsewhere"));
    assert!(finding(caught, b"a").unwrap().contains("not empty"));
}
