//! The bounded history behind time lines: the last half hour as it was, and a day as means over minutes.
//!
//! All series of one time lie on one time axis; a value that was not available is a gap. Must not know where values come
//! from.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// Steps that are kept as they were: half an hour at 1 s.
const FINE: usize = 1800;
/// Minutes that are kept as means: a day.
const COARSE: usize = 1440;
/// Length of a mean, s.
const MINUTE_S: f64 = 60.0;
/// Most columns. 256 tenants with their series and 64 ports take half of them; each takes at most 13 KB.
const COLUMNS: usize = 4096;

/// Values that have a history.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Series {
    /// LLC hit ratio of tenants.
    LlcHitRatio,
    /// Instructions per cycle of tenants.
    Ipc,
    /// MLC miss ratio of tenants.
    MlcMissRatio,
    /// LLC bytes that tenants occupy.
    OccupancyBytes,
    /// Bytes that LLC misses of tenants read from memory.
    MemoryBytesPerS,
    /// Ways of the masks of tenants.
    Ways,
    /// Bytes that the devices behind ports write.
    InboundBytesPerS,
    /// Bytes that the devices behind ports read.
    OutboundBytesPerS,
    /// DCA of ports, 1 or 0.
    Dca,
    /// DCA write hit ratio of the socket.
    DcaWriteHitRatio,
    /// DCA write misses of the socket.
    DcaWriteMissesPerS,
    /// Bytes read from memory, of the socket.
    MemoryReadBytesPerS,
    /// Bytes written to memory, of the socket.
    MemoryWriteBytesPerS,
    /// Number of DCA ways.
    DcaWays,
    /// Progress of HPWs since the state as found.
    HpwProgress,
    /// Progress of LPWs.
    LpwProgress,
}

/// What the columns of a series are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SeriesOf {
    /// Tenants.
    Tenants,
    /// Devices behind root ports.
    Devices,
    /// The socket: one column.
    Socket,
}

impl Series {
    /// All of them.
    pub const ALL: [Series; 16] = [
        Series::LlcHitRatio,
        Series::Ipc,
        Series::MlcMissRatio,
        Series::OccupancyBytes,
        Series::MemoryBytesPerS,
        Series::Ways,
        Series::InboundBytesPerS,
        Series::OutboundBytesPerS,
        Series::Dca,
        Series::DcaWriteHitRatio,
        Series::DcaWriteMissesPerS,
        Series::MemoryReadBytesPerS,
        Series::MemoryWriteBytesPerS,
        Series::DcaWays,
        Series::HpwProgress,
        Series::LpwProgress,
    ];

    /// What its columns are.
    pub fn of(self) -> SeriesOf {
        match self {
            Series::LlcHitRatio
            | Series::Ipc
            | Series::MlcMissRatio
            | Series::OccupancyBytes
            | Series::MemoryBytesPerS
            | Series::Ways => SeriesOf::Tenants,
            Series::InboundBytesPerS | Series::OutboundBytesPerS | Series::Dca => SeriesOf::Devices,
            Series::DcaWriteHitRatio
            | Series::DcaWriteMissesPerS
            | Series::MemoryReadBytesPerS
            | Series::MemoryWriteBytesPerS
            | Series::DcaWays
            | Series::HpwProgress
            | Series::LpwProgress => SeriesOf::Socket,
        }
    }
}

/// A part of a history.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct HistoryColumns {
    /// The series.
    pub series: Series,
    /// Time of each row, s since 1970.
    pub at_s: Vec<f64>,
    /// The columns, by name.
    pub columns: Vec<HistoryColumn>,
}

/// A column.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct HistoryColumn {
    /// Name of the tenant or of the devices; `socket` for the socket.
    pub name: String,
    /// Its colour, as in the picture; absent for the socket and for a name without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub colour: Option<u8>,
    /// A value per row; `null` where there was none.
    pub values: Vec<Option<f32>>,
}

type Key = (Series, String);

/// Rows on one time axis, of which the oldest make room.
#[derive(Clone, Debug)]
struct Grid {
    room: usize,
    at_s: VecDeque<f64>,
    /// A value per row, NaN where there was none; and the number of the last row with a value.
    columns: BTreeMap<Key, (VecDeque<f32>, u64)>,
    rows: u64,
}

