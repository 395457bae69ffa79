//! DeleteGroups: groups without members, and their offsets.

use kafka_protocol::messages::delete_groups_response::DeletableGroupResult;
use kafka_protocol::messages::{DeleteGroupsRequest, DeleteGroupsResponse};

use super::Serve;
use crate::protocol::error_code::ErrorCode;
use crate::testing::broker::call::{Call, Step};
use crate::testing::broker::core::Core;

impl Serve for DeleteGroupsRequest {
    fn serve(self, core: &mut Core, call: &Call) -> Step<Self> {
        let results = self.groups_names.into_iter().map(|id| {
            let deleted = delete(core, call, &id);
            DeletableGroupResult::default()
                .with_group_id(id)
                .with_error_code(deleted.err().unwrap_or(ErrorCode::NONE).0)
        });
        Step::Answer(DeleteGroupsResponse::default().with_results(results.collect()))
    }

    fn refuse(self, _core: &mut Core, _call: &Call, code: ErrorCode) -> DeleteGroupsResponse {
        let results = self.groups_names.into_iter();
        let results = results.map(|id| DeletableGroupResult::default().with_group_id(id).with_error_code(code.0));
        DeleteGroupsResponse::default().with_results(results.collect())
    }

    fn throttle(answer: &mut DeleteGroupsResponse, ms: i32) {
        answer.throttle_time_ms = ms;
    }
}

fn delete(core: &mut Core, call: &Call, id: &str) -> Result<(), ErrorCode> {
    if !core.group(call, id)?.is_empty() {
        return Err(ErrorCode::NON_EMPTY_GROUP);
    }
    core.groups.remove(id);
    core.changed();
    Ok(())
}
