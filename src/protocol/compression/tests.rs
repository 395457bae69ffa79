//! Round trips, ceilings, and what other clients write.

use proptest::prelude::*;

use super::*;

const CEILING: usize = 1 << 20;

fn enabled() -> impl Iterator<Item = Codec> {
    Codec::ALL.into_iter().filter(|codec| codec.is_enabled())
}

fn compressed(compression: impl Into<Compression>, input: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    compress(compression.into(), input, &mut out).unwrap();
    out
}

/// Text-like bytes that compress about tenfold, different all along.
fn text(bytes: usize) -> Vec<u8> {
    let line =
        |n: usize| format!("{{\"order\":{},\"customer\":\"c-{}\",\"total\":{}.50}}\n", n, n * 7 % 1000, n * 13 % 500);
    (0..).flat_map(|n| line(n).into_bytes()).take(bytes).collect()
}

#[test]
fn bits_and_codecs_belong_together() {
    for codec in Codec::ALL {
        assert_eq!(Codec::from_bits(codec.bits()), Some(codec));
    }
    assert_eq!(Codec::ALL.map(Codec::bits), [0, 1, 2, 3, 4]);
    assert!((5..=255).all(|bits| Codec::from_bits(bits).is_none()));
}

#[test]
fn every_codec_gives_back_what_it_took() {
    for codec in enabled() {
        for size in [0, 1, 100, 32 << 10, (32 << 10) + 1, 128 << 10, 1 << 20] {
            let input = text(size);
            let packed = compressed(codec, &input);
            assert!(size < 1000 || codec == Codec::None || packed.len() < size / 2, "{codec} {size}");
            assert_eq!(inflate(codec, &packed, CEILING).unwrap(), input, "{codec} {size}");
        }
    }
}

#[test]
fn compressing_appends_behind_what_is_there() {
    for codec in enabled() {
        let mut out = b"header".to_vec();
        compress(codec.into(), &text(5_000), &mut out).unwrap();
        assert_eq!(&out[..6], b"header", "{codec}");
        assert_eq!(inflate(codec, &out[6..], CEILING).unwrap(), text(5_000), "{codec}");
    }
}

#[test]
fn the_ceiling_is_exact() {
    for codec in enabled() {
        for size in [1, 1_000, 16 << 10, 100_000] {
            let packed = compressed(codec, &text(size));
            assert_eq!(inflate(codec, &packed, size).unwrap(), text(size), "{codec}");
            let error = inflate(codec, &packed, size - 1).unwrap_err();
            assert!(
                matches!(error, CompressionError::TooLarge { max_inflated_bytes, .. } if max_inflated_bytes == size - 1),
                "{codec} {size}: {error}"
            );
        }
    }
}

#[test]
fn every_level_inflates_and_a_strange_one_is_refused() {
    let input = text(50_000);
    for codec in enabled() {
        let compression = Compression::new(codec);
        match codec.levels() {
            None => assert!(matches!(compression.with_level(1), Err(CompressionError::Level { .. })), "{codec}"),
            Some(levels) => {
                for level in [*levels.start(), -1, 1, 3, 9, 19].into_iter().filter(|level| levels.contains(level)) {
                    let packed = compressed(compression.with_level(level).unwrap(), &input);
                    assert_eq!(inflate(codec, &packed, CEILING).unwrap(), input, "{codec} {level}");
                }
                let above = compression.with_level(levels.end() + 1).unwrap_err();
                assert_eq!(above.to_string(), format!("{codec} has no level {}", levels.end() + 1));
            }
        }
    }
}

#[test]
fn a_codec_that_is_not_compiled_in_names_its_feature() {
    for codec in Codec::ALL.into_iter().filter(|codec| !codec.is_enabled()) {
        let refusals =
            [compress(codec.into(), b"x", &mut Vec::new()).unwrap_err(), inflate(codec, b"x", 9).unwrap_err()];
        for error in refusals {
            assert_eq!(
                error.to_string(),
                format!("{codec} is not compiled in: build with the cargo feature `{codec}`")
            );
        }
    }
}

