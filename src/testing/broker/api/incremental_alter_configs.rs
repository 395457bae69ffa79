//! IncrementalAlterConfigs: settings of topics, nodes, groups and subscriptions change, those alone that are named (KIP-339).

use kafka_protocol::messages::incremental_alter_configs_request::AlterConfigsResource;
use kafka_protocol::messages::incremental_alter_configs_response::AlterConfigsResourceResponse;
use kafka_protocol::messages::{IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse};

use super::Serve;
use crate::protocol::error_code::ErrorCode;
use crate::record::Topic;
use crate::testing::broker::call::{Call, Step};
use crate::testing::broker::configs::{Change, Resource, TOPIC};
use crate::testing::broker::core::{Core, Refusal};

impl Serve for IncrementalAlterConfigsRequest {
    fn serve(self, core: &mut Core, call: &Call) -> Step<Self> {
        let name = |asked: &AlterConfigsResource| (asked.resource_type, asked.resource_name.clone());
        let names: Vec<_> = self.resources.iter().map(name).collect();
        let mut responses = Vec::new();
        for asked in self.resources {
            let times = names.iter().filter(|other| **other == name(&asked)).count();
            let altered = match times {
                1 => alter(core, call, &asked, self.validate_only),
                _ => Err(Refusal::new(ErrorCode::INVALID_REQUEST, "Each resource must appear at most once.")),
            };
            responses.push(outcome(asked, altered.err()));
        }
        Step::Answer(IncrementalAlterConfigsResponse::default().with_responses(responses))
    }

    fn refuse(self, _core: &mut Core, _call: &Call, code: ErrorCode) -> IncrementalAlterConfigsResponse {
        let responses = self.resources.into_iter().map(|asked| outcome(asked, Some(code.into())));
        IncrementalAlterConfigsResponse::default().with_responses(responses.collect())
    }

    fn throttle(answer: &mut IncrementalAlterConfigsResponse, ms: i32) {
        answer.throttle_time_ms = ms;
    }

    fn names(&self, _core: &Core, _call: &Call) -> Vec<(Topic, i32)> {
        let topics = self.resources.iter().filter(|asked| asked.resource_type == TOPIC);
        topics.map(|asked| (Topic::from(asked.resource_name.as_str()), -1)).collect()
    }
}

fn alter(core: &mut Core, call: &Call, asked: &AlterConfigsResource, validate_only: bool) -> Result<(), Refusal> {
    let resource = Resource::named(asked.resource_type, &asked.resource_name)?;
    if let Resource::Topic(name) = &resource
        && let Some(code) = call.failure_of(name, -1)
    {
        return Err(code.into());
    }
    let change = |config: &kafka_protocol::messages::incremental_alter_configs_request::AlterableConfig| Change {
        name: config.name.to_string(),
        act: config.config_operation,
        value: config.value.as_ref().map(ToString::to_string),
    };
    let changes: Vec<Change> = asked.configs.iter().map(change).collect();
    core.alter_configs(call.node, &resource, &changes, validate_only)
}

fn outcome(asked: AlterConfigsResource, refusal: Option<Refusal>) -> AlterConfigsResourceResponse {
    let answer = AlterConfigsResourceResponse::default()
        .with_resource_type(asked.resource_type)
        .with_resource_name(asked.resource_name);
    match refusal {
        None => answer.with_error_message(None),
        Some(refusal) => answer.with_error_code(refusal.code.0).with_error_message(refusal.words()),
    }
}
