//! What people see of a host, live or recorded: one stream of steps, and the picture that all views draw.
//!
//! A [`Source`] gives the same [`SourceEvent`]s whether they come from a daemon's socket, from a virtual server or from a
//! recording, and takes the [`Turn`]s that it can carry out. A [`ViewModel`] keeps a bounded history of them and gives a
//! [`Picture`]. Must not know terminals, browsers or the command line.

mod by_hand;
mod daemon_source;
mod history;
mod live;
mod mailbox;
mod model;
mod observed_source;
mod picture;
mod pollution;
mod recording_source;
mod scenario_source;
mod source;

pub use daemon_source::DaemonSource;
pub use history::{HistoryColumn, HistoryColumns, Series, SeriesOf};
pub use model::ViewModel;
pub use observed_source::ObservedSource;
pub use picture::{
    DevicePicture, HurtPicture, LlcPicture, Picture, ProgressPicture, SocketPicture, TenantPicture,
    WorthPicture,
};
pub use recording_source::{RecordingError, RecordingSource, RecordingSpan};
pub use scenario_source::{LiveError, LiveScenario, LiveSetup};
pub use source::{Abilities, Source, SourceEvent, SourceInfo, SourceKind, Turn, TurnError};
