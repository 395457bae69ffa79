//! `kafka-harbor acls`.

use clap::{Args, Subcommand, ValueEnum};
use kafka_harbor::client::{AclBinding, AclFilter, AclOperation, AclPermission, AclResource, AclResourceKind, Admin};
use serde_json::{Value, json};

use crate::connect::ConnectArgs;
use crate::failure::Failure;
use crate::output::Output;
use crate::topics::settle;

#[derive(Debug, Args)]
pub(crate) struct AclsArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Rules that fit what is given; without anything, all
    List(Which),
    /// Make rules, one for each operation
    Add {
        /// What the rules are about
        kind: Kind,
        /// Its name, `*` for all; of the cluster nothing
        #[arg(required_if_eq_any([("kind", "topic"), ("kind", "group"), ("kind", "transactional-id"), ("kind", "user")]))]
        name: Option<String>,
        /// All whose names begin with this one
        #[arg(long)]
        prefixed: bool,
        /// Who: User:alice
        #[arg(long, value_name = "TYPE:NAME")]
        principal: String,
        /// Does what, repeatable: read, write, describe, ...
        #[arg(long = "operation", required = true, value_parser = operation)]
        operations: Vec<AclOperation>,
        /// From where
        #[arg(long, default_value = "*")]
        host: String,
        /// May not, instead of may
        #[arg(long)]
        deny: bool,
    },
    /// Delete every rule that fits what is given
    Remove {
        #[command(flatten)]
        which: Which,
        /// Every rule of the cluster, where nothing else is given
        #[arg(long)]
        all: bool,
        /// Tell which rules those are, and delete none
        #[arg(long)]
        dry_run: bool,
    },
}

/// Which rules are meant.
#[derive(Debug, Args)]
struct Which {
    /// Those about this kind of resource
    #[arg(long)]
    kind: Option<Kind>,
    /// Those with this name
    #[arg(long)]
    name: Option<String>,
    /// Those that apply to the resource of that name too: of prefixes, and of `*`
    #[arg(long, requires_all = ["kind", "name"])]
    applying: bool,
    /// Those about this principal
    #[arg(long, value_name = "TYPE:NAME")]
    principal: Option<String>,
    /// Those about this host
    #[arg(long)]
    host: Option<String>,
    /// Those about this operation
    #[arg(long, value_parser = operation)]
    operation: Option<AclOperation>,
    /// Those that allow, or deny
    #[arg(long)]
    permission: Option<Permission>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    Topic,
    Group,
    Cluster,
    TransactionalId,
    User,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Permission {
    Allow,
    Deny,
}

pub(crate) async fn run(args: AclsArgs, connect: &ConnectArgs, output: Output) -> Result<(), Failure> {
    let admin = connect.client()?.admin().with_timeout(connect.timeout());
    match args.command {
        Command::List(which) => list(&admin, &which.filter(), output).await,
        Command::Add { kind, name, prefixed, principal, operations, host, deny } => {
            let mut resource = match name {
                Some(name) => AclResource::new(kind.into(), name),
                None => AclResource::cluster(),
            };
            if prefixed {
                resource = resource.prefixed();
            }
            let rule = |operation| {
                let made = if deny { AclBinding::deny } else { AclBinding::allow };
                made(principal.clone(), operation, resource.clone()).from_host(&host)
            };
            let rules: Vec<AclBinding> = operations.into_iter().map(rule).collect();
            let outcomes = admin.create_acls(&rules).await;
            let named = outcomes.into_iter().map(|(rule, outcome)| (rule.to_string(), outcome)).collect();
            settle(named, output, "added", |()| json!({}))
        }
        Command::Remove { which, all, dry_run } => {
            let filter = which.filter();
            if filter == AclFilter::any() && !all {
                return Err(Failure::usage("which rules? every rule of the cluster is removed by --all"));
            }
            if dry_run {
                return list(&admin, &filter, output).await;
            }
            let (_, found) = admin.delete_acls(std::slice::from_ref(&filter)).await.remove(0);
            let named = found?.into_iter().map(|(rule, outcome)| (rule.to_string(), outcome)).collect();
            settle(named, output, "removed", |()| json!({}))
        }
    }
}

async fn list(admin: &Admin, filter: &AclFilter, output: Output) -> Result<(), Failure> {
    let rules = admin.describe_acls(filter).await?;
    let row = |rule: &AclBinding| -> Vec<Value> {
        vec![
            json!(rule.resource.kind.to_string()),
            json!(rule.resource.name),
            json!(rule.resource.pattern.to_string()),
            json!(rule.permission.to_string()),
            json!(rule.principal),
            json!(rule.host),
            json!(rule.operation.to_string()),
        ]
    };
    let rows: Vec<Vec<Value>> = rules.iter().map(row).collect();
    output.table("acl", &["kind", "name", "pattern", "permission", "principal", "host", "operation"], &rows)?;
    Ok(())
}

impl Which {
    fn filter(&self) -> AclFilter {
        let mut filter = AclFilter::any();
        filter.kind = self.kind.map(Into::into);
        filter.name.clone_from(&self.name);
        if let (true, Some(kind), Some(name)) = (self.applying, self.kind, &self.name) {
            filter = filter.applying_to(kind.into(), name);
        }
        filter.principal.clone_from(&self.principal);
        filter.host.clone_from(&self.host);
        filter.operation = self.operation;
        filter.permission = self.permission.map(|permission| match permission {
            Permission::Allow => AclPermission::Allow,
            Permission::Deny => AclPermission::Deny,
        });
        filter
    }
}

impl From<Kind> for AclResourceKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Topic => Self::Topic,
            Kind::Group => Self::Group,
            Kind::Cluster => Self::Cluster,
            Kind::TransactionalId => Self::TransactionalId,
            Kind::User => Self::User,
        }
    }
}

fn operation(text: &str) -> Result<AclOperation, String> {
    let found = AclOperation::ALL.iter().find(|operation| operation.to_string() == text);
    found.copied().ok_or_else(|| {
        let names: Vec<String> = AclOperation::ALL.iter().map(ToString::to_string).collect();
        format!("one of {}", names.join(", "))
    })
}
