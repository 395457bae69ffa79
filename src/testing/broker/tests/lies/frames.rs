//! Lies in what is the same in all answers: length, number, and whether the body is of what was asked.

use super::work::Groups;
use super::{Lie, tell};
use crate::protocol::api::ApiKey;

/// Of each API that the work needs.
pub(super) fn lies(apis: &[i16]) -> Vec<Lie> {
    apis.iter().map(|api| ApiKey(*api)).flat_map(of).collect()
}

fn of(api: ApiKey) -> [Lie; 9] {
    [
        Lie::bytes(api, "the number of another request", |frame| frame[7] ^= 0x55),
        Lie::bytes(api, "a negative number", |frame| frame[4..8].copy_from_slice(&[0xff; 4])),
        Lie::bytes(api, "a negative length", |frame| frame[..4].copy_from_slice(&[0xff; 4])),
        Lie::bytes(api, "a length of 2 GiB", |frame| frame[..4].copy_from_slice(&i32::MAX.to_be_bytes())),
        Lie::bytes(api, "an empty frame", |frame| {
            frame.clear();
            frame.extend([0; 4]);
        }),
        Lie::bytes(api, "a number alone", |frame| {
            frame.truncate(8);
            measure(frame);
        }),
        Lie::bytes(api, "half of it", |frame| {
            frame.truncate(8 + (frame.len() - 8) / 2);
            measure(frame);
        }),
        Lie::bytes(api, "counts beyond its end", |frame| frame[8..].fill(0x7f)),
        Lie::bytes(api, "an answer to something else", |frame| {
            frame.truncate(8);
            frame.extend(b"\0\0\0\0\0\0\x03\0\x01two topics and not one of them");
            measure(frame);
        }),
    ]
}

/// Its length is its own again.
fn measure(frame: &mut [u8]) {
    let length = frame.len() as u32 - 4;
    frame[..4].copy_from_slice(&length.to_be_bytes());
}

#[tokio::test(start_paused = true)]
async fn frames_that_lie_to_a_producer_cost_time_and_no_record() {
    tell(Groups::Members, lies(&[18, 3, 22, 0])).await;
}

#[tokio::test(start_paused = true)]
async fn frames_that_lie_to_a_reader_cost_time_and_no_record() {
    tell(Groups::Members, lies(&[1, 2, 8, 9])).await;
}

#[tokio::test(start_paused = true)]
async fn frames_that_lie_to_a_member_cost_time_and_no_record() {
    tell(Groups::Members, lies(&[10, 11, 14, 13])).await;
}

#[tokio::test(start_paused = true)]
async fn frames_that_lie_to_a_member_of_a_coordinators_group_cost_time_and_no_record() {
    tell(Groups::Coordinator, lies(&[68, 9])).await;
}
