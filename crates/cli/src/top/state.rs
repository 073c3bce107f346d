//! What a person has chosen in the live view: the page, the selected row, filter, order, an open question. Must not know how
//! it is drawn, nor the source.

use waykeeper_units::WayMask;
use waykeeper_view::{DevicePicture, Picture, Series, TenantPicture, Turn};

/// Pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Page {
    /// All tenants and devices, and what happened.
    Overview,
    /// One tenant.
    Tenant,
    /// The devices behind one root port.
    Device,
    /// One series of all tenants or devices over time.
    Timeline,
    /// The keys.
    Help,
}

/// A row that can be selected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ViewRow {
    /// A tenant, by name.
    Tenant(String),
    /// The devices behind a root port, by their names.
    Device(String),
}

/// Orders of tenants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TenantOrder {
    /// As the source lists them.
    Listed,
    /// By name.
    Name,
    /// Lowest LLC hit ratio first.
    HitRatio,
    /// Lowest instructions per cycle first.
    Ipc,
    /// Most LLC bytes first.
    Occupancy,
    /// Most memory traffic first.
    Memory,
}

impl TenantOrder {
    /// All of them, in the order in which the key `s` takes them.
    pub const ALL: [TenantOrder; 6] = [
        TenantOrder::Listed,
        TenantOrder::Name,
        TenantOrder::HitRatio,
        TenantOrder::Ipc,
        TenantOrder::Occupancy,
        TenantOrder::Memory,
    ];

    /// Its name.
    pub fn word(self) -> &'static str {
        match self {
            TenantOrder::Listed => "as listed",
            TenantOrder::Name => "by name",
            TenantOrder::HitRatio => "by hit ratio",
            TenantOrder::Ipc => "by IPC",
            TenantOrder::Occupancy => "by LLC bytes",
            TenantOrder::Memory => "by memory traffic",
        }
    }

    fn next(self) -> TenantOrder {
        let at = TenantOrder::ALL.iter().position(|own| *own == self).unwrap_or_default();
        TenantOrder::ALL[(at + 1) % TenantOrder::ALL.len()]
    }
}

/// A question that is open on the screen.
#[derive(Clone, PartialEq, Debug)]
pub enum Question {
    /// What tenants and devices must contain in their names.
    Filter {
        /// The text so far.
        text: String,
    },
    /// Which policy takes over.
    Policy {
        /// Its place among the source's policies.
        at: usize,
    },
    /// Pause or resume.
    Pause {
        /// Place in [`PAUSES`].
        at: usize,
    },
    /// The mask of a tenant.
    Mask {
        /// The tenant.
        tenant: String,
        /// The mask so far.
        mask: WayMask,
        /// The mask in force.
        before: WayMask,
    },
    /// The DCA ways.
    DcaWays {
        /// The ways so far.
        mask: WayMask,
        /// The ways in force.
        before: WayMask,
    },
    /// DCA of a device.
    Dca {
        /// The device.
        device: String,
        /// On or off.
        on: bool,
    },
    /// Load of a device.
    Load {
        /// The device.
        device: String,
        /// Relative to the scenario's.
        factor: f64,
        /// The highest that it takes.
        most: f64,
    },
}

/// What can be chosen of a pause.
pub const PAUSES: [(&str, Turn); 3] = [
    ("pause; the knobs keep their values", Turn::Pause { release: false }),
    ("pause; every knob gets its original value", Turn::Pause { release: true }),
    ("resume", Turn::Resume),
];

/// Series of the timeline, in the order in which the key `s` takes them.
pub const SERIES: [(Series, &str); 10] = [
    (Series::LlcHitRatio, "LLC hit ratio"),
    (Series::Ipc, "IPC"),
    (Series::OccupancyBytes, "LLC bytes"),
    (Series::MemoryBytesPerS, "memory traffic, B/s"),
    (Series::Ways, "ways"),
    (Series::MlcMissRatio, "MLC miss ratio"),
    (Series::InboundBytesPerS, "written by devices, B/s"),
    (Series::OutboundBytesPerS, "read by devices, B/s"),
    (Series::DcaWriteHitRatio, "DCA write hit ratio"),
    (Series::MemoryReadBytesPerS, "read from memory, B/s"),
];

/// A line at the bottom, and whether it is an error.
pub type Notice = (String, bool);

