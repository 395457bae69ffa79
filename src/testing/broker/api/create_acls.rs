//! CreateAcls: rules of access.

use kafka_protocol::messages::create_acls_request::AclCreation;
use kafka_protocol::messages::create_acls_response::AclCreationResult;
use kafka_protocol::messages::{CreateAclsRequest, CreateAclsResponse};

use super::Serve;
use crate::protocol::error_code::ErrorCode;
use crate::testing::broker::acls::Rule;
use crate::testing::broker::call::{Call, Step};
use crate::testing::broker::core::{Core, Refusal, text};

impl Serve for CreateAclsRequest {
    fn serve(self, core: &mut Core, _call: &Call) -> Step<Self> {
        let results = self.creations.into_iter().map(|asked| outcome(core.create_acl(rule(asked)).err()));
        Step::Answer(CreateAclsResponse::default().with_results(results.collect()))
    }

    fn refuse(self, _core: &mut Core, _call: &Call, code: ErrorCode) -> CreateAclsResponse {
        let results = self.creations.iter().map(|_| outcome(Some(code.into())));
        CreateAclsResponse::default().with_results(results.collect())
    }

    fn throttle(answer: &mut CreateAclsResponse, ms: i32) {
        answer.throttle_time_ms = ms;
    }
}

fn rule(asked: AclCreation) -> Rule {
    Rule {
        kind: asked.resource_type,
        name: asked.resource_name.to_string(),
        pattern: asked.resource_pattern_type,
        principal: asked.principal.to_string(),
        host: asked.host.to_string(),
        operation: asked.operation,
        permission: asked.permission_type,
    }
}

fn outcome(refusal: Option<Refusal>) -> AclCreationResult {
    let answer = AclCreationResult::default();
    match refusal {
        None => answer.with_error_message(Some(text(""))),
        Some(refusal) => answer.with_error_code(refusal.code.0).with_error_message(refusal.words()),
    }
}
