//! Murmur2 as Kafka's Java client has it: the key decides the partition, alike in every client.

/// The partition, of `partitions`, that a key belongs to. `partitions` must be at least 1.
pub fn partition_for_key(key: &[u8], partitions: i32) -> i32 {
    (murmur2(key) & 0x7fff_ffff) % partitions.max(1)
}

/// Kafka's variant of murmur2 (`org.apache.kafka.common.utils.Utils.murmur2`): its own seed, no final alignment.
pub fn murmur2(data: &[u8]) -> i32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;

    let mut hash = SEED ^ data.len() as u32;
    let mut blocks = data.chunks_exact(4);
    for block in &mut blocks {
        let mut k = u32::from_le_bytes([block[0], block[1], block[2], block[3]]).wrapping_mul(M);
        k = (k ^ (k >> 24)).wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ k;
    }
    let tail = blocks.remainder();
    if !tail.is_empty() {
        for (i, byte) in tail.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * i);
        }
        hash = hash.wrapping_mul(M);
    }
    hash = (hash ^ (hash >> 13)).wrapping_mul(M);
    (hash ^ (hash >> 15)) as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of Kafka's Java client.
    const VECTORS: [(&[u8], i32); 12] = [
        (b"", 275_646_681),
        (b"0", 971_027_396),
        (b"key", -1_079_937_367),
        (b"orders-123", 216_622_777),
        (b"\xff\x00\x10", -1_536_016_136),
        ("ol\u{e1}".as_bytes(), -1_860_657_225),
        (b"a", -1_563_381_124),
        (b"ab", 316_155_434),
        (b"abc", 479_470_107),
        (b"abcd", -1_323_649_548),
        (b"abcdefgh", -955_427_363),
        (b"customer-42", -542_987_495),
    ];

    #[test]
    fn hashes_are_those_of_the_java_client() {
        for (key, hash) in VECTORS {
            assert_eq!(murmur2(key), hash, "{key:?}");
        }
    }

    #[test]
    fn a_negative_hash_gives_the_partition_of_the_java_client() {
        let of_twelve = [("", 9), ("0", 8), ("key", 1), ("ol\u{e1}", 11)];
        for (key, partition) in of_twelve {
            assert_eq!(partition_for_key(key.as_bytes(), 12), partition, "{key:?}");
        }
        assert_eq!(partition_for_key(b"key", 3), 1);
    }
}
