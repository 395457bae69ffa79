//! The four codecs that a record batch may be compressed with.
//!
//! Each is a cargo feature. Inflating never gives out more bytes than the caller's ceiling: it is enforced while
//! inflating, and no size that the input claims is trusted.

use std::fmt;

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
        Codec::None => out.extend_from_slice(input),
        codec => return Err(CompressionError::Disabled { codec }),
    }
    Ok(())
}

/// What `input` inflates to, at most `max_inflated_bytes`.
///
/// # Errors
/// When the codec is not compiled in, the input is malformed, or inflates to more.
pub fn inflate(codec: Codec, input: &[u8], max_inflated_bytes: usize) -> Result<Vec<u8>, CompressionError> {
    match codec {
        Codec::None if input.len() > max_inflated_bytes => {
            Err(CompressionError::TooLarge { codec, max_inflated_bytes })
        }
        Codec::None => Ok(input.to_vec()),
        codec => Err(CompressionError::Disabled { codec }),
    }
}
