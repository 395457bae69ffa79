//! Rules of access, as Kafka's `StandardAuthorizer` keeps them. They are kept and told; nobody is kept out by them here.

use std::collections::BTreeSet;

use super::core::{Core, Refusal};
use crate::protocol::error_code::ErrorCode;

/// Every rule.
pub(super) type Acls = BTreeSet<Rule>;

/// A rule, by Kafka's numbers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rule {
    pub(super) kind: i8,
    pub(super) name: String,
    pub(super) pattern: i8,
    pub(super) principal: String,
    pub(super) host: String,
    pub(super) operation: i8,
    pub(super) permission: i8,
}

/// Which rules are meant. [`ANY`] and `None` are everything.
#[derive(Debug, Clone)]
pub(super) struct Filter {
    pub(super) kind: i8,
    pub(super) name: Option<String>,
    pub(super) pattern: i8,
    pub(super) principal: Option<String>,
    pub(super) host: Option<String>,
    pub(super) operation: i8,
    pub(super) permission: i8,
}

impl Rule {
    /// As `StandardAuthorizer` checks a new one.
    fn check(&self) -> Result<(), Refusal> {
        let refused = |why: &str| Err(Refusal::new(ErrorCode::INVALID_REQUEST, why));
        // Kafka does not expect what is right in filters alone, and says so.
        let unexpected = || Err(Refusal::without_words(ErrorCode::UNKNOWN_SERVER_ERROR));
        if !(TOPIC..=USER).contains(&self.kind) {
            return unexpected();
        }
        if self.name.is_empty() {
            return refused("Resource name should not be empty");
        }
        if !matches!(self.pattern, LITERAL | PREFIXED) {
            return unexpected();
        }
        if self.kind == CLUSTER && self.name != CLUSTER_NAME {
            return refused("The only valid name for the CLUSTER resource is kafka-cluster");
        }
        if !(ALL..=TWO_PHASE_COMMIT).contains(&self.operation) {
            return unexpected();
        }
        if !matches!(self.permission, DENY | ALLOW) {
            return unexpected();
        }
        if !self.principal.contains(':') {
            return refused("Could not parse principal: expected a string in format principalType:principalName");
        }
        Ok(())
    }
}

impl Filter {
    /// Whether it names what there is. A request that does not is not read any further.
    pub(super) fn is_known(&self) -> bool {
        [self.kind, self.pattern, self.operation, self.permission].iter().all(|number| *number >= ANY)
    }

    fn finds(&self, rule: &Rule) -> bool {
        let number = |wanted: i8, is: i8| wanted == ANY || wanted == is;
        let text = |wanted: &Option<String>, is: &str| wanted.as_ref().is_none_or(|wanted| wanted == is);
        number(self.kind, rule.kind)
            && self.finds_name(rule)
            && text(&self.principal, &rule.principal)
            && text(&self.host, &rule.host)
            && number(self.operation, rule.operation)
            && number(self.permission, rule.permission)
    }

    /// `ResourcePatternFilter.matches`.
    fn finds_name(&self, rule: &Rule) -> bool {
        if !matches!(self.pattern, ANY | MATCH) && self.pattern != rule.pattern {
            return false;
        }
        let Some(name) = &self.name else { return true };
        if self.pattern != MATCH {
            return *name == rule.name;
        }
        match rule.pattern {
            PREFIXED => name.starts_with(&rule.name),
            _ => *name == rule.name || rule.name == "*",
        }
    }
}

impl Core {
    /// Makes a rule; one that is there stays.
    pub(super) fn create_acl(&mut self, rule: Rule) -> Result<(), Refusal> {
        self.check_authorizer()?;
        rule.check()?;
        if self.acls.len() >= MAX_ACLS && !self.acls.contains(&rule) {
            return Err(Refusal::new(ErrorCode::POLICY_VIOLATION, "there are as many rules as there may be"));
        }
        self.acls.insert(rule);
        Ok(())
    }

    /// The rules that a filter finds.
    pub(super) fn find_acls(&self, filter: &Filter) -> Result<Vec<Rule>, Refusal> {
        self.check_authorizer()?;
        Ok(self.acls.iter().filter(|rule| filter.finds(rule)).cloned().collect())
    }

    fn check_authorizer(&self) -> Result<(), Refusal> {
        if self.settings.authorizer {
            return Ok(());
        }
        Err(Refusal::new(ErrorCode::SECURITY_DISABLED, "No Authorizer is configured on the broker"))
    }
}

/// `ResourceType`, `PatternType`, `AclOperation`, `AclPermissionType`.
const ANY: i8 = 1;
const MATCH: i8 = 2;
const TOPIC: i8 = 2;
const CLUSTER: i8 = 4;
const USER: i8 = 7;
const LITERAL: i8 = 3;
const PREFIXED: i8 = 4;
const ALL: i8 = 2;
const TWO_PHASE_COMMIT: i8 = 15;
const DENY: i8 = 2;
const ALLOW: i8 = 3;

const CLUSTER_NAME: &str = "kafka-cluster";

/// A bound on memory.
const MAX_ACLS: usize = 10_000;