impl Grid {
    fn new(room: usize) -> Grid {
        Grid { room, at_s: VecDeque::new(), columns: BTreeMap::new(), rows: 0 }
    }

    fn push(&mut self, at_s: f64, values: impl IntoIterator<Item = (Key, f32)>) {
        let before = self.at_s.len();
        self.rows += 1;
        self.at_s.push_back(at_s);
        for (column, _) in self.columns.values_mut() {
            column.push_back(f32::NAN);
        }
        for (key, value) in values.into_iter().filter(|(_, value)| value.is_finite()) {
            if !self.columns.contains_key(&key) && self.columns.len() >= COLUMNS {
                continue;
            }
            let empty = || (std::iter::repeat_n(f32::NAN, before + 1).collect(), 0);
            let (column, last) = self.columns.entry(key).or_insert_with(empty);
            *last = self.rows;
            if let Some(newest) = column.back_mut() {
                *newest = value;
            }
        }
        if self.at_s.len() > self.room {
            self.at_s.pop_front();
            for (column, _) in self.columns.values_mut() {
                column.pop_front();
            }
            let gone = self.rows - self.room as u64;
            self.columns.retain(|_, (_, last)| *last > gone);
        }
    }
}

/// The history of all series.
#[derive(Clone, Debug)]
pub(crate) struct History {
    fine: Grid,
    coarse: Grid,
    /// The minute that is being summed up: its number, and the sum and number of values per column.
    minute: f64,
    sums: BTreeMap<Key, (f64, u32)>,
}

impl Default for History {
    fn default() -> History {
        History {
            fine: Grid::new(FINE),
            coarse: Grid::new(COARSE),
            minute: f64::NEG_INFINITY,
            sums: BTreeMap::new(),
        }
    }
}

impl History {
    /// Time of the last row.
    pub fn last_s(&self) -> Option<f64> {
        self.fine.at_s.back().copied()
    }

    /// Adds a row.
    pub fn push(&mut self, at_s: f64, values: Vec<(Series, String, f64)>) {
        let minute = (at_s / MINUTE_S).floor();
        if minute > self.minute {
            let sums = std::mem::take(&mut self.sums);
            if !sums.is_empty() {
                let means =
                    sums.into_iter().map(|(key, (sum, count))| (key, (sum / f64::from(count)) as f32));
                self.coarse.push(self.minute * MINUTE_S + MINUTE_S / 2.0, means);
            }
            self.minute = minute;
        }
        for (series, name, value) in values.iter().filter(|(_, _, value)| value.is_finite()) {
            let key = (*series, name.clone());
            if self.sums.len() < COLUMNS || self.sums.contains_key(&key) {
                let (sum, count) = self.sums.entry(key).or_insert((0.0, 0));
                *sum += value;
                *count += 1;
            }
        }
        let row = values.into_iter().map(|(series, name, value)| ((series, name), value as f32));
        self.fine.push(at_s, row);
    }

    /// The rows of a series from `from_s` to `to_s`: means of minutes before the time that is kept as it was.
    pub fn columns(&self, series: Series, from_s: f64, to_s: f64) -> HistoryColumns {
        let fine_from = self.fine.at_s.front().copied().unwrap_or(f64::INFINITY);
        let within = |at_s: &f64| *at_s >= from_s && *at_s <= to_s;
        let coarse: Vec<usize> = rows(&self.coarse, |at_s| within(&at_s) && at_s < fine_from);
        let fine: Vec<usize> = rows(&self.fine, |at_s| within(&at_s));
        let at_s = coarse.iter().map(|row| self.coarse.at_s[*row]);
        let at_s = at_s.chain(fine.iter().map(|row| self.fine.at_s[*row])).collect();
        let named = |grid: &Grid| -> Vec<String> {
            grid.columns.keys().filter(|(own, _)| *own == series).map(|(_, name)| name.clone()).collect()
        };
        let mut names = named(&self.coarse);
        names.extend(named(&self.fine));
        names.sort_unstable();
        names.dedup();
        let columns = names.into_iter().map(|name| {
            let key = (series, name);
            let values = picked(&self.coarse, &key, &coarse).chain(picked(&self.fine, &key, &fine)).collect();
            HistoryColumn { name: key.1.clone(), colour: None, values }
        });
        HistoryColumns { series, at_s, columns: columns.collect() }
    }

