use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::MetadataResponseTopic;
use kafka_protocol::messages::{
    CreatePartitionsRequest, CreateTopicsRequest, DeleteRecordsRequest, DeleteTopicsRequest, MetadataRequest,
    MetadataResponse, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use tokio::time::sleep;

use super::retry::{Attempt, Try, join_all};
use super::{Admin, Outcomes};
use crate::client::{ClientError, Stale, now};
use crate::protocol::error_code::ErrorCode;
use crate::record::{LeaderEpoch, NewTopic, NodeId, Offset, Topic, TopicPartition};

/// How a topic came to exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TopicCreation {
    /// By this call.
    Created,
    /// It existed before; its partitions and settings are as they were.
    Existed,
}

/// A topic as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopicDescription {
    /// Its name.
    pub topic: Topic,
    /// Whether Kafka uses it for itself, as `__consumer_offsets`.
    pub internal: bool,
    /// Its partitions by number.
    pub partitions: Vec<PartitionDescription>,
}

/// A partition as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionDescription {
    /// Its number.
    pub partition: i32,
    /// The broker that leads it, if one does.
    pub leader: Option<NodeId>,
    /// How often its leader has changed, where the broker tells.
    pub leader_epoch: Option<LeaderEpoch>,
    /// The brokers that hold it.
    pub replicas: Vec<NodeId>,
    /// Those of them that are up to date.
    pub in_sync: Vec<NodeId>,
}

