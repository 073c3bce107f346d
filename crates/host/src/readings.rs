//! A reading of each counter of a table: an array without allocation, indexed by the counter.
//!
//! In JSON it is an object with one key per counter. Must not know which counters there are.

use crate::Reading;
use crate::counter::{HostCounter, PortCounter, SocketCounter, WorkloadCounter};
use serde::de::{DeserializeOwned, Error, IgnoredAny, MapAccess};
use serde::ser::SerializeStruct;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Add, Index, IndexMut};

/// A reading of each of the `N` counters `K`.
#[derive(Clone, Copy, PartialEq)]
pub struct Readings<K, T, const N: usize> {
    row: [Reading<T>; N],
    of: PhantomData<K>,
}

/// The counters of one group in a snapshot.
pub type WorkloadCounters = Readings<WorkloadCounter, u64, { WorkloadCounter::COUNT }>;
/// The counters of one socket in a snapshot.
pub type SocketCounters = Readings<SocketCounter, u64, { SocketCounter::COUNT }>;
/// The counters of one root port in a snapshot.
pub type PortCounters = Readings<PortCounter, u64, { PortCounter::COUNT }>;
/// The counters of one group over an interval: counts per second, levels at its end.
pub type WorkloadRates = Readings<WorkloadCounter, f64, { WorkloadCounter::COUNT }>;
/// The counters of the socket over an interval.
pub type SocketRates = Readings<SocketCounter, f64, { SocketCounter::COUNT }>;
/// The counters of one root port over an interval.
pub type PortRates = Readings<PortCounter, f64, { PortCounter::COUNT }>;

/// A type of readings: whole numbers in a snapshot, rates in an interval. A level is a whole number in both.
pub trait CounterValue: Copy + Add<Output = Self> + fmt::Debug + Serialize + DeserializeOwned {
    /// Name of the type of these readings.
    fn title<K: HostCounter<N>, const N: usize>() -> &'static str;

    /// A level as such a value; exact below 2^53.
    fn from_level(level: u64) -> Self;

    /// The level that this value is.
    fn level(self) -> u64;
}

impl CounterValue for u64 {
    fn title<K: HostCounter<N>, const N: usize>() -> &'static str {
        K::COUNTERS
    }

    fn from_level(level: u64) -> u64 {
        level
    }

    fn level(self) -> u64 {
        self
    }
}

impl CounterValue for f64 {
    fn title<K: HostCounter<N>, const N: usize>() -> &'static str {
        K::RATES
    }

    fn from_level(level: u64) -> f64 {
        level as f64
    }

    fn level(self) -> u64 {
        self as u64
    }
}

impl<K: HostCounter<N>, T: CounterValue, const N: usize> Readings<K, T, N> {
    /// The reading of each counter.
    pub fn from_fn(mut reading: impl FnMut(K) -> Reading<T>) -> Readings<K, T, N> {
        Readings { row: std::array::from_fn(|index| reading(K::ALL[index])), of: PhantomData }
    }

    /// The same reading of every counter.
    pub const fn all(reading: Reading<T>) -> Readings<K, T, N> {
        Readings { row: [reading; N], of: PhantomData }
    }

    /// These readings; the other counters are `Unsupported`.
    pub fn of(readings: impl IntoIterator<Item = (K, Reading<T>)>) -> Readings<K, T, N> {
        let mut row = Readings::all(Reading::Unsupported);
        for (counter, reading) in readings {
            row[counter] = reading;
        }
        row
    }

    /// The counters and their readings, in the order of the table.
    pub fn iter(&self) -> impl Iterator<Item = (K, Reading<T>)> {
        K::ALL.into_iter().zip(self.row)
    }

    /// The readings of the cumulative counts, without those of levels.
    pub fn counts(&self) -> impl Iterator<Item = (K, Reading<T>)> {
        self.iter().filter(|(counter, _)| !counter.is_level())
    }

