use std::fmt;

use kafka_protocol::messages::create_acls_request::AclCreation;
use kafka_protocol::messages::delete_acls_request::DeleteAclsFilter;
use kafka_protocol::messages::delete_acls_response::{DeleteAclsFilterResult, DeleteAclsMatchingAcl};
use kafka_protocol::messages::describe_acls_response::{AclDescription, DescribeAclsResource};
use kafka_protocol::messages::{CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest};
use kafka_protocol::protocol::StrBytes;

use super::retry::{Attempt, Try};
use super::{Admin, Outcomes};
use crate::client::ClientError;
use crate::protocol::error_code::ErrorCode;

/// A rule: somebody may do something to something, or may not. A denial wins over every permission.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub struct AclBinding {
    /// To what.
    pub resource: AclResource,
    /// Who, by type and name: `User:alice`; `User:*` for everybody.
    pub principal: String,
    /// From where, by address; `*` for everywhere.
    pub host: String,
    /// Does what.
    pub operation: AclOperation,
    /// May, or may not.
    pub permission: AclPermission,
}

/// What a rule is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub struct AclResource {
    /// Its kind.
    pub kind: AclResourceKind,
    /// Its name, or what names begin with; `*` for every name.
    pub name: String,
    /// How the name is meant.
    pub pattern: AclPattern,
}

/// Which rules are meant; where a part says nothing, it fits every rule.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub struct AclFilter {
    /// Those about this kind of resource.
    pub kind: Option<AclResourceKind>,
    /// Those with this name.
    pub name: Option<String>,
    /// How that name is meant.
    pub pattern: AclPatternFilter,
    /// Those about this principal.
    pub principal: Option<String>,
    /// Those about this host.
    pub host: Option<String>,
    /// Those about this operation.
    pub operation: Option<AclOperation>,
    /// Those that allow, or deny.
    pub permission: Option<AclPermission>,
}

macro_rules! numbered {
    ($(#[$meta:meta])* $type:ident, $what:literal { $($(#[$doc:meta])* $name:ident = $number:literal, $text:literal;)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum $type {
            $($(#[$doc])* $name,)*
            #[doc = concat!("Another ", $what, ", by Kafka's number for it.")]
            Other(i8),
        }

        impl $type {
            /// Those that have names.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            fn from_wire(number: i8) -> Self {
                match number {
                    $($number => Self::$name,)*
                    other => Self::Other(other),
                }
            }

            fn on_the_wire(self) -> i8 {
                match self {
                    $(Self::$name => $number,)*
                    Self::Other(number) => number,
                }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$name => f.write_str($text),)*
                    Self::Other(number) => write!(f, "{} {number}", $what),
                }
            }
        }
    };
}

numbered! {
    /// The kinds of what rules are about.
    AclResourceKind, "kind of resource" {
        /// A topic.
        Topic = 2, "topic";
        /// A group.
        Group = 3, "group";
        /// The cluster; its name is `kafka-cluster`.
        Cluster = 4, "cluster";
        /// A transactional id.
        TransactionalId = 5, "transactional-id";
        /// A delegation token.
        DelegationToken = 6, "delegation-token";
        /// A user, as the one whose delegation tokens are meant.
        User = 7, "user";
    }
}

numbered! {
    /// How the name in a rule is meant.
    AclPattern, "pattern" {
        /// The name is this one; `*` is every one.
        Literal = 3, "literal";
        /// The name begins with this (KIP-290).
        Prefixed = 4, "prefixed";
    }
}

numbered! {
    /// What can be done to a resource.
    AclOperation, "operation" {
        /// Everything.
        All = 2, "all";
        /// Reading. Implies describing.
        Read = 3, "read";
        /// Writing. Implies describing.
        Write = 4, "write";
        /// Creating.
        Create = 5, "create";
        /// Deleting. Implies describing.
        Delete = 6, "delete";
        /// Changing. Implies describing.
        Alter = 7, "alter";
        /// Being told of it.
        Describe = 8, "describe";
        /// What brokers do among themselves.
        ClusterAction = 9, "cluster-action";
        /// Being told its settings.
        DescribeConfigs = 10, "describe-configs";
        /// Changing its settings. Implies being told them.
        AlterConfigs = 11, "alter-configs";
        /// Writing by an idempotent producer; from Kafka 2.8 on writing implies it.
        IdempotentWrite = 12, "idempotent-write";
        /// Making delegation tokens for the user.
        CreateTokens = 13, "create-tokens";
        /// Being told of the user's delegation tokens.
        DescribeTokens = 14, "describe-tokens";
        /// Transactions that another system ends (KIP-939).
        TwoPhaseCommit = 15, "two-phase-commit";
    }
}