/// What was chosen.
#[derive(Clone, PartialEq, Debug)]
pub struct Chosen {
    /// The page.
    pub page: Page,
    /// The page before help.
    pub back: Page,
    /// The selected row.
    pub row: Option<ViewRow>,
    /// Text that names must contain; empty: all.
    pub filter: String,
    /// TenantOrder of tenants.
    pub order: TenantOrder,
    /// Place in [`SERIES`].
    pub series: usize,
    /// The open question.
    pub question: Option<Question>,
    /// The line at the bottom.
    pub notice: Option<Notice>,
    /// The screen keeps its picture; steps continue.
    pub frozen: bool,
}

impl Default for Chosen {
    fn default() -> Chosen {
        Chosen {
            page: Page::Overview,
            back: Page::Overview,
            row: None,
            filter: String::new(),
            order: TenantOrder::Listed,
            series: 0,
            question: None,
            notice: None,
            frozen: false,
        }
    }
}

impl Chosen {
    /// The tenants to show, in order.
    pub fn tenants<'p>(&self, picture: &'p Picture) -> Vec<&'p TenantPicture> {
        let mut tenants: Vec<&TenantPicture> =
            picture.tenants.iter().filter(|tenant| self.matches(&tenant.name)).collect();
        let low = |value: Option<f64>| value.unwrap_or(f64::INFINITY);
        let high = |value: Option<f64>| -value.unwrap_or(f64::NEG_INFINITY);
        let key = |tenant: &TenantPicture| match self.order {
            TenantOrder::Listed | TenantOrder::Name => 0.0,
            TenantOrder::HitRatio => low(tenant.llc_hit_ratio),
            TenantOrder::Ipc => low(tenant.ipc),
            TenantOrder::Occupancy => high(tenant.occupancy_bytes),
            TenantOrder::Memory => high(tenant.memory_bytes_per_s),
        };
        tenants.sort_by(|a, b| key(a).total_cmp(&key(b)));
        if self.order == TenantOrder::Name {
            tenants.sort_by(|a, b| a.name.cmp(&b.name));
        }
        tenants
    }

    /// The devices to show.
    pub fn devices<'p>(&self, picture: &'p Picture) -> Vec<&'p DevicePicture> {
        picture.devices.iter().filter(|device| self.matches(&device.name)).collect()
    }

    fn matches(&self, name: &str) -> bool {
        name.to_lowercase().contains(&self.filter.to_lowercase())
    }

    /// The rows that can be selected, from top to bottom.
    pub fn rows(&self, picture: &Picture) -> Vec<ViewRow> {
        let tenants = self.tenants(picture).into_iter().map(|tenant| ViewRow::Tenant(tenant.name.clone()));
        let devices = self.devices(picture).into_iter().map(|device| ViewRow::Device(device.name.clone()));
        tenants.chain(devices).collect()
    }

    /// Place of the selected row; the first one if none is selected or it is gone.
    pub fn place(&self, picture: &Picture) -> usize {
        let rows = self.rows(picture);
        self.row.as_ref().and_then(|row| rows.iter().position(|own| own == row)).unwrap_or_default()
    }

    /// Selects the row so many below.
    pub fn step(&mut self, picture: &Picture, by: isize) {
        let rows = self.rows(picture);
        let last = rows.len().saturating_sub(1);
        let place = self.place(picture).saturating_add_signed(by).min(last);
        self.row = rows.into_iter().nth(place);
    }

    /// The selected tenant.
    pub fn tenant<'p>(&self, picture: &'p Picture) -> Option<&'p TenantPicture> {
        match self.rows(picture).into_iter().nth(self.place(picture))? {
            ViewRow::Tenant(name) => picture.tenants.iter().find(|tenant| tenant.name == name),
            ViewRow::Device(_) => None,
        }
    }

    /// The selected devices.
    pub fn device<'p>(&self, picture: &'p Picture) -> Option<&'p DevicePicture> {
        match self.rows(picture).into_iter().nth(self.place(picture))? {
            ViewRow::Device(name) => picture.devices.iter().find(|device| device.name == name),
            ViewRow::Tenant(_) => None,
        }
    }

    /// Takes the next order, or on the timeline the next series.
    pub fn reorder(&mut self) {
        if self.page == Page::Timeline {
            self.series = (self.series + 1) % SERIES.len();
        } else {
            self.order = self.order.next();
            self.notice = Some((format!("tenants {}", self.order.word()), false));
        }
    }
}
