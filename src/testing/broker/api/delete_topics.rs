//! DeleteTopics, by name or by id.

use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::delete_topics_response::DeletableTopicResult;
use kafka_protocol::messages::{DeleteTopicsRequest, DeleteTopicsResponse, TopicName};

use super::Serve;
use crate::protocol::error_code::ErrorCode;
use crate::record::Topic;
use crate::testing::broker::call::{Call, Step};
use crate::testing::broker::core::{Core, text};

impl Serve for DeleteTopicsRequest {
    fn serve(self, core: &mut Core, call: &Call) -> Step<Self> {
        let one = |asked: DeleteTopicState| {
            let Some(name) = name_of(core, &asked) else { return refused(asked, ErrorCode::UNKNOWN_TOPIC_ID) };
            let id = core.topics.get(&name).map(|(_, topic)| topic.id);
            let deleted = call.failure_of(&name, -1).map_or_else(|| core.delete_topic(&name), Err);
            match deleted {
                Ok(()) => DeletableTopicResult::default()
                    .with_name(Some(TopicName(text(name.as_str()))))
                    .with_topic_id(id.unwrap_or_default()),
                Err(code) => refused(asked, code),
            }
        };
        let mut answers = Vec::new();
        let mut sound = Vec::new();
        let asked = asked(&self, call);
        for topic in &asked {
            let twice = asked.iter().filter(|other| *other == topic).count() > 1;
            if !twice && topic.name.is_some() == topic.topic_id.is_nil() {
                sound.push(topic.clone());
            } else if !answers.iter().any(|told: &DeletableTopicResult| told.name == topic.name) {
                // Named twice, by name and id, or not at all.
                answers.push(refused(topic.clone(), ErrorCode::INVALID_REQUEST));
            }
        }
        answers.extend(sound.into_iter().map(one));
        Step::Answer(DeleteTopicsResponse::default().with_responses(answers))
    }

    fn refuse(self, _core: &mut Core, call: &Call, code: ErrorCode) -> DeleteTopicsResponse {
        let refused = asked(&self, call).into_iter().map(|asked| refused(asked, code));
        DeleteTopicsResponse::default().with_responses(refused.collect())
    }

    fn throttle(answer: &mut DeleteTopicsResponse, ms: i32) {
        answer.throttle_time_ms = ms;
    }

    fn names(&self, core: &Core, call: &Call) -> Vec<(Topic, i32)> {
        asked(self, call).iter().filter_map(|asked| Some((name_of(core, asked)?, -1))).collect()
    }
}

fn asked(request: &DeleteTopicsRequest, call: &Call) -> Vec<DeleteTopicState> {
    if call.version >= FIRST_WITH_IDS {
        return request.topics.clone();
    }
    request.topic_names.iter().map(|name| DeleteTopicState::default().with_name(Some(name.clone()))).collect()
}

fn name_of(core: &Core, asked: &DeleteTopicState) -> Option<Topic> {
    match &asked.name {
        Some(name) => Some(Topic::from(name.as_str())),
        None => core.topics.name_of(asked.topic_id).cloned(),
    }
}

fn refused(asked: DeleteTopicState, code: ErrorCode) -> DeletableTopicResult {
    DeletableTopicResult::default()
        .with_name(asked.name)
        .with_topic_id(asked.topic_id)
        .with_error_code(code.0)
        .with_error_message(Some(text(code.meaning())))
}

const FIRST_WITH_IDS: i16 = 6;
