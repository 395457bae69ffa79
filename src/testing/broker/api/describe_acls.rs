//! DescribeAcls: the rules of access that a filter finds.

use std::collections::BTreeMap;

use kafka_protocol::messages::describe_acls_response::{AclDescription, DescribeAclsResource};
use kafka_protocol::messages::{DescribeAclsRequest, DescribeAclsResponse};

use super::Serve;
use crate::protocol::error_code::ErrorCode;
use crate::testing::broker::acls::{Filter, Rule};
use crate::testing::broker::call::{Call, Step};
use crate::testing::broker::core::{Core, Refusal, text};

impl Serve for DescribeAclsRequest {
    fn serve(self, core: &mut Core, _call: &Call) -> Step<Self> {
        let filter = Filter {
            kind: self.resource_type_filter,
            name: self.resource_name_filter.as_ref().map(ToString::to_string),
            pattern: self.pattern_type_filter,
            principal: self.principal_filter.as_ref().map(ToString::to_string),
            host: self.host_filter.as_ref().map(ToString::to_string),
            operation: self.operation,
            permission: self.permission_type,
        };
        if !filter.is_known() {
            return Step::Close;
        }
        Step::Answer(match core.find_acls(&filter) {
            Ok(rules) => {
                DescribeAclsResponse::default().with_error_message(Some(text(""))).with_resources(by_resource(rules))
            }
            Err(refusal) => refused(refusal),
        })
    }

    fn refuse(self, _core: &mut Core, _call: &Call, code: ErrorCode) -> DescribeAclsResponse {
        refused(code.into())
    }

    fn throttle(answer: &mut DescribeAclsResponse, ms: i32) {
        answer.throttle_time_ms = ms;
    }
}

fn by_resource(rules: Vec<Rule>) -> Vec<DescribeAclsResource> {
    let mut resources: BTreeMap<(i8, String, i8), Vec<AclDescription>> = BTreeMap::new();
    for rule in rules {
        let acl = AclDescription::default()
            .with_principal(text(rule.principal))
            .with_host(text(rule.host))
            .with_operation(rule.operation)
            .with_permission_type(rule.permission);
        resources.entry((rule.kind, rule.name, rule.pattern)).or_default().push(acl);
    }
    let resource = |((kind, name, pattern), acls)| {
        DescribeAclsResource::default()
            .with_resource_type(kind)
            .with_resource_name(text(name))
            .with_pattern_type(pattern)
            .with_acls(acls)
    };
    resources.into_iter().map(resource).collect()
}

fn refused(refusal: Refusal) -> DescribeAclsResponse {
    DescribeAclsResponse::default().with_error_code(refusal.code.0).with_error_message(refusal.words())
}
