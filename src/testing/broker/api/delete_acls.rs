//! DeleteAcls: the rules go that filters find.

use kafka_protocol::messages::delete_acls_request::DeleteAclsFilter;
use kafka_protocol::messages::delete_acls_response::{DeleteAclsFilterResult, DeleteAclsMatchingAcl};
use kafka_protocol::messages::{DeleteAclsRequest, DeleteAclsResponse};

use super::Serve;
use crate::protocol::error_code::ErrorCode;
use crate::testing::broker::acls::{Filter, Rule};
use crate::testing::broker::call::{Call, Step};
use crate::testing::broker::core::{Core, Refusal, text};

impl Serve for DeleteAclsRequest {
    fn serve(self, core: &mut Core, _call: &Call) -> Step<Self> {
        // Every filter looks at what is there before any rule goes.
        let filters: Vec<Filter> = self.filters.iter().map(filter).collect();
        if !filters.iter().all(Filter::is_known) {
            return Step::Close;
        }
        let found: Vec<_> = filters.iter().map(|filter| core.find_acls(filter)).collect();
        for rule in found.iter().flatten().flatten() {
            core.acls.remove(rule);
        }
        let results = found.into_iter().map(|found| match found {
            Ok(rules) => {
                let matching = rules.into_iter().map(matching).collect();
                DeleteAclsFilterResult::default().with_error_message(None).with_matching_acls(matching)
            }
            Err(refusal) => refused(refusal),
        });
        Step::Answer(DeleteAclsResponse::default().with_filter_results(results.collect()))
    }

    fn refuse(self, _core: &mut Core, _call: &Call, code: ErrorCode) -> DeleteAclsResponse {
        let results = self.filters.iter().map(|_| refused(code.into()));
        DeleteAclsResponse::default().with_filter_results(results.collect())
    }

    fn throttle(answer: &mut DeleteAclsResponse, ms: i32) {
        answer.throttle_time_ms = ms;
    }
}

fn filter(asked: &DeleteAclsFilter) -> Filter {
    let text = |text: &Option<kafka_protocol::protocol::StrBytes>| text.as_ref().map(ToString::to_string);
    Filter {
        kind: asked.resource_type_filter,
        name: text(&asked.resource_name_filter),
        pattern: asked.pattern_type_filter,
        principal: text(&asked.principal_filter),
        host: text(&asked.host_filter),
        operation: asked.operation,
        permission: asked.permission_type,
    }
}

fn matching(rule: Rule) -> DeleteAclsMatchingAcl {
    DeleteAclsMatchingAcl::default()
        .with_error_message(None)
        .with_resource_type(rule.kind)
        .with_resource_name(text(rule.name))
        .with_pattern_type(rule.pattern)
        .with_principal(text(rule.principal))
        .with_host(text(rule.host))
        .with_operation(rule.operation)
        .with_permission_type(rule.permission)
}

fn refused(refusal: Refusal) -> DeleteAclsFilterResult {
    DeleteAclsFilterResult::default().with_error_code(refusal.code.0).with_error_message(refusal.words())
}