numbered! {
    /// What a rule says.
    AclPermission, "permission" {
        /// It may not be.
        Deny = 2, "deny";
        /// It may be.
        Allow = 3, "allow";
    }
}

/// How the name in a filter is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum AclPatternFilter {
    /// Rules with just this name, literal ones and prefixes.
    #[default]
    Any,
    /// Rules that apply to a resource of this name: by its name, by a prefix of it, or by `*`.
    Applies,
    /// Rules with this name that are meant so.
    Is(AclPattern),
}

/// What became of the rules that a filter found.
pub type AclsDeleted = Vec<(AclBinding, Result<(), ClientError>)>;

impl AclBinding {
    /// `principal` may do this, from everywhere.
    pub fn allow(principal: impl Into<String>, operation: AclOperation, resource: AclResource) -> Self {
        let (principal, host) = (principal.into(), ANY_HOST.to_owned());
        Self { resource, principal, host, operation, permission: AclPermission::Allow }
    }

    /// `principal` may not do this, from anywhere.
    pub fn deny(principal: impl Into<String>, operation: AclOperation, resource: AclResource) -> Self {
        Self { permission: AclPermission::Deny, ..Self::allow(principal, operation, resource) }
    }

    /// The same for this address alone.
    #[must_use]
    pub fn from_host(mut self, host: impl Into<String>) -> Self {
        self.host = host.into();
        self
    }
}

impl AclResource {
    /// The resource of this kind and name; `*` for every one of the kind.
    pub fn new(kind: AclResourceKind, name: impl Into<String>) -> Self {
        Self { kind, name: name.into(), pattern: AclPattern::Literal }
    }

    /// This topic.
    pub fn topic(name: impl Into<String>) -> Self {
        Self::new(AclResourceKind::Topic, name)
    }

    /// This group.
    pub fn group(name: impl Into<String>) -> Self {
        Self::new(AclResourceKind::Group, name)
    }

    /// This transactional id.
    pub fn transactional_id(name: impl Into<String>) -> Self {
        Self::new(AclResourceKind::TransactionalId, name)
    }

    /// The cluster.
    pub fn cluster() -> Self {
        Self::new(AclResourceKind::Cluster, CLUSTER_NAME)
    }

    /// All of its kind whose names begin with this one.
    #[must_use]
    pub fn prefixed(mut self) -> Self {
        self.pattern = AclPattern::Prefixed;
        self
    }
}

impl AclFilter {
    /// Every rule.
    pub fn any() -> Self {
        Self::default()
    }

    /// This rule alone.
    pub fn exactly(binding: &AclBinding) -> Self {
        Self {
            principal: Some(binding.principal.clone()),
            host: Some(binding.host.clone()),
            operation: Some(binding.operation),
            permission: Some(binding.permission),
            ..Self::any().with_resource(&binding.resource)
        }
    }

    /// Those about just this resource, or this prefix.
    #[must_use]
    pub fn with_resource(mut self, resource: &AclResource) -> Self {
        (self.kind, self.name) = (Some(resource.kind), Some(resource.name.clone()));
        self.pattern = AclPatternFilter::Is(resource.pattern);
        self
    }

    /// Those that apply to the resource of this kind and name: its own, those of prefixes, and those of `*`.
    #[must_use]
    pub fn applying_to(mut self, kind: AclResourceKind, name: impl Into<String>) -> Self {
        (self.kind, self.name, self.pattern) = (Some(kind), Some(name.into()), AclPatternFilter::Applies);
        self
    }

    /// Those about this principal.
    #[must_use]
    pub fn with_principal(mut self, principal: impl Into<String>) -> Self {
        self.principal = Some(principal.into());
        self
    }

    /// Those about this address.
    #[must_use]
    pub fn with_host(mut self, host: impl Into<String>) -> Self {
        self.host = Some(host.into());
        self
    }

    /// Those about this operation.
    #[must_use]
    pub fn with_operation(mut self, operation: AclOperation) -> Self {
        self.operation = Some(operation);
        self
    }

