//! The four codecs that a record batch may be compressed with.
//!
//! Each is a cargo feature. Inflating never gives out more bytes than the caller's ceiling: it is enforced while
//! inflating, and no size that the input claims is trusted.

#[cfg(any(feature = "gzip", feature = "lz4", feature = "zstd", feature = "zstd-c"))]
mod growth;
#[cfg(feature = "gzip")]
mod gzip;
#[cfg(feature = "lz4")]
mod lz4;
#[cfg(any(feature = "zstd", feature = "zstd-c"))]
mod pool;
#[cfg(feature = "snappy")]
mod snappy;
#[cfg(all(feature = "zstd", not(feature = "zstd-c")))]
mod zstd;
#[cfg(feature = "zstd-c")]
#[path = "zstd_c.rs"]
mod zstd;

use std::fmt;
use std::ops::RangeInclusive;

/// How a batch's records are compressed. All variants exist whatever features are on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Codec {
    /// Not at all.
    #[default]
    None,
    /// gzip (RFC 1952); cargo feature `gzip`.
    Gzip,
    /// Snappy in the framing of Java's library; cargo feature `snappy`.
    Snappy,
    /// LZ4 frames; cargo feature `lz4`.
    Lz4,
    /// Zstandard (RFC 8878, KIP-110); cargo feature `zstd` or `zstd-c`.
    Zstd,
}

impl Codec {
    /// Every codec, `None` first, in the order of their bits.
    pub const ALL: [Self; 5] = [Self::None, Self::Gzip, Self::Snappy, Self::Lz4, Self::Zstd];

    /// The codec behind these bits of a batch's attributes.
    pub fn from_bits(bits: u8) -> Option<Self> {
        Self::ALL.get(usize::from(bits)).copied()
    }

    /// Its bits in a batch's attributes.
    pub fn bits(self) -> u8 {
        self as u8
    }

    /// The levels that it has; `None` for a codec without.
    pub fn levels(self) -> Option<RangeInclusive<i32>> {
        match self {
            Self::None | Self::Snappy | Self::Lz4 => None,
            Self::Gzip => Some(1..=9),
            Self::Zstd => Some(-131_072..=22),
        }
    }

    /// Its name as Kafka's `compression.type` has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    /// Whether its cargo feature is on.
    pub fn is_enabled(self) -> bool {
        match self {
            Self::None => true,
            Self::Gzip => cfg!(feature = "gzip"),
            Self::Snappy => cfg!(feature = "snappy"),
            Self::Lz4 => cfg!(feature = "lz4"),
            Self::Zstd => cfg!(any(feature = "zstd", feature = "zstd-c")),
        }
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A codec and how hard it tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Compression {
    codec: Codec,
    level: Option<i32>,
}

impl Compression {
    /// No compression.
    pub const NONE: Self = Self { codec: Codec::None, level: None };

    /// `codec` at its default level (gzip 6, zstd 3).
    pub const fn new(codec: Codec) -> Self {
        Self { codec, level: None }
    }

    /// The same codec at this level: gzip has 1 to 9 (Java `compression.gzip.level`), zstd -131072 to 22
    /// (Java `compression.zstd.level`), higher is smaller and slower.
    ///
    /// # Errors
    /// [`CompressionError::Level`] for a level that the codec does not have. lz4 is written at its fastest only.
    pub fn with_level(self, level: i32) -> Result<Self, CompressionError> {
        match self.codec.levels() {
            Some(levels) if levels.contains(&level) => Ok(Self { level: Some(level), ..self }),
            _ => Err(CompressionError::Level { codec: self.codec, level }),
        }
    }

    /// The codec.
    pub fn codec(&self) -> Codec {
        self.codec
    }

    /// The level, if one was set.
    pub fn level(&self) -> Option<i32> {
        self.level
    }
}

impl From<Codec> for Compression {
    fn from(codec: Codec) -> Self {
        Self::new(codec)
    }
}

/// Compressing or inflating failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompressionError {
    /// The codec is not compiled in.
    #[error("{codec} is not compiled in: build with the cargo feature `{codec}`")]
    Disabled {
        /// The codec, named as its feature is.
        codec: Codec,
    },
    /// The codec does not have this level.
    #[error("{codec} has no level {level}")]
    Level {
        /// The codec.
        codec: Codec,
        /// The level.
        level: i32,
    },
    /// The input inflates to more than it may. Its first bytes were inflated and dropped.
    #[error("{codec} inflates past the ceiling of {max_inflated_bytes} bytes")]
    TooLarge {
        /// The codec.
        codec: Codec,
        /// The ceiling.
        max_inflated_bytes: usize,
    },
    /// The input is not what this codec writes.
    #[error("malformed {codec} data: {reason}")]
    Malformed {
        /// The codec.
        codec: Codec,
        /// What the codec's library says.
        reason: String,
    },
}

/// Appends `input`, compressed, to `out`.
///
/// # Errors
/// [`CompressionError::Disabled`] for a codec that is not compiled in.
pub fn compress(compression: Compression, input: &[u8], out: &mut Vec<u8>) -> Result<(), CompressionError> {
    match compression.codec {
        Codec::None => {
            out.extend_from_slice(input);
            Ok(())
        }
        #[cfg(feature = "gzip")]
        Codec::Gzip => gzip::compress(compression.level, input, out),
        #[cfg(feature = "snappy")]
        Codec::Snappy => snappy::compress(input, out),
        #[cfg(feature = "lz4")]
        Codec::Lz4 => lz4::compress(input, out),
        #[cfg(any(feature = "zstd", feature = "zstd-c"))]
        Codec::Zstd => zstd::compress(compression.level, input, out),
        #[allow(unreachable_patterns, reason = "reached where a codec's feature is off")]
        codec => Err(CompressionError::Disabled { codec }),
    }
}

/// What `input` inflates to, at most `max_inflated_bytes`.
///
/// Memory follows what is inflated, not what the input claims: it stays below the ceiling plus the codec's own
/// window, at most a few MiB.
///
/// # Errors
/// When the codec is not compiled in, the input is malformed, or inflates to more.
pub fn inflate(codec: Codec, input: &[u8], max_inflated_bytes: usize) -> Result<Vec<u8>, CompressionError> {
    match codec {
        Codec::None if input.len() > max_inflated_bytes => {
            Err(CompressionError::TooLarge { codec, max_inflated_bytes })
        }
        Codec::None => Ok(input.to_vec()),
        #[cfg(feature = "gzip")]
        Codec::Gzip => gzip::inflate(input, max_inflated_bytes),
        #[cfg(feature = "snappy")]
        Codec::Snappy => snappy::inflate(input, max_inflated_bytes),
        #[cfg(feature = "lz4")]
        Codec::Lz4 => lz4::inflate(input, max_inflated_bytes),
        #[cfg(any(feature = "zstd", feature = "zstd-c"))]
        Codec::Zstd => zstd::inflate(input, max_inflated_bytes),
        #[allow(unreachable_patterns, reason = "reached where a codec's feature is off")]
        codec => Err(CompressionError::Disabled { codec }),
    }
}

#[cfg(any(feature = "gzip", feature = "snappy", feature = "lz4", feature = "zstd", feature = "zstd-c"))]
fn malformed(codec: Codec, reason: impl fmt::Display) -> CompressionError {
    CompressionError::Malformed { codec, reason: reason.to_string() }
}

#[cfg(test)]
mod tests;