impl Admin {
    /// Creates topics. Returns once every one that exists now, created or found, is in the metadata of every broker that
    /// answers, with a leader for each partition, so that whoever asks next sees it.
    ///
    /// # Errors
    /// For each topic apart. One that exists already is no error.
    pub async fn create_topics(&self, topics: &[NewTopic]) -> Outcomes<Topic, TopicCreation> {
        let deadline = self.deadline();
        let by_name: HashMap<&Topic, &NewTopic> = topics.iter().map(|new| (&new.topic, new)).collect();
        let attempt = |open: Vec<Topic>, retry: Try| -> Attempt<'_, Topic, TopicCreation> {
            let wire = open.iter().filter_map(|topic| by_name.get(topic)).map(|new| creatable(new)).collect();
            Box::pin(async move { self.try_create(wire, retry, deadline).await })
        };
        let names = topics.iter().map(|new| new.topic.clone());
        let mut outcomes = self.settle("create topic", deadline).run(names, attempt).await;
        let exist: Vec<_> = outcomes.iter().filter(|(_, outcome)| outcome.is_ok()).map(|(t, _)| t.clone()).collect();
        let missing = self.wait_until_visible(exist, deadline).await;
        for (topic, outcome) in &mut outcomes {
            if outcome.is_ok() && missing.contains(topic) {
                let what = format_args!("topic {topic} was created but is not visible");
                *outcome = Err(ClientError::timed_out(what, None));
            }
        }
        self.cluster.invalidate(Stale::Admin("topics were created"));
        outcomes
    }

    /// Deletes topics, and what is in them. Brokers may tell of them for a moment still.
    ///
    /// # Errors
    /// For each topic apart, [`ClientError::Missing`] for one that does not exist.
    pub async fn delete_topics(&self, topics: &[Topic]) -> Outcomes<Topic, ()> {
        let deadline = self.deadline();
        let attempt = |open: Vec<Topic>, retry: Try| -> Attempt<'_, Topic, ()> {
            Box::pin(async move { self.try_delete(&open, retry, deadline).await })
        };
        let outcomes = self.settle("delete topic", deadline).run(topics.iter().cloned(), attempt).await;
        self.cluster.invalidate(Stale::Admin("topics were deleted"));
        outcomes
    }

    /// Raises the number of a topic's partitions to the number given. Records with a key may go to another
    /// partition from then on. Brokers may tell of the old number for a moment still.
    ///
    /// # Errors
    /// For each topic apart, [`ErrorCode::INVALID_PARTITIONS`] where it has as many or more.
    pub async fn create_partitions(&self, totals: &[(Topic, i32)]) -> Outcomes<Topic, ()> {
        let deadline = self.deadline();
        let by_name: HashMap<&Topic, i32> = totals.iter().map(|(topic, total)| (topic, *total)).collect();
        let attempt = |open: Vec<Topic>, _: Try| -> Attempt<'_, Topic, ()> {
            let wire = open.iter().map(|topic| {
                let total = by_name.get(topic).copied().unwrap_or_default();
                CreatePartitionsTopic::default().with_name(topic_name(topic)).with_count(total).with_assignments(None)
            });
            let wire = wire.collect();
            Box::pin(async move { self.try_create_partitions(wire, deadline).await })
        };
        let names = totals.iter().map(|(topic, _)| topic.clone());
        let outcomes = self.settle("create partitions of", deadline).run(names, attempt).await;
        self.cluster.invalidate(Stale::Admin("partitions were created"));
        outcomes
    }

    /// What is known of each topic, asked for anew.
    ///
    /// # Errors
    /// For each topic apart, [`ClientError::Missing`] for one that does not exist.
    pub async fn describe_topics(&self, topics: &[Topic]) -> Outcomes<Topic, TopicDescription> {
        let deadline = self.deadline();
        let attempt = |open: Vec<Topic>, _: Try| -> Attempt<'_, Topic, TopicDescription> {
            Box::pin(async move { self.try_describe(&open, deadline).await })
        };
        self.settle("describe topic", deadline).run(topics.iter().cloned(), attempt).await
    }

    /// Every topic of the cluster, by name, those that Kafka uses for itself included.
    ///
    /// # Errors
    /// When no broker answers in time.
    pub async fn list_topics(&self) -> Result<Vec<TopicDescription>, ClientError> {
        let build = |_| MetadataRequest::default().with_topics(None).with_allow_auto_topic_creation(false);
        let response = self.cluster.call_any("list topics", self.deadline(), build).await?;
        let described = response.topics.into_iter().filter(|topic| topic.error_code == 0);
        let mut topics: Vec<_> = described.filter_map(TopicDescription::from_wire).collect();
        topics.sort_by(|a, b| a.topic.cmp(&b.topic));
        Ok(topics)
    }

    /// Deletes the records before each offset; the answer is where the partition begins now. An offset of -1 is the
    /// end of the partition.
    ///
    /// # Errors
    /// For each partition apart.
    pub async fn delete_records(&self, before: &[(TopicPartition, Offset)]) -> Outcomes<TopicPartition, Offset> {
        let deadline = self.deadline();
        let offsets: HashMap<&TopicPartition, Offset> = before.iter().map(|(partition, o)| (partition, *o)).collect();
        let offsets = &offsets;
        let attempt = |open: Vec<TopicPartition>, _: Try| -> Attempt<'_, TopicPartition, Offset> {
            Box::pin(async move {
                self.at_leaders("delete records of", &open, deadline, |node, partitions| async move {
                    self.try_delete_records(node, &partitions, offsets, deadline).await
                })
                .await
            })
        };
        let partitions = before.iter().map(|(partition, _)| partition.clone());
        self.settle("delete records of", deadline).run(partitions, attempt).await
    }

    /// Runs `ask` for each leader of the partitions, side by side.
    pub(super) async fn at_leaders<T, F>(
        &self,
        what: &str,
        partitions: &[TopicPartition],
        deadline: Instant,
        ask: impl Fn(NodeId, Vec<TopicPartition>) -> F,
    ) -> Result<Outcomes<TopicPartition, T>, ClientError>
    where
        F: Future<Output = Result<Outcomes<TopicPartition, T>, ClientError>>,
    {
        let mut topics: Vec<_> = partitions.iter().map(|partition| partition.topic.clone()).collect();
        topics.sort();
        topics.dedup();
        let described: HashMap<_, _> = self.try_describe(&topics, deadline).await?.into_iter().collect();
        let mut outcomes = Vec::with_capacity(partitions.len());
        let mut by_leader: BTreeMap<NodeId, Vec<TopicPartition>> = BTreeMap::new();
        for partition in partitions {
            match leader_of(what, partition, described.get(&partition.topic)) {
                Ok(leader) => by_leader.entry(leader).or_default().push(partition.clone()),
                Err(error) => outcomes.push((partition.clone(), Err(error))),
            }
        }
        let asked = by_leader.into_iter().map(|(leader, partitions)| {
            let answer = ask(leader, partitions.clone());
            async move { (partitions, answer.await) }
        });
        for (partitions, answer) in join_all(asked).await {
            match answer {
                Ok(answer) => outcomes.extend(answer),
                Err(error) => outcomes.extend(partitions.into_iter().map(|partition| (partition, Err(error.clone())))),
            }
        }
        Ok(outcomes)
    }

    async fn try_create(
        &self,
        topics: Vec<CreatableTopic>,
        retry: Try,
        deadline: Instant,
    ) -> Result<Outcomes<Topic, TopicCreation>, ClientError> {
        let what = "create topic";
        let request = CreateTopicsRequest::default().with_topics(topics).with_timeout_ms(self.millis_left(deadline));
        let response = self.call_controller(request, what, deadline).await?;
        let outcomes = response.topics.into_iter().map(|answer| {
            let topic = Topic::from(answer.name.as_str());
            let outcome = match ErrorCode(answer.error_code) {
                ErrorCode::NONE => Ok(TopicCreation::Created),
                // A try whose answer was lost has made it.
                ErrorCode::TOPIC_ALREADY_EXISTS if retry.repeated => Ok(TopicCreation::Created),
                ErrorCode::TOPIC_ALREADY_EXISTS => Ok(TopicCreation::Existed),
                code => Err(self.controller_refused(what, &topic, code, answer.error_message.as_deref())),
            };
            (topic, outcome)
        });
        Ok(outcomes.collect())
    }

    async fn try_delete(
        &self,
        topics: &[Topic],
        retry: Try,
        deadline: Instant,
    ) -> Result<Outcomes<Topic, ()>, ClientError> {
        let what = "delete topic";
        let timeout = self.millis_left(deadline);
        let names: Vec<_> = topics.iter().map(topic_name).collect();
        let view = self.cluster.topics(&[], deadline).await?;
        let node = view.controller.or_else(|| view.brokers.keys().next().copied());
        let node = node.ok_or_else(|| ClientError::timed_out(what, None))?;
        let build = move |version| {
            let request = DeleteTopicsRequest::default().with_timeout_ms(timeout);
            // From version 6 a topic may be named by id instead, so the list has another form (KIP-516).
            if version >= 6 {
                let state = |name| DeleteTopicState::default().with_name(Some(name));
                request.with_topics(names.into_iter().map(state).collect())
            } else {
                request.with_topic_names(names)
            }
        };
        let timeout = self.a_try(deadline).ok_or_else(|| ClientError::timed_out(what, None))?;
        let answer = self.cluster.general().to(node).call_with(i16::MAX, timeout, build).await;
        let response = answer.map_err(|error| ClientError::request(what, error))?;
        let outcomes = response.responses.into_iter().filter_map(|answer| {
            let topic = Topic::from(answer.name?.as_str());
            let outcome = match ErrorCode(answer.error_code) {
                ErrorCode::NONE => Ok(()),
                // A try whose answer was lost has deleted it.
                ErrorCode::UNKNOWN_TOPIC_OR_PARTITION if retry.repeated => Ok(()),
                ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => Err(missing(what, &topic)),
                code => Err(self.controller_refused(what, &topic, code, answer.error_message.as_deref())),
            };
            Some((topic, outcome))
        });
        Ok(outcomes.collect())
    }

    async fn try_create_partitions(
        &self,
        topics: Vec<CreatePartitionsTopic>,
        deadline: Instant,
    ) -> Result<Outcomes<Topic, ()>, ClientError> {
        let what = "create partitions of";
        let timeout = self.millis_left(deadline);
        let request = CreatePartitionsRequest::default().with_topics(topics).with_timeout_ms(timeout);
        let response = self.call_controller(request, what, deadline).await?;
        let outcomes = response.results.into_iter().map(|answer| {
            let topic = Topic::from(answer.name.as_str());
            let outcome = match ErrorCode(answer.error_code) {
                ErrorCode::NONE => Ok(()),
                ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => Err(missing(what, &topic)),
                code => Err(self.controller_refused(what, &topic, code, answer.error_message.as_deref())),
            };
            (topic, outcome)
        });
        Ok(outcomes.collect())
    }

    async fn try_describe(
        &self,
        topics: &[Topic],
        deadline: Instant,
    ) -> Result<Outcomes<Topic, TopicDescription>, ClientError> {
        let what = "describe topic";
        let request = metadata_request(topics);
        let response = self.cluster.call_any(what, deadline, move |_| request.clone()).await?;
        let outcomes = response.topics.into_iter().filter_map(|answer| {
            let topic = Topic::from(answer.name.as_ref()?.as_str());
            let outcome = match ErrorCode(answer.error_code) {
                ErrorCode::NONE => Ok(TopicDescription::from_wire(answer)?),
                ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => Err(missing(what, &topic)),
                code => Err(ClientError::refused(format_args!("{what} {topic}"), code, None)),
            };
            Some((topic, outcome))
        });
        Ok(outcomes.collect())
    }

    async fn try_delete_records(
        &self,
        node: NodeId,
        partitions: &[TopicPartition],
        offsets: &HashMap<&TopicPartition, Offset>,
        deadline: Instant,
    ) -> Result<Outcomes<TopicPartition, Offset>, ClientError> {
        let what = "delete records of";
        let topics = by_topic(partitions).into_iter().map(|(topic, partitions)| {
            let entries = partitions.into_iter().map(|partition| {
                let offset = offsets.get(partition).map_or(-1, |offset| offset.0);
                DeleteRecordsPartition::default().with_partition_index(partition.partition).with_offset(offset)
            });
            DeleteRecordsTopic::default().with_name(topic_name(topic)).with_partitions(entries.collect())
        });
        let request =
            DeleteRecordsRequest::default().with_topics(topics.collect()).with_timeout_ms(self.millis_left(deadline));
        let response = self.call(node, request, what, deadline).await?;
        let each = response.topics.into_iter().flat_map(|topic| {
            let name = Topic::from(topic.name.as_str());
            topic.partitions.into_iter().map(move |partition| (name.clone(), partition))
        });
        let outcomes = each.map(|(topic, answer)| {
            let partition = TopicPartition::new(topic, answer.partition_index);
            let code = ErrorCode(answer.error_code).ok();
            let refused = |code| ClientError::refused(format_args!("{what} {partition}"), code, None);
            let outcome = code.map(|()| Offset(answer.low_watermark)).map_err(refused);
            (partition, outcome)
        });
        Ok(outcomes.collect())
    }

    /// Waits until every broker that answers knows the topics, with a leader for each partition. Returns those that
    /// some broker does not know at the deadline.
    async fn wait_until_visible(&self, mut topics: Vec<Topic>, deadline: Instant) -> Vec<Topic> {
        let mut wait = FIRST_LOOK;
        while !topics.is_empty() {
            topics = self.not_visible(&topics, deadline).await;
            if topics.is_empty() || now() + wait >= deadline {
                break;
            }
            sleep(wait).await;
            wait = (wait * 2).min(LONGEST_LOOK);
        }
        topics
    }

    async fn not_visible(&self, topics: &[Topic], deadline: Instant) -> Vec<Topic> {
        let nodes: Vec<_> = self.cluster.view().brokers.keys().copied().collect();
        let looks = nodes.into_iter().map(|node| {
            let timeout = deadline.min(now() + A_LOOK);
            async move { self.call(node, metadata_request(topics), "metadata", timeout).await }
        });
        let answers: Vec<MetadataResponse> = join_all(looks).await.into_iter().filter_map(Result::ok).collect();
        let visible = |topic: &Topic| {
            let in_answer = |answer: &MetadataResponse| answer.topics.iter().any(|known| is_settled(known, topic));
            !answers.is_empty() && answers.iter().all(in_answer)
        };
        topics.iter().filter(|topic| !visible(topic)).cloned().collect()
    }

    /// A refusal by what should be the controller.
    fn controller_refused(&self, what: &str, topic: &Topic, code: ErrorCode, message: Option<&str>) -> ClientError {
        self.note_controller(code);
        ClientError::refused(format_args!("{what} {topic}"), code, message)
    }
}

