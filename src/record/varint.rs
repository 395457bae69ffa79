//! Zigzag varints as record batch v2 has them: at most five bytes for 32 bits, ten for 64.

/// The next 32-bit varint, before zigzag. `None` when it is cut, longer than five bytes, or wider than 32 bits.
#[inline(always)]
pub(crate) fn take_u32(input: &mut &[u8]) -> Option<u32> {
    // One byte and two are the rule; longer ones are kept out of the callers' loops.
    match **input {
        [a, ref rest @ ..] if a < 0x80 => {
            *input = rest;
            Some(u32::from(a))
        }
        [a, b, ref rest @ ..] if b < 0x80 => {
            *input = rest;
            Some(u32::from(a & 0x7f) | u32::from(b) << 7)
        }
        _ => {
            let (raw, rest) = take_long(input, 5)?;
            *input = rest;
            u32::try_from(raw).ok()
        }
    }
}

/// The next signed 32-bit varint.
#[inline(always)]
pub(crate) fn take_i32(input: &mut &[u8]) -> Option<i32> {
    take_u32(input).map(|raw| (raw >> 1) as i32 ^ -((raw & 1) as i32))
}

/// The next signed 64-bit varint. `None` when it is cut, longer than ten bytes, or wider than 64 bits.
#[inline(always)]
pub(crate) fn take_i64(input: &mut &[u8]) -> Option<i64> {
    let raw = match **input {
        [a, ref rest @ ..] if a < 0x80 => {
            *input = rest;
            u64::from(a)
        }
        [a, b, ref rest @ ..] if b < 0x80 => {
            *input = rest;
            u64::from(a & 0x7f) | u64::from(b) << 7
        }
        _ => {
            let (raw, rest) = take_long(input, 10)?;
            *input = rest;
            raw
        }
    };
    Some((raw >> 1) as i64 ^ -((raw & 1) as i64))
}

/// The next length-prefixed bytes; the inner `None` is null, which is length -1.
#[inline(always)]
pub(crate) fn take_bytes<'a>(input: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    let raw = take_u32(input)?;
    if raw & 1 == 0 {
        let (field, rest) = input.split_at_checked((raw >> 1) as usize)?;
        *input = rest;
        return Some(Some(field));
    }
    (raw == 1).then_some(None)
}

/// Writes `value` at `*at` and moves `*at` behind it. At most ten bytes, five for what fits 32 bits.
#[inline(always)]
pub(crate) fn put_i64(out: &mut [u8], at: &mut usize, value: i64) {
    let raw = ((value << 1) ^ (value >> 63)) as u64;
    if raw < 0x80 {
        out[*at] = raw as u8;
        *at += 1;
    } else if raw < 0x4000 {
        out[*at..*at + 2].copy_from_slice(&[raw as u8 | 0x80, (raw >> 7) as u8]);
        *at += 2;
    } else {
        *at = put_long(out, *at, raw);
    }
}

/// How many bytes [`put_i64`] writes.
#[inline(always)]
pub(crate) fn len_i64(value: i64) -> usize {
    let raw = ((value << 1) ^ (value >> 63)) as u64;
    match raw {
        0..0x80 => 1,
        0x80..0x4000 => 2,
        _ => (70 - raw.leading_zeros() as usize) / 7,
    }
}

#[inline(never)]
fn put_long(out: &mut [u8], mut at: usize, mut raw: u64) -> usize {
    while raw >= 0x80 {
        out[at] = raw as u8 | 0x80;
        raw >>= 7;
        at += 1;
    }
    out[at] = raw as u8;
    at + 1
}

/// A longer number and what follows it. By value: a reference that leaves for a call would keep the callers' position
/// in memory, where each of their fields would wait for it.
#[inline(never)]
fn take_long(input: &[u8], max_bytes: usize) -> Option<(u64, &[u8])> {
    let mut raw = 0_u64;
    for at in 0..max_bytes {
        let byte = *input.get(at)?;
        let part = u64::from(byte & 0x7f);
        let shifted = part << (7 * at);
        if shifted >> (7 * at) != part {
            return None;
        }
        raw |= shifted;
        if byte < 0x80 {
            return Some((raw, &input[at + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encode(value: i64) -> Vec<u8> {
        let mut out = [0; 10];
        let mut used = 0;
        put_i64(&mut out, &mut used, value);
        out[..used].to_vec()
    }

    #[test]
    fn values_encode_as_kafkas_documentation_shows() {
        for (value, bytes) in [
            (0_i64, &[0x00][..]),
            (-1, &[0x01]),
            (1, &[0x02]),
            (63, &[0x7e]),
            (64, &[0x80, 0x01]),
            (-64, &[0x7f]),
            (-65, &[0x81, 0x01]),
            (i64::from(i32::MAX), &[0xfe, 0xff, 0xff, 0xff, 0x0f]),
            (i64::from(i32::MIN), &[0xff, 0xff, 0xff, 0xff, 0x0f]),
        ] {
            assert_eq!(encode(value), bytes, "{value}");
            assert_eq!(take_i32(&mut &bytes[..]), Some(value as i32));
        }
        assert_eq!(encode(i64::MIN), [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]);
    }

    #[test]
    fn overlong_wide_and_cut_varints_are_refused() {
        for bytes in [
            &[0x80, 0x80, 0x80, 0x80, 0x80, 0x00][..],
            &[0xff, 0xff, 0xff, 0xff, 0x1f],
            &[0xff, 0xff, 0xff, 0xff],
            &[0x80],
            &[],
        ] {
            assert_eq!(take_i32(&mut &bytes[..]), None, "{bytes:x?}");
        }
        for bytes in [&[0x80; 11][..], &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02], &[0xff; 9]] {
            assert_eq!(take_i64(&mut &bytes[..]), None, "{bytes:x?}");
        }
    }

    #[test]
    fn bytes_tell_null_from_empty_and_refuse_other_negative_lengths() {
        assert_eq!(take_bytes(&mut &[0x01][..]), Some(None));
        assert_eq!(take_bytes(&mut &[0x00][..]), Some(Some(&[][..])));
        assert_eq!(take_bytes(&mut &[0x02, 7][..]), Some(Some(&[7][..])));
        assert_eq!(take_bytes(&mut &[0x03][..]), None);
        assert_eq!(take_bytes(&mut &[0x04, 7][..]), None);
    }

    proptest! {
        #[test]
        fn every_value_comes_back(value: i64) {
            let bytes = encode(value);
            prop_assert_eq!(bytes.len(), len_i64(value));
            prop_assert_eq!(take_i64(&mut &bytes[..]), Some(value));
            if let Ok(value) = i32::try_from(value) {
                prop_assert_eq!(take_i32(&mut &bytes[..]), Some(value));
            }
        }

        #[test]
        fn every_small_value_comes_back(value: i32) {
            let bytes = encode(i64::from(value));
            prop_assert!(bytes.len() <= 5);
            prop_assert_eq!(take_i32(&mut &bytes[..]), Some(value));
        }
    }
}