    /// The last `count` values of one column, oldest first.
    pub fn tail(&self, series: Series, name: &str, count: usize) -> Vec<Option<f32>> {
        let key = (series, name.to_owned());
        let length = self.fine.at_s.len();
        let rows: Vec<usize> = (length.saturating_sub(count)..length).collect();
        picked(&self.fine, &key, &rows).collect()
    }
}

fn rows(grid: &Grid, keeps: impl Fn(f64) -> bool) -> Vec<usize> {
    grid.at_s.iter().enumerate().filter(|(_, at_s)| keeps(**at_s)).map(|(row, _)| row).collect()
}

fn picked<'a>(grid: &'a Grid, key: &Key, rows: &'a [usize]) -> impl Iterator<Item = Option<f32>> + 'a {
    let column = grid.columns.get(key).map(|(column, _)| column);
    rows.iter()
        .map(move |row| column.and_then(|column| column.get(*row).copied()).filter(|value| !value.is_nan()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(history: &mut History, at_s: f64, name: &str, value: f64) {
        history.push(at_s, vec![(Series::Ipc, name.to_owned(), value)]);
    }

    #[test]
    fn a_gap_is_a_gap_and_columns_share_the_axis() {
        let mut history = History::default();
        row(&mut history, 1.0, "a", 0.5);
        row(&mut history, 2.0, "b", 0.25);
        row(&mut history, 3.0, "a", f64::NAN);
        let all = history.columns(Series::Ipc, 0.0, 10.0);
        assert_eq!(all.at_s, [1.0, 2.0, 3.0]);
        let values: Vec<_> =
            all.columns.iter().map(|column| (&*column.name, column.values.clone())).collect();
        assert_eq!(values, [("a", vec![Some(0.5), None, None]), ("b", vec![None, Some(0.25), None])]);
        assert_eq!(history.columns(Series::Ipc, 2.0, 2.5).at_s, [2.0]);
        assert_eq!(history.tail(Series::Ipc, "b", 2), [Some(0.25), None]);
        assert!(history.columns(Series::Ways, 0.0, 10.0).columns.is_empty());
    }

    #[test]
    fn a_day_of_steps_is_a_day_of_minutes_and_half_an_hour_of_steps() {
        let mut history = History::default();
        for second in 0..2 * 86_400 {
            // Another tenant each hour: the columns of those that are gone have to go.
            row(
                &mut history,
                f64::from(second),
                &format!("tenant-{}", second / 3600),
                f64::from(second % 60),
            );
        }
        assert_eq!((history.fine.at_s.len(), history.coarse.at_s.len()), (FINE, COARSE));
        // The tenants of the last day, of the last half hour, and one at the edge.
        assert!((24..=25).contains(&history.coarse.columns.len()), "{}", history.coarse.columns.len());
        assert_eq!(history.fine.columns.len(), 1);
        for grid in [&history.fine, &history.coarse] {
            assert!(grid.columns.values().all(|(column, _)| column.len() == grid.at_s.len()));
        }
        let all = history.columns(Series::Ipc, 0.0, 1e9);
        // 0 to 59 in each minute: their mean is 29.5.
        let first = all.columns.iter().find_map(|column| column.values[0]);
        assert_eq!(first, Some(29.5));
        assert!(all.at_s.is_sorted() && all.at_s.len() > COARSE);
    }

    #[test]
    fn names_without_end_take_no_more_room() {
        let mut history = History::default();
        for second in 0..3 * COLUMNS {
            row(&mut history, second as f64, &format!("tenant-{second}"), 1.0);
        }
        assert!(history.fine.columns.len() <= COLUMNS && history.sums.len() <= COLUMNS);
        assert!(history.coarse.columns.len() <= COLUMNS);
    }
}
