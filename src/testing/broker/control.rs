//! Orders from outside the process: one JSON object a line over TCP, one a line back.
//!
//! ```text
//! > {"act":"fault","api":"Produce","topic":"orders","partition":3,"effect":"fail","code":"NOT_LEADER_OR_FOLLOWER","times":2}
//! < {"ok":true,"rule":1}
//! > {"act":"crash","node":2}
//! < {"ok":true}
//! > {"act":"crash","nodes":2}
//! < {"ok":false,"error":"unknown field `nodes`, expected `node` at line 1 column 24"}
//! ```
//!
//! | act | with | answer |
//! | --- | --- | --- |
//! | `fault` | `effect`, and what narrows it: `api`, `node`, `topic`, `partition`, `client_id`, `skip`, `times` (1; `"always"`) | `rule` |
//! | `withdraw` | `rule` | `hits`, null where it was used up |
//! | `withdraw_all`, `faults` | | `left`: rules not used up |
//! | `create_topic` | `topic`, `partitions` (1), `replication_factor` (1), `config` | |
//! | `hide_topic`, `show_topic` | `topic` | |
//! | `partition` | `topic`, `partition` | `leader`, `leader_epoch`, `in_sync`, `log_start`, `high_watermark`, `log_ends` |
//! | `move_leader` | `topic`, `partition`, `node` | |
//! | `bump_leader_epoch`, `lose_producer_state` | `topic`, `partition` | |
//! | `delete_records` | `topic`, `partition`, `offset` | `log_start` |
//! | `nodes` | | `nodes`: `id`, `address`, `up` |
//! | `crash`, `restart`, `pause`, `resume`, `unfollow`, `follow` | `node` | |
//! | `members` | `group` | `members` |
//! | `expire_member` | `group`, `member` | |
//! | `committed` | `group`, `topic`, `partition` | `offset`, null for none |
//! | `coordinator` | `key` | `node`, null for none |
//! | `move_coordinator` | `key`, `node` | |
//!
//! Effects: `fail` and `fail_after` (with `code`, a name or a number), `silence`, `delay` and `delay_answer` (with `ms`),
//! `drop_answer`, `close`, `close_after`, `cut` (with `bytes`), `throttle` (with `ms`); what they do is told at [`Effect`]. An API
//! is a name or a number.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::api::APIS;
use super::cluster::Cluster;
use super::faults::{Effect, Rule, RuleId};
use super::node::Listener;
use crate::memory::TopicConfig;
use crate::protocol::api::ApiKey;
use crate::protocol::error_code::ErrorCode;
use crate::record::{Offset, TopicPartition};

/// Carries out one line; gives the line to answer with, without its end.
pub(super) fn carry_out(cluster: &mut Cluster, line: &[u8], now: Instant) -> String {
    let order = serde_json::from_slice::<Order>(line).map_err(|error| error.to_string());
    let answer = match order.and_then(|order| order.carry_out(cluster, now)) {
        Ok(mut facts) => {
            facts.insert("ok".to_owned(), Value::Bool(true));
            Value::Object(facts)
        }
        Err(error) => json!({ "ok": false, "error": error }),
    };
    answer.to_string()
}

/// What can be ordered.
#[derive(Debug, Deserialize)]
#[serde(tag = "act", rename_all = "snake_case", deny_unknown_fields)]
enum Order {
    Fault(FaultOrder),
    Withdraw {
        rule: u64,
    },
    WithdrawAll {},
    Faults {},
    CreateTopic {
        topic: String,
        #[serde(default = "one_partition")]
        partitions: i32,
        #[serde(default = "one_replica")]
        replication_factor: i16,
        #[serde(default)]
        config: BTreeMap<String, String>,
    },
    HideTopic {
        topic: String,
    },
    ShowTopic {
        topic: String,
    },
    Partition {
        topic: String,
        partition: i32,
    },
    MoveLeader {
        topic: String,
        partition: i32,
        node: i32,
    },
    BumpLeaderEpoch {
        topic: String,
        partition: i32,
    },
    LoseProducerState {
        topic: String,
        partition: i32,
    },
    DeleteRecords {
        topic: String,
        partition: i32,
        offset: i64,
    },
    Nodes {},
    Crash {
        node: i32,
    },
    Restart {
        node: i32,
    },
    Pause {
        node: i32,
    },
    Resume {
        node: i32,
    },
    Unfollow {
        node: i32,
    },
    Follow {
        node: i32,
    },
    Members {
        group: String,
    },
    ExpireMember {
        group: String,
        member: String,
    },
    Committed {
        group: String,
        topic: String,
        partition: i32,
    },
    Coordinator {
        key: String,
    },
    MoveCoordinator {
        key: String,
        node: i32,
    },
}