impl TopicDescription {
    fn from_wire(answer: MetadataResponseTopic) -> Option<Self> {
        let nodes = |ids: &[kafka_protocol::messages::BrokerId]| ids.iter().map(|id| NodeId(id.0)).collect();
        let partitions = answer.partitions.iter().map(|partition| PartitionDescription {
            partition: partition.partition_index,
            leader: (partition.leader_id.0 >= 0).then_some(NodeId(partition.leader_id.0)),
            leader_epoch: (partition.leader_epoch >= 0).then_some(LeaderEpoch(partition.leader_epoch)),
            replicas: nodes(&partition.replica_nodes),
            in_sync: nodes(&partition.isr_nodes),
        });
        let mut partitions: Vec<_> = partitions.collect();
        partitions.sort_by_key(|partition| partition.partition);
        Some(Self { topic: Topic::from(answer.name?.as_str()), internal: answer.is_internal, partitions })
    }
}

fn leader_of(
    what: &str,
    partition: &TopicPartition,
    topic: Option<&Result<TopicDescription, ClientError>>,
) -> Result<NodeId, ClientError> {
    let what = format!("{what} {partition}");
    let description = match topic {
        Some(Ok(description)) => description,
        Some(Err(error)) => return Err(error.clone()),
        None => return Err(ClientError::LeftOut { what }),
    };
    let found = description.partitions.iter().find(|known| known.partition == partition.partition);
    let Some(found) = found else { return Err(ClientError::Missing { what }) };
    found.leader.ok_or_else(|| ClientError::refused(what, ErrorCode::LEADER_NOT_AVAILABLE, None))
}