    /// Those that allow, or deny.
    #[must_use]
    pub fn with_permission(mut self, permission: AclPermission) -> Self {
        self.permission = Some(permission);
        self
    }
}

impl Admin {
    /// Makes rules. One that is there already is no error. Brokers may act without them for a moment still. Java:
    /// `createAcls`.
    ///
    /// # Errors
    /// For each rule apart, [`ErrorCode::SECURITY_DISABLED`] by a broker that keeps no rules.
    pub async fn create_acls(&self, bindings: &[AclBinding]) -> Outcomes<AclBinding, ()> {
        let deadline = self.deadline();
        let attempt = |open: Vec<AclBinding>, _: Try| -> Attempt<'_, AclBinding, ()> {
            Box::pin(async move {
                let request = CreateAclsRequest::default().with_creations(open.iter().map(creation).collect());
                let response = self.cluster.call_any(CREATE, deadline, move |_| request.clone()).await?;
                // Answers have no names: they stand in the order of what was asked.
                let outcomes = open.into_iter().zip(response.results).map(|(binding, answer)| {
                    let outcome = checked(CREATE, &binding, answer.error_code, answer.error_message.as_deref());
                    (binding, outcome)
                });
                Ok(outcomes.collect())
            })
        };
        self.settle(CREATE, deadline).run(bindings.iter().cloned(), attempt).await
    }

    /// Deletes every rule that one of the filters finds, and tells which those were; what an earlier try has deleted whose answer
    /// was lost is not among them. Brokers may act by them for a moment still. Java: `deleteAcls`.
    ///
    /// # Errors
    /// For each filter apart, and for each rule that it found; [`ErrorCode::SECURITY_DISABLED`] by a broker that keeps no rules.
    pub async fn delete_acls(&self, filters: &[AclFilter]) -> Outcomes<AclFilter, AclsDeleted> {
        let deadline = self.deadline();
        let attempt = |open: Vec<AclFilter>, _: Try| -> Attempt<'_, AclFilter, AclsDeleted> {
            Box::pin(async move {
                let request =
                    DeleteAclsRequest::default().with_filters(open.iter().map(AclFilter::on_the_wire).collect());
                let response = self.cluster.call_any(DELETE, deadline, move |_| request.clone()).await?;
                let outcomes = open.into_iter().zip(response.filter_results).map(|(filter, answer)| {
                    let outcome = checked(DELETE, &filter, answer.error_code, answer.error_message.as_deref());
                    (filter, outcome.map(|()| deleted(answer)))
                });
                Ok(outcomes.collect())
            })
        };
        self.settle(DELETE, deadline).run(filters.iter().cloned(), attempt).await
    }

    /// The rules that the filter finds. Java: `describeAcls`.
    ///
    /// # Errors
    /// When no broker answers in time, or it refuses: [`ErrorCode::SECURITY_DISABLED`] by one that keeps no rules.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn describe_acls(&self, filter: &AclFilter) -> Result<Vec<AclBinding>, ClientError> {
        const WHAT: &str = "describe acls";
        let deadline = self.deadline();
        let attempt = || async move {
            let asked = filter.on_the_wire();
            let request = DescribeAclsRequest::default()
                .with_resource_type_filter(asked.resource_type_filter)
                .with_resource_name_filter(asked.resource_name_filter)
                .with_pattern_type_filter(asked.pattern_type_filter)
                .with_principal_filter(asked.principal_filter)
                .with_host_filter(asked.host_filter)
                .with_operation(asked.operation)
                .with_permission_type(asked.permission_type);
            let response = self.cluster.call_any(WHAT, deadline, move |_| request.clone()).await?;
            let refused = |code| ClientError::refused(WHAT, code, response.error_message.as_deref());
            ErrorCode(response.error_code).ok().map_err(refused)?;
            let mut bindings: Vec<_> = response.resources.into_iter().flat_map(bindings).collect();
            bindings.sort();
            Ok(bindings)
        };
        self.settle(WHAT, deadline).one(attempt).await
    }
}

impl fmt::Display for AclBinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, principal, host, operation, permission } = self;
        write!(f, "{permission} {principal} from {host} to {operation} {resource}")
    }
}

impl fmt::Display for AclResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rest = if self.pattern == AclPattern::Prefixed { "..." } else { "" };
        write!(f, "{} {}{rest}", self.kind, self.name)
    }
}

