//! Java's `client.properties`, and the JAAS line within.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::str::Chars;

/// Names and values, the last of a name wins, as in Java.
pub(crate) type Properties = BTreeMap<String, String>;

/// Reads the format of `java.util.Properties`.
pub(crate) fn parse(bytes: &[u8]) -> Properties {
    // Java reads Latin-1; what is UTF-8 is hardly meant as that.
    let text =
        std::str::from_utf8(bytes).map_or_else(|_| bytes.iter().map(|byte| char::from(*byte)).collect(), str::to_owned);
    logical_lines(&text).iter().filter_map(|line| property(line)).collect()
}

/// Lines without comments, those that end in a backslash joined with the next.
fn logical_lines(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut open: Option<String> = None;
    for line in text.lines() {
        let line = line.trim_start();
        if open.is_none() && (line.is_empty() || line.starts_with(['#', '!'])) {
            continue;
        }
        let goes_on = line.chars().rev().take_while(|c| *c == '\\').count() % 2 == 1;
        let piece = if goes_on { &line[..line.len() - 1] } else { line };
        let joined = open.take().unwrap_or_default() + piece;
        if goes_on { open = Some(joined) } else { lines.push(joined) }
    }
    lines.extend(open);
    lines
}

fn property(line: &str) -> Option<(String, String)> {
    let mut chars = line.chars().peekable();
    let mut name = String::new();
    while let Some(c) = chars.next_if(|c| !matches!(c, '=' | ':' | ' ' | '\t')) {
        name.push(unescaped(c, &mut chars));
    }
    while chars.next_if(|c| matches!(c, ' ' | '\t')).is_some() {}
    if chars.next_if(|c| matches!(c, '=' | ':')).is_some() {
        while chars.next_if(|c| matches!(c, ' ' | '\t')).is_some() {}
    }
    let mut value = String::new();
    while let Some(c) = chars.next() {
        value.push(unescaped(c, &mut chars));
    }
    (!name.is_empty()).then_some((name, value))
}

fn unescaped(c: char, rest: &mut Peekable<Chars<'_>>) -> char {
    if c != '\\' {
        return c;
    }
    match rest.next() {
        Some('n') => '\n',
        Some('r') => '\r',
        Some('t') => '\t',
        Some('u') => {
            let digits: String = rest.by_ref().take(4).collect();
            u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER)
        }
        Some(other) => other,
        None => '\\',
    }
}

/// `sasl.jaas.config`: a login module and its options.
#[derive(PartialEq, Eq)]
pub(crate) struct Jaas {
    /// The class, without its package.
    pub(crate) module: String,
    pub(crate) options: BTreeMap<String, String>,
}

impl Jaas {
    /// Reads `package.Module required name="value" ... ;`. An error does not quote it: it holds a password.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let mut tokens = tokens(text)?.into_iter();
        let class = tokens.next().ok_or("it names no login module")?;
        let flag = tokens.next().ok_or("it has no control flag (`required`) after the module")?;
        if !["required", "requisite", "sufficient", "optional"].contains(&&*flag.to_ascii_lowercase()) {
            return Err("it has no control flag (`required`) after the module");
        }
        let mut options = BTreeMap::new();
        loop {
            match tokens.next().as_deref() {
                Some(";") => break,
                None => return Err("it does not end in a semicolon"),
                Some(name) => {
                    let (equals, value) = (tokens.next(), tokens.next());
                    match (equals.as_deref(), value) {
                        (Some("="), Some(value)) => options.insert(name.to_owned(), value),
                        _ => return Err("an option is not of the form name=\"value\""),
                    };
                }
            }
        }
        if tokens.next().is_some() {
            return Err("it names more than one login module");
        }
        let module = class.rsplit('.').next().unwrap_or(&class).to_owned();
        Ok(Self { module, options })
    }
}

