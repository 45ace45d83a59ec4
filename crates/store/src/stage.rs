//! The stages of a trace: the instance that executed each stage, and when.

use campanile_domain::status::ProcessedStatus;
use campanile_domain::time::Moment;
use serde::Serialize;
use utoipa::ToSchema;

use crate::Shown;
use crate::trace::{EventRow, ProcessedRow};

/// The instance and time of a stage. `None` if the stage has not happened or was not recorded.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct StageStamp {
    #[schema(value_type = Option<Moment>)]
    pub at: Option<Shown<Moment>>,
    pub instance: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct EventStages {
    pub fan_out: Option<StageStamp>,
}

#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct SendStages {
    pub publish: Option<StageStamp>,
    pub receive: Option<StageStamp>,
    pub send: Option<StageStamp>,
    pub settle: Option<StageStamp>,
}

impl StageStamp {
    pub(crate) fn of(at: Option<Shown<Moment>>, instance: Option<String>) -> Option<Self> {
        (at.is_some() || instance.is_some()).then_some(StageStamp { at, instance })
    }
}

impl EventStages {
    /// The stages of an event. While a large audience is in progress, the stage has the instance of its last step and
    /// no time. The record of a known id belongs to the earlier event with this id, so it is not used.
    pub(crate) fn of(event: &EventRow, processed: Option<&ProcessedRow>) -> Self {
        let published_at = event.published_at.clone();
        let accepted = event.created_at.at();
        let Some(processed) = processed.filter(|processed| processed.created_at.at() >= accepted) else {
            return EventStages { fan_out: StageStamp::of(published_at, None) };
        };
        let under_way = processed.status == ProcessedStatus::Processing;
        let decided_at = || (!under_way).then(|| processed.created_at.clone());
        EventStages {
            fan_out: StageStamp::of(published_at.or_else(decided_at), Some(processed.instance.clone())),
        }
    }
}