impl fmt::Display for AclFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn any<T: fmt::Display>(part: &Option<T>) -> String {
            part.as_ref().map_or_else(|| "any".to_owned(), ToString::to_string)
        }
        let (permission, principal, host) = (any(&self.permission), any(&self.principal), any(&self.host));
        let (operation, kind, name) = (any(&self.operation), any(&self.kind), any(&self.name));
        write!(f, "({permission} {principal} from {host} to {operation} {kind} {name})")
    }
}

impl AclFilter {
    fn on_the_wire(&self) -> DeleteAclsFilter {
        let text = |text: &Option<String>| text.clone().map(StrBytes::from_string);
        let pattern = match self.pattern {
            AclPatternFilter::Any => ANY,
            AclPatternFilter::Applies => MATCH,
            AclPatternFilter::Is(pattern) => pattern.on_the_wire(),
        };
        DeleteAclsFilter::default()
            .with_resource_type_filter(self.kind.map_or(ANY, AclResourceKind::on_the_wire))
            .with_resource_name_filter(text(&self.name))
            .with_pattern_type_filter(pattern)
            .with_principal_filter(text(&self.principal))
            .with_host_filter(text(&self.host))
            .with_operation(self.operation.map_or(ANY, AclOperation::on_the_wire))
            .with_permission_type(self.permission.map_or(ANY, AclPermission::on_the_wire))
    }
}

/// The operations in a field of bits; `None` where the broker was not asked or cannot tell.
pub(super) fn operations(bits: i32) -> Option<Vec<AclOperation>> {
    if bits == i32::MIN {
        return None;
    }
    Some((0..31).filter(|number| bits & (1 << number) != 0).map(AclOperation::from_wire).collect())
}

fn creation(binding: &AclBinding) -> AclCreation {
    let text = |text: &str| StrBytes::from_string(text.to_owned());
    AclCreation::default()
        .with_resource_type(binding.resource.kind.on_the_wire())
        .with_resource_name(text(&binding.resource.name))
        .with_resource_pattern_type(binding.resource.pattern.on_the_wire())
        .with_principal(text(&binding.principal))
        .with_host(text(&binding.host))
        .with_operation(binding.operation.on_the_wire())
        .with_permission_type(binding.permission.on_the_wire())
}

fn bindings(answer: DescribeAclsResource) -> impl Iterator<Item = AclBinding> {
    let resource = AclResource {
        kind: AclResourceKind::from_wire(answer.resource_type),
        name: answer.resource_name.to_string(),
        pattern: AclPattern::from_wire(answer.pattern_type),
    };
    answer.acls.into_iter().map(move |acl: AclDescription| AclBinding {
        resource: resource.clone(),
        principal: acl.principal.to_string(),
        host: acl.host.to_string(),
        operation: AclOperation::from_wire(acl.operation),
        permission: AclPermission::from_wire(acl.permission_type),
    })
}

fn deleted(answer: DeleteAclsFilterResult) -> AclsDeleted {
    let one = |acl: DeleteAclsMatchingAcl| {
        let binding = AclBinding {
            resource: AclResource {
                kind: AclResourceKind::from_wire(acl.resource_type),
                name: acl.resource_name.to_string(),
                pattern: AclPattern::from_wire(acl.pattern_type),
            },
            principal: acl.principal.to_string(),
            host: acl.host.to_string(),
            operation: AclOperation::from_wire(acl.operation),
            permission: AclPermission::from_wire(acl.permission_type),
        };
        let outcome = checked(DELETE, &binding, acl.error_code, acl.error_message.as_deref());
        (binding, outcome)
    };
    answer.matching_acls.into_iter().map(one).collect()
}

fn checked(what: &str, of: &impl fmt::Display, code: i16, message: Option<&str>) -> Result<(), ClientError> {
    ErrorCode(code).ok().map_err(|code| ClientError::refused(format_args!("{what} {of}"), code, message))
}

const CREATE: &str = "create acl";
const DELETE: &str = "delete acls";

/// Any, and whatever applies, in a filter (`AclOperation.ANY` and the like, `PatternType.MATCH`).
const ANY: i8 = 1;
const MATCH: i8 = 2;

const ANY_HOST: &str = "*";
/// `Resource.CLUSTER_NAME`.
const CLUSTER_NAME: &str = "kafka-cluster";