    /// The sum of two counters; if one is missing, the reason of the first missing one.
    pub fn sum(&self, first: K, second: K) -> Reading<T> {
        self[first].zip_with(self[second], Add::add)
    }

    /// Both readings of each counter combined.
    pub fn zip_with<U: CounterValue, V: CounterValue>(
        &self,
        other: &Readings<K, U, N>,
        mut f: impl FnMut(K, Reading<T>, Reading<U>) -> Reading<V>,
    ) -> Readings<K, V, N> {
        Readings::from_fn(|counter| f(counter, self[counter], other[counter]))
    }
}

impl<K: HostCounter<N>, T, const N: usize> Index<K> for Readings<K, T, N> {
    type Output = Reading<T>;

    fn index(&self, counter: K) -> &Reading<T> {
        &self.row[counter.index()]
    }
}

impl<K: HostCounter<N>, T, const N: usize> IndexMut<K> for Readings<K, T, N> {
    fn index_mut(&mut self, counter: K) -> &mut Reading<T> {
        &mut self.row[counter.index()]
    }
}

impl<K: HostCounter<N>, T: CounterValue, const N: usize> fmt::Debug for Readings<K, T, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut readings = f.debug_struct(T::title::<K, N>());
        for (counter, reading) in self.iter() {
            readings.field(counter.name(), &reading);
        }
        readings.finish()
    }
}

impl<K: HostCounter<N>, T: CounterValue, const N: usize> Serialize for Readings<K, T, N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut written = serializer.serialize_struct(T::title::<K, N>(), N)?;
        for (counter, reading) in self.iter() {
            match counter.is_level() {
                true => written.serialize_field(counter.name(), &reading.map(T::level))?,
                false => written.serialize_field(counter.name(), &reading)?,
            }
        }
        written.end()
    }
}

impl<'de, K: HostCounter<N>, T: CounterValue, const N: usize> Deserialize<'de> for Readings<K, T, N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Readings<K, T, N>, D::Error> {
        deserializer.deserialize_struct(T::title::<K, N>(), &K::NAMES, Visitor(PhantomData))
    }
}

/// Reads the object of a [`Readings`].
struct Visitor<K, T, const N: usize>(PhantomData<(K, T)>);

impl<'de, K: HostCounter<N>, T: CounterValue, const N: usize> serde::de::Visitor<'de> for Visitor<K, T, N> {
    type Value = Readings<K, T, N>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "struct {}", T::title::<K, N>())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Readings<K, T, N>, A::Error> {
        let mut row = [None; N];
        while let Some(Key(counter)) = map.next_key::<Key<K, N>>()? {
            let Some(counter) = counter else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            if row[counter.index()].is_some() {
                return Err(A::Error::duplicate_field(counter.name()));
            }
            row[counter.index()] = Some(match counter.is_level() {
                true => map.next_value::<Reading<u64>>()?.map(T::from_level),
                false => map.next_value::<Reading<T>>()?,
            });
        }
        let mut readings = Readings::all(Reading::Absent);
        for (counter, reading) in K::ALL.into_iter().zip(row) {
            readings[counter] = reading.ok_or_else(|| A::Error::missing_field(counter.name()))?;
        }
        Ok(readings)
    }
}

/// A key of such an object; `None` if it names no counter of the table.
struct Key<K, const N: usize>(Option<K>);

impl<'de, K: HostCounter<N>, const N: usize> Deserialize<'de> for Key<K, N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Key<K, N>, D::Error> {
        struct KeyVisitor<K, const N: usize>(PhantomData<K>);
        impl<K: HostCounter<N>, const N: usize> serde::de::Visitor<'_> for KeyVisitor<K, N> {
            type Value = Key<K, N>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("field identifier")
            }

            fn visit_str<E>(self, name: &str) -> Result<Key<K, N>, E> {
                Ok(Key(K::ALL.into_iter().find(|counter| counter.name() == name)))
            }
        }
        deserializer.deserialize_identifier(KeyVisitor(PhantomData))
    }
}