/// librdkafka, franz-go and others write snappy without a frame, Java with Xerial's: a reader of one kind failed on
/// the other's records.
#[cfg(feature = "snappy")]
#[test]
fn snappy_is_read_with_and_without_javas_framing() {
    let input = text(100_000);
    let raw = snap::raw::Encoder::new().compress_vec(&input).unwrap();
    assert_eq!(inflate(Codec::Snappy, &raw, CEILING).unwrap(), input);

    let framed = compressed(Codec::Snappy, &input);
    assert_eq!(&framed[..16], b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01");
    assert_eq!(inflate(Codec::Snappy, &framed, CEILING).unwrap(), input);

    let twice = [&framed[..], &framed[..]].concat();
    assert_eq!(inflate(Codec::Snappy, &twice, CEILING).unwrap(), [&input[..], &input[..]].concat());
}

#[cfg(feature = "lz4")]
#[test]
fn lz4_is_written_in_independent_blocks_and_read_in_linked_ones() {
    use std::io::Write;

    use lz4_flex::frame::{BlockMode, FrameEncoder, FrameInfo};

    let input = text(300_000);
    // Version 1, independent blocks, no checksums; blocks of 64 KiB: all that Java's reader asks.
    assert_eq!(compressed(Codec::Lz4, &input)[..6], [0x04, 0x22, 0x4d, 0x18, 0x60, 0x40]);

    let linked = FrameInfo::new().block_mode(BlockMode::Linked).content_checksum(true);
    let mut encoder = FrameEncoder::with_frame_info(linked, Vec::new());
    encoder.write_all(&input).unwrap();
    assert_eq!(inflate(Codec::Lz4, &encoder.finish().unwrap(), CEILING).unwrap(), input);
}

#[cfg(feature = "gzip")]
#[test]
fn gzip_members_behind_each_other_are_one_stream() {
    let twice = [compressed(Codec::Gzip, b"one "), compressed(Codec::Gzip, b"two")].concat();
    assert_eq!(inflate(Codec::Gzip, &twice, CEILING).unwrap(), b"one two");
}

/// Java's zstd stream claims no content size; a decoder that sizes its buffer by the claim cannot read it.
#[cfg(any(feature = "zstd", feature = "zstd-c"))]
#[test]
fn zstd_needs_no_content_size() {
    // 300 zeros: a window of 1 KiB, no content size, one RLE block.
    let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x00, 0x63, 0x09, 0x00, 0x00];
    assert_eq!(inflate(Codec::Zstd, &frame, CEILING).unwrap(), [0; 300]);
}

/// Sizes that are claimed and not there: each of these asked for hundreds of MiB up front.
#[test]
fn a_claimed_size_makes_no_room() {
    let lies: &[(Codec, &[u8])] = &[
        // zstd: single segment, content size 2^40.
        (Codec::Zstd, &[0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0, 0, 0, 0, 0, 1, 0, 0, 0x01, 0, 0]),
        // raw snappy: length 2^32 - 1.
        (Codec::Snappy, &[0xff, 0xff, 0xff, 0xff, 0x0f, 0x00, 0x61]),
        // lz4: content size 2^40.
        (Codec::Lz4, &[0x04, 0x22, 0x4d, 0x18, 0x68, 0x40, 0, 0, 0, 0, 0, 1, 0, 0, 0x00, 0, 0, 0, 0]),
    ];
    for (codec, input) in lies.iter().filter(|(codec, _)| codec.is_enabled()) {
        let error = inflate(*codec, input, 100 << 20).unwrap_err();
        assert!(
            matches!(error, CompressionError::Malformed { .. } | CompressionError::TooLarge { .. }),
            "{codec}: {error}"
        );
    }
}

proptest! {
    #[test]
    fn anything_survives_the_round_trip(input in prop::collection::vec(any::<u8>(), 0..20_000)) {
        for codec in enabled() {
            prop_assert_eq!(&inflate(codec, &compressed(codec, &input), CEILING).unwrap(), &input, "{}", codec);
        }
    }

    #[test]
    fn noise_is_refused_or_stays_under_the_ceiling(input in prop::collection::vec(any::<u8>(), 0..2_000)) {
        for codec in enabled() {
            if let Ok(out) = inflate(codec, &input, CEILING) {
                prop_assert!(out.len() <= CEILING);
            }
        }
    }

    #[test]
    fn damaged_input_is_refused_or_stays_under_the_ceiling(size in 1..50_000_usize, at: prop::sample::Index, bit in 0..8_u8) {
        for codec in enabled() {
            let mut packed = compressed(codec, &text(size));
            let at = at.index(packed.len());
            packed[at] ^= 1 << bit;
            if let Ok(out) = inflate(codec, &packed, CEILING) {
                prop_assert!(out.len() <= CEILING);
            }
            packed.truncate(at);
            if let Ok(out) = inflate(codec, &packed, CEILING) {
                prop_assert!(out.len() <= CEILING);
            }
        }
    }
}