/// A rule, as it is written on a line.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FaultOrder {
    effect: EffectName,
    code: Option<NameOrNumber>,
    ms: Option<u64>,
    bytes: Option<usize>,
    api: Option<NameOrNumber>,
    node: Option<i32>,
    topic: Option<String>,
    partition: Option<i32>,
    client_id: Option<String>,
    #[serde(default)]
    skip: u64,
    times: Option<Times>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum EffectName {
    Fail,
    FailAfter,
    Silence,
    Delay,
    DelayAnswer,
    DropAnswer,
    Close,
    CloseAfter,
    Cut,
    Throttle,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum NameOrNumber {
    Number(i16),
    Name(String),
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Times {
    Number(u64),
    Word(Always),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Always {
    Always,
}

type Facts = Map<String, Value>;

impl Order {
    fn carry_out(self, cluster: &mut Cluster, now: Instant) -> Result<Facts, String> {
        match self {
            Self::Fault(order) => {
                let rule = cluster.order(order.rule()?);
                Ok(facts([("rule", json!(rule.number()))]))
            }
            Self::Withdraw { rule } => {
                let hits = cluster.withdraw(RuleId::from_number(rule));
                Ok(facts([("hits", json!(hits))]))
            }
            Self::WithdrawAll {} => {
                cluster.withdraw_all();
                Ok(facts([("left", json!(0))]))
            }
            Self::Faults {} => Ok(facts([("left", json!(cluster.rules_left()))])),
            Self::Nodes {} | Self::Crash { .. } | Self::Restart { .. } | Self::Pause { .. } => {
                self.on_node(cluster, now)
            }
            Self::Resume { .. } | Self::Unfollow { .. } | Self::Follow { .. } => self.on_node(cluster, now),
            Self::Members { .. } | Self::ExpireMember { .. } | Self::Committed { .. } => self.on_group(cluster, now),
            Self::Coordinator { .. } | Self::MoveCoordinator { .. } => self.on_group(cluster, now),
            topics => topics.on_topic(cluster, now),
        }
    }

    fn on_node(self, cluster: &mut Cluster, now: Instant) -> Result<Facts, String> {
        let node = match self {
            Self::Crash { node } | Self::Restart { node } | Self::Pause { node } | Self::Resume { node } => node,
            Self::Unfollow { node } | Self::Follow { node } => node,
            _ => return Ok(facts([("nodes", nodes(cluster))])),
        };
        if cluster.address(node, Listener::Tcp).is_none() {
            return Err(format!("there is no node {node}"));
        }
        match self {
            Self::Crash { .. } => cluster.crash(node, now),
            Self::Restart { .. } => cluster.restart(node, now),
            Self::Pause { .. } => cluster.pause(node, now),
            Self::Resume { .. } => cluster.resume(node, now),
            follows => cluster.set_following(node, matches!(follows, Self::Follow { .. }), now),
        }
        Ok(Facts::new())
    }

    fn on_group(self, cluster: &mut Cluster, now: Instant) -> Result<Facts, String> {
        match self {
            Self::Members { group } => Ok(facts([("members", json!(cluster.members(&group)))])),
            Self::ExpireMember { group, member } => done(cluster.expire_member(&group, &member, now)),
            Self::Committed { group, topic, partition } => {
                let committed = cluster.committed(&group, &TopicPartition::new(topic, partition));
                Ok(facts([("offset", json!(committed.map(|offset| offset.0)))]))
            }
            Self::Coordinator { key } => Ok(facts([("node", json!(cluster.coordinator_of(&key)))])),
            Self::MoveCoordinator { key, node } => done(cluster.move_coordinator(&key, node, now)),
            other => Err(format!("{other:?} is not about a group")),
        }
    }

    fn on_topic(self, cluster: &mut Cluster, now: Instant) -> Result<Facts, String> {
        let at = TopicPartition::new;
        match self {
            Self::CreateTopic { topic, partitions, replication_factor, config } => {
                let config = TopicConfig::from_settings(config).map_err(|code| code.to_string())?;
                done(cluster.create_topic(topic, partitions, replication_factor, config, now))
            }
            Self::HideTopic { topic } => {
                cluster.hide_topic(topic, true, now);
                Ok(Facts::new())
            }
            Self::ShowTopic { topic } => {
                cluster.hide_topic(topic, false, now);
                Ok(Facts::new())
            }
            Self::Partition { topic, partition } => partition_facts(cluster, &at(topic, partition)),
            Self::MoveLeader { topic, partition, node } => done(cluster.move_leader(&at(topic, partition), node, now)),
            Self::BumpLeaderEpoch { topic, partition } => done(cluster.bump_leader_epoch(&at(topic, partition), now)),
            Self::LoseProducerState { topic, partition } => {
                done(cluster.lose_producer_state(&at(topic, partition), now))
            }
            Self::DeleteRecords { topic, partition, offset } => {
                let start = cluster.delete_records(&at(topic, partition), Offset(offset), now);
                let start = start.map_err(|code| code.to_string())?;
                Ok(facts([("log_start", json!(start.0))]))
            }
            other => Err(format!("{other:?} is not about a topic")),
        }
    }
}

impl FaultOrder {
    fn rule(self) -> Result<Rule, String> {
        let effect = self.effect()?;
        let mut rule = match self.api {
            Some(api) => Rule::new(api_of(&api)?, effect),
            None => Rule::any(effect),
        };
        rule = rule.skip(self.skip);
        if let Some(node) = self.node {
            rule = rule.node(node);
        }
        if let Some(topic) = self.topic {
            rule = rule.topic(topic);
        }
        if let Some(partition) = self.partition {
            rule = rule.partition(partition);
        }
        if let Some(id) = self.client_id {
            rule = rule.client_id(id);
        }
        Ok(match self.times {
            None => rule,
            Some(Times::Number(times)) => rule.times(times),
            Some(Times::Word(Always::Always)) => rule.always(),
        })
    }

    fn effect(&self) -> Result<Effect, String> {
        let time = || self.ms.map(Duration::from_millis).ok_or("this effect needs `ms`".to_owned());
        let code = || code_of(self.code.as_ref().ok_or("this effect needs a `code`")?);
        Ok(match self.effect {
            EffectName::Fail => Effect::Fail(code()?),
            EffectName::FailAfter => Effect::FailAfter(code()?),
            EffectName::Silence => Effect::Silence,
            EffectName::Delay => Effect::Delay(time()?),
            EffectName::DelayAnswer => Effect::DelayAnswer(time()?),
            EffectName::DropAnswer => Effect::DropAnswer,
            EffectName::Close => Effect::Close,
            EffectName::CloseAfter => Effect::CloseAfter,
            EffectName::Cut => Effect::Cut(self.bytes.ok_or("`cut` needs `bytes`")?),
            EffectName::Throttle => Effect::Throttle(time()?),
        })
    }
}

fn api_of(given: &NameOrNumber) -> Result<ApiKey, String> {
    let found = APIS.iter().map(|api| api.key).find(|key| match given {
        NameOrNumber::Number(number) => key.0 == *number,
        NameOrNumber::Name(name) => key.name() == Some(name),
    });
    found.ok_or_else(|| format!("{given:?} is no API that is served"))
}

fn code_of(given: &NameOrNumber) -> Result<ErrorCode, String> {
    match given {
        NameOrNumber::Number(number) => Ok(ErrorCode(*number)),
        NameOrNumber::Name(name) => {
            let found = ErrorCode::known().find(|code| code.name() == name);
            found.ok_or_else(|| format!("{name} is no error code"))
        }
    }
}

fn nodes(cluster: &Cluster) -> Value {
    let node = |id: i32| {
        let address = cluster.address(id, Listener::Tcp).map(|address| address.to_string());
        json!({ "id": id, "address": address, "up": cluster.is_up(id) })
    };
    cluster.nodes().into_iter().map(node).collect()
}

fn partition_facts(cluster: &Cluster, partition: &TopicPartition) -> Result<Facts, String> {
    let state = cluster.partition(partition).ok_or_else(|| ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.to_string())?;
    let ends: Facts = state.log_ends.iter().map(|(node, end)| (node.to_string(), json!(end.0))).collect();
    Ok(facts([
        ("leader", json!(state.leader)),
        ("leader_epoch", json!(state.leader_epoch.0)),
        ("in_sync", json!(state.in_sync)),
        ("log_start", json!(state.log_start.0)),
        ("high_watermark", json!(state.high_watermark.0)),
        ("log_ends", Value::Object(ends)),
    ]))
}

fn facts<const N: usize>(all: [(&str, Value); N]) -> Facts {
    all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn done(outcome: Result<(), ErrorCode>) -> Result<Facts, String> {
    outcome.map(|()| Facts::new()).map_err(|code| code.to_string())
}

fn one_partition() -> i32 {
    1
}

fn one_replica() -> i16 {
    1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::broker::Settings;

    fn told(cluster: &mut Cluster, line: &str) -> Value {
        serde_json::from_str(&carry_out(cluster, line.as_bytes(), Instant::now())).expect("JSON")
    }

    #[test]
    fn every_act_of_the_table_is_carried_out() {
        let mut cluster = Cluster::new(Settings { nodes: 2, ..Settings::default() }, Instant::now());
        for (line, answer) in [
            (r#"{"act":"create_topic","topic":"t","replication_factor":2}"#, json!({"ok":true})),
            (r#"{"act":"fault","effect":"cut","bytes":3,"api":"Fetch"}"#, json!({"ok":true,"rule":1})),
            (
                r#"{"act":"fault","effect":"fail","code":"NOT_COORDINATOR","times":"always"}"#,
                json!({"ok":true,"rule":2}),
            ),
            (
                r#"{"act":"fault","effect":"throttle","ms":5,"api":0,"node":1,"topic":"t","partition":0,"client_id":"c","skip":1,"times":2}"#,
                json!({"ok":true,"rule":3}),
            ),
            (r#"{"act":"withdraw","rule":2}"#, json!({"ok":true,"hits":0})),
            (r#"{"act":"withdraw","rule":2}"#, json!({"ok":true,"hits":null})),
            (r#"{"act":"faults"}"#, json!({"ok":true,"left":2})),
            (r#"{"act":"withdraw_all"}"#, json!({"ok":true,"left":0})),
            (r#"{"act":"hide_topic","topic":"t"}"#, json!({"ok":true})),
            (
                r#"{"act":"partition","topic":"t","partition":0}"#,
                json!({"ok":false,"error":"UNKNOWN_TOPIC_OR_PARTITION (3)"}),
            ),
            (r#"{"act":"show_topic","topic":"t"}"#, json!({"ok":true})),
            (r#"{"act":"move_leader","topic":"t","partition":0,"node":2}"#, json!({"ok":true})),
            (r#"{"act":"bump_leader_epoch","topic":"t","partition":0}"#, json!({"ok":true})),
            (r#"{"act":"lose_producer_state","topic":"t","partition":0}"#, json!({"ok":true})),
            (r#"{"act":"delete_records","topic":"t","partition":0,"offset":0}"#, json!({"ok":true,"log_start":0})),
            (r#"{"act":"crash","node":1}"#, json!({"ok":true})),
            (r#"{"act":"restart","node":1}"#, json!({"ok":true})),
            (r#"{"act":"unfollow","node":1}"#, json!({"ok":true})),
            (r#"{"act":"follow","node":1}"#, json!({"ok":true})),
            (r#"{"act":"pause","node":1}"#, json!({"ok":true})),
            (r#"{"act":"resume","node":1}"#, json!({"ok":true})),
            (r#"{"act":"members","group":"g"}"#, json!({"ok":true,"members":[]})),
            (
                r#"{"act":"expire_member","group":"g","member":"m"}"#,
                json!({"ok":false,"error":"GROUP_ID_NOT_FOUND (69)"}),
            ),
            (r#"{"act":"committed","group":"g","topic":"t","partition":0}"#, json!({"ok":true,"offset":null})),
            (r#"{"act":"move_coordinator","key":"g","node":2}"#, json!({"ok":true})),
            (r#"{"act":"coordinator","key":"g"}"#, json!({"ok":true,"node":2})),
        ] {
            assert_eq!(told(&mut cluster, line), answer, "{line}");
        }
        let state = told(&mut cluster, r#"{"act":"partition","topic":"t","partition":0}"#);
        assert_eq!(
            (&state["leader"], &state["leader_epoch"], &state["log_ends"]["1"]),
            (&json!(2), &json!(2), &json!(0))
        );
        assert_eq!(told(&mut cluster, r#"{"act":"nodes"}"#)["nodes"].as_array().map(Vec::len), Some(2));
    }

    #[test]
    fn what_is_no_order_is_told_why() {
        let mut cluster = Cluster::new(Settings::default(), Instant::now());
        for (line, why) in [
            ("crash", "expected value"),
            (r#"{"act":"explode"}"#, "unknown variant"),
            (r#"{"act":"crash","node":9}"#, "there is no node 9"),
            (r#"{"act":"crash","node":1,"now":true}"#, "unknown field"),
            (r#"{"act":"fault","effect":"fail"}"#, "needs a `code`"),
            (r#"{"act":"fault","effect":"fail","code":"SO_SO"}"#, "SO_SO is no error code"),
            (r#"{"act":"fault","effect":"delay"}"#, "needs `ms`"),
            (r#"{"act":"fault","effect":"cut"}"#, "needs `bytes`"),
            (r#"{"act":"fault","effect":"close","api":"Nothing"}"#, "no API that is served"),
        ] {
            let answer = told(&mut cluster, line);
            assert_eq!(answer["ok"], json!(false));
            assert!(answer["error"].as_str().is_some_and(|error| error.contains(why)), "{line}: {answer}");
        }
        assert!(cluster.is_up(1));
    }
}