fn is_settled(known: &MetadataResponseTopic, topic: &Topic) -> bool {
    known.name.as_ref().is_some_and(|name| name.as_str() == topic.as_str())
        && known.error_code == 0
        && known.partitions.iter().all(|partition| partition.leader_id.0 >= 0)
}

fn creatable(new: &NewTopic) -> CreatableTopic {
    let configs = new.configs.iter().map(|(name, value)| {
        CreatableTopicConfig::default()
            .with_name(StrBytes::from_string(name.clone()))
            .with_value(Some(StrBytes::from_string(value.clone())))
    });
    CreatableTopic::default()
        .with_name(topic_name(&new.topic))
        .with_num_partitions(new.partitions.unwrap_or(-1))
        .with_replication_factor(new.replication_factor.unwrap_or(-1))
        .with_configs(configs.collect())
}

fn metadata_request(topics: &[Topic]) -> MetadataRequest {
    let topics = topics.iter().map(|topic| MetadataRequestTopic::default().with_name(Some(topic_name(topic))));
    MetadataRequest::default().with_topics(Some(topics.collect())).with_allow_auto_topic_creation(false)
}

/// The topic or partition is not there: trying again is no use, unlike what the code alone says.
fn missing(what: &str, topic: &Topic) -> ClientError {
    ClientError::Missing { what: format!("{what} {topic}") }
}

pub(super) fn topic_name(topic: &Topic) -> TopicName {
    TopicName(StrBytes::from_string(topic.as_str().to_owned()))
}

/// The partitions of each topic, as requests group them.
pub(super) fn by_topic(partitions: &[TopicPartition]) -> BTreeMap<&Topic, Vec<&TopicPartition>> {
    let mut topics: BTreeMap<&Topic, Vec<&TopicPartition>> = BTreeMap::new();
    for partition in partitions {
        topics.entry(&partition.topic).or_default().push(partition);
    }
    topics
}

/// The wait between looks at whether a new topic is visible, from and to.
const FIRST_LOOK: Duration = Duration::from_millis(50);
const LONGEST_LOOK: Duration = Duration::from_millis(500);

/// How long one broker may take to say whether it sees a topic; one that is down does not hold up the rest for longer.
const A_LOOK: Duration = Duration::from_secs(2);
