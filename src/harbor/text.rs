//! What counts as white space on the wire: JavaScript's set, written out.
//!
//! [`char::is_whitespace`] has U+0085, which JavaScript keeps, and lacks U+FEFF, which JavaScript trims.

/// The text without JavaScript's white space and line ends around it.
pub(crate) fn trim(text: &str) -> &str {
    text.trim_matches(is_white_space)
}

/// Whether nothing is left after [`trim`].
pub(crate) fn is_blank(text: &str) -> bool {
    trim(text).is_empty()
}

/// ECMAScript's `WhiteSpace` and `LineTerminator`.
pub(crate) fn is_white_space(c: char) -> bool {
    matches!(
        c,
        '\u{9}'..='\u{d}'
            | ' '
            | '\u{a0}'
            | '\u{1680}'
            | '\u{2000}'..='\u{200a}'
            | '\u{2028}'
            | '\u{2029}'
            | '\u{202f}'
            | '\u{205f}'
            | '\u{3000}'
            | '\u{feff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_is_what_javascript_trims_away() {
        for blank in ["", " ", "\t\n\u{b}\u{c}\r", "\u{a0}\u{feff}\u{3000}\u{2028}\u{2029}\u{202f}\u{205f}\u{1680}"] {
            assert!(is_blank(blank), "{blank:?}");
        }
        for kept in ["\u{85}", "\u{200b}", "\u{1f}", "\u{180e}", "\0"] {
            assert!(!is_blank(kept), "{kept:?}");
        }
        assert_eq!(trim("\u{feff} a b \u{a0}"), "a b");
    }
}