/// Words, quoted texts, `=` and `;`.
fn tokens(text: &str) -> Result<Vec<String>, &'static str> {
    let mut tokens = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            c if c.is_whitespace() => {}
            '=' | ';' => tokens.push(c.to_string()),
            '"' | '\'' => {
                let mut quoted = String::new();
                loop {
                    match chars.next().ok_or("a quote is not closed")? {
                        end if end == c => break,
                        '\\' => quoted.push(chars.next().ok_or("a quote is not closed")?),
                        other => quoted.push(other),
                    }
                }
                tokens.push(quoted);
            }
            c => {
                let mut word = String::from(c);
                while let Some(next) = chars.next_if(|c| !c.is_whitespace() && !matches!(c, '=' | ';' | '"')) {
                    word.push(next);
                }
                tokens.push(word);
            }
        }
    }
    Ok(tokens)
}

/// PEM as a property has it, where line breaks may have become blanks.
pub(crate) fn pem(text: &str) -> String {
    let mut lines = String::new();
    let mut rest = text;
    while let Some((head, label, body, after)) = block(rest) {
        lines.push_str(head.trim());
        lines.push_str(&format!("\n-----BEGIN {label}-----\n"));
        body.split_whitespace().for_each(|line| lines.push_str(&format!("{line}\n")));
        lines.push_str(&format!("-----END {label}-----\n"));
        rest = after;
    }
    lines
}

fn block(text: &str) -> Option<(&str, &str, &str, &str)> {
    let (head, rest) = text.split_once("-----BEGIN ")?;
    let (label, rest) = rest.split_once("-----")?;
    let (body, rest) = rest.split_once("-----END ")?;
    Some((head, label, body, rest.split_once("-----")?.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_are_read_as_java_reads_them() {
        let text = "# comment\n! comment = x\n\n a = 1\nb:2\nc 3\nd\\ e\\=f=g\\u0041\\t.\nlong = one, \\\n   two, \\\n  three\n\
                    back=c:\\\\dir\\\\\nempty=\na=4\n";
        let properties = parse(text.as_bytes());
        let expected = [
            ("a", "4"),
            ("b", "2"),
            ("back", "c:\\dir\\"),
            ("c", "3"),
            ("d e=f", "gA\t."),
            ("empty", ""),
            ("long", "one, two, three"),
        ];
        assert_eq!(properties, expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
        assert_eq!(parse(b"a=\xe4")["a"], "\u{e4}");
    }

    #[test]
    fn a_jaas_line_gives_module_and_options() {
        let line = r#"org.apache.kafka.common.security.scram.ScramLoginModule required
            username="al\"ice" password='a;b=c' tokenauth=true;"#;
        let jaas = Jaas::parse(line).ok().unwrap();
        assert_eq!(jaas.module, "ScramLoginModule");
        let option = |name: &str| jaas.options[name].as_str();
        assert_eq!((option("username"), option("password"), option("tokenauth")), ("al\"ice", "a;b=c", "true"));
        for wrong in
            ["", "M;", "M required", "M required a;", "M required a=\"b;", "M maybe a=b;", "M required; N required;"]
        {
            let error = Jaas::parse(wrong).err().unwrap_or_else(|| panic!("{wrong}"));
            assert!(!error.contains("\"b"), "{error}");
        }
    }

    #[test]
    fn pem_on_one_line_becomes_lines() {
        let one = "-----BEGIN PRIVATE KEY----- AAAA BBBB -----END PRIVATE KEY----- -----BEGIN CERTIFICATE-----\nCC\n-----END CERTIFICATE-----";
        let expected = "\n-----BEGIN PRIVATE KEY-----\nAAAA\nBBBB\n-----END PRIVATE KEY-----\n\
                        \n-----BEGIN CERTIFICATE-----\nCC\n-----END CERTIFICATE-----\n";
        assert_eq!(pem(one), expected);
        assert_eq!(pem("no PEM"), "");
    }
}
